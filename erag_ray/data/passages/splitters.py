"""Splitters: functions from a page to the texts of its passages, in reading order.

"100 words" has several definitions (see each rule's source). A new rule is one function and one line in `SPLITTERS`.
"""

import functools
import importlib
import importlib.util
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from erag_ray.support.registry import find

PASSAGE_WORDS = 100
WINDOWS = re.compile(r"whitespace([1-9]\d{0,5})")
SECTION = "Section::::"
CHARACTERS, OVERLAP = 300, 20


@dataclass(frozen=True, kw_only=True)
class Page:
    """An article in the form of KILT's knowledge source."""

    page_id: str
    """``wikipedia_id``."""
    title: str
    """``wikipedia_title``."""
    paragraphs: tuple[str, ...]
    """``text``: the title again, then paragraphs; section headings start with ``Section::::``."""


Splitter = Callable[[Page], Iterator[str]]


def whitespace100(page: Page, size: int = PASSAGE_WORDS) -> Iterator[str]:
    """Yield disjoint windows of 100 (``size``) white-space separated words over the page; the last may be shorter.

    The first paragraph (the title) and section headings are left out. The rule of Pyserini's
    ``scripts/kilt/convert_kilt_to_fixed_passages_jsonl.py``, except for pages without words: one empty passage there,
    none here.
    """
    words = (word for paragraph in _body(page) for word in paragraph.split())
    while window := list(itertools.islice(words, size)):
        yield " ".join(window)


def recursive_characters(page: Page) -> Iterator[str]:
    """Yield chunks of at most 300 characters with an overlap of up to 20, by LangChain's text splitter.

    ``RecursiveCharacterTextSplitter(chunk_size=300, chunk_overlap=20)`` over the paragraphs, joined by empty lines, as
    in the dual-label paper (section 3.1).
    """
    text = "\n\n".join(stripped for paragraph in _body(page) if (stripped := paragraph.strip()))
    yield from _langchain().split_text(text)


def _body(page: Page) -> Iterator[str]:
    """Return the paragraphs after the title, without section headings."""
    return (paragraph for paragraph in page.paragraphs[1:] if not paragraph.startswith(SECTION))


@functools.cache
def _langchain() -> Any:
    splitters = importlib.import_module("langchain_text_splitters")
    return splitters.RecursiveCharacterTextSplitter(chunk_size=CHARACTERS, chunk_overlap=OVERLAP)


def splitter_named(name: str) -> Splitter:
    """Return a splitter of `SPLITTERS`, whitespaceN for windows of N words, or package.module:name.

    Raises:
        ValueError: the name is unknown, or a required package is not installed.
    """
    if size := WINDOWS.fullmatch(name):
        return functools.partial(whitespace100, size=int(size[1]))
    splitter = find("splitter", name, SPLITTERS)
    package = PACKAGES.get(name)
    if package and importlib.util.find_spec(package) is None:
        raise ValueError(f"the splitter {name} needs the package {package}, which is not installed")
    return splitter


SPLITTERS: dict[str, Splitter] = {
    "whitespace100": whitespace100,
    "recursive_characters": recursive_characters,
}
PACKAGES = {"recursive_characters": "langchain_text_splitters"}
