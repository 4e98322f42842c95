"""The paper's Table 1 (Salemi & Zamani, SIGIR 2024) over all datasets of a job, with intervals."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import polars as pl

from erag_ray.analyses.contract import Analysis, Results
from erag_ray.analyses.correlations import CORRELATIONS, informative
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.order import STATISTIC_NAMES, in_reading_order, reasons, symbol_of, whole_lists
from erag_ray.analyses.parts.formats import MISSING, counted
from erag_ray.analyses.parts.model import Column, Table, Value
from erag_ray.analyses.parts.shapes import Row, crosstab, estimate, names, part_name
from erag_ray.analyses.settings import OWN_LIST
from erag_ray.annotators import ANNOTATORS
from erag_ray.data.datasets.tasks import DATASETS, known_name
from erag_ray.extensions import Extension
from erag_ray.extras.papers.published import MEASURE_NAMES, read_published


def table_1(correlations: pl.DataFrame, run: str, depth: int) -> Table:
    """Return the paper's Table 1 of one run: rows are annotators and measures, columns datasets and statistics.

    A cell is the agreement of a measure with the end-to-end score over queries, with its interval. Measures are taken
    at cutoff ``depth``, with the run's own list as ideal, as in the paper. Annotators without any value are left out;
    the caption says why cells are missing.
    """
    selected = whole_lists(correlations).filter(run_id=run, depth=depth)
    datasets = sorted(selected["dataset"].unique(), key=_dataset_order)
    statistics = selected["statistic"].unique(maintain_order=True).to_list()
    head = pl.format("{} {}", "dataset", pl.col("statistic").replace(STATISTIC_NAMES))
    shown = selected.filter(pl.col("value").is_not_null().any().over("annotator")).with_columns(head=head)
    absent = sorted(set(selected["annotator"]) - set(shown["annotator"]))
    notes = [f"Without any value at this depth: {', '.join(absent)}."] if absent else []
    caption = " ".join([*notes, *_over_fewer(shown), *_why_missing(shown, datasets), reasons(shown)]).strip()
    return _by_measure(
        in_reading_order(shown),
        [f"{name} {symbol_of(statistic)}" for name in datasets for statistic in statistics],
        name=part_name("table_1", run, depth),
        title=f"Table 1: {run}, {counted(depth, 'document')}: agreement of each measure with the end-to-end utility, "
        "over queries",
        caption="The layout of the paper's Table 1, with intervals. Measures are taken over the whole list, ideals "
        f"over the run's own; AP, RR and Success are the paper's MAP, MRR and Hit Ratio. {caption}".strip(),
    )


def _by_measure(
    rows: pl.DataFrame, heads: Sequence[str], value: Callable[[Row], Value] = estimate, **about: Any
) -> Table:
    """Return a table of annotators and measures by heads, which are values of the column ``head``."""
    groups = rows.group_by("annotator", "measure", maintain_order=True)
    return crosstab(
        (((str(annotator), str(measure)), part) for (annotator, measure), part in groups),
        names("annotator", "measure"),
        "head",
        {head: Column(head) for head in heads},
        value,
        **about,
    )


def _dataset_order(dataset: str) -> tuple[int, str]:
    """Sort key of a dataset: those of the paper first, in the order of `DATASETS`, then the others by name."""
    canonical = known_name(dataset)
    return (list(DATASETS).index(canonical) if canonical else len(DATASETS), dataset)


def _why_missing(shown: pl.DataFrame, datasets: Sequence[str]) -> Iterator[str]:
    """Explain missing rows: annotators not applicable to a dataset, measures that need binary labels."""
    ordered = in_reading_order(shown).select("annotator", "measure", "dataset").unique(maintain_order=True)
    present = set(ordered.rows())
    without: dict[str, list[str]] = {}
    graded: dict[tuple[str, str], list[str]] = {}
    for (annotator,), part in ordered.group_by("annotator", maintain_order=True):
        name, of_datasets = str(annotator), [one for one in datasets if one in part["dataset"]]
        missing = [one for one in datasets if one not in of_datasets]
        if missing:
            scope = ANNOTATORS[name].applies_to if name in ANNOTATORS else "where it can"
            without.setdefault(f"to {', '.join(missing)} (labels only {scope})", []).append(name)
        for measure, dataset in itertools.product(part["measure"].unique(maintain_order=True), of_datasets):
            if (name, measure, dataset) not in present:
                graded.setdefault((name, dataset), []).append(measure)
    for where, annotators in without.items():
        yield f"-: {', '.join(annotators)} not applicable {where}."
    for (name, dataset), measures in graded.items():
        yield f"-: labels of {name} in {dataset} are graded, and {', '.join(measures)} need binary ones."


def _over_fewer(selected: pl.DataFrame) -> Iterator[str]:
    """Name annotators without labels for all queries, such as a judge of a sample."""
    judged = selected.drop_nulls("value").group_by("annotator", "dataset", maintain_order=True)
    counts = judged.agg(
        pl.col("num_queries").max(), all=(pl.col("num_queries") + pl.col("num_dropped")).max()
    )
    fewer = counts.filter(pl.col("num_queries") < pl.col("all"))
    for (annotator,), part in fewer.group_by("annotator", maintain_order=True):
        listed = ", ".join(
            f"{row['num_queries']} of {row['all']} ({row['dataset']})" for row in part.to_dicts()
        )
        yield f"Queries with labels of {annotator} to this depth: {listed}."


def show_all(results: Results) -> Iterator[Table]:
    """Yield Table 1 for every depth, deepest first, and every run, of several datasets."""
    rows = informative(results[CORRELATIONS])
    if rows["dataset"].n_unique() > 1:
        lists = rows.filter(over="queries").select("depth", "run_id").unique()
        for depth, run in lists.sort("depth", "run_id", descending=[True, False]).iter_rows():
            yield table_1(rows, run, depth)


ANALYSIS = Analysis(shows=(CORRELATIONS,), show_all=show_all, group="The paper's Table 1")


RETRIEVER_NAMES = {"bm25": "BM25", "contriever": "Contriever"}
SYMBOLS = {"kendall_tau": STATISTIC_NAMES["kendall_tau_b"], "spearman_rho": STATISTIC_NAMES["spearman_rho"]}


def published_table_1(datasets: Sequence[str]) -> Iterator[Table]:
    """Yield Table 1 of Salemi & Zamani (SIGIR 2024) for the datasets of a report, one table per retriever."""
    table = read_published("erag_table_1.csv").with_columns(pl.col("measure").replace(MEASURE_NAMES))
    canonical = list(dict.fromkeys(known_name(dataset) for dataset in datasets))
    complete = in_reading_order(table.with_columns(cutoff=pl.lit(50, pl.Int32), ideal=pl.lit(OWN_LIST)))
    by_statistic = complete.unpivot(
        list(SYMBOLS), index=["retriever", "annotator", "measure", "dataset"], variable_name="statistic"
    )
    head = pl.format("{} (KILT dev) {}", "dataset", pl.col("statistic").replace(SYMBOLS))
    for retriever, shown in RETRIEVER_NAMES.items():
        rows = by_statistic.filter(retriever=retriever).with_columns(head=head)
        present = [name for name in canonical if name is not None and name in rows["dataset"]]
        if present:
            yield _by_measure(
                rows,
                [f"{dataset} (KILT dev) {symbol}" for dataset in present for symbol in SYMBOLS.values()],
                lambda row: Value(row["value"], reason="" if row["value"] is not None else "not reported"),
                name=part_name("published_table_1", shown),
                title=f"Table 1 as published: {shown}, 50 documents",
                caption="Salemi & Zamani, SIGIR 2024: T5-small with Fusion-in-Decoder, fine-tuned, on KILT's dev sets; "
                "without intervals. Other questions, passages and readers than those above. "
                f"{MISSING}: not reported.",
            )


AS_PUBLISHED = Analysis(
    shows=(MEANS,),
    show_all=lambda results: published_table_1(results[MEANS]["dataset"].unique().sort().to_list()),
    section="published",
    group="Table 1 as published",
)
EXTENSION = Extension(name="papers", analyses=(ANALYSIS, AS_PUBLISHED))
