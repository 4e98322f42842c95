"""Further published tables of the papers: the reproduction's, and Tables 2 and 3."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence

import polars as pl

from erag_ray.analyses.parts.formats import number
from erag_ray.analyses.parts.model import Column, Format, Table
from erag_ray.analyses.parts.shapes import columns, names, plain
from erag_ray.analyses.table_1 import MEASURE_NAMES, SYMBOLS

FOLDER = pathlib.Path(__file__).with_name("published_tables")
PROBABILITIES = ("p_doc", "p_word", "p_doc_and_word", "p_doc_given_word", "p_word_given_doc")


@functools.cache
def _read(name: str) -> pl.DataFrame:
    return pl.read_csv(FOLDER / name)


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
