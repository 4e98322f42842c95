"""Lists whose scores rise from the best document to the worst: ranks, distances, or lists that are worst first."""

import polars as pl

from erag_ray.data.runs.entries import RunFile

RISING_FRACTION = 0.9
"""Fraction of the lists with scores that rise with the rank from which on this is an error, not chance."""
NUM_SHOWN = 3
BY_SCORE = (
    "The highest score is the best, so these lists would be read from their end. Write scores that fall with the rank, "
    "such as minus the rank or the distance; if the scores are right, sort each list by falling score, with rank 0."
)
BY_RANK = (
    "They are ranks or distances, or the lists are worst first. Give the best document first and scores that fall, "
    "such as minus the distance, or leave the scores out."
)


def report_rising(file: RunFile, ranked: pl.DataFrame, advice: str = BY_RANK) -> bool:
    """Record an error and return True if scores rise with the rank in nearly all lists of a run, or give no order.

    Other lists whose scores rise anywhere are a warning, if the rank is the order that is used. ``ranked`` has
    ``query_id``, ``rank`` (a number: the order that the lists claim), ``score``, and ``line``, if known; ``advice`` is
    the consequence and what to do.
    """
    run = f"run {file.name!r}"
    if fault := rising_fault(ranked, run, advice, path=file.path):
        file.diagnostics.error(f"scores that rise with the rank in {run}", fault)
    elif advice == BY_RANK:
        lists = _lists(ranked.with_columns(pl.col("score").cast(file.precision)))
        kind = f"{run}: lists whose scores do not fall with the rank, which is used"
        file.diagnostics.warn_each(kind, lists.filter(pl.col("steps") > 0)["query_id"])
    return bool(fault)


def rising_fault(ranked: pl.DataFrame, name: str, advice: str = BY_RANK, *, path: str = "") -> str:
    """Return the message about lists whose scores rise, "" if they do not, or too few; arguments as of `report_rising`.

    ``path`` is of the run's file, if it has one; the first line is named too, if known.
    """
    lists, scored = _lists(ranked), ranked.drop_nulls("score")
    if advice == BY_SCORE and lists.is_empty() and scored.height > scored["query_id"].n_unique() + 1:
        text = (
            "the scores are the same in every list, and give no order. Write scores that fall with the rank"
        )
        return ": ".join([*filter(None, [path]), name, text])
    rising = lists.filter("rises")
    rows = ranked.join(rising, on="query_id", how="semi", maintain_order="left")
    are_ranks = rows.select((pl.col("rank") == pl.col("score")).all()).item()
    # a single list of two documents is too little evidence, unless its scores are its ranks
    if rising.height < RISING_FRACTION * max(lists.height, 1) or not (are_ranks or rising["steps"].sum() > 1):
        return ""
    first = rows.filter(query_id=rising["query_id"][0]).drop_nulls("score").sort("rank").head(NUM_SHOWN)
    pairs = ", ".join(
        f"rank {rank:.10g} score {score:.10g}" for rank, score in first.select("rank", "score").iter_rows()
    )
    lines = f" (lines {', '.join(map(str, first['line']))})" if "line" in first.columns else ""
    what = "are ranks" if are_ranks else "rise with the rank"
    location = ":".join([path, str(first["line"][0])]) if lines else path
    text = f"scores {what} in {rising.height:,} of {lists.height:,} lists, such as query {first['query_id'][0]!r}: "
    return ": ".join([*filter(None, [location]), name, f"{text}{pairs}{lines}. {advice}"])


def _lists(ranked: pl.DataFrame) -> pl.DataFrame:
    """Return the lists with more than one score: ``query_id``, ``steps`` (that rise) and whether it ``rises``."""
    ordered = ranked.drop_nulls("score").sort("rank", -pl.col("score"), nulls_last=True, maintain_order=True)
    step = pl.col("score").diff()
    # a rank without information (missing, the same in the whole list) never counts as rising
    is_order = pl.col("rank").is_not_null().all() & (pl.col("rank").n_unique() > 1)
    lists = ordered.group_by("query_id", maintain_order=True).agg(
        steps=(step > 0).sum(), rises=is_order & ~(step < 0).any(), differs=pl.col("score").n_unique() > 1
    )
    return lists.filter("differs")
