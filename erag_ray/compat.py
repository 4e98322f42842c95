"""`eval` with the signature of the package ``erag`` 0.0.1 (Salemi & Zamani), on this package's measures.

The numbers are the reference's wherever that gives right ones. Where it crashes or is wrong:

- Names, score range and score type are checked before or with the first batch, not after the last.
- P and success divide by k, or look k deep, in lists shorter than k: missing documents count 0. The reference looks for
  them with graded labels and fails.
- A name without its cut-off (``P``, ``recall``, ``success``, ``ndcg_cut``, ``map_cut``) is taken over the longest list;
  ``P_1,5`` and ``P.1,5`` are P_1 and P_5.
- ndcg takes graded labels as gains. map, recall and recip_rank need a ``threshold`` for them; without one the error
  carries the labels (`GradedLabels`), so that nothing is generated twice.
- A query without documents counts 0. A document that repeats in a list is generated once; every place has its label.
- Of trec_eval's measures only those below are known; the reference passes on any name whose value has the same name.
- An argument that there is not is an error.
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

# trec_eval's names -> ours
CUT = {"P": "P", "recall": "R", "success": "Success", "ndcg_cut": "nDCG", "map_cut": "AP"}
WHOLE = {"map": "AP", "ndcg": "nDCG", "recip_rank": "RR"}
NAME = re.compile(r"(?P<name>[A-Za-z][A-Za-z_]*?)(?:[_.](?P<cutoffs>[0-9]+(?:,[0-9]+)*))?")


class GradedLabels(ValueError):
    """Measures that need binary labels were asked of graded ones, without a threshold.

    Attributes:
        labels: query -> the label of each of its documents, as they were generated and scored.
    """

    def __init__(self, message: str, labels: Labels) -> None:
        super().__init__(message)
        self.labels = labels


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """One number for each query: how it is called, and what it is."""

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
    """ERAG by functions of your own: each document alone to the generator, its score is the document's label.

    Args:
        retrieval_results: query -> documents, best first.
        expected_outputs: query -> gold outputs, for the same queries.
        text_generator: {query: [document]} -> {query: output}; called once for each rank.
        downstream_metric: ({query: output}, {query: gold outputs}) -> {query: score in 0..1}.
        retrieval_metrics: names as trec_eval has them: P_5, recall_10, success_1, ndcg_cut_10, map_cut_5, map, ndcg,
            recip_rank.
        threshold: a label of at least this is relevant in map, recall and recip_rank; needed where labels are graded.

    Returns:
        ``per_input``: query -> measure -> value; ``aggregated``: measure -> mean over all queries. Ideal rankings and
        recall bases are of the query's own list, as in the paper.

    Raises:
        ValueError: there are no queries, or those of the two inputs differ; an unknown measure; a threshold that is not
            above 0; the generator or the metric leaves out a query; a score that is no number in 0..1.
        GradedLabels: see there.
    """
    asked = _checked(retrieval_results, expected_outputs, retrieval_metrics)
    check_measures({one.measure for one in asked}, "binary" if threshold is None else "graded", threshold)
    labels = _labels(retrieval_results, expected_outputs, text_generator, downstream_metric)
    per_input = _measured(labels, asked, threshold)
    aggregated = {
        one.name: math.fsum(values[one.name] for values in per_input.values()) / len(per_input)
        for one in asked
    }
    return {"per_input": per_input, "aggregated": aggregated}


def _checked(
    results: Mapping[str, Sequence[str]], gold_answers: Mapping[str, Sequence[str]], names: Collection[str]
) -> list[_Asked]:
    if isinstance(names, str):
        raise ValueError(f"retrieval_metrics must be a set of names, not the text {names!r}")
    if not results:
        raise ValueError("there are no queries")
    if other := sorted(set(results) ^ set(gold_answers)):
        side = "retrieval_results" if other[0] in results else "expected_outputs"
        raise ValueError(f"{len(other)} queries are in one of the two inputs only: {other[0]!r} in {side}")
    texts = [query for query, documents in results.items() if isinstance(documents, str)]
    if texts:
        raise ValueError(f"the documents of {texts[0]!r} are one text; a list is expected")
    depth = max(map(len, results.values()))
    return list(dict.fromkeys(one for name in names for one in _parsed(name, max(depth, 1))))


def _parsed(name: str, depth: int) -> Iterator[_Asked]:
    found = NAME.fullmatch(name)
    base, cutoffs = (found["name"], found["cutoffs"]) if found else (name, None)
    if base in WHOLE and cutoffs is None:
        yield _Asked(name=name, measure=WHOLE[base], cutoff=depth)
    elif base in CUT and cutoffs is None:
        yield _Asked(name=name, measure=CUT[base], cutoff=depth)
    elif base in CUT and cutoffs is not None and all(map(int, cutoffs.split(","))):
        for cutoff in cutoffs.split(","):
            yield _Asked(name=f"{base}_{int(cutoff)}", measure=CUT[base], cutoff=int(cutoff))
    else:
        known = ", ".join([*(f"{key}_K" for key in CUT), *WHOLE])
        raise ValueError(f"unknown measure {name!r}; known: {known}")


def _labels(
    results: Mapping[str, Sequence[str]],
    gold_answers: Mapping[str, Sequence[str]],
    generate: Generator,
    metric: Metric,
) -> Labels:
    """The label of every document, rank by rank over all queries, as the reference asks for them."""
    known: dict[tuple[str, str], float] = {}
    for rank in range(max(map(len, results.values()))):
        new = {
            query: [documents[rank]]
            for query, documents in results.items()
            if rank < len(documents) and (query, documents[rank]) not in known
        }
        if not new:
            continue
        outputs = generate(new)
        _check_answers("text_generator", new, outputs)
        scores = metric(outputs, {query: gold_answers[query] for query in new})
        _check_answers("downstream_metric", new, scores)
        known |= {(query, new[query][0]): _label(query, rank, scores[query]) for query in new}
    return {query: [known[query, document] for document in documents] for query, documents in results.items()}


def _check_answers(name: str, asked: Mapping[str, object], given: Mapping[str, object]) -> None:
    if other := sorted(set(asked) ^ set(given)):
        what = "left out" if other[0] in asked else "answers, without being asked,"
        raise ValueError(f"{name} {what} {len(other)} queries, such as {other[0]!r}")


def _label(query: str, rank: int, score: float) -> float:
    try:
        label = float(score)
    except (TypeError, ValueError):
        label = math.nan
    if isinstance(score, str) or not 0 <= label <= 1:
        raise ValueError(
            f"downstream_metric must give numbers in 0..1, not {score!r} (query {query!r}, document {rank + 1})"
        )
    return label


def _measured(labels: Labels, asked: Sequence[_Asked], threshold: float | None) -> Values:
    lengths = [len(row) for row in labels.values()]
    flat = [label for row in labels.values() for label in row]
    strict = sorted({one.name for one in asked if MEASURES[one.measure].needs_binary})
    if strict and threshold is None and not set(flat) <= {0.0, 1.0}:
        message = (
            f"the labels are graded, and {', '.join(strict)} need a threshold; the error's labels has them"
        )
        raise GradedLabels(message, labels)
    width = max([1, *lengths, *(one.cutoff for one in asked)])
    lists = list_ideal(pad(flat, lengths, width), np.array(lengths))
    cutoffs = {one.cutoff for one in asked}
    values = compute_all({one.measure for one in asked}, lists, cutoffs, threshold)
    return {
        query: {one.name: float(values[one.measure, one.cutoff][row]) for one in asked}
        for row, query in enumerate(labels)
    }
