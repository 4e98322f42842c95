"""Types of annotators and of their evidence, and shared helpers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import polars as pl

from erag_ray.measures.lists import Kind as LabelKind
from erag_ray.measures.scores import Scoring, score_named, score_outputs
from erag_ray.prompts.kinds.base import Kind, Role
from erag_ray.store.schemas import FACTS

PAIR = ["query_id", "doc_id"]
SUFFICES = 0.5
"""Labels and scores of at least this count as relevant or right where a job sets no threshold."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Tables that annotators use, linked by ids; all but ``pairs`` may contain extra rows."""

    pairs: pl.DataFrame
    """query_id, doc_id: the distinct pairs to label."""
    queries: pl.DataFrame
    """QUERIES; at least those of the pairs."""
    corpus: pl.DataFrame
    """CORPUS; at least the documents of the pairs, if the annotator uses passages."""
    provenance: pl.DataFrame
    """PROVENANCE: gold pages and gold documents."""
    facts: pl.DataFrame = field(default_factory=FACTS.empty)
    """FACTS; empty where no annotator uses them."""
    values: Mapping[Kind, pl.DataFrame] = field(default_factory=dict)
    """Kind of request -> query_id, doc_id? (null: without documents), reader, value?: the folded responses."""
    judged: pl.DataFrame | None = None
    """query_id, doc_id: the pairs for the judge (None: all)."""
    relevant_from: float = 0.5
    """Minimum judgement that counts as relevant."""
    threshold: float | None = None
    """Minimum graded label that counts as relevant (None: `SUFFICES`)."""
    scoring: Scoring | None = None
    """Inputs of scores, and the outputs that they could not score; see `measures.scores.score_outputs`."""

    def of(self, kind: Kind) -> pl.DataFrame:
        """Return the folded responses of one kind; raise ValueError if there are none."""
        if kind not in self.values:
            raise ValueError(f"there are no responses of the kind {kind.name}")
        return self.values[kind]


def every_pair(evidence: Evidence) -> pl.DataFrame:
    """Return every pair, as a single document."""
    return evidence.pairs.select(PAIR)


def no_documents(evidence: Evidence) -> pl.DataFrame:
    """Return every query without documents: closed-book."""
    return evidence.queries.select("query_id", doc_id=pl.lit(None, pl.String))


def judged_pairs(evidence: Evidence) -> pl.DataFrame:
    """Return the pairs for the judge."""
    return (evidence.pairs if evidence.judged is None else evidence.judged).select(PAIR)


class RequestSpec(NamedTuple):
    """Requests that an annotator needs: their kind and documents."""

    kind: Kind
    lists: Callable[[Evidence], pl.DataFrame] = every_pair
    """Evidence -> documents of the requests: columns query_id, doc_id (null: without documents)."""


def values_of_pairs(evidence: Evidence, kind: Kind) -> pl.DataFrame:
    """Return the value of a kind of request for every pair: query_id, doc_id, reader, value (null: it failed).

    Raises:
        ValueError: a pair lacks its response.
    """
    values = evidence.of(kind).select(*PAIR, "reader", "value").unique()
    joined = evidence.pairs.join(values, on=PAIR, how="left", maintain_order="left")
    missing = joined.filter(pl.col("reader").is_null())
    if missing.height:
        example = missing.select(PAIR).row(0, named=True)
        raise ValueError(f"{missing.height} pairs lack a response of the kind {kind.name}, such as {example}")
    return joined


def score_rows(
    rows: pl.DataFrame,
    questions: pl.DataFrame,
    scoring: Scoring | None = None,
    key: Sequence[str] = ("query_id",),
) -> pl.DataFrame:
    """Score the column output of rows by answers and score of their questions, such as QUERIES, as `score_outputs`.

    Return the rows with the columns score and value, those with the same score together. ``key`` links the two.
    """
    answers = {tuple(names): texts for *names, texts in questions.select(*key, "answers").iter_rows()}
    named = rows.join(questions.select(*key, "score"), on=key, maintain_order="left")
    parts = [named.clear().with_columns(value=pl.lit(None, pl.Float64))]
    for part in named.partition_by("score", maintain_order=True):
        query_ids, outputs = part["query_id"].to_list(), part["output"].to_list()
        gold_answers = [answers[row] for row in part.select(key).rows()]
        values = score_outputs(outputs, gold_answers, score_named(part["score"][0]), query_ids, scoring)
        parts.append(part.with_columns(value=pl.Series(values, dtype=pl.Float64)))
    return pl.concat(parts)


@dataclass(frozen=True, kw_only=True)
class Annotator:
    """A rule that labels documents. Its name identifies the rule, since LABELS of several rules share a table."""

    name: str
    function: Callable[[Evidence], pl.DataFrame]
    applies: Callable[[Evidence], pl.Expr] = lambda evidence: pl.lit(True)
    """Condition on the columns of QUERIES; the other queries get no rows ("not applicable")."""
    applies_to: str = "every question"
    """The queries that it labels, in words."""
    kind: LabelKind | None
    """Kind of its labels; None: binary or graded, as the score of the query."""
    requests: tuple[RequestSpec, ...] = ()
    """Requests to models that it needs."""
    fills: frozenset[Literal["reader", "score"]] = frozenset()
    """Further columns of LABELS that the function fills; the others are empty strings."""
    measures: tuple[str, ...] = ()
    """The measures that its labels are for, instead of those that a job names; they are contrasted with all measures
    of other annotators."""
    uses_facts: bool = False
    """Whether it needs FACTS."""
    uses_threshold: bool = False
    """Whether its labels depend on the job's threshold."""
    sign: Literal[1, 0, -1] = 1
    """1: more is better; -1: less is better; 0: neither. Labels that are values of the score (``kind`` is None) are as
    good as the score says."""
    is_utility_of_one: bool = False
    """The label of a document is by definition the end-to-end score of the list with only this document."""

    @property
    def roles(self) -> set[Role]:
        """Models of the job whose responses its labels need."""
        return {spec.kind.role for spec in self.requests}


def with_passage(frame: pl.DataFrame, corpus: pl.DataFrame, column: str) -> pl.DataFrame:
    """Add a column of CORPUS to ``frame``, in its row order; raise ValueError if a document is not in the corpus."""
    passages = corpus.select("doc_id", column, pl.lit(True).alias("is_in_corpus"))
    joined = frame.join(passages, on="doc_id", how="left", maintain_order="left")
    refuse_unknown(joined.filter(pl.col("is_in_corpus").is_null()), "doc_id", "the corpus")
    return joined.drop("is_in_corpus")


def refuse_unknown(rows: pl.DataFrame, column: str, table: str) -> None:
    """Raise ValueError if there are rows, whose ids in ``column`` are missing in ``table``."""
    if rows.height:
        raise ValueError(f"{rows.height} rows name a {column} not in {table}, such as {rows[column][0]!r}")
