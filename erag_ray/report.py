"""MEANS, CORRELATIONS and what the reading took -> tables on a console and one Markdown file. Pure but for printing.

A new table is one function that returns a `Grid` and one line in `pages`.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import rich.box
import rich.console
import rich.markup
import rich.table

from erag_ray.evaluate import ANY, END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCES
from erag_ray.measures import MEASURES

REFERENCE_NAMES = {NO_PASSAGES: "no passages", GOLD_PASSAGES: "gold passages"}
STATISTIC_NAMES = {"kendall_tau_b": "tau", "spearman_rho": "rho"}
NOTHING = "-"
LINE_WIDTH = 160
"""Columns of text where the output is a file or a pipe."""
KEYS = ["annotator", "measure", "cutoff", "ideal"]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One table as people see it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    num_names: int = 1
    """The first columns are names, aligned left; the others are figures."""
    on_console: bool = True
    """Also printed, not only in the file."""


def number(value: float | None, digits: int = 3) -> str:
    """A figure of a table; a missing one is a dash."""
    return NOTHING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """``value [low, high]``, or what there is of it."""
    if value is None or low is None or high is None:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"


# --- which retriever ---


def which_retriever(means: pl.DataFrame, dataset: str, confidence: float) -> Grid:
    """The first table: utility at every depth, then each measure at its full depth, for every run.

    Runs stand in the order of their utility at the largest depth, best first.
    """
    own = means.filter(pl.col("dataset") == dataset)
    runs = _best_first(own)
    references = [name for name in REFERENCES if name in own["run_id"].unique()]
    rows = [*_utility_rows(own, runs, references), *_measure_rows(own, runs, len(references))]
    queries = int(own.filter(pl.col("annotator") == END_TO_END)["num_queries"].max() or 0)  # type: ignore[arg-type]
    return Grid(
        title=f"{dataset}: which retriever serves the reader best ({queries} queries)",
        columns=("annotator", "mean", *runs, *(REFERENCE_NAMES[name] for name in references)),
        rows=tuple(rows),
        caption=f"Mean over queries with its {confidence:.0%} bootstrap interval. Best run first, by utility at the "
        "largest depth. utility@k: score of the reader's output with the first k documents. (list), (pool): the ideal is "
        "the run's own list, or the union of all runs (only the latter compares runs).",
        num_names=2,
    )


def _best_first(means: pl.DataFrame) -> list[str]:
    used = means.filter((pl.col("annotator") == END_TO_END) & ~pl.col("run_id").is_in(REFERENCES))
    deepest = used.filter(pl.col("depth") == pl.col("depth").max())
    ordered = deepest.group_by("run_id").agg(pl.col("mean").mean())
    return ordered.sort("mean", "run_id", descending=[True, False], nulls_last=True)["run_id"].to_list()


def _utility_rows(
    means: pl.DataFrame, runs: Sequence[str], references: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    used = means.filter(pl.col("annotator") == END_TO_END)
    of_runs = used.filter(~pl.col("run_id").is_in(REFERENCES))
    for (reader, score, depth), part in of_runs.sort("reader", "depth").group_by(
        "reader", "score", "depth", maintain_order=True
    ):
        beside = used.filter(pl.col("run_id").is_in(REFERENCES) & (pl.col("reader") == reader))
        figures = {**_figures(part, "run_id"), **_figures(beside, "run_id")}
        # the reader without and with the gold passages is the same at every depth
        yield (str(score), f"utility@{depth}", *(figures.get(run, NOTHING) for run in [*runs, *references]))


def _measure_rows(means: pl.DataFrame, runs: Sequence[str], num_blank: int) -> Iterator[tuple[str, ...]]:
    measured = means.filter((pl.col("annotator") != END_TO_END) & (pl.col("depth") == pl.col("depth").max()))
    full = measured.filter(pl.col("cutoff") == pl.col("depth"))
    for (annotator, measure, cutoff, ideal), part in in_reading_order(full).group_by(
        KEYS, maintain_order=True
    ):
        figures = _figures(part, "run_id")
        name = measure_name(str(measure), int(str(cutoff)), str(ideal))
        yield (str(annotator), name, *(figures.get(run, NOTHING) for run in runs), *[""] * num_blank)


def measure_name(measure: str, cutoff: int, ideal: str) -> str:
    """``nDCG@10 (pool)``; measures without an ideal have no bracket."""
    return f"{measure}@{cutoff}" if ideal == ANY else f"{measure}@{cutoff} ({ideal})"


def _figures(part: pl.DataFrame, column: str) -> dict[str, str]:
    return {
        row[column]: with_interval(row["mean"], row["low"], row["high"]) for row in part.iter_rows(named=True)
    }


# --- how far each label can be trusted ---


def correlation_grid(
    correlations: pl.DataFrame,
    dataset: str,
    depth: int,
    statistic: str,
    runs: Sequence[str],
    *,
    deepest: bool,
) -> Grid:
    """Annotators and measures down, runs across: one statistic against the utility at the same depth.

    The paper's Table 1 with intervals and ceilings (Salemi & Zamani, SIGIR 2024).
    """
    own = correlations.filter(
        pl.col("dataset") == dataset,
        pl.col("over") == "queries",
        pl.col("depth") == depth,
        pl.col("cutoff") == depth,
        pl.col("statistic") == statistic,
    )
    rows = []
    for (annotator, measure, cutoff, ideal), part in in_reading_order(own).group_by(
        KEYS, maintain_order=True
    ):
        cells = {row["run_id"]: _correlation_cell(row) for row in part.iter_rows(named=True)}
        name = measure_name(str(measure), int(str(cutoff)), str(ideal))
        rows.append((str(annotator), name, *(cells.get(run, NOTHING) for run in runs)))
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Grid(
        title=f"{dataset}: {symbol} of each measure with the end-to-end utility, over queries, {depth} documents",
        columns=("annotator", "measure", *runs),
        rows=tuple(rows),
        caption=f"{symbol} [interval] /ceiling, the most {symbol} that the ties in these data allow. {_reasons(own)}"
        "Other cut-offs are in the table correlations.",
        num_names=2,
        on_console=deepest,
    )


def in_reading_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows by annotator (eRAG first), then by measure as `MEASURES` lists them, cut-off and ideal."""
    annotators = sorted(rows["annotator"].unique(), key=lambda name: (name != "erag", name))
    measures = [*MEASURES, *sorted(set(rows["measure"].unique()) - set(MEASURES))]
    place = [
        pl.col("annotator").replace_strict(annotators, range(len(annotators)), return_dtype=pl.Int64),
        pl.col("measure").replace_strict(measures, range(len(measures)), return_dtype=pl.Int64),
    ]
    return rows.sort(*place, "cutoff", "ideal", maintain_order=True)


def _correlation_cell(row: Mapping[str, object]) -> str:
    value, low, high, ceiling = (_float(row[name]) for name in ("value", "low", "high", "ceiling"))
    return NOTHING if value is None else f"{with_interval(value, low, high)} /{number(ceiling, 2)}"


def _float(value: object) -> float | None:
    return value if isinstance(value, float) else None


def _reasons(rows: pl.DataFrame) -> str:
    missing = rows.filter(pl.col("reason").is_not_null()).group_by("reason").len()
    ordered = missing.sort("len", "reason", descending=[True, False])
    listed = [f"{reason} ({count} cells)" for reason, count in ordered.head(3).iter_rows()]
    return f"Missing figures: {'; '.join(listed)}. " if listed else ""


def across_runs_grid(correlations: pl.DataFrame, dataset: str, depth: int) -> Grid:
    """Whether each label ranks the retrievers as end-to-end evaluation does."""
    own = correlations.filter(
        (pl.col("dataset") == dataset) & (pl.col("over") == "runs") & (pl.col("depth") == depth)
    ).filter(pl.col("cutoff") == depth)
    statistics = own["statistic"].unique(maintain_order=True).to_list()
    num_runs = int(own["num_runs"].max() or 0)  # type: ignore[arg-type]
    rows = []
    for (annotator, measure, cutoff, ideal), part in in_reading_order(own).group_by(
        KEYS, maintain_order=True
    ):
        found = {r["statistic"]: _with_p(r) for r in part.iter_rows(named=True)}
        name = measure_name(str(measure), int(str(cutoff)), str(ideal))
        rows.append((str(annotator), name, *(found.get(statistic, NOTHING) for statistic in statistics)))
    return Grid(
        title=f"{dataset}: do the labels rank the {num_runs} runs as end-to-end does, {depth} documents",
        columns=("annotator", "measure", *(STATISTIC_NAMES.get(s, s) for s in statistics)),
        rows=tuple(rows),
        caption=f"Over {num_runs} runs. With fewer than 8 runs there is no p-value, and hardly any certainty.",
        num_names=2,
    )


def _with_p(row: Mapping[str, object]) -> str:
    value, p_value = _float(row["value"]), _float(row["p_value"])
    return number(value) if p_value is None else f"{number(value)} (p = {number(p_value)})"


# --- what it cost ---


def work_grid(stage: Mapping[str, object]) -> Grid:
    """What was asked, what was known, what was read; pairs and lists apart.

    Args:
        stage: the manifest of a reading stage (`steps.reading`).
    """
    counts = stage["counts"]
    assert isinstance(counts, list)
    columns = ("reader", "kind", "asked", "distinct", "cached", "new")
    rows = tuple(
        tuple(f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in columns)
        for row in counts
    )
    return Grid(
        title=f"Readings of the stage {stage['stage']}",
        columns=("reader", "kind", "asked", "distinct (union)", "cached", "new"),
        rows=rows,
        caption="pairs: one document alone (eRAG). lists: several documents (end to end). Equal questions with equal "
        f"texts are read once. {stage['summary']}",
        num_names=2,
    )


def cost_grid(costs: pl.DataFrame) -> Grid:
    """COSTS of the stages of this job."""
    rows = tuple(
        (
            row["stage"],
            f"{row['num_requests']:,}",
            f"{row['num_reader_calls']:,}",
            f"{row['num_prompt_tokens']:,}",
            f"{row['num_output_tokens']:,}",
            number(row["seconds"], 1),
            number(row["device_seconds"], 1),
            number(row["peak_memory_bytes"] / 2**30, 2) if row["peak_memory_bytes"] else NOTHING,
        )
        for row in costs.iter_rows(named=True)
    )
    heads = (
        "requests",
        "reader calls",
        "tokens in",
        "tokens out",
        "seconds",
        "reader seconds",
        "peak GiB a reader",
    )
    caption = "What the last run of each stage did itself; readings found in the store cost nothing again."
    return Grid(title="Costs", columns=("stage", *heads), rows=rows, caption=caption)


# --- out ---


def pages(
    means: pl.DataFrame,
    correlations: pl.DataFrame,
    costs: pl.DataFrame,
    stages: Sequence[Mapping[str, object]],
    confidence: float,
) -> list[Grid]:
    """Every table of the report, in reading order."""
    grids = []
    for dataset in means["dataset"].unique().sort():
        runs = _best_first(means.filter(pl.col("dataset") == dataset))
        depths = correlations.filter(pl.col("dataset") == dataset)["depth"].unique().sort(descending=True)
        grids.append(which_retriever(means, dataset, confidence))
        grids += [
            correlation_grid(correlations, dataset, depth, statistic, runs, deepest=depth == depths[0])
            for depth in depths
            for statistic in correlations["statistic"].unique(maintain_order=True)
        ]
        grids += [across_runs_grid(correlations, dataset, depths[0])] if len(depths) and len(runs) > 1 else []
    grids += [work_grid(stage) for stage in stages]
    return [*grids, cost_grid(costs)] if costs.height else grids


def open_console() -> rich.console.Console:
    """Standard output: as wide as the terminal, or `LINE_WIDTH` where it goes to a file or a pipe."""
    return rich.console.Console(width=None if sys.stdout.isatty() else LINE_WIDTH)


def show(grids: Sequence[Grid], console: rich.console.Console) -> None:
    """Print the tables that belong on a console."""
    for grid in grids:
        if grid.on_console:
            console.print(_rich_table(grid))
            console.print()


def _rich_table(grid: Grid) -> rich.table.Table:
    table = rich.table.Table(
        title=rich.markup.escape(grid.title),
        caption=rich.markup.escape(grid.caption),
        box=rich.box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        title_style="bold",
    )
    for index, column in enumerate(grid.columns):
        justify: str = "left" if index < grid.num_names else "right"
        table.add_column(rich.markup.escape(column), justify=justify, no_wrap=index < grid.num_names)  # type: ignore[arg-type]
    for row in grid.rows:
        table.add_row(*map(rich.markup.escape, row))
    return table


def markdown(title: str, grids: Sequence[Grid], notes: Sequence[str]) -> str:
    """The report as one Markdown text; nothing that came from a file can break its tables."""
    out = io.StringIO()
    out.write(f"# {_plain(title)}\n")
    for grid in grids:
        out.write(f"\n## {_plain(grid.title)}\n\n")
        out.write(_line(grid.columns))
        out.write(
            _line(["---"] * grid.num_names + ["---:"] * (len(grid.columns) - grid.num_names), escape=False)
        )
        out.writelines(_line(row) for row in grid.rows)
        out.write(f"\n{_plain(grid.caption)}\n" if grid.caption else "")
    if notes:
        out.write("\n## Notes on the inputs\n\n")
        out.writelines(f"- {_plain(note)}\n" for note in notes)
    return out.getvalue()


def _line(cells: Sequence[str], *, escape: bool = True) -> str:
    return "| " + " | ".join(_plain(cell) if escape else cell for cell in cells) + " |\n"


def _plain(text: str) -> str:
    for mark in "\\|<>`*_[]#":
        text = text.replace(
            mark, "\\" + mark if mark in "\\|`*_#" else {"<": "&lt;", ">": "&gt;"}.get(mark, mark)
        )
    return " ".join(text.split())
