"""Loading of passage files: JSON Lines (ours, BEIR's, Pyserini's), plain or gzip, Parquet, and sealed CORPUS tables.

A format's function yields batches: the ids of all passages (to find repeated ones) and the selected rows, so that
millions of passages are never in memory at once. A new format is one function and one line in `PASSAGE_FORMATS`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from erag_ray.errors import InputError
from erag_ray.files import (
    NUM_NAMED,
    READ_ERRORS,
    Diagnostics,
    Paths,
    Record,
    identifier,
    listed,
    read_records,
    report_unreadable,
    scan_parquet,
    shown,
    text_column,
)
from erag_ray.store import is_folder, part_paths

CORPUS_COLUMNS = pl.Schema(
    {
        "doc_id": pl.String(),
        "page_id": pl.String(),
        "title": pl.String(),
        "text": pl.String(),
    }
)
ID_COLUMNS = pl.Schema({"doc_id": pl.String(), "place": pl.UInt32()})
BATCH_SIZE = 1 << 16

Passage = tuple[str, str | None, str, str]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selection of passages: those of these documents or of these pages; all if both are None."""

    doc_ids: frozenset[str] | None
    page_ids: frozenset[str] | None

    @property
    def everything(self) -> bool:
        """Whether all passages are selected."""
        return self.doc_ids is None and self.page_ids is None

    def __call__(self, doc_id: str, page_id: str | None) -> bool:
        """Return whether the passage is selected."""
        return self.everything or doc_id in (self.doc_ids or ()) or page_id in (self.page_ids or ())


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of a file's passages.

    Attributes:
        ids: doc_id and line or row of every passage.
        passages: the selected passages, as CORPUS.
    """

    ids: pl.DataFrame
    passages: pl.DataFrame


def load_passages(
    paths: Paths,
    diagnostics: Diagnostics,
    *,
    doc_ids: Iterable[str] | None = None,
    page_ids: Iterable[str | None] | None = None,
) -> pl.DataFrame:
    """Load CORPUS from one passage file or several, in the files' order (thus a page's passages in reading order).

    Args:
        paths: JSON Lines with ``doc_id, page_id, title, text`` (or BEIR's ``_id``, or ``id`` and
            ``contents``), or Parquet with the same four columns, or the folder of a sealed CORPUS.
        diagnostics: receives all errors and warnings, also of passages that are not selected.
        doc_ids: load these passages ...
        page_ids: ... and those of these pages; all if both are None.
    """
    selection = Selection(
        doc_ids=None if doc_ids is None else frozenset(doc_ids),
        page_ids=None if page_ids is None else frozenset(page for page in page_ids if page is not None),
    )
    num_before = diagnostics.num_errors
    files = [file for path in listed(paths) for file in _files_of(path, diagnostics)]
    seen: list[pl.DataFrame] = []
    passages = [pl.DataFrame(schema=CORPUS_COLUMNS)]
    for path in files:
        for batch in PASSAGE_FORMATS[format_of(path)](path, diagnostics, selection):
            seen.append(batch.ids.with_columns(path=pl.lit(path, dtype=pl.Categorical())))
            passages.append(batch.passages)
    if not any(frame.height for frame in seen) and diagnostics.num_errors == num_before:
        diagnostics.error("no passages", f"no passages in {', '.join(files) or 'an empty list of files'}")
    repeats = _report_repeats(pl.concat(seen), diagnostics) if seen else False
    corpus = pl.concat(passages)
    return corpus.unique("doc_id", keep="first", maintain_order=True) if repeats else corpus


def _files_of(path: str, diagnostics: Diagnostics) -> list[str]:
    """Return the file itself, or the parts of a sealed table."""
    if not is_folder(path):
        return [path]
    try:
        return part_paths(path)
    except InputError as error:
        diagnostics.error(f"folder {path}", *error.problems)
        return []


def _report_repeats(seen: pl.DataFrame, diagnostics: Diagnostics) -> bool:
    """Record an error for each repetition of an id; return whether there is any."""
    repeated = seen.filter(pl.col("doc_id").is_duplicated())
    location = pl.concat_str(pl.col("path").cast(pl.String), pl.lit(":"), pl.col("place").cast(pl.String))
    later = (
        repeated.with_columns(place=location)
        .with_columns(first=pl.col("place").first().over("doc_id"))
        .filter(~pl.col("doc_id").is_first_distinct())
    )
    texts = [
        f"{row['place']}: doc_id {row['doc_id']!r} repeats the one at {row['first']}"
        for row in later.head(NUM_NAMED).iter_rows(named=True)
    ]
    diagnostics.error("repeated doc_ids in the passages", *texts, count=later.height)
    return later.height > 0


def read_jsonl(path: str, diagnostics: Diagnostics, selection: Selection) -> Iterator[Batch]:
    """Yield the passages of a JSON Lines file."""
    passages = _jsonl_passages(path, diagnostics)
    while chunk := list(itertools.islice(passages, BATCH_SIZE)):
        ids = [(passage[0], line) for line, passage in chunk]
        selected = [passage for _, passage in chunk if selection(passage[0], passage[1])]
        yield Batch(
            ids=pl.DataFrame(ids, schema=ID_COLUMNS, orient="row"),
            passages=pl.DataFrame(selected, schema=CORPUS_COLUMNS, orient="row"),
        )


def _jsonl_passages(path: str, diagnostics: Diagnostics) -> Iterator[tuple[int, Passage]]:
    for record in read_records(path, diagnostics):
        passage = _passage(record)
        if record.faulty:
            continue
        if not passage[3].strip():
            diagnostics.warning("passages without text", passage[0])
        yield record.line, passage


def _passage(record: Record) -> Passage:
    values = record.values
    id_key = next((key for key in ("doc_id", "_id", "id") if key in values), "doc_id")
    text_key = "contents" if "text" not in values and "contents" in values else "text"
    doc_id = record.identifier(id_key)
    page_id = identifier(values.get("page_id"))
    if page_id is None and values.get("page_id") is not None:
        record.fault(
            "wrong page_id", f"page_id is {shown(values['page_id'])}; it must be a string or a number"
        )
    elif page_id is None and id_key == "_id":
        page_id = doc_id  # a BEIR document is its own page
    return doc_id, page_id, record.text("title", optional=True), record.text(text_key)


def read_parquet(path: str, diagnostics: Diagnostics, selection: Selection) -> Iterator[Batch]:
    """Yield the passages of a Parquet file as one batch; texts are loaded for the selected rows only."""
    frame = scan_parquet(path, CORPUS_COLUMNS, diagnostics)
    columns = {} if frame is None else _text_columns(frame, path, diagnostics)
    if frame is None or len(columns) < len(CORPUS_COLUMNS):
        return
    try:
        yield _parquet_batch(frame.select("row", **columns), path, diagnostics, selection)
    except READ_ERRORS as error:
        report_unreadable(path, error, diagnostics)


def _text_columns(frame: pl.LazyFrame, path: str, diagnostics: Diagnostics) -> dict[str, pl.Expr]:
    columns = {name: text_column(frame, name, path, diagnostics) for name in CORPUS_COLUMNS}
    return {name: column for name, column in columns.items() if column is not None}


def _parquet_batch(frame: pl.LazyFrame, path: str, diagnostics: Diagnostics, selection: Selection) -> Batch:
    no_id = pl.col("doc_id").fill_null("").str.strip_chars() == ""
    no_text = pl.col("text").is_null()
    blank = pl.col("text").str.strip_chars() == ""
    checked = frame.select("row", "doc_id", no_id=no_id, no_text=no_text, blank=blank).collect()
    for flag, name in (("no_id", "doc_id"), ("no_text", "text")):
        rows = checked.filter(flag)["row"]
        texts = [f"{path}: row {row}: {name} is missing" for row in rows.head(NUM_NAMED)]
        diagnostics.error(f"missing {name} in {path}", *texts, count=len(rows))
    empty = checked.filter("blank")["doc_id"].fill_null("")
    if len(empty):
        diagnostics.warning("passages without text", *empty.head(NUM_NAMED), count=len(empty))
    good = checked.filter(~pl.col("no_id") & ~pl.col("no_text"))
    selected = frame.filter(~no_id & ~no_text & _is_selected(selection)).collect().sort("row")
    return Batch(
        ids=good.select("doc_id", place=pl.col("row").cast(pl.UInt32)),
        passages=selected.select("doc_id", "page_id", pl.col("title").fill_null(""), "text"),
    )


def _is_selected(selection: Selection) -> pl.Expr:
    if selection.everything:
        return pl.lit(True)
    doc_ids = pl.Series(sorted(selection.doc_ids or ()), dtype=pl.String)
    page_ids = pl.Series(sorted(selection.page_ids or ()), dtype=pl.String)
    in_pages = pl.col("page_id").is_in(page_ids.implode()).fill_null(False)
    return pl.col("doc_id").is_in(doc_ids.implode()) | in_pages


def format_of(path: str) -> str:
    """Return the format by the file's extension: a key of `PASSAGE_FORMATS`, else jsonl."""
    extension = re.sub(r"\.gz$", "", path.lower()).rpartition(".")[2]
    return extension if extension in PASSAGE_FORMATS else "jsonl"


PASSAGE_FORMATS: dict[str, Callable[[str, Diagnostics, Selection], Iterator[Batch]]] = {
    "jsonl": read_jsonl,
    "parquet": read_parquet,
}
