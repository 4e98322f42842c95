"""Two runs -> INTERIM_ANALYSES: documents are labelled batch by batch until the difference of the runs is settled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from erag_ray.agreement import paired_differences
from erag_ray.annotators import annotate
from erag_ray.errors import InputError, JobError
from erag_ray.evaluate import Floats
from erag_ray.inference import readers_session, run_stage
from erag_ray.inputs import Inputs, evidence_of
from erag_ray.labels import check_scores, judge_outputs, scoring_of
from erag_ray.logs import say
from erag_ray.planning import plan_labels
from erag_ray.schemas import INTERIM_ANALYSES
from erag_ray.sequential_test.config import SettleConfig
from erag_ray.sequential_test.design import estimate, importance, is_drawn, probabilities, random_numbers
from erag_ray.sequential_test.looks import Looks, critical_values, look
from erag_ray.store import TableStore, as_frame

STAGE = "settle"
RANKS = ("rank_a", "rank_b")
SETTINGS = (
    "compare",
    "measure",
    "rank",
    "fraction",
    "num_looks",
    "equivalence_margin",
    "boundary",
    "confidence",
    "seed",
)


def settle(config: SettleConfig, inputs: Inputs) -> pl.DataFrame:
    """Read and look until the difference is settled or all questions were looked at; seals INTERIM_ANALYSES.

    Raises:
        InputError: the two runs, or the questions, are not such that they can be compared.
        JobError: a document was not judged, since its reading ended as an error.
    """
    drawn, tables = draw(config, inputs), TableStore(config.out)
    tables.invalidate(INTERIM_ANALYSES)
    say(f"at most {_num_read(drawn):,} readings, of {drawn.height:,} documents in the two lists")
    with readers_session(config):
        rows = list(_looks(config, inputs, drawn))
    table = pl.DataFrame(rows, schema=pl.DataFrame(INTERIM_ANALYSES.empty()).schema)
    settings = {name: getattr(config, name) for name in SETTINGS}
    tables.write(table, INTERIM_ANALYSES, config={**settings, "reader": dataclasses.asdict(config.reader)})
    return table


def _looks(config: SettleConfig, inputs: Inputs, drawn: pl.DataFrame) -> Iterator[Mapping[str, object]]:
    """Rows of INTERIM_ANALYSES, up to the one that settles it."""
    num_queries = inputs.queries.height
    counts = np.unique(np.linspace(0, num_queries, config.num_looks + 1).round().astype(int)[1:])
    counts = counts[counts >= 2]
    critical = critical_values(config.boundary, counts.tolist(), 1 - config.confidence)
    for number in range(1, len(counts) + 1):
        now = drawn.filter(pl.col("place") < counts[number - 1])
        labels = _labels(config, inputs, now.filter(pl.col("weight") > 0))
        values = differences(now, labels, int(counts[number - 1]), config.measure, config.rank)
        row = _row(config, inputs, now, look(values, counts[:number].tolist(), critical[:number]))
        say(_line(config, row, num_queries))
        yield row
        if row["settled"]:
            return


def draw(config: SettleConfig, inputs: Inputs) -> pl.DataFrame:
    """The documents of the two lists down to the cut-off, and which of them are to be read.

    Returns:
        query_id, doc_id, rank_a, rank_b (0 where a list lacks it), place (of the question in a random order, from 0),
        weight (1 / probability, 0 where it is not to be read).

    Raises:
        InputError: as `settle`.
    """
    _check(config, inputs)
    documents = inputs.runs.filter(pl.col("run_id").is_in(config.compare), pl.col("rank") <= config.rank)
    ranked = [
        documents.filter(run_id=run).select("query_id", "doc_id", pl.col("rank").alias(name))
        for run, name in zip(config.compare, RANKS, strict=True)
    ]
    both = ranked[0].join(ranked[1], on=["query_id", "doc_id"], how="full", coalesce=True)
    candidates = both.with_columns(pl.col(RANKS).fill_null(0)).join(_places(config, inputs), on="query_id")
    candidates = candidates.sort("place", "doc_id")
    weigh = importance(config.measure, candidates.select(RANKS).to_numpy(), config.rank, difference=True)
    if not weigh.any():
        raise InputError(
            [f"compare: {' and '.join(config.compare)} hold the same documents; nothing to settle"]
        )
    chances = probabilities(weigh, config.fraction * candidates.height)
    numbers = random_numbers(candidates["query_id"].to_list(), candidates["doc_id"].to_list(), config.seed)
    drawn = is_drawn(chances, numbers)
    weights = np.divide(1.0, chances, out=np.zeros(len(chances)), where=drawn)
    return candidates.with_columns(weight=pl.Series(weights))


def _check(config: SettleConfig, inputs: Inputs) -> None:
    known = inputs.runs["run_id"].unique().sort().to_list()
    problems = []
    if not len(config.compare) == len(set(config.compare)) == 2 or not set(config.compare) <= set(known):
        problems.append(f"compare: name two of the runs {', '.join(known)}; got {', '.join(config.compare)}")
    datasets = inputs.queries["dataset"].unique().sort().to_list()
    if len(datasets) > 1:
        problems.append(f"queries: of several datasets ({', '.join(datasets)}); settle one at a time")
    if inputs.queries.height < 2:
        problems.append("queries: at least 2 are needed")
    if problems:
        raise InputError(problems)


def _places(config: SettleConfig, inputs: Inputs) -> pl.DataFrame:
    """Each question's place in a random order, by a hash of its id."""
    ids = inputs.queries["query_id"].sort()
    numbers = random_numbers(ids.to_list(), [""] * len(ids), config.seed)
    return pl.DataFrame({"query_id": ids, "place": np.argsort(np.argsort(numbers, kind="stable"))})


def _labels(config: SettleConfig, inputs: Inputs, drawn: pl.DataFrame) -> pl.DataFrame:
    """Return eRAG's labels of pairs: query_id, doc_id, label. Responses of earlier looks are in the store."""
    pairs = drawn.select("query_id", "doc_id")
    if pairs.is_empty():
        return pairs.with_columns(label=pl.lit(0.0))
    done = judge_outputs(config, inputs, run_stage(config, plan_labels(config, inputs, STAGE, pairs)))
    scoring = scoring_of(done.judgements)
    evidence = dataclasses.replace(evidence_of(inputs, done.values(inputs)), pairs=pairs, scoring=scoring)
    labels = as_frame(annotate("erag", evidence))
    check_scores(scoring, config)
    if labels["label"].null_count():
        raise JobError(
            f"{labels['label'].null_count()} of {labels.height} documents were not judged: their readings or scores "
            "ended as errors, and without them the estimate would be wrong; see what they say by jobs/annotate.py"
        )
    return labels.select("query_id", "doc_id", "label")


def differences(
    drawn: pl.DataFrame, labels: pl.DataFrame, num_queries: int, measure: str, cutoff: int
) -> Floats:
    """Return unbiased estimates of run_a's value minus run_b's, [num_queries], in their random order.

    Args:
        drawn: of the first questions, as `draw` gives it.
        labels: query_id, doc_id, label of those that were read.
        num_queries: how many questions; one without a list counts 0.
        measure: P or DCG.
        cutoff: of the measure.
    """
    known = drawn.join(labels, on=["query_id", "doc_id"], how="left")
    first, second = (estimate(measure, *_lists(known, name, num_queries, cutoff)) for name in RANKS)
    return paired_differences(first, second)


def _lists(known: pl.DataFrame, rank: str, num_queries: int, cutoff: int) -> tuple[Floats, Floats]:
    """Labels and weights of one run's lists, each [num_queries, cutoff]."""
    listed = known.filter(pl.col(rank) > 0)
    at = listed["place"].to_numpy(), listed[rank].to_numpy() - 1
    labels, weights = np.zeros((num_queries, cutoff)), np.zeros((num_queries, cutoff))
    labels[at], weights[at] = listed["label"].fill_null(0.0).to_numpy(), listed["weight"].to_numpy()
    return labels, weights


def _num_read(drawn: pl.DataFrame) -> int:
    return int((drawn["weight"] > 0).sum())


def _row(config: SettleConfig, inputs: Inputs, now: pl.DataFrame, seen: Looks) -> dict[str, object]:
    """The last look, as a row of INTERIM_ANALYSES."""
    mean, low, high = (float(part[-1]) for part in (seen.means, seen.lows, seen.highs))
    better = config.compare[0 if mean > 0 else 1] if seen.is_significant[-1] else None
    return {
        "dataset": inputs.queries["dataset"][0],
        "run_a": config.compare[0],
        "run_b": config.compare[1],
        "measure": config.measure,
        "cutoff": config.rank,
        "look": len(seen.counts),
        "num_queries": int(seen.counts[-1]),
        "num_readings": _num_read(now),
        "num_documents": now.height,
        "difference": mean,
        "low": low if np.isfinite(low) else None,
        "high": high if np.isfinite(high) else None,
        "settled": bool(seen.is_settled(config.equivalence_margin)[-1]),
        "better": better,
    }


def _line(config: SettleConfig, row: Mapping[str, object], num_queries: int) -> str:
    """A look in a line."""
    interval = "no interval yet" if row["low"] is None else f"[{row['low']:+.4f}, {row['high']:+.4f}]"
    if row["better"]:
        verdict = f": settled, {row['better']} is better"
    elif row["settled"]:
        verdict = f": settled, known to within {config.equivalence_margin:g}"
    else:
        done = row["num_queries"] == num_queries
        more = (
            "take more questions"
            if config.fraction == 1
            else "a larger fraction goes on from here, or take more questions"
        )
        verdict = f": not settled; {more}" if done else ""
    return (
        f"look {row['look']}: {row['num_queries']:,} of {num_queries:,} questions, {row['num_readings']:,} readings, "
        f"{row['measure']}@{row['cutoff']} of {row['run_a']} - {row['run_b']} {row['difference']:+.4f} "
        f"{interval}{verdict}"
    )
