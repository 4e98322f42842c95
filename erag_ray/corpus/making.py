"""Pages of KILT's knowledge source -> CORPUS, in sealed Parquet parts.

The passages of page P are called ``P#1``, ``P#2``, ... Pages stream through: memory holds one part, and a hash of eight
bytes for each page to find ids that repeat.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl
import xxhash

from erag_ray.corpus.pages import read_pages
from erag_ray.corpus.splitters import Page, Splitter, splitter_named
from erag_ray.datasets import Findings
from erag_ray.datasets.lines import Paths, Record, listed
from erag_ray.datasets.passages import CORPUS_COLUMNS
from erag_ray.schemas import CORPUS
from erag_ray.store import TableStore, file_stamp

PASSAGES_PER_PART = 100_000


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
        knowledge_source: KILT's ``kilt_knowledgesource.json``, one page a line, plain or gzip, or pages in another form
            (see `read_pages`); or several such files.
        out: the folder, a path or URI.
        splitter: a key of `SPLITTERS`, or package.module:name.
        per_part: passages in one Parquet file.
        tell: gets a line about how far it is, after each part.

    Raises:
        ValueError: there is no such splitter.
        InputError: everything that is wrong with the pages, by file, line and id; nothing is sealed then.
    """
    pages = _Pages(paths=listed(knowledge_source), split=splitter_named(splitter))
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
            for page, record in read_pages(path, self.findings):
                self._check_repeat(page, record)
                if not record.faulty:
                    self.num_pages += 1
                    yield from self._of_page(page)

    def _check_repeat(self, page: Page, record: Record) -> None:
        # 64 bits: among KILT's 5.9 million pages two ids share a hash once in a million such sources
        digest = xxhash.xxh3_64_intdigest(page.page_id.encode())
        if page.page_id and digest in self.seen:
            record.fault("repeated pages", f"page {page.page_id!r} repeats an earlier one")
        self.seen.add(digest)

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
