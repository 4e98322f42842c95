"""COMPARISONS of every two runs: which differ, and how many questions would settle what is not settled."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from erag_ray.analyses import paired
from erag_ray.analyses.answer import listed_and, needed_questions, not_compared, other_depths
from erag_ray.analyses.columns import DatasetColumns
from erag_ray.analyses.contract import OF_COLUMNS, TESTED, Analysis, Results, View, estimated, per_dataset
from erag_ray.analyses.order import MAX_RUNS, by_utility, first_of_each, reasons
from erag_ray.analyses.parts.formats import counted, utility_name
from erag_ray.analyses.parts.model import Figure, Finding, Part, Table
from erag_ray.analyses.parts.shapes import listing, name_field, rows_of
from erag_ray.analyses.settings import ANY, Settings
from erag_ray.analyses.standing import Pairs, Standing
from erag_ray.annotators import label_sign
from erag_ray.data.runs.references import END_TO_END
from erag_ray.store.schemas import table_schema

COMPARISONS = table_schema(
    "comparisons",
    f"dataset* reader* score* annotator* run_a* run_b* depth* measure* cutoff* ideal* {paired.FIGURE_COLUMNS}",
)
MAX_SHOWN = 20
"""With more runs, only pairs with the best run are shown."""


def comparisons(dataset: DatasetColumns, settings: Settings) -> pl.DataFrame:
    """COMPARISONS of every two runs, by utility and by each measure of each annotator.

    p-values by `agreement.paired_test`, adjusted by Holm over all pairs of runs within one dataset and
    quantity: utility at all depths of a reader, or a measure of an annotator at a depth. ``difference`` is run_a's mean
    minus run_b's over the ``num_queries`` judged in both, or over all with the estimates of an auxiliary label.
    ``low`` and ``high`` agree with ``p_value``, ``low_adjusted`` and ``high_adjusted`` with ``p_adjusted``. Measures
    whose ideal is the run's own list are left out: they compare no runs.
    """
    return paired.compare_runs([({}, dataset)], settings, COMPARISONS)


def show(view: View) -> Iterator[Part]:
    """Yield which runs differ, and what is not settled."""
    rows = view.rows(COMPARISONS)
    if len(view.runs) > 1 and rows.height:
        yield comparison_table(view, rows)
    if view.standing is not None:
        yield from needed_questions(view.standing)
        yield from not_compared(view.standing)
        yield from other_depths(view.standing)
        yield from labels_first(rows, view.standing, view.results.alpha)


def comparison_table(view: View, rows: pl.DataFrame) -> Table:
    """Compare all pairs of runs by utility at every depth, and by the first measure of each annotator at full depth.

    With more than `MAX_SHOWN` runs, only pairs with the best one are shown.
    """
    first, is_cut = view.runs[0], len(view.runs) > MAX_SHOWN
    is_first = (pl.col("run_a") == first) | (pl.col("run_b") == first)
    shown = rows.filter(is_first) if is_cut else rows
    quantities = [*((name, part) for (_, name), part in by_utility(shown)), *first_of_each(shown)]
    left_out = f"Only pairs with {first}; the others are in the table comparisons. " if is_cut else ""
    return listing(
        (
            {**row, "quantity": name}
            for name, part in quantities
            for row in rows_of(part.sort("run_a", "run_b"))
        ),
        (name_field("runs", paired.pair_name), name_field("by", "quantity"), *paired.DIFFERENCE_FIELDS),
        caption=f"{paired.paired_caption(view.results.confidence)}{reasons(rows)}{left_out}"
        "Other measures and cut-offs are in the table comparisons.",
        is_main=view.is_only,
        **view.about("comparisons", "which runs differ"),
    )


def labels_first(comparisons: pl.DataFrame, standing: Standing, alpha: float) -> Iterator[Finding]:
    """Yield which annotators put the same run first, by P over the whole list and over the same questions."""
    if len(standing.leaders) > 1 or len(standing.runs) < 2 or not standing.sign or standing.is_useless:
        return
    depth = standing.deepest
    rows = comparisons.filter(
        pl.col("annotator") != END_TO_END, depth=depth, measure="P", cutoff=depth, ideal=ANY
    ).drop_nulls("difference")
    compared = min((one.num_queries for one in standing.rivals), default=0)
    same, another, several, fewer = list[str](), list[str](), list[str](), list[str]()
    for annotator in sorted(rows["annotator"].unique(), key=lambda name: (name != "erag", name)):
        part, sign = rows.filter(annotator=annotator), label_sign(annotator, standing.score)
        first, _ = Pairs(part, sign, alpha).leaders(sorted({*part["run_a"], *part["run_b"]}), depth)
        num_queries = int(str(part["num_queries"].min()))
        if sign and num_queries not in (compared, standing.num_estimated):
            fewer.append(f"{annotator} ({listed_and(first)}, {counted(num_queries, 'question')})")
        elif sign and len(first) > 1:
            several.append(f"{annotator} ({listed_and(first)})")
        elif sign and first == [standing.runs[0]]:
            same.append(annotator)
        elif sign:
            another.append(f"{annotator} ({first[0]})")
    heads = (
        "put the same run first",
        "another" if same else "put another run first",
        "several" if same or another else "put several runs first",
        "on other questions" if same or another or several else "put first, on other questions",
    )
    parts = [
        f"{head}: {', '.join(names)}"
        for head, names in zip(heads, (same, another, several, fewer), strict=True)
        if names
    ]
    if parts:
        yield Finding(topic="label", text=f"labels (P@{depth}) that {'; '.join(parts)}")


def show_all(results: Results) -> Iterator[Table]:
    """Compare the best run of each dataset with the next best ones, by utility at the largest depth."""
    used = results[COMPARISONS].filter(annotator=END_TO_END)
    if len(results.rankings) < 2 or not used.height:
        return
    rows: list[dict[str, Any]] = []
    for dataset, ranking in results.rankings.items():
        deepest = used.filter(dataset=dataset).filter(pl.col("depth") == pl.col("depth").max())
        best, others = ranking[:1], ranking[1:MAX_RUNS]
        from_best = _exchanged(deepest, pl.col("run_b").is_in(best)).filter(pl.col("run_a").is_in(best))
        against = {row["run_b"]: row for row in rows_of(from_best)}
        quantity = {"quantity": utility_name(max(deepest["depth"], default=0))}
        rows += [against[run] | quantity for run in others if run in against]
    yield listing(
        rows,
        (
            name_field("dataset", "dataset"),
            name_field("runs", paired.pair_name),
            name_field("by", "quantity"),
            *paired.DIFFERENCE_FIELDS,
        ),
        name="comparisons",
        title="The best run against the others, by utility",
        caption=paired.paired_caption(results.confidence).strip(),
        is_main=True,
    )


def _exchanged(rows: pl.DataFrame, is_reversed: pl.Expr) -> pl.DataFrame:
    """Return rows of COMPARISONS with the two runs exchanged where a condition holds."""
    ends = {"low": "high", "high": "low", "low_adjusted": "high_adjusted", "high_adjusted": "low_adjusted"}
    negative = {"difference": "difference", "effect_size": "effect_size", **ends}
    return rows.with_columns(
        *(
            pl.when(is_reversed).then(b).otherwise(a).alias(a)
            for a, b in (("run_a", "run_b"), ("run_b", "run_a"))
        ),
        *(
            pl.when(is_reversed).then(0.0 - pl.col(opposite)).otherwise(name).alias(name)
            for name, opposite in negative.items()
        ),
    )


ANALYSIS = Analysis(
    schema=COMPARISONS,
    sources=OF_COLUMNS,
    settings=(*TESTED, "auxiliary"),
    make=per_dataset(comparisons, estimated),
    show=show,
    show_all=show_all,
)


SIGNIFICANT, NOT_SIGNIFICANT = "significant (Holm)", "inconclusive"


def run_differences(view: View) -> Iterator[Figure]:
    """Plot the difference in utility of all pairs of runs with its interval, a panel per depth, the largest first.

    A pair is named ``better - worse`` and sorted by its difference at the largest depth of its comparisons.
    """
    is_shown = pl.col("run_a").is_in(view.shown) & pl.col("run_b").is_in(view.shown)
    pairs = view.rows(COMPARISONS).filter(is_shown, annotator=END_TO_END)
    compared = pairs.drop_nulls("difference")
    if compared.is_empty() or view.standing is None:
        return
    num_missing = pairs.height - compared.height
    missing = f" Not compared: {num_missing} of {pairs.height} (too few questions)." if num_missing else ""
    yield Figure(
        data=_oriented(compared, view.results.alpha),
        mark="interval",
        x="difference",
        y="pair",
        low="low",
        high="high",
        color="test",
        color_names=(SIGNIFICANT, NOT_SIGNIFICANT),
        facet="documents",
        rules={"no difference": 0.0},
        x_title="difference of utility",
        caption="Paired over questions; sorted by the difference at the largest depth. Intervals "
        f"({view.results.interval} where one pair is compared) and p by sign flips, with Holm's correction over all "
        f"pairs of runs and depths: an interval excludes 0 exactly if the pair is significant.{missing}"
        f"{view.not_shown()}",
        is_main=True,
        **view.about("differences", f"differences of runs by utility (mean {view.standing.score})"),
    )


def _oriented(pairs: pl.DataFrame, alpha: float) -> pl.DataFrame:
    """Put the better run of each pair first, and sort by the difference at the largest depth, descending."""
    pair = ["run_a", "run_b"]
    deepest = pairs.sort("depth").group_by(pair).agg(size=pl.col("difference").last())
    ordered = pairs.join(deepest, on=pair).sort(
        pl.col("size").abs(), *pair, "depth", descending=[True, False, False, False]
    )
    p_value = pl.col("p_adjusted")
    return (
        _exchanged(ordered, pl.col("size") < 0)
        .sort("depth", maintain_order=True)
        .select(
            pair=pl.format("{} - {}", *pair),
            documents=pl.when(pl.col("depth") > 0)
            .then(pl.format("k = {}", "depth"))
            .otherwise(pl.lit("end to end")),
            difference="difference",
            low="low_adjusted",
            high="high_adjusted",
            test=pl.when(p_value <= alpha).then(pl.lit(SIGNIFICANT)).otherwise(pl.lit(NOT_SIGNIFICANT)),
            p=p_value,
        )
    )


OF_DIFFERENCES = Analysis(shows=(COMPARISONS,), show=run_differences)
