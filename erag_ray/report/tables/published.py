"""Published tables of the papers, for reference: other data and readers, so never in one column with own results."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Sequence

import polars as pl

from erag_ray.datasets import known_name
from erag_ray.evaluate import OWN_LIST
from erag_ray.report.formats import MISSING, number
from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.tables.sorting import in_reading_order
from erag_ray.report.values import across, columns, names, part_name, plain

FOLDER = pathlib.Path(__file__).with_name("published")
# names of measures and retrievers in the paper -> in this package
MEASURE_NAMES = {"p": "P", "r": "R", "map": "AP", "mrr": "RR", "ndcg": "nDCG", "hit_ratio": "Success"}
RETRIEVER_NAMES = {"bm25": "BM25", "contriever": "Contriever"}
SYMBOLS = {"kendall_tau": "tau", "spearman_rho": "rho"}
PROBABILITIES = ("p_doc", "p_word", "p_doc_and_word", "p_doc_given_word", "p_word_given_doc")


@functools.cache
def _read(name: str) -> pl.DataFrame:
    return pl.read_csv(FOLDER / name)


def published_table_1(datasets: Sequence[str]) -> Iterator[Table]:
    """Yield Table 1 of Salemi & Zamani (SIGIR 2024) for the datasets of a report, one table per retriever."""
    table = _read("erag_table_1.csv").with_columns(pl.col("measure").replace(MEASURE_NAMES))
    names = list(dict.fromkeys(known_name(dataset) for dataset in datasets))
    for retriever, shown in RETRIEVER_NAMES.items():
        rows = table.filter(pl.col("retriever") == retriever)
        present = [name for name in names if name is not None and name in rows["dataset"]]
        if present:
            yield _as_printed(rows, present, shown)


def _as_printed(published: pl.DataFrame, datasets: Sequence[str], retriever: str) -> Table:
    keys = [(dataset, symbol) for dataset in datasets for symbol in SYMBOLS]
    rows = []
    for (annotator, measure), part in _ordered(published).group_by(
        "annotator", "measure", maintain_order=True
    ):
        cells = {
            (row["dataset"], symbol): Value(row[symbol])
            for row in part.iter_rows(named=True)
            for symbol in SYMBOLS
        }
        rows.append((*plain(str(annotator), str(measure)), *across(cells, keys, "not reported")))
    return Table(
        name=part_name("published_table_1", retriever),
        title=f"Table 1 as published: {retriever}, 50 documents",
        columns=(
            *names("annotator", "measure"),
            *columns(f"{dataset} (KILT dev) {SYMBOLS[symbol]}" for dataset, symbol in keys),
        ),
        rows=tuple(rows),
        caption="Salemi & Zamani, SIGIR 2024: T5-small with Fusion-in-Decoder, fine-tuned, on KILT's dev sets; without "
        f"intervals. Other questions, passages and readers than those above. {MISSING}: not reported.",
    )


def _ordered(published: pl.DataFrame) -> pl.DataFrame:
    complete = published.with_columns(cutoff=pl.lit(50, pl.Int32), ideal=pl.lit(OWN_LIST))
    return in_reading_order(complete)


def published_reproduction() -> Table:
    """Return the results of the student reproduction of 2025: NQ, BM25, 40 documents, a thousandth of Wikipedia."""
    table = _read("reproduction.csv")
    rows = tuple(
        plain(
            f"{MEASURE_NAMES.get(row['measure'], str(row['measure']).capitalize())}@{row['k']}",
            *(row[name] for name in ("kendall_tau", "spearman_rho", "mean_value", "num_queries")),
            f"exact_match {number(row['e2e_exact_match'], 4)}",
        )
        for row in table.to_dicts()
    )
    return Table(
        name="published_reproduction",
        title="The reproduction's table as published: NQ, BM25",
        columns=(
            *names("measure"),
            *columns(SYMBOLS.values()),
            Column("mean", Format.NUMBER_4),
            Column("queries", Format.COUNT),
            Column("end to end", Format.TEXT),
        ),
        rows=rows,
        caption="A reproduction report of 2025: T5-small trained for one epoch, a thousandth of Wikipedia. Six of 568 "
        "answers were right, so its tau depends on six questions.",
    )


def published_table_2() -> Table:
    """Return Table 2 of Salemi & Zamani (SIGIR 2024)."""
    table = _read("erag_table_2.csv").with_columns(ratio=pl.col("e2e_seconds") / pl.col("erag_seconds"))
    fields = (
        "dataset",
        "e2e_seconds",
        "erag_seconds",
        "ratio",
        "e2e_gb",
        "erag_query_gb",
        "erag_document_gb",
    )
    return Table(
        name="published_table_2",
        title="Table 2 as published",
        columns=(
            *names("dataset"),
            *columns(("end-to-end, s", "eRAG, s"), Format.COUNT),
            Column("times faster", Format.NUMBER_2),
            *columns(
                ("end-to-end, GB", "eRAG, a query at a time, GB", "eRAG, a document at a time, GB"),
                Format.GENERAL,
            ),
        ),
        rows=tuple(plain(*row) for row in table.select(fields).iter_rows()),
        caption="Salemi & Zamani, SIGIR 2024: T5-small with Fusion-in-Decoder on 50 documents, KILT's dev sets, on a "
        "GPU, each side in batches that fill it; memory of batches of one query (end-to-end: one list).",
    )


def published_table_3(heads: Sequence[str]) -> Table:
    """Return Table 3 of Park & Lim: three retrievers on KLUE-MRC's Wikipedia questions.

    Args:
        heads: column headers of the five probabilities.
    """
    table = _read("dual_labels_table_3.csv").select("retriever", *PROBABILITIES)
    return Table(
        name="published_table_3",
        title="Table 3 as published: 1,825 questions of KLUE-MRC",
        columns=(*names("model"), *columns(heads, Format.NUMBER_4)),
        rows=tuple(plain(*row) for row in table.iter_rows()),
        caption="Park & Lim, Rethinking Retriever Evaluation in Retrieval-Augmented Generation: Wikipedia's pages in "
        "passages of 300 characters. Other pages than those above.",
    )
