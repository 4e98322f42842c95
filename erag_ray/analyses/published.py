"""Published tables of the papers, for reference: other data and readers, so never in one column with own results."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

import polars as pl

from erag_ray.analyses.contract import Analysis, Results
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.order import STATISTIC_NAMES, in_reading_order
from erag_ray.analyses.parts.formats import MISSING
from erag_ray.analyses.parts.model import Column, Table, Value
from erag_ray.analyses.parts.shapes import crosstab, names, part_name
from erag_ray.analyses.settings import OWN_LIST
from erag_ray.data.datasets.tasks import known_name

FOLDER = pathlib.Path(__file__).with_name("published_tables")
MEASURE_NAMES = {"p": "P", "r": "R", "map": "AP", "mrr": "RR", "ndcg": "nDCG", "hit_ratio": "Success"}
RETRIEVER_NAMES = {"bm25": "BM25", "contriever": "Contriever"}
SYMBOLS = {"kendall_tau": STATISTIC_NAMES["kendall_tau_b"], "spearman_rho": STATISTIC_NAMES["spearman_rho"]}


def published_table_1(datasets: Sequence[str]) -> Iterator[Table]:
    """Yield Table 1 of Salemi & Zamani (SIGIR 2024) for the datasets of a report, one table per retriever."""
    table = pl.read_csv(FOLDER / "erag_table_1.csv").with_columns(pl.col("measure").replace(MEASURE_NAMES))
    canonical = list(dict.fromkeys(known_name(dataset) for dataset in datasets))
    for retriever, shown in RETRIEVER_NAMES.items():
        rows = table.filter(retriever=retriever)
        present = [name for name in canonical if name is not None and name in rows["dataset"]]
        if present:
            yield _as_printed(rows, present, shown)


def _as_printed(published: pl.DataFrame, datasets: Sequence[str], retriever: str) -> Table:
    complete = published.with_columns(cutoff=pl.lit(50, pl.Int32), ideal=pl.lit(OWN_LIST))
    by_statistic = in_reading_order(complete).unpivot(
        list(SYMBOLS), index=["annotator", "measure", "dataset"], variable_name="statistic"
    )
    rows = by_statistic.with_columns(
        head=pl.format("{} (KILT dev) {}", "dataset", pl.col("statistic").replace(SYMBOLS))
    )
    heads = [f"{dataset} (KILT dev) {symbol}" for dataset in datasets for symbol in SYMBOLS.values()]
    return crosstab(
        (
            ((str(annotator), str(measure)), part)
            for (annotator, measure), part in rows.group_by("annotator", "measure", maintain_order=True)
        ),
        names("annotator", "measure"),
        "head",
        {head: Column(head) for head in heads},
        lambda row: Value(row["value"], reason="" if row["value"] is not None else "not reported"),
        name=part_name("published_table_1", retriever),
        title=f"Table 1 as published: {retriever}, 50 documents",
        caption="Salemi & Zamani, SIGIR 2024: T5-small with Fusion-in-Decoder, fine-tuned, on KILT's dev sets; without "
        f"intervals. Other questions, passages and readers than those above. {MISSING}: not reported.",
    )


def show_all(results: Results) -> Iterator[Table]:
    """Yield the published tables of the datasets of a report."""
    yield from published_table_1(results[MEANS]["dataset"].unique().sort().to_list())


ANALYSIS = Analysis(shows=(MEANS,), show_all=show_all, section="published", group="Table 1 as published")
