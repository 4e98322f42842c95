"""`eval` with the signature of the package ``erag`` 0.0.1 (Salemi & Zamani), based on this package's measures.

The values equal those of the reference, except where it crashes or is wrong:

- Names, score range and score type are checked before or with the first batch, not after the last.
- In lists shorter than k, P divides by k and success looks at k ranks: missing documents count 0. The reference fails
  there with graded labels.
- A name without a cutoff (``P``, ``recall``, ``success``, ``ndcg_cut``, ``map_cut``) uses the length of the longest
  list; ``P_1,5`` and ``P.1,5`` are P_1 and P_5.
- ndcg uses graded labels as gains. map, recall and recip_rank need a ``threshold`` for graded labels; without one the
  error contains the labels (`GradedLabels`), so that no output has to be generated again.
- A query without documents counts 0. A document that is repeated in a list is generated once; all its ranks get its
  label.
- Only the trec_eval measures below are supported; the reference passes on any name whose value has the same name.
- An unknown argument is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from erag_ray.measures import MEASURES, check_measures, compute_all, list_ideal, pad

Labels = dict[str, list[float]]
Generator = Callable[[dict[str, list[str]]], Mapping[str, str]]
Metric = Callable[[Mapping[str, str], dict[str, Sequence[str]]], Mapping[str, float]]
Values = dict[str, dict[str, float]]

# trec_eval's names -> this package's names
CUT = {"P": "P", "recall": "R", "success": "Success", "ndcg_cut": "nDCG", "map_cut": "AP"}
WHOLE = {"map": "AP", "ndcg": "nDCG", "recip_rank": "RR"}
NAME = re.compile(r"(?P<name>[A-Za-z][A-Za-z_]*?)(?:[_.](?P<cutoffs>[0-9]+(?:,[0-9]+)*))?")


class GradedLabels(ValueError):
    """Measures of binary labels were requested for graded labels, without a threshold.

    Attributes:
        labels: query -> the label of each of its documents.
    """

    def __init__(self, message: str, labels: Labels) -> None:
        super().__init__(message)
        self.labels = labels


@dataclass(frozen=True, kw_only=True)
class _Measure:
    """A requested measure: its trec_eval name, and its name and cutoff in this package."""

    name: str
    measure: str
    cutoff: int


def eval(
    retrieval_results: Mapping[str, Sequence[str]],
    expected_outputs: Mapping[str, Sequence[str]],
    text_generator: Generator,
    downstream_metric: Metric,
    retrieval_metrics: Collection[str],
    *,
    threshold: float | None = None,
) -> dict[str, Values | dict[str, float]]:
    """Evaluate retrieval with eRAG: generate with each single document; the score of the output is its label.

    Args:
        retrieval_results: query -> documents, best first.
        expected_outputs: query -> gold outputs, for the same queries.
        text_generator: {query: [document]} -> {query: output}; called once for each rank.
        downstream_metric: ({query: output}, {query: gold outputs}) -> {query: score in 0..1}.
        retrieval_metrics: names as in trec_eval: P_5, recall_10, success_1, ndcg_cut_10, map_cut_5, map, ndcg,
            recip_rank.
        threshold: labels of at least this are relevant in map, recall and recip_rank; required for graded labels.

    Returns:
        ``per_input``: query -> measure -> value; ``aggregated``: measure -> mean over all queries. Ideal rankings and
        recall bases are those of the query's own list, as in the paper.

    Raises:
        ValueError: there are no queries, or those of the two inputs differ; a measure is unknown; the threshold is not
            above 0; the generator or the metric leaves out a query; a score is not a number in 0..1.
        GradedLabels: the labels are graded, and a measure needs a threshold.
    """
    measures = _checked(retrieval_results, expected_outputs, retrieval_metrics)
    check_measures(
        {measure.measure for measure in measures}, "binary" if threshold is None else "graded", threshold
    )
    labels = _labels(retrieval_results, expected_outputs, text_generator, downstream_metric)
    per_input = _measured(labels, measures, threshold)
    aggregated = {
        measure.name: math.fsum(values[measure.name] for values in per_input.values()) / len(per_input)
        for measure in measures
    }
    return {"per_input": per_input, "aggregated": aggregated}


def _checked(
    results: Mapping[str, Sequence[str]], gold_answers: Mapping[str, Sequence[str]], names: Collection[str]
) -> list[_Measure]:
    if isinstance(names, str):
        raise ValueError(f"retrieval_metrics must be a set of names, not the text {names!r}")
    if not results:
        raise ValueError("there are no queries")
    if different := sorted(set(results) ^ set(gold_answers)):
        side = "retrieval_results" if different[0] in results else "expected_outputs"
        raise ValueError(
            f"{len(different)} queries are in one of the two inputs only: {different[0]!r} in {side}"
        )
    texts = [query for query, documents in results.items() if isinstance(documents, str)]
    if texts:
        raise ValueError(f"the documents of {texts[0]!r} are one text; a list is expected")
    depth = max(map(len, results.values()))
    return list(dict.fromkeys(measure for name in names for measure in _parsed(name, max(depth, 1))))


def _parsed(name: str, depth: int) -> Iterator[_Measure]:
    match = NAME.fullmatch(name)
    base, cutoffs = (match["name"], match["cutoffs"]) if match else (name, None)
    if base in WHOLE and cutoffs is None:
        yield _Measure(name=name, measure=WHOLE[base], cutoff=depth)
    elif base in CUT and cutoffs is None:
        yield _Measure(name=name, measure=CUT[base], cutoff=depth)
    elif base in CUT and cutoffs is not None and all(map(int, cutoffs.split(","))):
        for cutoff in cutoffs.split(","):
            yield _Measure(name=f"{base}_{int(cutoff)}", measure=CUT[base], cutoff=int(cutoff))
    else:
        supported = ", ".join([*(f"{key}_K" for key in CUT), *WHOLE])
        raise ValueError(f"unknown measure {name!r}; known: {supported}")


def _labels(
    results: Mapping[str, Sequence[str]],
    gold_answers: Mapping[str, Sequence[str]],
    generate: Generator,
    metric: Metric,
) -> Labels:
    """Generate and score the label of every document, rank by rank over all queries, as the reference does."""
    label_of: dict[tuple[str, str], float] = {}
    for rank in range(max(map(len, results.values()))):
        batch = {
            query: [documents[rank]]
            for query, documents in results.items()
            if rank < len(documents) and (query, documents[rank]) not in label_of
        }
        if not batch:
            continue
        outputs = generate(batch)
        _check_queries("text_generator", batch, outputs)
        scores = metric(outputs, {query: gold_answers[query] for query in batch})
        _check_queries("downstream_metric", batch, scores)
        label_of |= {(query, batch[query][0]): _label(query, rank, scores[query]) for query in batch}
    return {
        query: [label_of[query, document] for document in documents] for query, documents in results.items()
    }


def _check_queries(name: str, requested: Mapping[str, object], returned: Mapping[str, object]) -> None:
    if different := sorted(set(requested) ^ set(returned)):
        count = len(different)
        what = f"left out {count}" if different[0] in requested else f"returned {count} unknown"
        raise ValueError(f"{name} {what} queries, such as {different[0]!r}")


def _label(query: str, rank: int, score: float) -> float:
    try:
        label = float(score)
    except (TypeError, ValueError):
        label = math.nan
    if isinstance(score, str) or not 0 <= label <= 1:
        raise ValueError(
            f"downstream_metric must return numbers in 0..1, not {score!r} (query {query!r}, document {rank + 1})"
        )
    return label


def _measured(labels: Labels, measures: Sequence[_Measure], threshold: float | None) -> Values:
    lengths = [len(row) for row in labels.values()]
    flat = [label for row in labels.values() for label in row]
    strict = sorted({measure.name for measure in measures if MEASURES[measure.measure].needs_binary})
    if strict and threshold is None and not set(flat) <= {0.0, 1.0}:
        message = (
            f"the labels are graded, and {', '.join(strict)} need a threshold; this error has the labels"
        )
        raise GradedLabels(message, labels)
    width = max([1, *lengths, *(measure.cutoff for measure in measures)])
    lists = list_ideal(pad(flat, lengths, width), np.array(lengths))
    cutoffs = {measure.cutoff for measure in measures}
    values = compute_all({measure.measure for measure in measures}, lists, cutoffs, threshold)
    return {
        query: {measure.name: float(values[measure.measure, measure.cutoff][row]) for measure in measures}
        for row, query in enumerate(labels)
    }
