"""Check that QUERIES, RUNS and CORPUS are consistent, and select the gold passages."""

from __future__ import annotations

import polars as pl

from erag_ray.datasets import GOLD_COLUMNS
from erag_ray.files import NUM_NAMED, Diagnostics
from erag_ray.scores import normalize_answer


def check_inputs(
    queries: pl.DataFrame,
    runs: pl.DataFrame,
    corpus: pl.DataFrame,
    diagnostics: Diagnostics,
    *,
    depth: int | None = None,
) -> None:
    """Record inconsistencies between tables that are valid by themselves.

    Args:
        queries: QUERIES of the evaluated sample.
        runs: RUNS of all runs.
        corpus: CORPUS, at least the passages of ``runs``.
        diagnostics: receives errors (documents missing in ``corpus``, runs without a query in common with
            ``queries``) and warnings (queries without a list, lists of other queries, ids with white space).
        depth: check only the first documents of each list.
    """
    lists = runs.select("run_id", "query_id").unique(maintain_order=True)
    for (name,), lists_of_run in lists.group_by("run_id", maintain_order=True):
        _check_queries(str(name), queries, lists_of_run, diagnostics)
    entries = runs.join(queries, on="query_id", how="semi", maintain_order="left")
    if depth is not None:
        entries = entries.filter(pl.col("rank") <= depth)
    _check_documents(entries, corpus, diagnostics)
    _note_white_space(queries["query_id"], entries["doc_id"], diagnostics)


def _check_queries(name: str, queries: pl.DataFrame, lists: pl.DataFrame, diagnostics: Diagnostics) -> None:
    common = lists.join(queries, on="query_id", how="semi")
    if not common.height:
        examples = f"such as {lists['query_id'][0]!r}"
        if queries.height:
            examples += f" against {queries['query_id'][0]!r}"
        text = f"run {name!r} has no query in common with the questions ({examples})"
        diagnostics.error("runs without a query in common with the questions", text)
        return
    for kind, left, right in (
        (f"run {name!r}: queries without a list", queries, lists),
        (f"run {name!r}: lists of queries outside the sample, not used", lists, queries),
    ):
        unmatched = left.join(right, on="query_id", how="anti", maintain_order="left")["query_id"]
        if len(unmatched):
            diagnostics.warning(kind, *unmatched.head(NUM_NAMED), count=len(unmatched))


def _check_documents(runs: pl.DataFrame, corpus: pl.DataFrame, diagnostics: Diagnostics) -> None:
    unknown = runs.join(corpus.select("doc_id"), on="doc_id", how="anti", maintain_order="left").unique(
        ["run_id", "doc_id"], keep="first", maintain_order=True
    )
    for (name,), rows in unknown.group_by("run_id", maintain_order=True):
        texts = [
            f"run {name!r}, query {query!r}: document {document!r} is not in the passages"
            for query, document in rows.select("query_id", "doc_id").head(NUM_NAMED).iter_rows()
        ]
        kind = f"documents of run {name!r} that are not in the passages"
        diagnostics.error(kind, *texts, count=rows.height)


def _note_white_space(query_ids: pl.Series, doc_ids: pl.Series, diagnostics: Diagnostics) -> None:
    ids = pl.concat([query_ids, doc_ids.alias("query_id")])
    spaced = ids.filter(ids.str.contains(r"[ \t\n\r\f\v]")).unique(maintain_order=True)
    if len(spaced):
        diagnostics.warning(
            "ids with white space, which TREC files cannot hold",
            *(repr(name) for name in spaced.head(NUM_NAMED)),
            count=len(spaced),
        )


def gold_lists(
    queries: pl.DataFrame,
    provenance: pl.DataFrame,
    gold: pl.DataFrame,
    corpus: pl.DataFrame,
    depth: int | None = None,
    *,
    diagnostics: Diagnostics | None = None,
) -> pl.DataFrame:
    """Return the gold passages of each query: ``query_id, rank, doc_id``; queries without any have no row.

    They are those in the question file that are in ``corpus``. If there are none, they are the passages of the gold
    pages in the order of ``corpus``, those that contain an answer first (KILT's rule: the normalised answer is a
    substring of the normalised text). Lists are cut at ``depth``, if given. Gold passages of the question file that are
    missing in ``corpus`` are noted in ``diagnostics``.
    """
    query_ids = queries.select("query_id")
    named = gold.join(query_ids, on="query_id", how="semi").join(corpus, on="doc_id", how="semi")
    if diagnostics is not None:
        _note_missing_gold(gold.join(query_ids, on="query_id", how="semi"), corpus, diagnostics)
    others = queries.join(named, on="query_id", how="anti", maintain_order="left")
    lists = pl.concat(
        [named.select("query_id", "doc_id", order="rank"), _of_pages(others, provenance, corpus)]
    )
    rank = pl.col("order").rank("ordinal").over("query_id").cast(pl.Int32)
    ranked = lists.with_columns(rank=rank).sort("query_id", "rank").select(GOLD_COLUMNS.names())
    return ranked if depth is None else ranked.filter(pl.col("rank") <= depth)


def _note_missing_gold(gold: pl.DataFrame, corpus: pl.DataFrame, diagnostics: Diagnostics) -> None:
    missing = gold.join(corpus, on="doc_id", how="anti", maintain_order="left")["doc_id"]
    if len(missing):
        kind = "gold passages that are not in the passages"
        diagnostics.warning(kind, *missing.head(NUM_NAMED), count=len(missing))


def _of_pages(queries: pl.DataFrame, provenance: pl.DataFrame, corpus: pl.DataFrame) -> pl.DataFrame:
    """Return the passages of gold pages, those with an answer first: ``query_id, doc_id, order``."""
    candidates = (
        provenance.join(queries.select("query_id", "answers"), on="query_id")
        .join(corpus.with_row_index("row"), on="page_id")
        .sort("query_id", "row")
    )
    texts = dict(candidates.select("doc_id", "text").unique("doc_id").iter_rows())
    normal = {doc_id: normalize_answer(text) for doc_id, text in texts.items()}
    answers = {
        query_id: [normalize_answer(answer) for answer in gold_answers]
        for query_id, gold_answers in queries.select("query_id", "answers").iter_rows()
    }
    without = [
        # an answer that is empty after normalisation would match every text
        not any(answer and answer in normal[doc_id] for answer in answers[query_id])
        for query_id, doc_id in candidates.select("query_id", "doc_id").iter_rows()
    ]
    ordered = candidates.with_columns(without=pl.Series(without, dtype=pl.Boolean)).sort("without", "row")
    return ordered.select("query_id", "doc_id", order=pl.int_range(pl.len(), dtype=pl.Int32))
