"""Pages of KILT's knowledge source -> CORPUS: passages by a named splitting rule, in sealed Parquet parts.

A splitter takes a page and yields the texts of its passages, in reading order. The passages of page P are called
``P#1``, ``P#2``, ... A new rule is one such function and one line in `SPLITTERS`. Pages stream through: memory holds
one part, and a hash of eight bytes for each page to find ids that repeat.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl
import xxhash

from erag_ray.datasets import Findings
from erag_ray.datasets.lines import Paths, Record, listed, read_records
from erag_ray.datasets.passages import CORPUS_COLUMNS
from erag_ray.names import find
from erag_ray.schemas import CORPUS
from erag_ray.store import TableStore, file_stamp

Splitter = Callable[["Page"], Iterator[str]]

PASSAGE_WORDS = 100
PASSAGES_PER_PART = 100_000
SECTION = "Section::::"


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


@dataclass(frozen=True, kw_only=True)
class SealedCorpus:
    """A sealed CORPUS.

    Attributes:
        place: its folder; `datasets.load_passages` takes it as it is.
        num_pages, num_passages: what was read and what came out.
        is_new: made just now, not found.
        notes: what is worth reporting.
    """

    place: str
    num_pages: int
    num_passages: int
    is_new: bool
    notes: tuple[str, ...] = ()


def whitespace100(page: Page) -> Iterator[str]:
    """Disjoint windows of 100 words between white space over the whole page; the last may be shorter.

    The first paragraph (the title) and section heads are left out. The rule of Pyserini's
    ``scripts/kilt/convert_kilt_to_fixed_passages_jsonl.py``, but for pages without words: there they give one empty
    passage, here none.
    """
    told = (paragraph for paragraph in page.paragraphs[1:] if not paragraph.startswith(SECTION))
    words = (word for paragraph in told for word in paragraph.split())
    while window := list(itertools.islice(words, PASSAGE_WORDS)):
        yield " ".join(window)


def make_corpus(
    knowledge_source: Paths,
    out: str,
    *,
    splitter: str = "whitespace100",
    per_part: int = PASSAGES_PER_PART,
    tell: Callable[[str], None] | None = None,
) -> SealedCorpus:
    """Split every page and seal the passages in ``<out>/corpus``; what is sealed there with the same settings stays.

    Args:
        knowledge_source: KILT's ``kilt_knowledgesource.json``, one page a line, plain or gzip; or several such files.
        out: the folder, a path or URI.
        splitter: a key of `SPLITTERS`, or package.module:name.
        per_part: passages in one Parquet file.
        tell: gets a line about how far it is, after each part.

    Raises:
        ValueError: there is no such splitter.
        InputError: everything that is wrong with the pages, by file, line and id; nothing is sealed then.
    """
    pages = _Pages(paths=listed(knowledge_source), split=find("splitter", splitter, SPLITTERS))
    stamps = {path: file_stamp(path) for path in pages.paths}
    tables = TableStore(out)
    found = _sealed(tables, splitter, stamps)
    if found is not None:
        return found
    writer = tables.writer(CORPUS)
    passages, start = pages.passages(), time.monotonic()
    while part := list(itertools.islice(passages, per_part)):
        # after a problem the rest is only checked
        if not pages.findings.num_problems:
            writer.append(pl.DataFrame(part, schema=CORPUS_COLUMNS, orient="row"))
            rate = pages.num_pages / (time.monotonic() - start)
            if tell is not None:
                tell(f"{pages.num_pages:,} pages, {writer.num_rows:,} passages, {rate:,.0f} pages/s")
    pages.raise_problems()
    writer.seal(
        config={"splitter": splitter, "num_pages": pages.num_pages, "notes": list(pages.findings.notes)},
        inputs=stamps,
    )
    return _described(tables, is_new=True)


def _sealed(tables: TableStore, splitter: str, stamps: Mapping[str, str]) -> SealedCorpus | None:
    if not tables.is_sealed(CORPUS):
        return None
    manifest = tables.manifest(CORPUS)
    same = manifest["config"].get("splitter") == splitter and manifest["inputs"] == dict(stamps)
    return _described(tables, is_new=False) if same else None


def _described(tables: TableStore, *, is_new: bool) -> SealedCorpus:
    manifest = tables.manifest(CORPUS)
    return SealedCorpus(
        place="/".join([tables.folder.root.rstrip("/"), CORPUS.name]),
        num_pages=manifest["config"]["num_pages"],
        num_passages=manifest["num_rows"],
        notes=tuple(manifest["config"]["notes"]),
        is_new=is_new,
    )


@dataclass(kw_only=True)
class _Pages:
    """One pass over the pages of some files, with what it has counted and found so far."""

    paths: list[str]
    split: Splitter
    findings: Findings = field(default_factory=Findings)
    num_pages: int = 0
    seen: set[int] = field(default_factory=set)

    def passages(self) -> Iterator[tuple[str, str, str, str]]:
        """doc_id, page_id, title, text of every passage."""
        for path in self.paths:
            for record in read_records(path, self.findings):
                page = self._page(record)
                if not record.faulty:
                    self.num_pages += 1
                    yield from self._of_page(page)

    def _page(self, record: Record) -> Page:
        page_id = record.identifier("wikipedia_id").strip()
        # 64 bits: among KILT's 5.9 million pages two ids share a hash once in a million such sources
        digest = xxhash.xxh3_64_intdigest(page_id.encode())
        if page_id and digest in self.seen:
            record.fault("repeated pages", f"wikipedia_id {page_id!r} repeats an earlier page's")
        self.seen.add(digest)
        paragraphs = record.values.get("text")
        if not isinstance(paragraphs, list) or not all(isinstance(one, str) for one in paragraphs):
            record.fault("wrong text", f"page {page_id!r}: text must be a list of paragraphs (strings)")
            paragraphs = []
        return Page(page_id=page_id, title=record.text("wikipedia_title"), paragraphs=tuple(paragraphs))

    def _of_page(self, page: Page) -> Iterator[tuple[str, str, str, str]]:
        number = 0
        for number, text in enumerate(self.split(page), 1):
            yield f"{page.page_id}#{number}", page.page_id, page.title, text
        if not number:
            self.findings.note("pages without words, which give no passage", page.page_id)

    def raise_problems(self) -> None:
        """Raise InputError if anything is wrong, or if there is nothing at all."""
        if not self.num_pages and not self.findings.num_problems:
            self.findings.problem("no pages", f"no pages in {', '.join(self.paths)}")
        self.findings.raise_problems()


SPLITTERS: dict[str, Splitter] = {
    "whitespace100": whitespace100,
}
