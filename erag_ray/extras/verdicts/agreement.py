"""PEOPLE: agreement of scores, judges and labels with people; PEOPLE_MEANS: what people would say of each run.

Agreement of two raters is Cohen's kappa, of many Krippendorff's alpha, with intervals by question.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.analyses.columns import table_of, with_first
from erag_ray.analyses.contract import Evaluation
from erag_ray.analyses.settings import Floats, Settings
from erag_ray.annotators import label_sign
from erag_ray.extras.prediction_powered import estimate_all
from erag_ray.measures.agreement import (
    MAX_UNDEFINED_SHARE,
    TIE_DIGITS,
    Clusters,
    Interval,
    Weights,
    percentiles,
    resample_weights,
    score_intervals,
)
from erag_ray.measures.scores import ENGLISH, in_language, is_language_score, score_named, score_outputs
from erag_ray.store.schemas import COUNT, FLAG, LIST_OUTPUTS, REPEATS, STRING, VALUE, table_schema
from erag_ray.support.errors import InputError
from erag_ray.support.progress import StageProgress

VERDICTS = table_schema(
    "verdicts", "query_id* run_id* depth* doc_id* rater* verdict", rater=STRING, verdict=FLAG
)
"""A person's verdict on the output of a run with ``depth`` documents (0: the most that the job has), or, where
``run_id`` is "", on a document."""
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
NO_INTERVAL = (
    f"no interval: all verdicts are the same in more than {MAX_UNDEFINED_SHARE:.0%} of the resamples"
)
ALL_AGREE = "no interval: all agree, and so do all resamples"
COUNTS = ("num_both", "num_only_rater", "num_only_people", "num_neither")
Row = Mapping[str, object]


def kappa(counts: Floats) -> Floats:
    """Return Cohen's kappa (Educational and Psychological Measurement, 1960); NaN where chance alone agrees always.

    Counts [..., 4] are of items that both raters accept, only the first, only the second, and none of them.
    """
    total = counts.sum(axis=-1)
    both, first, second, neither = np.moveaxis(counts, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        agree = (both + neither) / total
        accepts = (both + first) / total, (both + second) / total
        chance = accepts[0] * accepts[1] + (1 - accepts[0]) * (1 - accepts[1])
        return np.where(chance < 1, (agree - chance) / (1 - chance), np.nan)


def pair_counts(items: npt.NDArray[np.bool_]) -> Floats:
    """Return the counts of `kappa` of each item: [num_items, 2], what two raters say, to [num_items, 4]."""
    first, second = items.T
    columns = (first & second, first & ~second, ~first & second, ~first & ~second)
    return np.stack(columns, axis=1).astype(np.float64)


def alpha(sums: Floats) -> Floats:
    """Return Krippendorff's alpha for two values (Content Analysis, 2018, ch. 12); NaN where all verdicts are equal.

    Sums [..., 3] are over items with at least two verdicts: of the pairs that disagree (each item's times 1 / (its
    number of verdicts - 1)), of verdicts that accept, and of those that do not.
    """
    disagree, accepted, refused = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - (accepted + refused - 1) * disagree / (accepted * refused), np.float64)


def verdict_sums(accepted: Floats, refused: Floats) -> Floats:
    """Return the sums of `alpha` of each item, [num_items, 3], by its numbers of verdicts; 0 for fewer than two."""
    number = accepted + refused
    disagree = accepted * refused / np.maximum(number - 1, 1)
    return np.where((number > 1)[:, None], np.stack([disagree, accepted, refused], axis=1), 0.0)


def with_interval(
    statistic: Callable[[Floats], Floats],
    items: Floats,
    questions: npt.NDArray[np.int64],
    weights: Weights,
    confidence: float,
    count: int,
) -> Interval:
    """Return a statistic of the sum of items, with its `percentiles` interval.

    A resample draws whole questions: ``items`` are [num_items, n], ``questions`` [num_items] the number of each item's
    question, ``weights`` [num_resamples, num_questions]; ``count``: of questions or clusters that it draws.
    """
    by_question = np.zeros((weights.shape[1], items.shape[1]))
    np.add.at(by_question, questions, items)
    value = round(float(statistic(by_question.sum(axis=0))), TIE_DIGITS)
    if np.isnan(value):
        return None, None, None
    drawn = np.round(statistic(weights.astype(np.float64) @ by_question), TIE_DIGITS)
    return value, *percentiles(drawn, confidence, count)


def judged_items(evaluation: Evaluation) -> pl.DataFrame:
    """Return the items with verdicts: VERDICTS by item, with lists of raters and verdicts, and the depth in UTILITY.

    Of two verdicts of a rater on an output, one that names no depth does not count.
    """
    deepest = evaluation.utility.group_by("run_id").agg(deepest=pl.col("depth").max())
    verdicts = evaluation.tables.read(VERDICTS).join(deepest, on="run_id", how="left", maintain_order="left")
    depth = pl.when(pl.col("depth") > 0).then("depth").otherwise(pl.col("deepest").fill_null(0))
    item = ["query_id", "run_id", "doc_id", "rater"]
    return (
        verdicts.with_columns(depth=depth, given="depth")
        .filter(pl.col("given") == pl.col("given").max().over(*item, "depth"))
        .group_by("query_id", "run_id", "depth", "doc_id", maintain_order=True)
        .agg("rater", "verdict", accepted=pl.sum("verdict"), number=pl.len(), share=pl.mean("verdict"))
    )


def judged_outputs(evaluation: Evaluation) -> pl.DataFrame:
    """Return the judged outputs, each with its score (value), reader, dataset and gold answers."""
    on = ["run_id", "query_id", "depth"]
    outputs, repeats = (evaluation.tables.read(schema) for schema in (LIST_OUTPUTS, REPEATS))
    scored = evaluation.utility.join(outputs, on=[*on, "reader"], how="inner", maintain_order="left")
    # of several answers people see the first, and UTILITY is the mean of all
    scored = (repeats.filter(repeat=1) if repeats.height else scored).drop_nulls("output")
    items = evaluation.once(judged_items).filter(pl.col("run_id") != "").drop("doc_id")
    queries = evaluation.inputs.queries.select("query_id", "dataset", "answers")
    judged = items.join(scored, on=on, maintain_order="left")
    return judged.join(queries, on="query_id", maintain_order="left")


def unused_notes(evaluation: Evaluation) -> Iterator[str]:
    """Yield how many verdicts are on outputs or documents that the job does not have, and the first of these.

    Raises:
        InputError: all are.
    """
    items, on = evaluation.once(judged_items), ["run_id", "query_id", "depth"]
    others = items.join(evaluation.once(judged_outputs), on=on, how="anti", maintain_order="left")
    unused = others.join(evaluation.labels, on=["query_id", "doc_id"], how="anti", maintain_order="left")
    for query_id, run_id, depth, doc_id in unused.head(1).select("query_id", *on[::2], "doc_id").iter_rows():
        of_run = f"run {run_id!r} with {depth} documents" if depth else f"run {run_id!r}"
        first = f"document {doc_id!r}" if doc_id else of_run
        counts = (
            f"verdicts: {unused.height:,} of {items.height:,} are on outputs or documents that the job does"
        )
        text = f"{counts} not have, and not used (such as query {query_id!r}, {first})"
        if unused.height == items.height:
            raise InputError([text])
        yield text


def make_people(evaluation: Evaluation, _: StageProgress) -> Iterator[pl.DataFrame]:
    """Yield PEOPLE: of outputs by every score, of documents by every annotator, and of people among themselves."""
    yield table_of([*_of_outputs(evaluation), *_of_documents(evaluation)], PEOPLE)


def _of_outputs(evaluation: Evaluation) -> Iterator[Row]:
    outputs = evaluation.once(judged_outputs)
    by = ("dataset", "reader", "score")
    for (dataset, reader, score), items in outputs.group_by(*by, maintain_order=True):
        names = {"dataset": dataset, "reader": reader, "about": OUTPUTS}
        texts, answers, ids = (items[name].to_list() for name in ("output", "answers", "query_id"))
        ratings = {str(score): items["value"]} if label_sign("erag", str(score)) > 0 else {}
        known = str(score).partition(":")[2] if is_language_score(str(score)) else ENGLISH
        for name in [in_language(name, evaluation.config.language or known) for name in SCORES]:
            if name not in ratings:
                values = score_outputs(texts, answers, score_named(name), ids)
                ratings[name] = pl.Series(values, dtype=pl.Float64)
        for rater, rating in ratings.items():
            yield from _with_people(evaluation, names | {"rater": rater}, items.with_columns(rating=rating))
        yield from _among_people(evaluation, names, items)


def _of_documents(evaluation: Evaluation) -> Iterator[Row]:
    documents = evaluation.once(judged_items).filter(run_id="")
    labels = evaluation.labels.join(documents, on=["query_id", "doc_id"], maintain_order="left").join(
        evaluation.inputs.queries.select("query_id", "dataset"), on="query_id", maintain_order="left"
    )
    by = ("dataset", "reader", "annotator")
    for (dataset, reader, annotator), items in labels.group_by(*by, maintain_order=True):
        if label_sign(str(annotator), items["score"][0]) < 1:
            continue
        names = {"dataset": dataset, "reader": reader, "about": DOCUMENTS, "rater": annotator}
        yield from _with_people(evaluation, names, items.with_columns(rating="label"))
    once = labels.unique(["query_id", "doc_id"], maintain_order=True)
    for (dataset,), items in once.group_by("dataset", maintain_order=True):
        yield from _among_people(evaluation, {"dataset": dataset, "reader": "", "about": DOCUMENTS}, items)


def _with_people(evaluation: Evaluation, names: dict[str, Any], items: pl.DataFrame) -> Iterator[Row]:
    """Yield the agreement of a rater (null: none) with people, of all runs and each; null if all verdicts are one."""
    least = ACCEPTS if evaluation.settings.threshold is None else evaluation.settings.threshold
    decided = items.filter(pl.col("share") != 0.5).drop_nulls("rating")
    rated = decided.with_columns(accepts=pl.col("rating") >= least, people=pl.col("share") > 0.5)
    parts = {"": rated, **{str(run): part for (run,), part in rated.group_by("run_id", maintain_order=True)}}
    for run, part in parts.items():
        counts = pair_counts(part.select("accepts", "people").to_numpy().reshape(-1, 2).astype(np.bool_))
        totals = dict(zip(COUNTS, map(int, counts.sum(axis=0)), strict=True))
        counts *= part["people"].n_unique() > 1
        yield _row(evaluation, {**names, "run_id": run, "statistic": "kappa", **totals}, part, counts)


def _among_people(evaluation: Evaluation, names: dict[str, Any], items: pl.DataFrame) -> Iterator[Row]:
    """Yield the agreement of people among themselves: kappa of two, alpha of more; nothing if each item has one."""
    several = items.filter(pl.col("number") > 1)
    raters = several["rater"].explode().unique().sort().to_list()
    if len(raters) < 2:
        return
    if len(raters) == 2:
        rows = several.select("rater", "verdict").rows()
        pairs = [[verdict for _, verdict in sorted(zip(*row, strict=True))] for row in rows]
        statistic, values = "kappa", pair_counts(np.array(pairs, np.bool_))
    else:
        accepted = several["accepted"].to_numpy().astype(np.float64)
        statistic, values = "alpha", verdict_sums(accepted, several["number"].to_numpy() - accepted)
    named = {**names, "rater": AMONG_PEOPLE, "run_id": "", "statistic": statistic}
    yield _row(evaluation, named, several, values)


def _row(evaluation: Evaluation, row: dict[str, Any], items: pl.DataFrame, values: Floats) -> Row:
    settings, questions = evaluation.settings, items["query_id"].unique().sort()
    numbers = items["query_id"].rank("dense").to_numpy().astype(np.int64) - 1
    statistic = kappa if row["statistic"] == "kappa" else alpha
    weights, clusters = _draws(settings, questions)
    count = len(questions) if clusters is None else len(np.unique(clusters))
    value, low, high = with_interval(statistic, values, numbers, weights, settings.confidence, count)
    why = ALL_AGREE if value == 1 else NO_INTERVAL
    reason = why if low is None and len(questions) > 1 else None
    reason = reason if value is not None else CONSTANT if items.height else "no output has both"
    counts = {"num_items": items.height, "num_queries": len(questions)}
    return {**row, "value": value, "low": low, "high": high, **counts, "reason": reason}


def _draws(settings: Settings, query_ids: pl.Series) -> tuple[Weights, Clusters | None]:
    """Return the bootstrap weights of these questions, and their clusters if the job has some."""
    numbers = None
    if settings.clusters is not None:
        first = with_first(pl.DataFrame({"query_id": query_ids}), settings.clusters)["first"]
        numbers = first.rank("dense").to_numpy().astype(np.int64) - 1
    return resample_weights(len(query_ids), settings.num_resamples, settings.seed, numbers), numbers


def make_means(evaluation: Evaluation, _: StageProgress) -> Iterable[pl.DataFrame]:
    """Yield PEOPLE_MEANS of each run: the score of all outputs predicts the verdicts of those without one."""
    queries = evaluation.inputs.queries.select("query_id", "dataset")
    on = ["run_id", "query_id", "depth"]
    verdicts = evaluation.once(judged_outputs).select(*on, verdict="share")
    scored = evaluation.utility.drop_nulls("value").join(queries, on="query_id", maintain_order="left")
    joined = scored.join(verdicts, on=on, how="left", maintain_order="left")
    key = ["dataset", "reader", "score", "run_id", "depth"]
    groups = joined.sort("query_id").group_by(key, maintain_order=True)
    rows = [
        {**dict(zip(key, names, strict=True)), **_corrected(evaluation.settings, rows)}
        for names, rows in groups
        if rows["verdict"].count()
    ]
    yield table_of(rows, PEOPLE_MEANS)


def _corrected(settings: Settings, rows: pl.DataFrame) -> Row:
    verdicts = rows["verdict"].fill_null(np.nan).to_numpy()
    estimates = estimate_all(verdicts, rows["value"].to_numpy()).values
    weights, clusters = _draws(settings, rows["query_id"])
    columns = (verdicts[:, None], estimates[:, None])
    [interval] = score_intervals(*columns, weights, settings.confidence, clusters)
    within = (None if end is None else min(max(end, 0.0), 1.0) for end in interval)
    return {
        "judged": rows["verdict"].mean(),
        "mean": math.fsum(rows["value"]) / rows.height,
        **dict(zip(("corrected", "low", "high"), within, strict=True)),
        "num_queries": rows.height,
        "num_judged": rows["verdict"].count(),
    }
