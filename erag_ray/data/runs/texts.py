"""Texts and latencies that lists bring along: to CORPUS, next to passage files or instead of them, and to a table."""

from collections.abc import Sequence

import polars as pl

from erag_ray.data.files.diagnostics import NUM_NAMED, Diagnostics
from erag_ray.data.files.parquet import is_filled
from erag_ray.data.passages.load import CORPUS_COLUMNS, load_passages
from erag_ray.store.schemas import RETRIEVAL_SECONDS

SHOWN_CHARACTERS = 60
SAME_CHARACTERS = 20
"""How much of an equal beginning is shown before two texts differ."""
SOURCE = ("run_id", "query_id", "rank")


def load_corpus(
    paths: Sequence[str], entries: pl.DataFrame, diagnostics: Diagnostics, *, gold: pl.DataFrame
) -> pl.DataFrame:
    """Return CORPUS of the documents of runs, and of gold documents and pages: from passage files and from the lists.

    There may be no passage files where the entries, of all runs and cut to what is used, bring texts. ``gold`` is
    PROVENANCE; the passages of a page with the id of a gold document are loaded too.
    """
    corpus = pl.DataFrame(schema=CORPUS_COLUMNS)
    if paths:
        unnamed = entries.filter(pl.col("doc_id").str.starts_with("text-"), pl.col("text").is_not_null())
        corpus = load_passages(
            paths,
            diagnostics,
            doc_ids=[*entries["doc_id"].drop_nulls(), *gold["doc_id"].drop_nulls(), *unnamed["text"]],
            page_ids=[*entries["page_id"], *gold["page_id"], *gold["doc_id"]],
        )
        mistaken = unnamed.join(corpus.select(text="doc_id"), on="text", how="semi", maintain_order="left")
        text = "run {run_id!r}, query {query_id!r}: the text of document {rank} is {text!r}, the id of a passage. "
        text += "Give (id, text) or {{'id': ..., 'text': ...}}"
        diagnostics.error_rows("ids in place of texts", mistaken, text)
    # lists of no question have an error of their own
    elif (listed := entries.filter(pl.col("rank") > 0)).height and not listed["text"].count():
        run, query, *ids = listed.select("run_id", "query_id", "doc_id", "page_id").row(0)
        example = f" (run {run!r}, query {query!r}: {next(one for one in ids if one is not None)!r})"
        diagnostics.error(
            "no passages",
            f"passages: none are given, and the lists have ids without texts{example}. Set passages to the texts "
            "of the documents, or give lists with texts",
        )
    return with_texts(corpus, entries, diagnostics)


def with_texts(corpus: pl.DataFrame, entries: pl.DataFrame, diagnostics: Diagnostics) -> pl.DataFrame:
    """Return CORPUS with the documents whose texts entries bring; new ones follow, in the order of the entries.

    An id with two texts, or with two titles, is an error. A blank title is an unknown one.
    """
    brought = entries.filter(pl.col("text").is_not_null())
    if not brought.height:
        return corpus
    of_lists = brought.unique(["doc_id", "title", "text"], keep="first", maintain_order=True)
    columns = [*CORPUS_COLUMNS.names(), *SOURCE]
    # no source: from the passage files
    of_files = corpus.with_columns(pl.lit(None, entries.schema[name]).alias(name) for name in SOURCE)
    rows = pl.concat([of_files.select(columns), of_lists.select(columns)])
    for noun in ("text", "title"):
        _report_differing(rows, noun, diagnostics)
    titled = pl.col("title").filter(is_filled("title")).first().fill_null("")
    values = (pl.col("page_id").drop_nulls().first(), titled, pl.col("text").first())
    first = rows.group_by("doc_id", maintain_order=True).agg(*values)
    return first.select(CORPUS_COLUMNS.names()).cast(CORPUS_COLUMNS)


def _report_differing(rows: pl.DataFrame, noun: str, diagnostics: Diagnostics) -> None:
    """Record an error for each id with two values in the column ``noun``: both, and where they come from."""
    known = (rows if noun == "text" else rows.filter(is_filled("title"))).select("doc_id", noun, *SOURCE)
    values = known.unique(["doc_id", noun], keep="first", maintain_order=True)
    differing = values.filter(pl.col("doc_id").is_duplicated()).group_by("doc_id", maintain_order=True)
    firsts = differing.head(2).partition_by("doc_id", maintain_order=True)
    texts = [_described(pair.rows(named=True), noun) for pair in firsts[:NUM_NAMED]]
    diagnostics.error(f"documents with two {noun}s under one id", *texts, count=len(firsts))


def _described(pair: Sequence[dict[str, object]], noun: str) -> str:
    one, other = (str(row[noun]) for row in pair)
    differing = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    start = max(0, next(differing, min(len(one), len(other))) - SAME_CHARACTERS)
    rows = zip((one, other), pair, strict=True)
    first, second = (f"{_cut(text, start)} ({_source(row)})" for text, row in rows)
    document = pair[0]["doc_id"]
    return (
        f"document {document!r} has two {noun}s: {first} and {second}. Give each {noun} an id of its own, or leave "
        "out an id that several share: documents of lists are then called by a hash of their title and text"
    )


def _cut(text: str, start: int) -> str:
    before = "..." if start else ""
    after = "..." if len(text) > start + SHOWN_CHARACTERS else ""
    return repr(f"{before}{text[start : start + SHOWN_CHARACTERS]}{after}")


def _source(row: dict[str, object]) -> str:
    if row["run_id"] is None:
        return "the passages"
    return f"run {row['run_id']!r}, query {row['query_id']!r}, rank {row['rank']}"


def seconds_of(entries: pl.DataFrame) -> pl.DataFrame:
    """Return RETRIEVAL_SECONDS of the lists whose latency is known."""
    known = entries.filter(pl.col("seconds").is_not_null())
    lists = known.unique(["run_id", "query_id"], keep="first", maintain_order=True)
    return lists.select(RETRIEVAL_SECONDS.columns.names)
