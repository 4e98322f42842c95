"""Which label predicts the end-to-end score best, and what does eRAG's label miss? One page from finished comparisons.

    python notebooks/study.py OUT COMPARISON COMPARISON ...

Each comparison is the ``out`` of a finished jobs/compare.py. Per question: tau-b of a label's measure (P of the list;
UDCG for its annotators) with the end-to-end score of that list, the mean over the runs. Across runs (twelve or more):
tau-b of the runs' means. Intervals resample questions, the same for all labels; a difference from eRAG has the p-value
of its resamples, by Holm over all differences of the page. Credit and order come from the comparisons that have them.
Writes OUT/report/index.html, OUT/study.md, and the first figures of agreement and credit as pictures (PNG).
"""

import itertools
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
import vl_convert

from erag_ray.analyses.parts.model import Column, Figure, Format, Report, Section, Table, Value, Verdict
from erag_ray.analyses.parts.shapes import names, plain, tables_of
from erag_ray.extras.credit.agreement import CREDIT_AGREEMENT, LISTS
from erag_ray.extras.credit.stage import OF_CREDITS, OF_ORDERS
from erag_ray.extras.papers.pictures import svg
from erag_ray.measures.agreement import Interval, holm, resample_weights, resampled_agreement
from erag_ray.report.build import views_of
from erag_ray.report.load import load
from erag_ray.report.markdown import parts_as_markdown
from erag_ray.report.page.write import write_page
from erag_ray.store.folder import Folder

Floats = npt.NDArray[np.float64]
MIN_RUNS = 12
NUM_RESAMPLES = 10_000
TAU = "kendall_tau_b"
FAMILIES = {"udcg": "UDCG", "udcg_provenance": "UDCG"}
"""Annotator -> its measure; P for all others."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """One dataset of a comparison, with lists of one depth; queries in one order."""

    comparison: str
    dataset: str
    depth: int
    readers: tuple[str, ...]
    query_ids: tuple[str, ...]
    utility: Mapping[str, Floats]
    """Run -> [num_queries]."""
    labels: Mapping[str, Mapping[str, Floats]]
    """Annotator -> run -> [num_queries], its measure."""

    @property
    def names(self) -> tuple[str, str, str]:
        """Return comparison, dataset and number of documents."""
        return self.comparison, self.dataset, str(self.depth)

    @property
    def num_queries(self) -> int:
        """Return the number of questions."""
        return len(self.query_ids)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How well a label predicts the end-to-end score: a value, and that of each resample (NaN: undefined)."""

    of: Columns
    annotator: str
    over: str
    value: float
    values: Floats


def table(folder: pathlib.Path, name: str) -> pl.DataFrame:
    """Return a sealed table; empty if the comparison does not have it."""
    files = sorted((folder / name).glob("**/*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files]) if files else pl.DataFrame()


def columns_of(folder: pathlib.Path) -> Iterator[Columns]:
    """Yield the datasets of a comparison, with the lists of each depth that were answered."""
    queries, utility, values = (table(folder, name) for name in ("queries", "utility", "per_query"))
    measure = pl.col("annotator").replace_strict(FAMILIES, default="P")
    values = values.filter(pl.col("measure") == measure, pl.col("depth") == pl.col("cutoff"))
    runs = values["run_id"].unique().sort().to_list()
    utility = utility.filter(pl.col("run_id").is_in(runs))
    parts = queries.partition_by("dataset", as_dict=True, maintain_order=True)
    for ((dataset,), part), depth in itertools.product(parts.items(), utility["depth"].unique().sort()):
        ids, used = part.select("query_id"), utility.filter(depth=depth)
        labelled = values.filter(depth=depth).join(ids, on="query_id", how="semi")
        groups = labelled.partition_by("annotator", as_dict=True)
        yield Columns(
            comparison=folder.name,
            dataset=str(dataset),
            depth=depth,
            readers=tuple(used.join(ids, on="query_id", how="semi")["reader"].unique().sort()),
            query_ids=tuple(ids["query_id"]),
            utility=by_run(used, ids, runs),
            labels={str(name): by_run(rows, ids, runs) for (name,), rows in sorted(groups.items())},
        )


def first_of_each(folders: Iterable[pathlib.Path]) -> Iterator[Columns]:
    """Yield the datasets of comparisons; of those with the same questions and reader, that of the first."""
    seen: set[tuple[int, tuple[str, ...], tuple[str, ...]]] = set()
    for folder in folders:
        for one in columns_of(folder):
            if (one.depth, one.readers, one.query_ids) not in seen:
                yield one
            seen.add((one.depth, one.readers, one.query_ids))


def by_run(rows: pl.DataFrame, ids: pl.DataFrame, runs: Iterable[str]) -> dict[str, Floats]:
    """Return run -> values of the queries, NaN where there is none."""
    of_run = {run: rows.filter(run_id=run).select("query_id", "value") for run in runs}
    joined = {
        run: ids.join(one, on="query_id", how="left", maintain_order="left") for run, one in of_run.items()
    }
    return {run: one["value"].fill_null(np.nan).to_numpy() for run, one in joined.items()}


def per_question(one: Columns) -> Iterator[Agreement]:
    """Yield the mean over runs of tau-b over questions, of each label; runs where it is undefined are left out."""
    weights = resample_weights(one.num_queries, NUM_RESAMPLES)
    for annotator, of_runs in one.labels.items():
        results = []
        for run, values in of_runs.items():
            known = ~np.isnan(values) & ~np.isnan(one.utility[run])
            if known.any():
                results.append(
                    resampled_agreement(values[known], one.utility[run][known], TAU, weights[:, known])
                )
        defined = [result for result in results if result is not None]
        if defined:
            yield Agreement(
                of=one,
                annotator=annotator,
                over="questions",
                value=float(np.mean([result.value for result in defined])),
                values=mean_of([result.values for result in defined]),
            )


def mean_of(results: list[Floats]) -> Floats:
    """Return the mean over runs of each resample, of those runs in which it is defined."""
    stacked = np.array(results)
    known = ~np.isnan(stacked)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, stacked, 0.0).sum(axis=0) / known.sum(axis=0))


def across_runs(one: Columns) -> Iterator[Agreement]:
    """Yield tau-b of the runs' means, of each label; nothing for fewer than `MIN_RUNS` runs."""
    if len(one.utility) < MIN_RUNS:
        return
    weights = np.vstack([np.ones(one.num_queries), resample_weights(one.num_queries, NUM_RESAMPLES)])
    for annotator, of_runs in one.labels.items():
        label, used = np.column_stack(list(of_runs.values())), np.column_stack(list(one.utility.values()))
        known = ~(np.isnan(label) | np.isnan(used)).any(axis=1)
        if known.sum() < 2:
            continue
        taus = tau_b(weights[:, known] @ label[known], weights[:, known] @ used[known])
        yield Agreement(of=one, annotator=annotator, over="runs", value=float(taus[0]), values=taus[1:])


def tau_b(x: Floats, y: Floats) -> Floats:
    """Return Kendall's tau-b of each row of two matrices [num_resamples, num_runs]; NaN where one is constant."""
    first, second = (
        np.array(pair) for pair in zip(*itertools.combinations(range(x.shape[1]), 2), strict=True)
    )
    signs = [np.sign(np.round(part[:, first] - part[:, second], 9)) for part in (x, y)]
    norms = np.sqrt((signs[0] ** 2).sum(axis=1) * (signs[1] ** 2).sum(axis=1))
    with np.errstate(invalid="ignore"):
        return np.asarray((signs[0] * signs[1]).sum(axis=1) / norms)


def interval(value: float, values: Floats) -> Interval:
    """Return value, low, high by percentiles of the resamples; no ends where over 5 % of them are undefined."""
    defined = values[~np.isnan(values)]
    if len(defined) < 0.95 * len(values):
        return value, None, None
    low, high = np.quantile(defined, [0.025, 0.975])
    return value, float(low), float(high)


def p_of(values: Floats) -> float:
    """Return the two-sided p-value of "the difference is 0" by its resamples."""
    defined = values[~np.isnan(values)]
    if len(defined) < 0.95 * len(values):
        return np.nan
    share = min((defined <= 0).sum(), (defined >= 0).sum())
    return min(1.0, 2 * (float(share) + 1) / (len(defined) + 1))


def agreement_tables(agreements: list[Agreement]) -> Iterator[Table]:
    """Yield a table over questions and one across runs: each label's agreement, and what eRAG's has over it."""
    erag = {(*one.of.names, one.over): one for one in agreements if one.annotator == "erag"}
    pairs = [(one, erag.get((*one.of.names, one.over))) for one in agreements]
    p_values = [np.nan if base in (None, one) else p_of(base.values - one.values) for one, base in pairs]
    adjusted = holm(np.array(p_values))
    heads = names("comparison", "dataset", "documents", "label")
    more = (Column("tau"), Column("eRAG minus it", Format.CHANGE), Column("p (Holm)", Format.P_VALUE))
    for over, title in (("questions", "Per question"), ("runs", "Across runs")):
        rows = []
        for (one, base), p_value in zip(pairs, adjusted, strict=True):
            if one.over != over:
                continue
            difference = (
                Value()
                if base in (None, one)
                else Value(*interval(base.value - one.value, base.values - one.values))
            )
            name = f"{FAMILIES.get(one.annotator, 'P')} of {one.annotator}"
            cells = (
                Value(*interval(one.value, one.values)),
                difference,
                Value(None if np.isnan(p_value) else float(p_value)),
            )
            rows.append((*plain(*one.of.names, name), *cells))
        if rows:
            yield Table(
                name=f"agreement-{over}", title=title, columns=(*heads, *more), rows=tuple(rows), is_main=True
            )


def agreement_figure(agreements: list[Agreement], over: str) -> Figure:
    """Return labels and their agreement, by dataset."""
    is_only = len({(one.of.comparison, one.of.depth) for one in agreements}) == 1
    rows = [
        (
            one.of.dataset if is_only else f"{one.of.comparison}: {one.of.dataset}, {one.of.depth} documents",
            one.annotator,
            *interval(one.value, one.values),
        )
        for one in agreements
        if one.over == over
    ]
    schema = ["dataset", "label", "tau", "low", "high"]
    return Figure(
        name=f"agreement-{over}-figure", title=f"tau with the end-to-end score, over {over}",
        data=pl.DataFrame(rows, schema=schema, orient="row"), mark="interval", x="tau", y="label",
        low="low", high="high", facet="dataset", x_title="tau", is_main=True,
    )  # fmt: skip


def credit_figure(folders: Iterable[pathlib.Path]) -> Figure | None:
    """Return how labels order the documents of a list by Shapley credit, by dataset; None without such credits."""
    tables = [load(str(folder))[CREDIT_AGREEMENT] for folder in folders]
    chosen = (
        pl.concat(tables)
        .filter(slice="", over=LISTS, credit="shapley", statistic=TAU)
        .drop_nulls("agreement")
    )
    if chosen.is_empty():
        return None
    return Figure(
        name="credit-figure", title="tau of labels with Shapley credit, within lists",
        data=chosen.select("dataset", "annotator", "agreement", "low", "high", run="run_id"), mark="interval",
        x="agreement", y="annotator", low="low", high="high", color="run", facet="dataset", x_title="tau",
        is_main=True,
    )  # fmt: skip


def parts_of(folder: pathlib.Path, *, orders: bool) -> Iterator[Table | Figure]:
    """Yield the report's tables and figures of credit, or of orders, of a comparison that has them."""
    analyses = OF_ORDERS if orders else OF_CREDITS
    for view in views_of(load(str(folder))):
        for part in (part for analysis in analyses for part in analysis.show(view)):
            if isinstance(part, Table | Figure):
                name, title = f"{folder.name}-{part.name}", f"{folder.name}: {part.title}"
                yield replace(part, name=name, title=title, is_main=True)


def price_table(folders: Iterable[pathlib.Path]) -> Table:
    """Return the distinct requests a question of each purpose."""
    rows = []
    for folder in folders:
        counts = json.loads((folder / "compare" / "manifest.json").read_text())["counts"]
        num_queries = table(folder, "queries").height
        rows += [
            (
                *plain(folder.name, row["kind"], row["lists"]),
                Value(row["distinct"]),
                Value(row["distinct"] / num_queries),
            )
            for row in counts
        ]
    heads = (Column("requests", Format.COUNT), Column("a question", Format.TENTHS))
    return Table(
        name="price",
        title="What it costs",
        columns=(*names("comparison", "kind", "for"), *heads),
        rows=tuple(rows),
        is_main=True,
    )


def report_of(folders: list[pathlib.Path]) -> Report:
    """Return the study of some comparisons."""
    datasets = list(first_of_each(folders))
    agreements = [result for one in datasets for result in (*per_question(one), *across_runs(one))]
    overs = [over for over in ("questions", "runs") if any(one.over == over for one in agreements)]
    figures = [agreement_figure(agreements, over) for over in overs]
    of_credit = credit_figure(folders)
    credits, orders = (
        tuple(part for folder in folders for part in parts_of(folder, orders=orders))
        for orders in (False, True)
    )
    sections = (
        Section(
            name="agreement",
            title="Which label predicts the end-to-end score",
            parts=(*figures, *agreement_tables(agreements)),
        ),
        Section(
            name="credit",
            title="What a document adds to its list",
            parts=(*filter(None, [of_credit]), *credits),
        ),
        Section(name="order", title="Order and company", parts=orders),
        Section(name="price", title="Price", parts=(price_table(folders),)),
    )
    return Report(
        title="Which label predicts the end-to-end score?",
        verdict=Verdict(
            question="Which label predicts the end-to-end score, and what does eRAG's miss?", datasets=()
        ),
        sections=tuple(section for section in sections if section.parts),
        notes=((__doc__ or "").split("\n\n")[2].replace("\n", " "),),
    )


def main(out: str, folders: list[pathlib.Path]) -> None:
    """Write the page and its Markdown."""
    report, folder = report_of(folders), Folder(out)
    folder.write_bytes(parts_as_markdown(report.title, tables_of(report), report.notes).encode(), "study.md")
    for name, section in zip(("agreement", "credit"), report.sections, strict=False):
        figure = next((part for part in section.parts if isinstance(part, Figure)), None)
        if figure is not None:
            folder.write_bytes(vl_convert.svg_to_png(svg(figure), scale=1.4), f"{name}.png")
    print(write_page(folder, report))


if __name__ == "__main__":
    target, *given = sys.argv[1:]
    main(target, list(map(pathlib.Path, given)))
