"""Useful and harmful documents: a figure of labels by rank, and where gains can show that a document does harm."""

from collections.abc import Iterator, Mapping

import polars as pl

from erag_ray.analyses.columns import with_first
from erag_ray.analyses.contract import LABELLING, Analysis, Results, View
from erag_ray.analyses.order import MAX_LABELLED, in_run_order
from erag_ray.analyses.parts.model import Figure, Note
from erag_ray.annotators import PAIR, label_sign
from erag_ray.measures.agreement import share_of
from erag_ray.store.schemas import CLUSTERS, LABELS, QUERIES, RUNS

JUDGEMENTS: Mapping[str, tuple[str, pl.Expr]] = {
    "erag": ("useful (erag > 0)", pl.col("label") > 0),
    "gain": ("harmful (gain < 0)", pl.col("label") < 0),
}
"""Annotator of use or harm -> the name of what it judges, and the condition of its labels."""
COLUMNS = ("rank", "share", "low", "high", "documents", "positive", "judged")


def shares_by_rank(view: View) -> Iterator[Figure]:
    """Plot the share of useful (erag > 0) and harmful (gain < 0) documents by rank, with Wilson intervals."""
    results = view.results
    if view.standing is None or label_sign("erag", view.standing.score) < 1:
        return
    of_dataset = with_first(view.rows(QUERIES).select("query_id"), results[CLUSTERS]).select(
        "query_id", "first"
    )
    lists = results[RUNS].filter(pl.col("run_id").is_in(view.scored[:MAX_LABELLED]))
    lists = lists.join(of_dataset, on="query_id")
    judged = results[LABELS].filter(pl.col("annotator").is_in(list(JUDGEMENTS))).drop_nulls("label")
    selected = judged.join(of_dataset, on="query_id", how="semi")
    parts = [
        _shares(lists, selected.filter(annotator=annotator), condition, results.confidence, name)
        for annotator, (name, condition) in JUDGEMENTS.items()
        if annotator in selected["annotator"]
    ]
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if rows.is_empty():
        return
    ordered = in_run_order(rows, view.scored).sort("run_number", "rank", maintain_order=True)
    yield Figure(
        data=ordered.select(pl.col("run_id").alias("run"), *COLUMNS),
        mark="line",
        x="rank",
        y="share",
        low="low",
        high="high",
        color="run",
        color_names=view.color_names[:MAX_LABELLED],
        facet="documents",
        x_title="rank in the retrieved list",
        y_title="share of the documents at this rank",
        caption=_shares_caption(selected, view, view.standing.score),
        is_main=True,
        **view.about("shares", f"useful{' and harmful' if len(parts) > 1 else ''} documents by rank"),
    )


def _shares(
    lists: pl.DataFrame, labels: pl.DataFrame, condition: pl.Expr, confidence: float, name: str
) -> pl.DataFrame:
    """Return run_id and `COLUMNS`: the share of the judged documents at each rank that meet the condition."""
    joined = lists.join(labels.select(*PAIR, event=condition.cast(pl.Float64)), on=PAIR)
    has_clusters = lists["query_id"].n_unique() > lists["first"].n_unique()
    rows = []
    for (run, rank), part in joined.group_by("run_id", "rank"):
        events, clusters = part["event"].to_numpy(), part["first"].to_numpy() if has_clusters else None
        interval = share_of(events, confidence, clusters)
        rows.append((run, rank, *interval, name, int(events.sum()), len(events)))
    return pl.DataFrame(rows, schema=["run_id", *COLUMNS], orient="row")


def _shares_caption(labels: pl.DataFrame, view: View, score: str) -> str:
    harm = (
        " gain is below 0 only on questions answered without passages."
        if "gain" in labels["annotator"]
        else " Harm is not shown: the annotator gain is missing."
    )
    binary = labels.filter(annotator="erag")["label"].is_in([0.0, 1.0]).all()
    graded = "" if binary else f" Labels are graded ({score}): any score above 0 counts as useful."
    bands = f"bands: {view.results.confidence:.0%} Wilson interval."
    return f"Over the judged documents; {bands}{graded}{harm}{view.not_shown(MAX_LABELLED)}"


# clusters are there where the job has some
ANALYSIS = Analysis(
    shows=(LABELS, RUNS, QUERIES, CLUSTERS), is_optional=True, show=shares_by_rank, group=LABELLING
)


MIN_SHARE, MIN_QUESTIONS = 0.1, 20
"""Minimum share and number of questions answered closed-book. Below the share, `gain` misses nine of ten harmful
documents; below the number, the 95 % Wilson interval of a share is wider than 20 points either way."""


def harm_notes(results: Results) -> Iterator[Note]:
    """Yield on how many questions the annotator ``gain`` can show harm, and a warning where they are too few."""
    for row in results.config(LABELS).get("closed_book", []):
        dataset, answered, questions = row["dataset"], row["num_answered"], row["num_questions"]
        share = f"{answered:,} of {questions:,} questions ({answered / questions:.1%})"
        text = "gain can fall below 0 only on the questions that the reader answers without documents"
        yield Note(text=f"{dataset}: {text}, {share}")
        if answered < MIN_QUESTIONS or answered < MIN_SHARE * questions:
            reason = "the reader answers no others without documents, and there gain is never below 0"
            yield Note(text=f"{dataset}: gain can show harm on {share} only: {reason}", is_warning=True)


OF_HARM = Analysis(shows=(LABELS,), show_all=harm_notes)
