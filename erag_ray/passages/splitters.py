"""How pages become passages: a splitter takes a page and yields the texts of its passages, in reading order.

There is no single "100 words" (see each rule's source). A new rule is one function and one line in `SPLITTERS`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from erag_ray.registry import find

PASSAGE_WORDS = 100
SECTION = "Section::::"
CHARACTERS, OVERLAP = 300, 20
KILT_PIPELINE = "en_core_web_sm"
# spaCy refuses texts of more than a million, which some pages have
MAX_CHARACTERS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Page:
    """An article as KILT's knowledge source has it.

    Attributes:
        page_id: ``wikipedia_id``.
        title: ``wikipedia_title``.
        paragraphs: ``text``: the title again, then paragraphs; section heads start with ``Section::::``.
    """

    page_id: str
    title: str
    paragraphs: tuple[str, ...]


Splitter = Callable[[Page], Iterator[str]]


def whitespace100(page: Page) -> Iterator[str]:
    """Disjoint windows of 100 words between white space over the whole page; the last may be shorter.

    The first paragraph (the title) and section heads are left out. The rule of Pyserini's
    ``scripts/kilt/convert_kilt_to_fixed_passages_jsonl.py``, but for pages without words: there they give one empty
    passage, here none.
    """
    words = (word for paragraph in _line(page) for word in paragraph.split())
    while window := list(itertools.islice(words, PASSAGE_WORDS)):
        yield " ".join(window)


def dpr_wrap(page: Page) -> Iterator[str]:
    """Disjoint windows of 100 words as spaCy has them; the last is filled up from the start of the page.

    A word is a token that is neither space nor punctuation. A page of fewer words gives one passage, which holds it
    twice at most. The rule of Pyserini's ``scripts/dpr/wiki_generate_tsv_no_tables_lists.py``, without its cleaning of
    Wikipedia's mark-up and without the title, which it puts before a page's first passage and CORPUS has beside it.
    """
    tokens = [
        (token.text_with_ws, not token.is_space and not token.is_punct)
        # the space at the end parts the last word from the first, where the page begins again
        for token in _tokenizer()("".join(f"{paragraph.strip()} " for paragraph in _line(page)))
    ]
    num_words = sum(is_word for _, is_word in tokens)
    left = -num_words % PASSAGE_WORDS
    pieces, count = [], 0
    for text, is_word in itertools.chain(tokens, _first_words(tokens, left)):
        pieces.append(text)
        count += is_word
        if is_word and count == PASSAGE_WORDS:
            yield " ".join("".join(pieces).split())
            pieces, count = [], 0
    if count:
        yield " ".join("".join(pieces).split())


def _first_words(tokens: list[tuple[str, bool]], count: int) -> Iterator[tuple[str, bool]]:
    """The tokens up to the ``count``-th word, or all of them."""
    for text, is_word in tokens:
        if not count:
            return
        yield text, is_word
        count -= is_word


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """A stretch of a paragraph, or of several of one section."""

    text: str
    section: str
    size: int


def kilt_official(page: Page) -> Iterator[str]:
    """Whole sentences of one section, up to 100 spaCy tokens: the rule of KILT's ``create_kilt_data_paragraphs.py``.

    A longer sentence stays whole. What is left at the end of a paragraph joins the passage before it if both are of
    one section and have fewer than 100 tokens together. Needs spaCy's en_core_web_sm, whose parser finds the sentences.
    """
    return chunks_of_sentences(page, _kilt_pipeline())


def chunks_of_sentences(page: Page, pipeline: Any) -> Iterator[str]:
    """`kilt_official` with any spaCy pipeline that finds sentences."""
    chunks: list[_Chunk] = []
    section = f"{SECTION}Abstract"
    for paragraph in pipeline.pipe(page.paragraphs[1:]):
        if SECTION in paragraph.text:
            section = paragraph.text.strip()
            continue
        for chunk, is_last in _stretches(paragraph, section):
            if is_last and chunks and _fits(chunks[-1], chunk):
                # the space between them is counted, as it is there
                size = chunks[-1].size + chunk.size + 1
                chunks[-1] = replace(chunk, text=f"{chunks[-1].text} {chunk.text}", size=size)
            else:
                chunks.append(chunk)
    return (chunk.text for chunk in chunks)


def _fits(before: _Chunk, chunk: _Chunk) -> bool:
    return before.section == chunk.section and before.size + chunk.size < PASSAGE_WORDS


def _stretches(paragraph: Any, section: str) -> Iterator[tuple[_Chunk, bool]]:
    """A paragraph's sentences, as many as fit together, and whether they are what is left at its end."""
    held: list[Any] = []
    for sentence in paragraph.sents:
        if held and len(held) + len(sentence) >= PASSAGE_WORDS:
            yield _chunk(paragraph, held, section), False
            held = []
        held += [token for token in sentence if token.text.strip()]
    if held:
        yield _chunk(paragraph, held, section), True


def _chunk(paragraph: Any, tokens: list[Any], section: str) -> _Chunk:
    # one character more than the last token has, as it is there
    end = tokens[-1].idx + len(tokens[-1]) + 1
    return _Chunk(text=paragraph.text[tokens[0].idx : end].strip(), section=section, size=len(tokens))


def recursive_characters(page: Page) -> Iterator[str]:
    """At most 300 characters, cut at the widest gap that allows it, with up to 20 that overlap: LangChain's own class.

    ``RecursiveCharacterTextSplitter(chunk_size=300, chunk_overlap=20)`` over the paragraphs with an empty line between
    them, as the dual-label paper has it (section 3.1).
    """
    text = "\n\n".join(stripped for paragraph in _line(page) if (stripped := paragraph.strip()))
    yield from _langchain().split_text(text)


def _line(page: Page) -> Iterator[str]:
    """The paragraphs after the title, without section heads."""
    return (paragraph for paragraph in page.paragraphs[1:] if not paragraph.startswith(SECTION))


@functools.cache
def _tokenizer() -> Any:
    made = importlib.import_module("spacy").blank("en")
    made.max_length = MAX_CHARACTERS
    return made.make_doc


@functools.cache
def _kilt_pipeline() -> Any:
    made = importlib.import_module("spacy").load(KILT_PIPELINE)
    made.max_length = MAX_CHARACTERS
    return made


@functools.cache
def _langchain() -> Any:
    splitters = importlib.import_module("langchain_text_splitters")
    return splitters.RecursiveCharacterTextSplitter(chunk_size=CHARACTERS, chunk_overlap=OVERLAP)


def splitter_named(name: str) -> Splitter:
    """A splitter of `SPLITTERS`, or package.module:name.

    Raises:
        ValueError: there is none of that name, or a package that it needs is not installed.
    """
    found = find("splitter", name, SPLITTERS)
    for package in NEEDS.get(name, ()):
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"the splitter {name} needs the package {package}, which is not installed")
    return found


SPLITTERS: dict[str, Splitter] = {
    "whitespace100": whitespace100,
    "dpr_wrap": dpr_wrap,
    "kilt_official": kilt_official,
    "recursive_characters": recursive_characters,
}
NEEDS = {
    "dpr_wrap": ("spacy",),
    "kilt_official": ("spacy", KILT_PIPELINE),
    "recursive_characters": ("langchain_text_splitters",),
}
