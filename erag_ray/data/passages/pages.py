"""Reading of pages: KILT's knowledge source, and titles with texts in several formats.

Only KILT's pages have ids. In other formats the title is the id, as in the questions of SQuAD and KLUE-MRC.
"""

import io
from collections.abc import Iterator

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.jsonl import WHOLE, Record, Span, spans_of, text_start
from erag_ray.data.files.parquet import TABLE
from erag_ray.data.files.records import read_records
from erag_ray.data.files.squad import is_squad, page_name, read_squad_pages
from erag_ray.data.passages.splitters import Page
from erag_ray.store.files import is_folder, open_file
from erag_ray.store.folder import Folder

ENDING = ".txt"
BLANK_LINE = "\n\n"


def page_spans(path: str, num_bytes: int) -> list[Span]:
    """Return spans of about ``num_bytes`` bytes of a JSON Lines file; one span for any other format."""
    is_table = path.endswith(".parquet") or TABLE.search(path)
    if is_folder(path) or is_table or is_squad(path) or text_start(path).startswith("["):
        return [WHOLE]
    return spans_of(path, num_bytes)


def read_pages(path: str, diagnostics: Diagnostics, span: Span = WHOLE) -> Iterator[tuple[Page, Record]]:
    """Yield the pages of a file or folder, each with a record for messages; faulty ones are errors in ``diagnostics``.

    Formats: KILT's knowledge source (``wikipedia_id``, ``wikipedia_title``, ``text``: paragraphs); WikiExtractor's JSON
    Lines (``title``, ``text``); a folder of ``TITLE.txt``; Parquet with ``title`` and ``text``; the contexts of SQuAD's
    or KLUE-MRC's JSON.
    """
    if is_folder(path):
        yield from _of_folder(path, diagnostics)
    elif is_squad(path):
        for number, (title, contexts) in enumerate(read_squad_pages(path, diagnostics), 1):
            yield _page(title, contexts), Record({}, path, number, diagnostics)
    else:
        for record in read_records(path, diagnostics, span):
            is_kilt = "wikipedia_id" in record.values or "wikipedia_title" in record.values
            yield _of_kilt(record) if is_kilt else _titled(record), record


def _page(title: str, paragraphs: list[str]) -> Page:
    return Page(page_id=title, title=title, paragraphs=(title, *paragraphs))


def _of_kilt(record: Record) -> Page:
    page_id = record.identifier("wikipedia_id").strip()
    paragraphs = record.values.get("text")
    if not isinstance(paragraphs, list) or not all(isinstance(paragraph, str) for paragraph in paragraphs):
        record.fault("wrong text", f"page {page_id!r}: text must be a list of paragraphs (strings)")
        paragraphs = []
    return Page(page_id=page_id, title=record.text("wikipedia_title"), paragraphs=tuple(paragraphs))


def _titled(record: Record) -> Page:
    return _page(page_name(record.identifier("title")), record.text("text").split(BLANK_LINE))


def _of_folder(path: str, diagnostics: Diagnostics) -> Iterator[tuple[Page, Record]]:
    others = [one for one in Folder(path).entries() if not one.endswith(ENDING) and one[0] not in "._"]
    diagnostics.warn_each(f"in {path}, what is not a file TITLE{ENDING} and is left out", pl.Series(others))
    for number, filename in enumerate(Folder(path).names(suffix=ENDING), 1):
        file, title = "/".join([path.rstrip("/"), filename]), filename.removesuffix(ENDING)
        record = Record({"title": title}, file, number, diagnostics)
        try:
            title.encode()
            with io.TextIOWrapper(open_file(file), encoding="utf-8-sig") as stream:
                text = stream.read()
        except (OSError, UnicodeError) as error:
            record.fault("unreadable pages", f"cannot be read: {error}")
            text = ""
        name = "" if record.faulty else page_name(record.identifier("title"))
        yield _page(name, text.split(BLANK_LINE)), record
