"""What annotators get and what they are, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import polars as pl

from erag_ray.kinds import Kind
from erag_ray.measures import Kind as LabelKind
from erag_ray.scores import Scoring

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
    gold: pl.DataFrame | None = None
    """query_id, doc_id: the gold passages, which count for queries without gold pages (None: none are known)."""
    values: Mapping[Kind, pl.DataFrame] = field(default_factory=dict)
    """Kind of question -> query_id, doc_id? (null: without any document), reader, value?: what was folded."""
    judged: pl.DataFrame | None = None
    """query_id, doc_id: the pairs that the judge is asked about (None: all)."""
    relevant_from: float = 0.5
    """What a judgement must reach to count as relevant."""
    scoring: Scoring | None = None
    """What is known for scores, and what they cannot judge; see `scores.score_outputs`."""

    def of(self, kind: Kind) -> pl.DataFrame:
        """What was folded of one kind.

        Raises:
            ValueError: none was asked.
        """
        if kind not in self.values:
            raise ValueError(f"there are no responses of the kind {kind.name}")
        return self.values[kind]


Lists = Callable[[Evidence], pl.DataFrame]
"""Which documents a question is asked about: columns query_id, doc_id (null: without any document)."""


class Asks(NamedTuple):
    """One kind of question that an annotator needs answered, about these documents."""

    kind: Kind
    lists: Lists


def every_pair(evidence: Evidence) -> pl.DataFrame:
    """Every document alone."""
    return evidence.pairs.select(PAIR)


def no_documents(evidence: Evidence) -> pl.DataFrame:
    """Every query without documents: closed-book."""
    return evidence.queries.select("query_id", doc_id=pl.lit(None, pl.String))


def judged_pairs(evidence: Evidence) -> pl.DataFrame:
    """The documents that the judge is asked about."""
    return (evidence.pairs if evidence.judged is None else evidence.judged).select(PAIR)


@dataclass(frozen=True, kw_only=True)
class Annotator:
    """A way to label documents. Its name carries its rule, since LABELS of several rules share a table."""

    name: str
    function: Callable[[Evidence], pl.DataFrame]
    applies: Callable[[Evidence], pl.Expr]
    """A condition on the columns of QUERIES; the other queries get no rows ("not applicable")."""
    where: str = "every question"
    """In words, what it labels."""
    kind: LabelKind | None
    """What labels are declared to be; None: binary or graded, as the score of the query."""
    asks: tuple[Asks, ...] = ()
    """What it needs to know from models."""
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
