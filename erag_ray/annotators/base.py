"""What annotators get and what they are, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from erag_ray.measures import Kind
from erag_ray.scores import ScoreErrors

PAIR = ["query_id", "doc_id"]
Need = Literal["readings", "judgements", "likelihoods", "unrelated", "closed_book"]
"""Frames of `Evidence`; closed_book: also without any document, in readings and likelihoods."""


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
    gold: pl.DataFrame | None = None
    """query_id, doc_id: the gold passages, which count for queries without gold pages (None: none are known)."""
    readings: pl.DataFrame | None = None
    """query_id, doc_id?, reader, output?: what each reader said with that document alone, or without any (null)."""
    judgements: pl.DataFrame | None = None
    """query_id, doc_id, relevance?: in 0..1, by a language model that saw no gold. A pair that it was not asked about
    has no row."""
    likelihoods: pl.DataFrame | None = None
    """query_id, doc_id?, likelihood?: in 0..1, of the gold answers to the reader with that document alone, or without
    any (null); also of the pairs of ``unrelated``."""
    unrelated: pl.DataFrame | None = None
    """query_id, doc_id: documents that have nothing to do with the question (`unrelated_pairs`)."""
    relevant_from: float = 0.5
    """What a judgement must reach to count as relevant."""
    score_errors: ScoreErrors | None = None
    """Collects the outputs that a score of the user's own cannot judge; without it that is raised."""


@dataclass(frozen=True, kw_only=True)
class Annotator:
    """A way to label documents. Its name carries its rule, since LABELS of several rules share a table."""

    name: str
    function: Callable[[Evidence], pl.DataFrame]
    applies: Callable[[Evidence], pl.Expr]
    """A condition on the columns of QUERIES; the other queries get no rows ("not applicable")."""
    where: str = "every question"
    """In words, what it labels."""
    kind: Kind | None
    """What labels are declared to be; None: binary or graded, as the score of the query."""
    needs: frozenset[Need] = frozenset()
    fills: frozenset[Literal["reader", "score"]] = frozenset()
    """The columns of LABELS, apart from ids and label, that the function fills; the others are empty strings."""


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
