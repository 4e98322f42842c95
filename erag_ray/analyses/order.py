"""Order and names of runs and of measures, and words of captions: the same in all tables and figures."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from erag_ray.analyses.parts.formats import counted, utility_name
from erag_ray.analyses.parts.model import Column, Format
from erag_ray.analyses.settings import ANY, OWN_LIST
from erag_ray.data.runs.references import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCE_NAMES, REFERENCES
from erag_ray.measures.lists import MEASURES

KEYS = ["annotator", "measure", "cutoff", "ideal"]
STATISTIC_NAMES = {"kendall_tau_b": "tau", "spearman_rho": "rho"}
REFERENCE_MEANINGS = {
    NO_PASSAGES: "The reader without documents (closed-book)",
    GOLD_PASSAGES: "The reader with the gold passages",
}
MAX_RUNS = 8
"""Runs that have a column in tables over all datasets, and that figures show."""
MAX_LABELLED = 4
"""Runs in figures of labels, whose lines cross often."""


def by_mean_rank(rankings: Iterable[Sequence[str]]) -> list[str]:
    """Return the runs of several datasets, each best first and perhaps without some, by mean rank, then by name."""
    ranks: dict[str, list[int]] = {}
    for ranking in rankings:
        for rank, run in enumerate(ranking):
            ranks.setdefault(run, []).append(rank)
    return sorted(ranks, key=lambda run: (statistics.fmean(ranks[run]), run))


def run_columns(runs: Sequence[str]) -> dict[str, Column]:
    """Return a column for each run, by its name; the reference runs have readable ones."""
    return {
        run: Column(REFERENCE_NAMES.get(run, run), Format.NUMBER, REFERENCE_MEANINGS.get(run, ""))
        for run in runs
    }


def references_of(rows: pl.DataFrame) -> list[str]:
    """Return the reference runs that are present: without passages, with gold passages."""
    return [name for name in REFERENCES if name in rows["run_id"].unique()]


def symbol_of(statistic: str) -> str:
    return STATISTIC_NAMES.get(statistic, statistic)


def measure_name(row: Mapping[str, object]) -> str:
    """Return a name such as ``nDCG@10 (pool)``; measures without an ideal have no bracket."""
    name = f"{row['measure']}@{row['cutoff']}"
    return name if row["ideal"] == ANY else f"{name} ({row['ideal']})"


def in_reading_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by annotator (eRAG first), measure (order of `MEASURES`), cut-off and ideal."""
    annotators = sorted(rows["annotator"].unique(), key=lambda name: (name != "erag", name))
    measures = [*MEASURES, *sorted(set(rows["measure"].unique()) - set(MEASURES))]
    positions = [
        pl.col("annotator").replace_strict(annotators, range(len(annotators)), return_dtype=pl.Int64),
        pl.col("measure").replace_strict(measures, range(len(measures)), return_dtype=pl.Int64),
    ]
    return rows.sort(*positions, "cutoff", "ideal", maintain_order=True)


def by_measure(rows: pl.DataFrame) -> Iterator[tuple[tuple[str, str], pl.DataFrame]]:
    """Yield annotator and name of the measure, and the rows, in reading order."""
    for _, part in in_reading_order(rows).group_by(KEYS, maintain_order=True):
        row = part.row(0, named=True)
        yield (row["annotator"], measure_name(row)), part


def first_of_each(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield annotator and name of its first measure at full depth, as one text, and the rows, in reading order."""
    seen = set()
    for (annotator, name), part in by_measure(at_full_depth(rows)):
        if annotator not in seen:
            seen.add(annotator)
            yield f"{annotator} {name}", part


def is_reference(rows: pl.DataFrame) -> pl.Expr:
    """Return which rows are about reference runs; none of rows about two runs, which are compared ones."""
    return pl.col("run_id").is_in(REFERENCES) if "run_id" in rows.columns else pl.lit(False)


def by_utility(rows: pl.DataFrame) -> Iterator[tuple[tuple[str, str], pl.DataFrame]]:
    """Yield the score and ``utility@k``, and the rows of all runs and of the reference runs, by reader and depth."""
    utility = rows.filter(pl.col("annotator") == END_TO_END)
    of_runs = utility.filter(~is_reference(rows)).sort("reader", "depth")
    for (reader, score, depth), part in of_runs.group_by("reader", "score", "depth", maintain_order=True):
        # reference runs have the same value at every depth
        references = utility.filter(is_reference(rows) & (pl.col("reader") == reader))
        yield (str(score), utility_name(depth)), pl.concat([part, references])


def at_full_depth(rows: pl.DataFrame) -> pl.DataFrame:
    """Select the rows about labels at the largest depth, with the cut-off equal to it."""
    labels = rows.filter(pl.col("annotator") != END_TO_END)
    return labels.filter(pl.col("depth") == pl.col("depth").max(), pl.col("cutoff") == pl.col("depth"))


def whole_lists(correlations: pl.DataFrame) -> pl.DataFrame:
    """Select, as in the paper, rows over queries with the cut-off at full depth and the run's own list as ideal."""
    return correlations.filter(
        pl.col("over") == "queries",
        pl.col("cutoff") == pl.col("depth"),
        pl.col("ideal").is_in([ANY, OWN_LIST]),
    )


def table_depths(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the depth of Table 1 for each annotator: columns annotator and depth.

    It is the largest depth at which the number of queries with a value is largest. A judge that graded ten documents of
    each list has values at larger depths only for short lists.
    """
    counts = rows.drop_nulls("value").group_by("annotator", "depth").agg(pl.col("num_queries").max())
    most = counts.sort("num_queries", "depth", descending=True)
    return most.unique("annotator", keep="first", maintain_order=True).select("annotator", "depth")


def in_run_order(rows: pl.DataFrame, runs: Sequence[str]) -> pl.DataFrame:
    """Add ``run_number``, the index of ``run_id`` in ``runs``, and sort by it."""
    number = pl.col("run_id").replace_strict(
        list(runs), range(len(runs)), default=None, return_dtype=pl.Int64
    )
    return rows.with_columns(run_number=number).sort("run_number", maintain_order=True)


def reasons(rows: pl.DataFrame) -> str:
    """Return why values or intervals are missing, the most frequent reasons first."""
    missing = rows.filter(pl.col("reason").is_not_null()).group_by("reason").len()
    ordered = missing.sort("len", "reason", descending=[True, False])
    listed = [f"{reason} ({counted(count, 'cell')})" for reason, count in ordered.head(3).iter_rows()]
    more = sum(ordered["len"].to_list()[3:])
    listed += [f"other reasons ({counted(more, 'cell')})"] if more else []
    return f"Missing: {'; '.join(listed)}. " if listed else ""
