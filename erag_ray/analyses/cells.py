"""CELLS: where a list helps the reader, and where eRAG's label itself fails.

Of every question, run and depth three things are known without another reading: whether some single document suffices
(eRAG's label), whether the list of all of them does (utility), and whether the reader needs none (closed book). They
make eight cells. The label cannot see that documents suffice only together (combined) nor that a useful document is
lost among others (distracted): the shares of these two bound how far it can be trusted on these data.
"""

from collections.abc import Mapping

import polars as pl

from erag_ray.analyses.columns import DatasetColumns, NamedColumn, by_dataset
from erag_ray.analyses.contract import Analysis, Evaluation
from erag_ray.analyses.settings import ANY, Settings
from erag_ray.annotators import SUFFICES, label_sign
from erag_ray.data.runs.references import NO_PASSAGES, REFERENCES
from erag_ray.store.schemas import LABELS, RUNS, UTILITY, table_schema
from erag_ray.support.progress import StageProgress

CELLS = table_schema("cells", "reader* score* run_id* query_id* depth* alone? list? closed_book? cell?")
"""``alone``: one of the first ``depth`` documents suffices; ``list``: the list of all of them suffices;
``closed_book``: the reader needs no document. Null: not judged."""
CELL_OF: Mapping[tuple[bool, bool, bool], tuple[str, str]] = {
    (True, True, False): ("found", "found"),
    (True, True, True): ("kept", "known, kept"),
    (True, False, False): ("distracted", "lost in the list"),
    (True, False, True): ("distracted_known", "known, lost in the list"),
    (False, True, False): ("combined", "only together"),
    (False, True, True): ("list_only", "known, only together"),
    (False, False, True): ("lost", "known, lost"),
    (False, False, False): ("missing", "not found"),
}
"""Whether a single document, the list, and the reader without documents suffice -> the cell, and its name where a
person reads."""
CELLS_MEANING: Mapping[str, str] = {
    "found": "a document alone suffices and so does the list: retrieval earns it",
    "kept": "the reader knows the answer and keeps it: such a question does not tell retrievers apart",
    "distracted": "a document alone suffices, the list does not: rerank, or give fewer documents",
    "distracted_known": "lost in the list, and the reader knows the answer without documents",
    "combined": "only the list suffices: eRAG's label does not see evidence spread over several documents",
    "list_only": "the reader knows the answer, and with the list too, but with no document alone: the label is too "
    "strict",
    "lost": "the reader knows the answer, but not with the list nor with any document of it: worse than no retrieval",
    "missing": "nothing suffices: no useful document was found, or the gold answer is wrong",
}
"""Cell -> what it says, in reading order."""
OF_LIST = ["reader", "score", "run_id", "query_id"]
CELL_WORDS = dict(CELL_OF.values())
CELL_NAMES = list(CELLS_MEANING)
_NONE_ELIGIBLE = pl.DataFrame(schema={"query_id": pl.String, "reader": pl.String, "score": pl.String})


def cells(
    labels: pl.DataFrame,
    utility: pl.DataFrame,
    runs: pl.DataFrame,
    eligible: pl.DataFrame,
    threshold: float | None,
) -> pl.DataFrame:
    """CELLS of every list in UTILITY.

    A question without a list has no document that suffices. One document that does is enough, whether or not the others
    were judged. Where the annotator erag was not eligible (its `eligible_questions`), ``alone`` is null. A label or
    a utility of at least ``threshold`` suffices (None: `SUFFICES`); by a score of which more is not better none does.
    """
    least = SUFFICES if threshold is None else threshold
    keys = [*OF_LIST, "depth"]
    # of depth 0 are outputs of systems whose lists are not known
    scores = [one for one in utility["score"].unique() if label_sign("erag", one) > 0]
    of_scores = utility.filter(pl.col("score").is_in(scores), ~pl.col("run_id").is_in(REFERENCES))
    lists = of_scores.filter(pl.col("depth") > 0).select(*keys, list=pl.col("value") >= least)
    first = _first_ranks(labels, lists, runs, least)
    of_erag = eligible.select("reader", "score", "query_id", is_eligible=True)
    lists = lists.join(of_erag, on=["reader", "score", "query_id"], how="left")
    single_document = pl.when("is_eligible").then(
        pl.when(pl.col("first_useful") <= pl.col("depth"))
        .then(True)
        .when((pl.col("first_unjudged") <= pl.col("depth")).fill_null(False).not_())
        .then(False)
    )
    joined = lists.join(first, on=OF_LIST, how="left").with_columns(alone=single_document)
    without_documents = utility.filter(run_id=NO_PASSAGES).select(
        "reader", "score", "query_id", closed_book=pl.col("value") >= least
    )
    known = joined.join(without_documents, on=["reader", "score", "query_id"], how="left")
    facts = ["alone", "list", "closed_book"]
    rows = [(*key, name) for key, (name, _) in CELL_OF.items()]
    named = known.join(pl.DataFrame(rows, [*facts, "cell"], orient="row"), on=facts, how="left")
    return named.select(CELLS.columns.names).sort(keys)


def _first_ranks(
    labels: pl.DataFrame, lists: pl.DataFrame, runs: pl.DataFrame, threshold: float
) -> pl.DataFrame:
    """Columns of `OF_LIST`, first_useful and first_unjudged: the smallest such rank of each list, or null."""
    erag_labels = labels.filter(annotator="erag").select("reader", "score", "query_id", "doc_id", "label")
    ranked = runs.select("run_id", "query_id", "rank", "doc_id")
    documents = lists.select(OF_LIST).unique().join(ranked, on=["run_id", "query_id"])
    labelled = documents.join(erag_labels, on=["reader", "score", "query_id", "doc_id"], how="left")
    return labelled.group_by(OF_LIST).agg(
        first_useful=pl.col("rank").filter(pl.col("label") >= threshold).min(),
        first_unjudged=pl.col("rank").filter(pl.col("label").is_null()).min(),
    )


def cells_of(evaluation: Evaluation) -> pl.DataFrame:
    return evaluation.tables.read(CELLS)


def columns_of_cells(evaluation: Evaluation) -> list[DatasetColumns]:
    return cell_columns(evaluation.once(cells_of), evaluation.inputs.queries, evaluation.settings)


def cell_columns(cells: pl.DataFrame, queries: pl.DataFrame, settings: Settings) -> list[DatasetColumns]:
    """CELLS as columns over the queries of each dataset, under the measures ``alone`` (0 or 1) and ``cell``.

    A cell is its place in `CELLS_MEANING`.
    """
    index = pl.col("cell").replace_strict(CELL_NAMES, range(len(CELL_NAMES)), return_dtype=pl.Float64)
    measures = {"alone": pl.col("alone").cast(pl.Float64), "cell": index}
    values = [
        cells.with_columns(
            annotator=pl.lit("erag"),
            measure=pl.lit(measure),
            cutoff=pl.col("depth"),
            ideal=pl.lit(ANY),
            value=value,
        )
        for measure, value in measures.items()
    ]
    return by_dataset(values, UTILITY.empty(), queries, settings)


def of_measure(dataset: DatasetColumns, measure: str) -> list[NamedColumn]:
    return [item for item in dataset.columns if item[0]["measure"] == measure]


def _make(evaluation: Evaluation, _: StageProgress) -> list[pl.DataFrame]:
    eligible = evaluation.eligible.get("erag", _NONE_ELIGIBLE)
    frames = evaluation.labels, evaluation.utility, evaluation.inputs.runs
    return [cells(*frames, eligible, evaluation.settings.threshold)]


ANALYSIS = Analysis(schema=CELLS, sources=(LABELS, UTILITY, RUNS), settings=("threshold",), make=_make)
