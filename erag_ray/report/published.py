"""What the papers report, to be read beside one's own: other data, other readers, so never in one column with them."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Sequence

import polars as pl

from erag_ray.datasets.known import known_name
from erag_ray.evaluate import OWN_LIST
from erag_ray.report.grid import NOTHING, Grid, number
from erag_ray.report.order import in_reading_order

FOLDER = pathlib.Path(__file__).with_name("published")
# the paper's names of measures and retrievers -> ours
MEASURE_NAMES = {"p": "P", "r": "R", "map": "AP", "mrr": "RR", "ndcg": "nDCG", "hit_ratio": "Success"}
RETRIEVER_NAMES = {"bm25": "BM25", "contriever": "Contriever"}
SYMBOLS = {"kendall_tau": "tau", "spearman_rho": "rho"}
PROBABILITIES = ("p_doc", "p_word", "p_doc_and_word", "p_doc_given_word", "p_word_given_doc")


@functools.cache
def _read(name: str) -> pl.DataFrame:
    return pl.read_csv(FOLDER / name)


def published_table_1(datasets: Sequence[str]) -> Iterator[Grid]:
    """Table 1 of Salemi & Zamani (SIGIR 2024) for those of its datasets that a report is about, a grid a retriever."""
    table = _read("erag_table_1.csv").with_columns(pl.col("measure").replace(MEASURE_NAMES))
    names = list(dict.fromkeys(known_name(dataset) for dataset in datasets))
    for retriever, shown in RETRIEVER_NAMES.items():
        own = table.filter(pl.col("retriever") == retriever)
        known = [name for name in names if name is not None and name in own["dataset"]]
        if known:
            yield _as_printed(own, known, shown)


def _as_printed(own: pl.DataFrame, datasets: Sequence[str], retriever: str) -> Grid:
    keys = [(dataset, symbol) for dataset in datasets for symbol in SYMBOLS]
    rows = []
    for (annotator, measure), part in _ordered(own).group_by("annotator", "measure", maintain_order=True):
        figures = {
            (row["dataset"], symbol): row[symbol] for row in part.iter_rows(named=True) for symbol in SYMBOLS
        }
        rows.append((str(annotator), str(measure), *(number(figures.get(key)) for key in keys)))
    return Grid(
        title=f"Table 1 as published: {retriever}, 50 documents",
        columns=(
            "annotator",
            "measure",
            *(f"{dataset} (KILT dev) {SYMBOLS[symbol]}" for dataset, symbol in keys),
        ),
        rows=tuple(rows),
        caption="Salemi & Zamani, SIGIR 2024: T5-small with Fusion-in-Decoder, fine-tuned, on KILT's dev sets; without "
        f"intervals. Other questions, passages and readers than those above. {NOTHING}: not reported.",
        num_names=2,
        on_console=False,
    )


def _ordered(own: pl.DataFrame) -> pl.DataFrame:
    given = own.with_columns(cutoff=pl.lit(50, pl.Int32), ideal=pl.lit(OWN_LIST))
    return in_reading_order(given)


def published_reproduction() -> Grid:
    """The table of the student reproduction of 2025: NQ, BM25, 40 documents, a thousandth of Wikipedia."""
    table = _read("reproduction.csv")
    rows = tuple(
        (
            f"{MEASURE_NAMES.get(row['measure'], str(row['measure']).capitalize())}@{row['k']}",
            number(row["kendall_tau"]),
            number(row["spearman_rho"]),
            number(row["mean_value"], 4),
            str(row["num_queries"]),
            f"exact_match {number(row['e2e_exact_match'], 4)}",
        )
        for row in table.to_dicts()
    )
    return Grid(
        title="The reproduction's table as published: NQ, BM25",
        columns=("measure", *SYMBOLS.values(), "mean", "queries", "end to end"),
        rows=rows,
        caption="A reproduction report of 2025: T5-small trained for one epoch, a thousandth of Wikipedia. Six of 568 "
        "answers were right, so its tau hangs on six questions.",
    )


def published_table_2() -> Grid:
    """Table 2 of Salemi & Zamani (SIGIR 2024)."""
    table = _read("erag_table_2.csv").with_columns(ratio=pl.col("e2e_seconds") / pl.col("erag_seconds"))
    columns = (
        "dataset",
        "e2e_seconds",
        "erag_seconds",
        "ratio",
        "e2e_gb",
        "erag_query_gb",
        "erag_document_gb",
    )
    return Grid(
        title="Table 2 as published",
        columns=(
            "dataset",
            "end-to-end, s",
            "eRAG, s",
            "times faster",
            "end-to-end, GB",
            "eRAG, a query at a time, GB",
            "eRAG, a document at a time, GB",
        ),
        rows=tuple(
            (
                row[0],
                *(f"{value:,g}" if place != 2 else number(value, 2) for place, value in enumerate(row[1:])),
            )
            for row in table.select(columns).iter_rows()
        ),
        caption="Salemi & Zamani, SIGIR 2024: T5-small with Fusion-in-Decoder on 50 documents, KILT's dev sets, on a "
        "GPU, each side in batches that fill it; memory of batches of one query (end-to-end: one list).",
    )


def published_table_3(heads: Sequence[str]) -> Grid:
    """Table 3 of Park & Lim: their three retrievers on KLUE-MRC's Wikipedia questions.

    Args:
        heads: how the five probabilities are called.
    """
    table = _read("dual_labels_table_3.csv").select("retriever", *PROBABILITIES)
    return Grid(
        title="Table 3 as published: 1,825 questions of KLUE-MRC",
        columns=("model", *heads),
        rows=tuple((name, *(number(value, 4) for value in values)) for name, *values in table.iter_rows()),
        caption="Park & Lim, Rethinking Retriever Evaluation in Retrieval-Augmented Generation: Wikipedia's pages in "
        "passages of 300 characters. Other pages than those above.",
    )
