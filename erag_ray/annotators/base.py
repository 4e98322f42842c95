"""What annotators get and what they are, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

PAIR = ["query_id", "doc_id"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What annotators may look at. Ids link the frames; extra rows in any frame but ``pairs`` do no harm."""

    pairs: pl.DataFrame
    """query_id, doc_id: the distinct pairs to label."""
    queries: pl.DataFrame
    """QUERIES; at least those of the pairs."""
    corpus: pl.DataFrame
    """CORPUS; at least the documents of the pairs, unless the annotator reads none."""
    provenance: pl.DataFrame
    """PROVENANCE: the gold pages."""
    readings: pl.DataFrame | None = None
    """query_id, doc_id, reader, output?: what each reader said with that document alone."""
    judgements: pl.DataFrame | None = None
    """query_id, doc_id, relevance?: in 0..1, by a language model that saw no gold. A pair that it was not asked about
    has no row."""
    relevant_from: float = 0.5
    """What a judgement must reach to count as relevant."""


@dataclass(frozen=True, kw_only=True)
class Annotator:
    """A way to label documents. Its name carries its rule, since LABELS of several rules share a table."""

    name: str
    function: Callable[[Evidence], pl.DataFrame]
    applies: Callable[[Evidence], pl.Expr]
    """A condition on the columns of QUERIES; the other queries get no rows ("not applicable")."""
    where: str = "every question"
    """In words, what it labels."""
    binary: bool | None
    """Whether labels are only 0 and 1; None: as the score of the query."""
    needs_readings: bool = False
    needs_judge: bool = False
    score_dependent: bool = False
    """The function fills the columns reader and score; otherwise both are empty strings."""


def with_passage(frame: pl.DataFrame, corpus: pl.DataFrame, column: str) -> pl.DataFrame:
    """``frame`` with a column of CORPUS, row for row."""
    passages = corpus.select("doc_id", column, pl.lit(True).alias("known"))
    joined = frame.join(passages, on="doc_id", how="left", maintain_order="left")
    refuse_unknown(joined.filter(pl.col("known").is_null()), "doc_id", "the corpus")
    return joined.drop("known")


def refuse_unknown(rows: pl.DataFrame, column: str, place: str) -> None:
    if rows.height:
        raise ValueError(f"{rows.height} rows name a {column} not in {place}, such as {rows[column][0]!r}")


def rows_of(frame: pl.DataFrame, *columns: str) -> list[tuple[str, list[str]]]:
    return frame.select(columns).rows()
