"""SQuAD's own JSON (1.1 and 2.0; KLUE-MRC's too) -> records of its questions, and its pages.

``{"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text"}],
"is_impossible"}]}]}]}``, in one line or over several; KLUE-MRC calls the id ``guid`` and adds ``source`` to an article.
An article is called by its title: several entries with one title are one page.
"""

from __future__ import annotations

import json
import unicodedata
import zlib
from collections.abc import Iterator
from typing import Any

from erag_ray.files.diagnostics import Diagnostics
from erag_ray.files.jsonl import Record, open_bytes, read_json, shown


def is_squad(path: str) -> bool:
    """Whether a file is one JSON object with a list called data, and no JSON Lines."""
    if not path.removesuffix(".gz").endswith(".json"):
        return False
    try:
        with open_bytes(path) as stream:
            start = stream.read(1 << 16)
    except (OSError, EOFError, zlib.error):
        return False
    first = start.lstrip().partition(b"\n")[0]
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        # the object goes on over several lines
        return b'"data"' in start
    return isinstance(found, dict) and isinstance(found.get("data"), list)


def read_squad(path: str, diagnostics: Diagnostics) -> Iterator[Record]:
    """A record for each question: its own fields and those of its article but ``paragraphs``, numbered from 1."""
    number = 0
    for article in _articles(path, diagnostics):
        about = {key: value for key, value in article.items() if key != "paragraphs"}
        record = Record(article, path, number + 1, diagnostics)
        for paragraph in record.objects("paragraphs"):
            for asked in record.objects_of(paragraph, "qas"):
                number += 1
                yield Record({**about, **asked}, path, number, diagnostics)


def read_squad_pages(path: str, diagnostics: Diagnostics) -> Iterator[tuple[str, list[str]]]:
    """Title and contexts of each page: those of one title stand together, equal ones once."""
    pages: dict[str, dict[str, None]] = {}
    for number, article in enumerate(_articles(path, diagnostics), 1):
        record = Record(article, path, number, diagnostics)
        title = page_name(record.identifier("title"))
        for paragraph in record.objects("paragraphs"):
            context = paragraph.get("context")
            if isinstance(context, str):
                pages.setdefault(title, {})[context] = None
            else:
                text = f"a paragraph of {title!r} has no context that is a text, but {shown(context)}"
                record.fault("wrong contexts", text)
    yield from ((title, list(contexts)) for title, contexts in pages.items())


def page_name(title: str) -> str:
    """The name of a page: its title, however its letters are put together (NFC)."""
    return unicodedata.normalize("NFC", title).strip()


def _articles(path: str, diagnostics: Diagnostics) -> list[dict[str, Any]]:
    num_before = diagnostics.num_errors
    content = read_json(path, diagnostics)
    if diagnostics.num_errors > num_before:
        return []
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(data, list) or not all(isinstance(article, dict) for article in data):
        diagnostics.error(
            f"wrong {path}", f'{path}: not in the form of SQuAD: it has no list of objects called "data"'
        )
        return []
    return data
