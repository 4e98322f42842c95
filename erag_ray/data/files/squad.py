"""The JSON format of SQuAD 1.1 and 2.0, and of KLUE-MRC: questions and pages.

``{"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text"}],
"is_impossible"}]}]}]}``, on one line or several. In KLUE-MRC the id is ``guid``, and articles have ``source``.
A page's id is its title: entries with the same title are one page.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import shown
from erag_ray.data.files.jsonl import Record, read_json, text_start

# underscores and Unicode's white space, to which Python adds four separators and Polars does not
_BLANKS = re.compile(r"(?:_|[^\S\x1c-\x1f])+")


def is_squad(path: str) -> bool:
    """Return whether a file is one JSON object with a list ``data`` (and not JSON Lines)."""
    if not path.removesuffix(".gz").endswith(".json"):
        return False
    start = text_start(path)
    try:
        content = json.loads(start.partition("\n")[0])
    except (ValueError, RecursionError):
        # the object spans several lines
        return '"data"' in start
    return isinstance(content, dict) and isinstance(content.get("data"), list)


def read_squad(path: str, diagnostics: Diagnostics) -> Iterator[Record]:
    """Yield a record for each question, numbered from 1: its fields and those of its article except ``paragraphs``."""
    number = 0
    for article in _articles(path, diagnostics):
        shared = {key: value for key, value in article.items() if key != "paragraphs"}
        record = Record(article, path, number + 1, diagnostics)
        for paragraph in record.objects("paragraphs"):
            for question in record.objects("qas", paragraph):
                number += 1
                yield Record({**shared, **question}, path, number, diagnostics)


def read_squad_pages(path: str, diagnostics: Diagnostics) -> Iterator[tuple[str, list[str]]]:
    """Yield title and distinct contexts of each page; articles with the same title are one page."""
    pages: dict[str, dict[str, None]] = {}
    for number, article in enumerate(_articles(path, diagnostics), 1):
        record = Record(article, path, number, diagnostics)
        title = page_name(record.identifier("title"))
        for paragraph in record.objects("paragraphs"):
            context = paragraph.get("context")
            if isinstance(context, str):
                pages.setdefault(title, {})[context] = None
            else:
                text = f"a paragraph of {title!r} has the context {shown(context)}; it must be a string"
                record.fault("wrong contexts", text)
    yield from ((title, list(contexts)) for title, contexts in pages.items())


def page_name(title: str) -> str:
    """Return the id of a page: its title in Unicode's composed form (NFC), stripped."""
    return unicodedata.normalize("NFC", title).strip()


def page_key(name: str) -> str:
    """Return the form in which the ids of pages are stored and compared: `page_name` with single spaces for blanks.

    An underscore is a blank, as in Wikipedia: SQuAD writes ``Frédéric_Chopin``, HotpotQA and KILT ``Frédéric Chopin``.
    """
    return _BLANKS.sub(" ", unicodedata.normalize("NFC", name)).strip(" ")


def page_keys(column: str) -> pl.Expr:
    """Return `page_key` of a column of strings; null for a name that is blank."""
    keys = pl.col(column).str.normalize("NFC").str.replace_all(_BLANKS.pattern, " ").str.strip_chars(" ")
    return pl.when(keys != "").then(keys).alias(column)


def _articles(path: str, diagnostics: Diagnostics) -> list[dict[str, Any]]:
    num_before = diagnostics.num_errors
    content = read_json(path, diagnostics)
    data = content.get("data") if isinstance(content, dict) else None
    if isinstance(data, list) and all(isinstance(one, dict) and "paragraphs" in one for one in data):
        return data
    if diagnostics.num_errors == num_before:
        text = f'{path}: not in the format of SQuAD: it has no list "data" of objects with "paragraphs". '
        text += "Write other records as one list, without an object around it"
        diagnostics.error(f"wrong {path}", text)
    return []
