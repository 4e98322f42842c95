"""Loading of passage files: JSON Lines (ours, BEIR's, Pyserini's), plain or gzip, Parquet, and sealed CORPUS tables.

A format's function yields batches: doc_id and line or row of all passages (to find repeated ones), and the selected
ones as CORPUS, so that millions of passages are never in memory at once. A new format is one function and one line in
`PASSAGE_FORMATS`.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.documents import TEXT_FORM, TEXT_KEYS, Document, document_of
from erag_ray.data.files.ids import DOCUMENT_IDS, ID_FORM, IdKeys
from erag_ray.data.files.jsonl import Paths, listed
from erag_ray.data.files.parquet import NO_TEXT, TABLE, ParquetFile, is_filled, scan_parquet
from erag_ray.data.files.records import read_records
from erag_ray.data.files.squad import page_key, page_keys
from erag_ray.store.files import is_folder
from erag_ray.store.schemas import CORPUS
from erag_ray.store.tables import part_paths
from erag_ray.support.errors import InputError

CORPUS_COLUMNS = CORPUS.empty().schema
ID_COLUMNS = pl.Schema({"doc_id": pl.String(), "line": pl.UInt32()})
BATCH_SIZE = 1 << 16
TAB_COLUMNS = (("id", "text", "title"), ("id", "text"))
"""Columns of tab-separated passages without a header: DPR's, and those of MS MARCO."""

Passage = tuple[str, str | None, str, str]
Batch = tuple[pl.DataFrame, pl.DataFrame]


class Selection(NamedTuple):
    """Selection of passages: those of these documents or of these pages."""

    doc_ids: frozenset[str]
    page_ids: frozenset[str]


def load_passages(
    paths: Paths,
    diagnostics: Diagnostics,
    *,
    doc_ids: Iterable[str] | None = None,
    page_ids: Iterable[str | None] | None = None,
) -> pl.DataFrame:
    """Load CORPUS from one passage file or several, in the files' order (thus a page's passages in reading order).

    A file is JSON Lines or Parquet with an id (``doc_id`` or another of `files.ids.DOCUMENT_IDS`), a text (one of
    `files.documents.TEXT_KEYS`) and optional ``page_id`` and ``title``, or the folder of a sealed CORPUS. All passages
    are checked. Those of ``doc_ids`` and of the pages ``page_ids``, by `page_key`, are loaded; all if both are None.
    """
    selection = None
    if not (doc_ids is None and page_ids is None):
        pages = () if page_ids is None else (page_key(page) for page in page_ids if page is not None)
        selection = Selection(frozenset(() if doc_ids is None else doc_ids), frozenset(pages))
    num_before = diagnostics.num_errors
    files = [file for path in listed(paths) for file in _files_of(path, diagnostics)]
    seen: list[pl.DataFrame] = []
    passages = [pl.DataFrame(schema=CORPUS_COLUMNS)]
    for path in files:
        for ids, selected in PASSAGE_FORMATS[format_of(path)](path, diagnostics, selection):
            seen.append(ids.with_columns(path=pl.lit(path, dtype=pl.Categorical())))
            passages.append(selected)
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
    location = pl.format("{}:{}", pl.col("path").cast(pl.String), "line")
    repeated = seen.filter(pl.col("doc_id").is_duplicated()).with_columns(location=location)
    firsts = repeated.with_columns(first=pl.col("location").first().over("doc_id"))
    later = firsts.filter(~pl.col("doc_id").is_first_distinct())
    text = "{location}: doc_id {doc_id!r} repeats the one at {first}"
    diagnostics.error_rows("repeated doc_ids in the passages", later, text)
    return later.height > 0


def read_jsonl(path: str, diagnostics: Diagnostics, selection: Selection | None) -> Iterator[Batch]:
    """Yield the passages of a JSON Lines file."""
    passages = _jsonl_passages(path, diagnostics)
    while chunk := list(itertools.islice(passages, BATCH_SIZE)):
        ids = [(passage[0], line) for line, passage in chunk]
        selected = [
            (doc_id, page_id, *texts)
            for _, (doc_id, page_id, *texts) in chunk
            if selection is None or doc_id in selection.doc_ids or page_id in selection.page_ids
        ]
        yield (
            pl.DataFrame(ids, schema=ID_COLUMNS, orient="row"),
            pl.DataFrame(selected, schema=CORPUS_COLUMNS, orient="row"),
        )


def _jsonl_passages(path: str, diagnostics: Diagnostics) -> Iterator[tuple[int, Passage]]:
    for record in read_records(path, diagnostics, columns=TAB_COLUMNS):
        try:
            passage = passage_of(document_of(record.values))
        except ValueError as error:
            record.fault("wrong passages", str(error))
            continue
        if not passage[3].strip():
            diagnostics.warning("passages without text", passage[0])
        elif TABLE.search(path) and len(passage[2]) > len(passage[3]):
            diagnostics.warning("titles longer than texts (without a header: id, text, title)", passage[0])
        yield record.line, passage


def passage_of(document: Document) -> Passage:
    """Return a document as a row of CORPUS; raise ValueError if it has no id or no text."""
    if document.doc_id is None or document.text is None:
        id_fault = f"doc_id is missing or blank; {ID_FORM}"
        raise ValueError(id_fault if document.doc_id is None else f"text is missing; {TEXT_FORM}")
    # a BEIR document is its own page
    page_id = document.page_id or (document.doc_id if document.id_key == "_id" else "")
    return document.doc_id, page_key(page_id) or None, document.title or "", document.text


def read_parquet(path: str, diagnostics: Diagnostics, selection: Selection | None) -> Iterator[Batch]:
    """Yield the passages of a Parquet file as one batch; texts are loaded for the selected rows only."""
    scanned = scan_parquet(path, diagnostics)
    if scanned is None:
        return
    file = scanned.of_documents()
    frame = file.frame.select("row", **_columns(file))
    has_id = is_filled("doc_id")
    has_text = pl.col("text").is_not_null()
    is_blank = pl.col("text").str.strip_chars() == ""
    checked = file.collect(frame.select("row", "doc_id", has_id=has_id, has_text=has_text, is_blank=is_blank))
    selected = file.collect(frame.filter(has_id, has_text, _is_selected(selection)))
    if checked is None or selected is None:
        return
    for flag, name in (("has_id", "doc_id"), ("has_text", "text")):
        text = "{path}: row {row}: {name} is missing"
        rows = checked.filter(~pl.col(flag))
        diagnostics.error_rows(f"missing {name} in {path}", rows, text, path=path, name=name)
    diagnostics.warn_each("passages without text", checked.filter("is_blank")["doc_id"].fill_null(""))
    ids = checked.filter("has_id", "has_text").select("doc_id", line=pl.col("row").cast(pl.UInt32))
    texts = page_keys("page_id"), pl.col("title").fill_null(""), "text"
    yield ids, selected.sort("row").select("doc_id", *texts)


def _columns(file: ParquetFile) -> dict[str, pl.Expr]:
    """Return the columns of CORPUS; with errors, if the file lacks an id or a text, or has other types."""
    doc_id = file.ids(DOCUMENT_IDS)
    page_id = NO_TEXT
    if "page_id" in file.names:
        page_id = file.ids(IdKeys("page_id", frozenset()))
    elif DOCUMENT_IDS.among(file.names) == ["_id"]:
        # a BEIR document is its own page
        page_id = doc_id
    return {
        "doc_id": doc_id,
        "page_id": page_id,
        "title": file.texts("title") if "title" in file.names else NO_TEXT,
        "text": file.texts(next((name for name in TEXT_KEYS if name in file.names), "text")),
    }


def _is_selected(selection: Selection | None) -> pl.Expr:
    if selection is None:
        return pl.lit(True)
    doc_ids, page_ids = (pl.Series(sorted(ids), dtype=pl.String) for ids in selection)
    in_pages = page_keys("page_id").is_in(page_ids.implode()).fill_null(False)
    return pl.col("doc_id").is_in(doc_ids.implode()) | in_pages


def format_of(path: str) -> str:
    """Return the format by the file's extension: a key of `PASSAGE_FORMATS`, else jsonl."""
    extension = re.sub(r"\.gz$", "", path.lower()).rpartition(".")[2]
    return extension if extension in PASSAGE_FORMATS else "jsonl"


PASSAGE_FORMATS: dict[str, Callable[[str, Diagnostics, Selection | None], Iterator[Batch]]] = {
    "jsonl": read_jsonl,
    "parquet": read_parquet,
}
