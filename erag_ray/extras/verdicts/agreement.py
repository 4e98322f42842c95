"""PEOPLE: agreement of scores, judges and labels with people; PEOPLE_MEANS: what people would say of each run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses.contract import Evaluation
from erag_ray.analyses.settings import Settings
from erag_ray.extras.verdicts.files import VERDICTS
from erag_ray.extras.verdicts.raters import alpha, kappa, pair_counts, verdict_sums, with_interval
from erag_ray.measures.agreement import LabelSample, Weights, mean_intervals, powered_values, resample_weights
from erag_ray.measures.scores import score_named, score_outputs
from erag_ray.store.folder import as_frame
from erag_ray.store.schemas import COUNT, LIST_OUTPUTS, STRING, VALUE, table_schema
from erag_ray.support.progress import StageProgress

PEOPLE = table_schema(
    "people",
    "dataset* reader* about* rater* run_id* statistic* value? low? high? num_items num_queries num_both? "
    "num_only_rater? num_only_people? num_neither? reason?",
    **dict.fromkeys(("about", "rater"), STRING),
    **dict.fromkeys(("num_items", "num_both", "num_only_rater", "num_only_people", "num_neither"), COUNT),
)
"""Agreement with people's verdicts (of several on one item, what more than half say), of all runs (run_id "") and of
each; rater ``people`` is people among themselves."""
PEOPLE_MEANS = table_schema(
    "people_means",
    "dataset* reader* score* run_id* depth* judged? mean? corrected? low? high? num_queries num_judged",
    **dict.fromkeys(("judged", "corrected"), VALUE),
    num_judged=COUNT,
)
"""Mean verdict of the judged outputs of a run, mean score of all, and the mean verdict of all that follows of both."""
SCORES = ("exact_match", "match", "token_f1")
ACCEPTS = 0.5
OUTPUTS, DOCUMENTS, AMONG_PEOPLE = "outputs", "documents", "people"
CONSTANT = "all verdicts are the same"


def judged_items(evaluation: Evaluation) -> pl.DataFrame:
    """Return the items with verdicts: VERDICTS by item, with lists of raters and verdicts, and the depth in UTILITY."""
    deepest = evaluation.utility.group_by("run_id").agg(deepest=pl.col("depth").max())
    verdicts = evaluation.tables.read(VERDICTS).join(deepest, on="run_id", how="left", maintain_order="left")
    depth = pl.when(pl.col("depth") > 0).then("depth").otherwise(pl.col("deepest").fill_null(0))
    return (
        verdicts.with_columns(depth=depth)
        .group_by("query_id", "run_id", "depth", "doc_id", maintain_order=True)
        .agg("rater", "verdict", accepted=pl.col("verdict").sum(), number=pl.len())
    )


def judged_outputs(evaluation: Evaluation) -> pl.DataFrame:
    """Return the judged outputs, each with its score (value), reader, dataset and gold answers."""
    on = ["run_id", "query_id", "depth"]
    outputs = evaluation.tables.read(LIST_OUTPUTS).drop_nulls("output")
    scored = evaluation.utility.join(outputs, on=[*on, "reader"], how="inner", maintain_order="left")
    items = evaluation.once(judged_items).filter(pl.col("run_id") != "").drop("doc_id")
    queries = evaluation.inputs.queries.select("query_id", "dataset", "answers")
    return items.join(scored, on=on, maintain_order="left").join(
        queries, on="query_id", maintain_order="left"
    )


def unused_notes(evaluation: Evaluation) -> Iterator[str]:
    """Yield how many verdicts are on outputs or documents that the job does not have."""
    items = evaluation.once(judged_items)
    outputs, labels = evaluation.once(judged_outputs), evaluation.labels.select("query_id", "doc_id").unique()
    of_documents = items.filter(run_id="").join(labels, on=["query_id", "doc_id"], how="semi").height
    num_used = outputs.select("run_id", "query_id", "depth").unique().height + of_documents
    if num_used < items.height:
        counts = f"{items.height - num_used:,} of {items.height:,}"
        yield f"verdicts: {counts} are on outputs or documents that the job does not have, and not used"


def make_people(evaluation: Evaluation, _: StageProgress) -> Iterator[pl.DataFrame]:
    """Yield PEOPLE: of outputs by every score, of documents by every annotator, and of people among themselves."""
    outputs = evaluation.once(judged_outputs)
    for (dataset, reader, score), items in outputs.group_by(
        "dataset", "reader", "score", maintain_order=True
    ):
        names = {"dataset": str(dataset), "reader": str(reader), "about": OUTPUTS}
        texts, answers, ids = (items[name].to_list() for name in ("output", "answers", "query_id"))
        ratings = {str(score): items["value"]}
        for name in SCORES:
            if name not in ratings:
                ratings[name] = pl.Series(
                    score_outputs(texts, answers, score_named(name), ids), dtype=pl.Float64
                )
        for rater, values in ratings.items():
            yield from _with_people(evaluation, names | {"rater": rater}, items.with_columns(rating=values))
        yield _among_people(evaluation, names, items)
    documents = evaluation.once(judged_items).filter(run_id="").drop("run_id")
    labels = evaluation.labels.join(documents, on=["query_id", "doc_id"], maintain_order="left")
    labels = labels.join(
        evaluation.inputs.queries.select("query_id", "dataset"), on="query_id", maintain_order="left"
    )
    by = ("dataset", "reader", "annotator")
    for (dataset, reader, annotator), items in labels.group_by(*by, maintain_order=True):
        names = {"dataset": str(dataset), "reader": str(reader), "about": DOCUMENTS}
        rated = items.with_columns(run_id=pl.lit(""), rating="label")
        yield from _with_people(evaluation, names | {"rater": str(annotator)}, rated)
    for (dataset,), items in labels.unique(["query_id", "doc_id"], maintain_order=True).group_by("dataset"):
        yield _among_people(evaluation, {"dataset": str(dataset), "reader": "", "about": DOCUMENTS}, items)


def _with_people(
    evaluation: Evaluation, names: dict[str, str], items: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """Yield the agreement of a rater with people, of all runs and of each; items have a rating, which may be null."""
    least = ACCEPTS if evaluation.settings.threshold is None else evaluation.settings.threshold
    share = pl.col("accepted") / pl.col("number")
    people = pl.when(share != 0.5).then(share > 0.5)
    rated = items.with_columns(accepts=pl.col("rating") >= least, people=people).drop_nulls(
        ["accepts", "people"]
    )
    parts = {"": rated, **{str(run): part for (run,), part in rated.group_by("run_id", maintain_order=True)}}
    for run, part in parts.items():
        counts = pair_counts(part.select("accepts", "people").to_numpy().reshape(-1, 2).astype(np.bool_))
        names_of_counts = ("num_both", "num_only_rater", "num_only_people", "num_neither")
        totals = dict(zip(names_of_counts, map(int, counts.sum(axis=0)), strict=True))
        yield _row(evaluation, {**names, "run_id": run, "statistic": "kappa", **totals}, part, counts)


def _among_people(evaluation: Evaluation, names: dict[str, str], items: pl.DataFrame) -> pl.DataFrame:
    """Return the agreement of people among themselves: kappa of two, alpha of more; no row if each item has one."""
    several = items.filter(pl.col("number") > 1)
    raters = several["rater"].explode().unique().sort().to_list()
    if len(raters) < 2:
        return as_frame(PEOPLE.empty())
    named = {**names, "rater": AMONG_PEOPLE, "run_id": ""}
    if len(raters) == 2:
        rows = several.select("rater", "verdict").rows()
        pairs = [[verdict for _, verdict in sorted(zip(*row, strict=True))] for row in rows]
        return _row(
            evaluation, named | {"statistic": "kappa"}, several, pair_counts(np.array(pairs, np.bool_))
        )
    accepted = several["accepted"].to_numpy().astype(np.float64)
    sums = verdict_sums(accepted, several["number"].to_numpy() - accepted)
    return _row(evaluation, named | {"statistic": "alpha"}, several, sums)


def _row(
    evaluation: Evaluation, row: dict[str, Any], items: pl.DataFrame, values: np.ndarray
) -> pl.DataFrame:
    settings, questions = evaluation.settings, items["query_id"].unique().sort()
    numbers = items.select(pl.col("query_id").rank("dense") - 1)["query_id"].to_numpy().astype(np.int64)
    weights = _weights(settings, questions)
    statistic = kappa if row["statistic"] == "kappa" else alpha
    value, low, high = with_interval(statistic, values, numbers, weights, settings.confidence)
    reason = None if value is not None else CONSTANT if items.height else "no output has both"
    counts = {"num_items": items.height, "num_queries": len(questions)}
    full = {**row, "value": value, "low": low, "high": high, **counts, "reason": reason}
    return pl.DataFrame([full], schema=as_frame(PEOPLE.empty()).schema)


def _weights(settings: Settings, query_ids: pl.Series) -> Weights:
    """Return the bootstrap weights of these questions, by cluster if the job has some."""
    numbers = None
    if settings.clusters is not None:
        named = pl.DataFrame({"query_id": query_ids}).join(
            settings.clusters, on="query_id", maintain_order="left"
        )
        # of a cluster, the number of its first question; a question without a value is by itself
        row = pl.int_range(pl.len())
        first = pl.when(pl.col("cluster").is_null()).then(row).otherwise(row.min().over("cluster"))
        numbers = named.select(first.rank("dense") - 1).to_series().cast(pl.Int64).to_numpy()
    return resample_weights(len(query_ids), settings.num_resamples, settings.seed, numbers)


def make_means(evaluation: Evaluation, _: StageProgress) -> Iterable[pl.DataFrame]:
    """Yield PEOPLE_MEANS of each run: the score of all outputs predicts the verdicts of those without one."""
    queries = evaluation.inputs.queries.select("query_id", "dataset")
    share = pl.col("accepted") / pl.col("number")
    verdicts = evaluation.once(judged_outputs).select("run_id", "query_id", "depth", verdict=share)
    on = ["run_id", "query_id", "depth"]
    scored = evaluation.utility.drop_nulls("value").join(queries, on="query_id", maintain_order="left")
    joined = scored.join(verdicts, on=on, how="left", maintain_order="left")
    key = ["dataset", "reader", "score", "run_id", "depth"]
    for names, rows in joined.sort("query_id").group_by(key, maintain_order=True):
        if rows["verdict"].count():
            yield _corrected(evaluation, dict(zip(key, names, strict=True)), rows)


def _corrected(evaluation: Evaluation, names: dict[str, Any], rows: pl.DataFrame) -> pl.DataFrame:
    settings, number = evaluation.settings, rows.height
    is_judged = rows["verdict"].is_not_null().to_numpy()
    sample = LabelSample(
        questions=np.arange(number),
        weights=np.ones(number),
        probabilities=np.full(number, is_judged.mean()),
        is_read=is_judged,
        labels=rows["verdict"].fill_null(0.0).to_numpy(),
        auxiliary=rows["value"].to_numpy(),
    )
    values = powered_values(sample, number).values
    weights = _weights(settings, rows["query_id"])
    [(corrected, low, high)] = mean_intervals(values[:, None], weights, settings.confidence)
    row = {
        **names,
        "judged": rows["verdict"].mean(),
        "mean": math.fsum(rows["value"]) / number,
        **{"corrected": corrected, "low": low, "high": high},
        **{"num_queries": number, "num_judged": int(is_judged.sum())},
    }
    return pl.DataFrame([row], schema=as_frame(PEOPLE_MEANS.empty()).schema)
