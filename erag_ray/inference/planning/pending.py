"""Build all requests of a job (REQUESTS), and the distinct ones that lack a response (PENDING). Pure.

A request has a kind, a query and a list of documents: lists of one are eRAG's pairs, top-k lists are end-to-end
evaluation, and the empty list is closed-book. Equal questions with equal texts share a key, whatever their ids, so each
distinct request runs once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import xxhash

from erag_ray.prompts.kinds.answer_judge import ANSWER_JUDGE
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.request import Form, Passage, Request, question_key, text_hash
from erag_ray.store.responses import KEY_COLUMNS
from erag_ray.store.schemas import PENDING, REQUESTS, conform
from erag_ray.support.user_code import running

DocIds = pl.List(pl.String)
Rows = npt.NDArray[np.int64]
HASH_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Use:
    """How one kind of request is made for one dataset."""

    kind: Kind
    case: Case
    """Dataset and job settings of the kind."""
    form: Form
    """The part that all its requests share."""
    model: str
    """Id of the model."""
    reader: str
    """Id of the reader whose labels use the responses."""
    sees_order: bool
    """Whether the order of passages can change a response."""

    def answers(self, gold_answers: Sequence[str]) -> tuple[str, ...]:
        return self.kind.answers(self.case, gold_answers)


Uses = Mapping[tuple[str, str], Use]
"""(name of the kind, dataset) -> use."""


@dataclass(frozen=True, kw_only=True)
class Documents:
    """Passages of a corpus with their hashes and keys, by row."""

    rows: pl.DataFrame
    """doc_id, doc_row."""
    hashes: npt.NDArray[np.uint8]
    """[num_docs, 16], hashes of (title, text)."""
    ranks: npt.NDArray[np.intp]
    """[num_docs], by their hashes."""
    keys: npt.NDArray[np.uint64]
    """[num_docs], keys of lists with this single passage."""
    titles: pl.Series
    texts: pl.Series


def documents_of(corpus: pl.DataFrame) -> Documents:
    hashes = [text_hash(*passage) for passage in corpus.select("title", "text").iter_rows()]
    joined = b"".join(hashes)
    return Documents(
        rows=corpus.select("doc_id").with_row_index("doc_row"),
        hashes=np.frombuffer(joined, np.uint8).reshape(-1, HASH_BYTES),
        ranks=np.argsort(np.argsort(np.frombuffer(joined, f"S{HASH_BYTES}"), kind="stable")),
        keys=np.fromiter(map(xxhash.xxh3_64_intdigest, hashes), np.uint64, len(hashes)),
        titles=corpus["title"],
        texts=corpus["text"],
    )


def ranked_lists(runs: pl.DataFrame, query_ids: pl.Series, depths: Iterable[int]) -> pl.DataFrame:
    """Return the list of each run, query and depth: columns run_id, query_id, depth, doc_ids in rank order.

    A query without a list in a run gets an empty one.
    """
    deepest = runs.sort("run_id", "query_id", "rank").group_by("run_id", "query_id", maintain_order=True)
    lists = deepest.agg(doc_ids=pl.col("doc_id"))
    grid = runs.select(pl.col("run_id").unique()).join(query_ids.to_frame("query_id"), how="cross")
    complete = grid.join(lists, on=["run_id", "query_id"], how="left")
    filled = complete.with_columns(pl.col("doc_ids").fill_null(pl.lit([], dtype=DocIds)))
    by_depth = [
        filled.with_columns(depth=pl.lit(depth, pl.Int32), doc_ids=pl.col("doc_ids").list.head(depth))
        for depth in depths
    ]
    return (
        pl.concat(by_depth)
        .select("run_id", "query_id", "depth", "doc_ids")
        .sort("run_id", "query_id", "depth")
    )


def build_requests(
    lists: pl.DataFrame, queries: pl.DataFrame, documents: Documents, uses: Uses
) -> pl.DataFrame:
    """Return REQUESTS for the distinct (kind, query_id, doc_ids) in ``lists``; all uses are of one model."""
    distinct = lists.select("kind", "query_id", "doc_ids").unique().sort("kind", "query_id", "doc_ids")
    if distinct.is_empty():
        return REQUESTS.empty()
    queries_of_kinds = distinct.select("kind", "query_id").unique().join(queries, on="query_id")
    parts = queries_of_kinds.partition_by("kind", "dataset")
    query_parts = pl.concat(_query_part(part, uses) for part in parts)
    joined = distinct.join(query_parts, on=["kind", "query_id"], how="left", maintain_order="left")
    shown = _shown(joined["doc_ids"], documents, uses)
    table = joined.with_columns(passages_key=_passages_keys(*shown, documents)).select(REQUESTS.columns.names)
    conform(table, REQUESTS)
    return table


def _query_part(queries: pl.DataFrame, uses: Uses) -> pl.DataFrame:
    """Return the part of a request that depends on kind and query only, for the queries of a dataset."""
    use = uses[queries["kind"][0], queries["dataset"][0]]
    with running(f"kind {use.kind.name}: answers", use.kind.answers):
        keys = [
            question_key(use.form, question, use.answers(gold_answers))
            for question, gold_answers in queries.select("question", "answers").iter_rows()
        ]
    return queries.select(
        "kind",
        "query_id",
        question_key=pl.Series(keys, dtype=pl.UInt64),
        model=pl.lit(use.model),
        reader=pl.lit(use.reader),
    )


def _shown(doc_ids: pl.Series, documents: Documents, uses: Uses) -> tuple[Rows, Rows]:
    """Return lists of documents in the order in which the model sees them.

    They are sorted by hash if their order does not matter, so that equal sets are equal. Return the rows of the
    documents, list after list; and [num_lists + 1], the start of each list, and the end.
    """
    lengths = doc_ids.list.len().to_numpy().astype(np.int64)
    edges = np.concatenate([[0], np.cumsum(lengths)])
    ids = doc_ids.explode().drop_nulls().alias("doc_id").to_frame()
    doc_rows = ids.join(documents.rows, on="doc_id", how="left", maintain_order="left")["doc_row"]
    assert not doc_rows.null_count(), "prepare checks that the corpus has every document"
    rows = doc_rows.to_numpy().astype(np.int64)
    if not any(use.sees_order for use in uses.values()):
        # most lists have one document
        unordered = np.flatnonzero(np.repeat(lengths > 1, lengths))
        lists = np.repeat(np.arange(len(lengths)), lengths)[unordered]
        rows[unordered] = rows[unordered][np.lexsort((documents.ranks[rows[unordered]], lists))]
    return rows, edges


def _passages_keys(rows: Rows, edges: Rows, documents: Documents) -> pl.Series:
    lengths = np.diff(edges)
    keys = np.empty(len(lengths), np.uint64)
    is_single = lengths == 1
    keys[is_single] = documents.keys[rows[edges[:-1][is_single]]]
    for number in np.flatnonzero(~is_single):
        hashes = documents.hashes[rows[edges[number] : edges[number + 1]]]
        keys[number] = xxhash.xxh3_64_intdigest(hashes.tobytes())
    return pl.Series("passages_key", keys)


def pending(
    requests: pl.DataFrame, cached: pl.DataFrame, queries: pl.DataFrame, documents: Documents, uses: Uses
) -> pl.DataFrame:
    """Return the requests without a response: one row per distinct key.

    Requests with equal questions are adjacent, whatever their kind, so that a model can share work between them. They
    have question_key, passages_key, text_key (of the question only), kind, query_row (in ``queries``), doc_rows (in
    ``documents``; sorted by hash for a model that does not see their order): about 60 bytes per row.
    """
    missing = requests.join(cached, on=KEY_COLUMNS, how="anti", maintain_order="left")
    distinct = missing.unique(subset=KEY_COLUMNS, keep="first", maintain_order=True)
    text_keys = [xxhash.xxh3_64_intdigest(text_hash(question)) for question in queries["question"]]
    keyed = queries.select("query_id", text_key=pl.Series(text_keys, dtype=pl.UInt64))
    numbered = keyed.with_row_index("query_row")
    joined = distinct.join(numbered, on="query_id", how="left", maintain_order="left")
    ordered = joined.sort("text_key", *KEY_COLUMNS)
    rows, edges = _shown(ordered["doc_ids"], documents, uses)
    lists = pa.LargeListArray.from_arrays(edges, rows.astype(np.uint32))
    return ordered.select(*KEY_COLUMNS, "text_key", "kind", "query_row", doc_rows=pl.Series(lists))


def with_texts(
    rows: pl.DataFrame, queries: pl.DataFrame, documents: Documents, uses: Uses, forms: Sequence[Form]
) -> pa.Table:
    """Return PENDING: the rows of `pending` with their questions and texts, which are many times as large."""
    edges = np.concatenate([[0], np.cumsum(rows["doc_rows"].list.len().to_numpy(), dtype=np.int64)])
    doc_rows = rows["doc_rows"].explode().drop_nulls()
    queries_of_rows = queries[rows["query_row"]]
    uses_of_rows = list(zip(rows["kind"], queries_of_rows["dataset"], rows["query_row"], strict=True))
    form_numbers = {pair: forms.index(use.form) for pair, use in uses.items()}
    answers = {key: uses[key[:2]].answers(queries["answers"][key[2]].to_list()) for key in set(uses_of_rows)}
    columns = {
        **{name: rows[name].to_arrow() for name in KEY_COLUMNS},
        "form": pa.array([form_numbers[key[:2]] for key in uses_of_rows], pa.int64()),
        "question": queries_of_rows["question"].to_arrow(),
        "titles": pa.LargeListArray.from_arrays(edges, documents.titles.gather(doc_rows).to_arrow()),
        "texts": pa.LargeListArray.from_arrays(edges, documents.texts.gather(doc_rows).to_arrow()),
        "answers": pa.array([answers[key] for key in uses_of_rows], PENDING.columns.field("answers").type),
    }
    return conform(pa.table(columns), PENDING, unique=False)


class PendingRequests(Sequence[Request]):
    """Rows of PENDING as requests, created on access."""

    def __init__(self, table: pa.Table, forms: Sequence[Form]) -> None:
        self.table = table
        self.forms = forms

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> list[Request]: ...
    def __getitem__(self, index: int | slice) -> Request | list[Request]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return list(self._rows(self.table.slice(start, max(0, stop - start))))[::step]
        return next(self._rows(self.table.slice(range(len(self))[index], 1)))

    def __iter__(self) -> Iterator[Request]:
        for batch in self.table.to_batches(max_chunksize=256):
            yield from self._rows(pa.table(batch))

    def _rows(self, table: pa.Table) -> Iterator[Request]:
        names = ("form", "question", "titles", "texts", "answers")
        for form, question, titles, texts, answers in zip(
            *(table.column(name).to_pylist() for name in names), strict=True
        ):
            yield Request.of(self.forms[form], question, map(Passage, titles, texts), answers)


def count_requests(
    requests: pl.DataFrame, cached: pl.DataFrame, purposes: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Count requests to one model by kind of request and of list: columns kind, lists, asked, distinct, cached, new.

    ``cached`` are the keys that have a response. Lists in ``purposes`` (kind, query_id, doc_ids, purpose) are counted
    under their purpose; of these only keys that no other list has are distinct, cached or new.
    """
    num_docs = pl.col("doc_ids").list.len()
    lists = pl.when(num_docs == 0).then(pl.lit("no passages")).when(num_docs == 1).then(pl.lit("pairs"))
    lists = lists.when(pl.col("kind") == ANSWER_JUDGE.name).then(pl.lit("outputs"))
    rows = requests.with_columns(lists=lists.otherwise(pl.lit("lists")), has_purpose=pl.lit(False))
    if purposes is not None:
        named = rows.join(purposes, on=["kind", "query_id", "doc_ids"], how="left", nulls_equal=True)
        has_purpose = pl.col("purpose").is_not_null()
        rows = named.with_columns(lists=pl.coalesce("purpose", "lists"), has_purpose=has_purpose)
    by = ["kind", "lists"]
    totals = rows.group_by(by).agg(asked=pl.len())
    ordered = rows.sort("has_purpose", "lists", maintain_order=True)
    distinct = ordered.unique([*KEY_COLUMNS, "kind"], keep="first", maintain_order=True)
    known = cached.with_columns(is_cached=pl.lit(True))
    marked = distinct.select(*KEY_COLUMNS, *by).join(known, on=KEY_COLUMNS, how="left")
    is_cached = pl.col("is_cached").fill_null(False)
    counts = marked.group_by(by).agg(distinct=pl.len(), cached=is_cached.sum(), new=(~is_cached).sum())
    joined = totals.join(counts, on=by, how="left").with_columns(
        pl.col("distinct", "cached", "new").fill_null(0)
    )
    return joined.sort(by, descending=[False, True])
