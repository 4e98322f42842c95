"""CREDITS and LABELS -> CREDIT_AGREEMENT and CREDIT_SHARES. Pure.

Documents of one list share a question, so intervals are over questions, never over documents.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from erag_ray.analyses.columns import DatasetColumns, Draws, table_of
from erag_ray.analyses.settings import Settings
from erag_ray.analyses.slices import with_slices
from erag_ray.annotators import SUFFICES, label_sign
from erag_ray.data.runs.references import NO_PASSAGES
from erag_ray.measures.agreement import agree, score_intervals, share_of
from erag_ray.store.schemas import STRING, table_schema

CREDIT_AGREEMENT = table_schema(
    "credit_agreement",
    "dataset* reader* score* run_id* depth* slice* value* credit* annotator* statistic* over* agreement? "
    "low? high? num_queries num_documents num_dropped reason?",
    value=STRING,
)
"""Agreement of labels with credits: over "lists" (the mean of each list's own) or over "documents" (of all lists)."""
CREDIT_SHARES = table_schema(
    "credit_shares",
    "dataset* reader* score* run_id* depth* slice* value* credit* effect* share? low? high? num_positive "
    "num_documents num_queries",
    value=STRING,
)
"""Shares of documents by eRAG's label and by credit, see `EFFECTS`."""
EFFECTS: Mapping[str, str] = {
    "credited": "useful alone and credited: the label is right",
    "redundant": "useful alone and no credit: others of the list do the same",
    "only_in_company": "not useful alone and credited: the label misses it",
    "hurts_in_company": "harmless or useful alone and a negative credit: the label misses the harm",
    "harmful": "a negative credit, and alone below the reader without documents: harmful in any case",
    "no_effect": "neither useful alone nor credited",
}
"""CREDIT_SHARES.effect -> its meaning; every document with a label and a credit has one effect."""
CELL = "(cell)"
"""The slice by cell: its questions differ from run to run."""
LISTS, DOCUMENTS = "lists", "documents"
LIST = ["reader", "score", "run_id", "depth", "credit"]


class Credited(NamedTuple):
    """Documents with a credit, and how their questions are grouped."""

    documents: pl.DataFrame
    """Of `labelled_credits`."""
    datasets: Sequence[DatasetColumns]
    """The questions that have a credit, without columns."""
    slices: pl.DataFrame
    """SLICES."""
    cells: pl.DataFrame
    """CELLS of lists of the credits' depth."""


class Part(NamedTuple):
    """Questions of a dataset with the value of a slice; for one run only if ``run_id`` is not empty."""

    slice: str
    value: str
    run_id: str
    dataset: DatasetColumns


def labelled_credits(credits: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Return CREDITS with the columns annotator and label (null: not judged), for each that labels the document."""
    by_reader = labels.filter(pl.col("reader") != "")
    no_reader = labels.filter(pl.col("reader") == "")
    pair = ["query_id", "doc_id"]
    # a label with a reader may be without a score, as a likelihood is
    parts = [
        credits.join(by_reader.filter(pl.col("score") != ""), on=["reader", "score", *pair]),
        credits.join(by_reader.filter(pl.col("score") == "").drop("score"), on=["reader", *pair]),
        credits.join(no_reader.drop("reader", "score"), on=pair),
    ]
    columns = [*credits.columns, "annotator", "label"]
    return pl.concat(part.select(columns) for part in parts)


def credit_agreement(credited: Credited, settings: Settings) -> pl.DataFrame:
    """Return CREDIT_AGREEMENT: over the documents of each list, averaged over lists, and over those of all lists.

    A list counts where its labels vary and its credits do.
    """
    with_lists = _with_list_agreement(credited.documents, settings.statistics)
    rows = [
        (*names, *row)
        for names, group, draws in _groups(credited._replace(documents=with_lists), [*LIST, "annotator"])
        for row in _agreements(group, draws, settings)
    ]
    return table_of(rows, CREDIT_AGREEMENT)


def _with_list_agreement(documents: pl.DataFrame, statistics: Sequence[str]) -> pl.DataFrame:
    """Add each statistic of labels and credits within the document's list; null where one of the two is constant."""
    keys = [*LIST, "annotator", "query_id"]
    lists = documents.drop_nulls(["label", "value"]).group_by(keys, maintain_order=True).agg("label", "value")
    varies = [pl.col(name).list.n_unique() > 1 for name in ("label", "value")]
    lists = lists.filter(*varies)
    pairs = list(zip(lists["label"], lists["value"], strict=True))
    columns = {
        name: pl.Series([agree(x.to_numpy(), y.to_numpy(), name).value for x, y in pairs], dtype=pl.Float64)
        for name in statistics
    }
    of_lists = lists.select(keys).with_columns(**columns)
    return documents.join(of_lists, on=keys, how="left", maintain_order="left")


def _parts(credited: Credited) -> Iterator[Part]:
    """Yield each whole dataset, its slices, and the cells of each run."""
    for dataset in credited.datasets:
        yield Part("", "", "", dataset)
        for name, value, part in with_slices(dataset, credited.slices):
            yield Part(name, value, "", part)
        for (run_id, cell), rows in credited.cells.group_by("run_id", "cell", maintain_order=True):
            is_in = dataset.has(rows["query_id"])
            if cell is not None and is_in.any():
                yield Part(CELL, str(cell), str(run_id), dataset.among(is_in))


def _groups(
    credited: Credited, keys: Sequence[str]
) -> Iterator[tuple[tuple[object, ...], pl.DataFrame, Draws]]:
    """Yield the documents of each part by `LIST` and further keys, with the names of their rows and the draws.

    The column position is that of the question among the part's.
    """
    for part in _parts(credited):
        positions = pl.DataFrame({"query_id": part.dataset.query_ids}).with_row_index("position")
        documents = credited.documents.filter(run_id=part.run_id) if part.run_id else credited.documents
        joined = documents.join(positions, on="query_id", maintain_order="left")
        for names, group in joined.group_by(keys, maintain_order=True):
            of_group = (part.dataset.dataset, *names[:4], part.slice, part.value, *names[4:])
            yield of_group, group, part.dataset.draws


def _agreements(group: pl.DataFrame, draws: Draws, settings: Settings) -> Iterator[tuple[object, ...]]:
    """Yield statistic, over, agreement, low, high, counts and reason."""
    judged = group.drop_nulls(["label", "value"])
    num_dropped = group.height - judged.height
    labels, values = judged["label"].to_numpy(), judged["value"].to_numpy()
    names, weights = ("label", "credit"), draws.weights[:, judged["position"].to_numpy()]
    num_units = draws.among(np.isin(np.arange(draws.weights.shape[1]), judged["position"])).num_units
    of_documents = (weights, settings.confidence, None, names, "documents", num_units)
    for statistic in settings.statistics:
        in_lists = judged.drop_nulls(statistic)
        lists = in_lists.unique("position", maintain_order=True)
        column = np.full((draws.weights.shape[1], 1), np.nan)
        # from 0 to 1, as scores
        column[lists["position"].to_numpy(), 0] = (lists[statistic].to_numpy() + 1) / 2
        [interval] = score_intervals(column, column, draws.weights, settings.confidence, draws.clusters)
        mean, low, high = (None if end is None else 2 * end - 1 for end in interval)
        reason = None if lists.height else "labels or credits are constant in every list"
        yield (statistic, LISTS, mean, low, high, lists.height, in_lists.height, num_dropped, reason)
        pooled = agree(labels, values, statistic, *of_documents)
        counts = (judged["position"].n_unique(), judged.height, num_dropped)
        yield (statistic, DOCUMENTS, pooled.value, pooled.low, pooled.high, *counts, pooled.reason)


def credit_shares(credited: Credited, settings: Settings) -> pl.DataFrame:
    """Return CREDIT_SHARES: the share of documents with each of `EFFECTS`, over those with both label and credit.

    Of documents `with_effects`; the intervals are Wilson's for documents in clusters, their questions.
    """
    rows = [
        (*names, *row)
        for names, group, draws in _groups(credited, LIST)
        for row in _shares(group, draws, settings.confidence)
    ]
    return table_of(rows, CREDIT_SHARES)


def with_effects(documents: pl.DataFrame, utility: pl.DataFrame, threshold: float | None) -> pl.DataFrame:
    """Return the documents that eRAG labels, with the number of their effect among `EFFECTS` in the column effect.

    The closed-book scores of UTILITY say which of the `labelled_credits` do harm by themselves; a label of at least the
    threshold is useful by itself (None: `SUFFICES`).
    """
    known = utility.filter(run_id=NO_PASSAGES).select("reader", "score", "query_id", without="value")
    # by other scores no document is useful
    scores = [one for one in documents["score"].unique() if label_sign("erag", one) > 0]
    judged = documents.filter(pl.col("score").is_in(scores), annotator="erag").drop_nulls(["label", "value"])
    joined = judged.join(known, on=["reader", "score", "query_id"], how="left").drop_nulls("without")
    useful = pl.col("label") >= (SUFFICES if threshold is None else threshold)
    is_harmful = pl.col("label") < pl.col("without")
    value = pl.col("value")
    # of several that hold, the first
    is_effect = {
        "harmful": (value < 0) & is_harmful,
        "hurts_in_company": value < 0,
        "credited": useful & (value > 0),
        "redundant": useful,
        "only_in_company": value > 0,
        "no_effect": pl.lit(True),
    }
    numbers = {name: number for number, name in enumerate(EFFECTS)}
    effect = pl.coalesce(pl.when(is_it).then(numbers[name]) for name, is_it in is_effect.items())
    return joined.with_columns(effect=effect)


def _shares(group: pl.DataFrame, draws: Draws, confidence: float) -> Iterator[tuple[object, ...]]:
    """Yield effect, share, low, high and counts."""
    questions = group["position"].cast(pl.Int64).to_numpy()
    clusters = questions if draws.clusters is None else draws.clusters[questions]
    counts = (group.height, group["position"].n_unique())
    for number, effect in enumerate(EFFECTS):
        events = (group["effect"] == number).cast(pl.Float64).to_numpy()
        yield (effect, *share_of(events, confidence, clusters), int(events.sum()), *counts)
