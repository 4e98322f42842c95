"""Splitters: functions from a page to the texts of its passages, in reading order.

"100 words" has several definitions (see each rule's source). A new rule is one function and one line in `SPLITTERS`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from erag_ray.registry import find

PASSAGE_WORDS = 100
WINDOWS = re.compile(r"whitespace([1-9]\d{0,5})")
SECTION = "Section::::"
CHARACTERS, OVERLAP = 300, 20
KILT_PIPELINE = "en_core_web_sm"
# spaCy's default limit is a million, which some pages exceed
MAX_CHARACTERS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Page:
    """An article in the form of KILT's knowledge source.

    Attributes:
        page_id: ``wikipedia_id``.
        title: ``wikipedia_title``.
        paragraphs: ``text``: the title again, then paragraphs; section headings start with ``Section::::``.
    """

    page_id: str
    title: str
    paragraphs: tuple[str, ...]


Splitter = Callable[[Page], Iterator[str]]


def whitespace100(page: Page) -> Iterator[str]:
    """Yield disjoint windows of 100 white-space separated words over the whole page; the last may be shorter.

    The first paragraph (the title) and section headings are left out. The rule of Pyserini's
    ``scripts/kilt/convert_kilt_to_fixed_passages_jsonl.py``, except for pages without words: one empty passage there,
    none here.
    """
    return windows(page, PASSAGE_WORDS)


def windows(page: Page, size: int) -> Iterator[str]:
    """Yield windows of ``size`` words, as `whitespace100` does."""
    words = (word for paragraph in _body(page) for word in paragraph.split())
    while window := list(itertools.islice(words, size)):
        yield " ".join(window)


def dpr_wrap(page: Page) -> Iterator[str]:
    """Yield disjoint windows of 100 spaCy words; the last one is filled up from the start of the page.

    A word is a token that is neither space nor punctuation. A page of fewer words gives one passage, which repeats it
    at most once. The rule of Pyserini's ``scripts/dpr/wiki_generate_tsv_no_tables_lists.py``, without its cleaning of
    Wikipedia's mark-up and without the title, which it puts before a page's first passage and CORPUS has as a column.
    """
    tokens = [
        (token.text_with_ws, not token.is_space and not token.is_punct)
        # the final space separates the last word from the first where the last window wraps around
        for token in _tokenizer()("".join(f"{paragraph.strip()} " for paragraph in _body(page)))
    ]
    num_words = sum(is_word for _, is_word in tokens)
    num_missing = -num_words % PASSAGE_WORDS
    pieces, count = [], 0
    for text, is_word in itertools.chain(tokens, _first_words(tokens, num_missing)):
        pieces.append(text)
        count += is_word
        if is_word and count == PASSAGE_WORDS:
            yield " ".join("".join(pieces).split())
            pieces, count = [], 0
    if count:
        yield " ".join("".join(pieces).split())


def _first_words(tokens: list[tuple[str, bool]], count: int) -> Iterator[tuple[str, bool]]:
    """Yield the tokens up to the ``count``-th word, or all of them."""
    for text, is_word in tokens:
        if not count:
            return
        yield text, is_word
        count -= is_word


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """Consecutive sentences of one section."""

    text: str
    section: str
    size: int


def kilt_official(page: Page) -> Iterator[str]:
    """Yield whole sentences of one section, up to 100 spaCy tokens: KILT's ``create_kilt_data_paragraphs.py``.

    A longer sentence is not cut. The last sentences of a paragraph are appended to the previous passage if both are in
    the same section and have fewer than 100 tokens in total. Needs spaCy's en_core_web_sm to split sentences.
    """
    return chunks_of_sentences(page, _kilt_pipeline())


def chunks_of_sentences(page: Page, pipeline: Any) -> Iterator[str]:
    """Apply `kilt_official` with any spaCy pipeline that splits sentences."""
    chunks: list[_Chunk] = []
    section = f"{SECTION}Abstract"
    for paragraph in pipeline.pipe(page.paragraphs[1:]):
        if SECTION in paragraph.text:
            section = paragraph.text.strip()
            continue
        for chunk, is_last in _stretches(paragraph, section):
            if is_last and chunks and _fits(chunks[-1], chunk):
                # KILT's script counts the space between them too
                size = chunks[-1].size + chunk.size + 1
                chunks[-1] = replace(chunk, text=f"{chunks[-1].text} {chunk.text}", size=size)
            else:
                chunks.append(chunk)
    return (chunk.text for chunk in chunks)


def _fits(previous: _Chunk, chunk: _Chunk) -> bool:
    return previous.section == chunk.section and previous.size + chunk.size < PASSAGE_WORDS


def _stretches(paragraph: Any, section: str) -> Iterator[tuple[_Chunk, bool]]:
    """Yield chunks of a paragraph's sentences, each with whether it is the paragraph's last."""
    tokens: list[Any] = []
    for sentence in paragraph.sents:
        if tokens and len(tokens) + len(sentence) >= PASSAGE_WORDS:
            yield _chunk(paragraph, tokens, section), False
            tokens = []
        tokens += [token for token in sentence if token.text.strip()]
    if tokens:
        yield _chunk(paragraph, tokens, section), True


def _chunk(paragraph: Any, tokens: list[Any], section: str) -> _Chunk:
    # one character more than the last token, as in KILT's script
    end = tokens[-1].idx + len(tokens[-1]) + 1
    return _Chunk(text=paragraph.text[tokens[0].idx : end].strip(), section=section, size=len(tokens))


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
def _tokenizer() -> Any:
    pipeline = importlib.import_module("spacy").blank("en")
    pipeline.max_length = MAX_CHARACTERS
    return pipeline.make_doc


@functools.cache
def _kilt_pipeline() -> Any:
    pipeline = importlib.import_module("spacy").load(KILT_PIPELINE)
    pipeline.max_length = MAX_CHARACTERS
    return pipeline


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
        return functools.partial(windows, size=int(size[1]))
    splitter = find("splitter", name, SPLITTERS)
    for package in PACKAGES.get(name, ()):
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"the splitter {name} needs the package {package}, which is not installed")
    return splitter


SPLITTERS: dict[str, Splitter] = {
    "whitespace100": whitespace100,
    "dpr_wrap": dpr_wrap,
    "kilt_official": kilt_official,
    "recursive_characters": recursive_characters,
}
PACKAGES = {
    "dpr_wrap": ("spacy",),
    "kilt_official": ("spacy", KILT_PIPELINE),
    "recursive_characters": ("langchain_text_splitters",),
}
