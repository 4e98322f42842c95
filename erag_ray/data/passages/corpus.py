"""Splitting of pages into CORPUS, a sealed table of Parquet parts.

The passages of page P have the ids ``P#1``, ``P#2``, ... Several processes split pieces of the files in parallel.
Memory: one part for each process, and eight bytes for each page in the job, to find repeated ids.
"""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl
import xxhash

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.jsonl import Paths, Span, listed, numbered
from erag_ray.data.passages.load import CORPUS_COLUMNS
from erag_ray.data.passages.pages import page_spans, read_pages
from erag_ray.data.passages.splitters import Splitter, splitter_named
from erag_ray.store.fingerprints import code_stamp, file_stamp, fingerprint
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import CORPUS
from erag_ray.store.sharded_tasks import Do, Tasks, do_tasks, open_array, part, undone, write_array
from erag_ray.store.tables import TableStore
from erag_ray.support.uris import is_uri

PASSAGES_PER_PART = 100_000
# about 66,000 passages of KILT's pages
BYTES_PER_PIECE = 1 << 26
REPORT_FORM = {"num_pages": int, "num_rows": int, "parts": dict, "diagnostics": dict}
LONG, LONGEST_WORD = 1000, 20
"""Characters of a long passage, and of the words of no language on average."""
LONG_WITHOUT_SPACES = "passages of over 1,000 characters with few spaces (a splitter by words needs them)"
Piece = tuple[str, Span]


@dataclass(frozen=True, kw_only=True)
class SealedCorpus:
    """A sealed CORPUS in a folder that `load_passages` reads; ``is_new`` if this call made it."""

    folder: str
    num_pages: int
    num_passages: int
    is_new: bool
    notes: tuple[str, ...] = ()


def make_corpus(
    knowledge_source: Paths,
    out: str,
    *,
    splitter: str = "whitespace100",
    do: Do = do_tasks,
    per_part: int = PASSAGES_PER_PART,
    per_piece: int = BYTES_PER_PIECE,
) -> SealedCorpus:
    """Split every page and seal the passages in ``<out>/corpus``, unless sealed there with the same settings.

    The source is KILT's ``kilt_knowledgesource.json``, one page a line, plain or gzip, or pages in another format (see
    `read_pages`); or several such files. All processes must see them. ``do`` runs a task for each piece of
    ``per_piece`` bytes (only uncompressed JSON Lines are cut), and a Parquet file has at most ``per_part`` passages.
    After an interruption, only the pieces that are not split yet are done.

    Raises:
        ValueError: the splitter is unknown.
        InputError: all errors in the pages, by file, line and id; nothing is sealed then.
    """
    splitter_named(splitter)
    paths = listed(knowledge_source)
    stamps = {path: file_stamp(path) for path in paths}
    if stamp := code_stamp(splitter):
        stamps[splitter] = stamp
    tables = TableStore(out)
    manifest = tables.manifest_if_whole(CORPUS)
    if manifest and manifest["config"].get("splitter") == splitter and manifest["inputs"] == stamps:
        return _described(tables, is_new=False)
    pieces = [
        # workers may have another working directory
        (path if is_uri(path) else os.path.abspath(path), span)
        for path in paths
        for span in page_spans(path, per_piece)
    ]
    settings = {
        "out": tables.folder.address,
        "splitter": splitter,
        "per_part": per_part,
        "pieces": [{"path": path, **asdict(span)} for path, span in pieces],
    }
    work, made_from = _work_of(tables), fingerprint([stamps, settings])
    if not work.exists(made_from):
        work.delete_folder()
        tables.clear(CORPUS)
        work.write_bytes(b"", made_from)
    todo = undone(work, "reports", ".json", len(pieces), REPORT_FORM)
    do(Tasks(worker=SplitPages, settings=settings, numbers=todo, noun="pieces of pages split"))
    names = (f"{part(number)}.json" for number in range(len(pieces)))
    reports = [json.loads(work.read_bytes("reports", name)) for name in names]
    diagnostics = _diagnostics(reports, work, pieces)
    if diagnostics.num_errors:
        work.delete_folder()
        tables.clear(CORPUS)
    diagnostics.raise_errors()
    num_pages, num_rows = (sum(report[key] for report in reports) for key in ("num_pages", "num_rows"))
    parts = {name: digest for report in reports for name, digest in report["parts"].items()}
    config = {"splitter": splitter, "notes": list(diagnostics.warnings), "num_pages": num_pages}
    tables.seal(CORPUS, parts, num_rows, config=config, inputs=stamps)
    work.delete_folder()
    return _described(tables, is_new=True)


def _described(tables: TableStore, *, is_new: bool) -> SealedCorpus:
    manifest = tables.manifest(CORPUS)
    return SealedCorpus(
        folder="/".join([tables.folder.root.rstrip("/"), CORPUS.name]),
        num_pages=manifest["config"]["num_pages"],
        num_passages=manifest["num_rows"],
        notes=tuple(manifest["config"]["notes"]),
        is_new=is_new,
    )


def _work_of(tables: TableStore) -> Folder:
    return Folder("/".join([tables.folder.root.rstrip("/"), "work", CORPUS.name]))


class SplitPages:
    """Task: split the pages of one piece; write its parts of CORPUS, hashes of its page ids, and last a report."""

    def __init__(
        self, *, out: str, splitter: str, per_part: int, pieces: Sequence[Mapping[str, Any]]
    ) -> None:
        self._tables = TableStore(out)
        self._work = _work_of(self._tables)
        self._split = splitter_named(splitter)
        self._per_part = per_part
        self._pieces = pieces

    def __call__(self, number: int) -> None:
        piece = dict(self._pieces[number])
        path, span = piece.pop("path"), Span(**piece)
        pages = _Pages(path=path, span=span, split=self._split)
        writer = self._tables.part_writer(CORPUS, number)
        passages = pages.passages()
        while batch := list(itertools.islice(passages, self._per_part)):
            # after an error the rest is only checked; repeated pages are reported when all pieces are split
            if not pages.diagnostics.num_errors and len({*pages.hashes}) == len(pages.hashes):
                writer.append(pl.DataFrame(batch, schema=CORPUS_COLUMNS, orient="row"))
        if pages.diagnostics.num_errors and span.start:
            # once more, so that errors have the line numbers of the whole file
            pages = _Pages(path=path, span=numbered(path, span), split=self._split)
            for _ in pages.passages():
                pass
        write_array(np.array(pages.hashes, np.uint64), self._work, "pages", f"{part(number)}.npy")
        report = {
            "num_pages": pages.num_pages,
            "num_rows": writer.num_rows,
            "parts": writer.parts,
            "diagnostics": pages.diagnostics.kinds(),
        }
        self._work.write_bytes(json.dumps(report).encode(), "reports", f"{part(number)}.json")


@dataclass(kw_only=True)
class _Pages:
    """One pass over the pages of a piece, with its counts and errors so far."""

    path: str
    span: Span
    split: Splitter
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    num_pages: int = 0
    hashes: list[int] = field(default_factory=list)

    def passages(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield doc_id, page_id, title, text of every passage."""
        for page, record in read_pages(self.path, self.diagnostics, self.span):
            self.hashes += [_hash(page.page_id)] if page.page_id else []
            if record.faulty:
                continue
            self.num_pages += 1
            if page.paragraphs and page.paragraphs[0].strip() != page.title.strip():
                self.diagnostics.warning(
                    "pages whose first paragraph is left out, but is not the title", page.page_id
                )
            number = 0
            for number, text in enumerate(self.split(page), 1):
                if len(text) > LONG and text.count(" ") < len(text) / LONGEST_WORD:
                    self.diagnostics.warning(LONG_WITHOUT_SPACES, f"{page.page_id}#{number}")
                yield f"{page.page_id}#{number}", page.page_id, page.title, text
            if not number:
                self.diagnostics.warning("pages without words, thus without passages", page.page_id)


def _hash(page_id: str) -> int:
    # 64 bits: for KILT's 5.9 million pages, the probability of any collision is about one in a million
    return xxhash.xxh3_64_intdigest(page_id.encode())


def _diagnostics(reports: Sequence[Mapping[str, Any]], work: Folder, pieces: Sequence[Piece]) -> Diagnostics:
    """Return the errors and warnings of all pieces, and errors for repeated ids."""
    diagnostics = Diagnostics()
    for report in reports:
        diagnostics.add(report["diagnostics"])
    hashes = [open_array(work, "pages", f"{part(number)}.npy") for number in range(len(pieces))]
    distinct, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]), return_counts=True)
    repeated = set(distinct[counts > 1].tolist())
    seen: set[str] = set()
    for (path, span), ids in zip(pieces, hashes, strict=True):
        if repeated.isdisjoint(ids.tolist()):
            continue
        for page, record in read_pages(path, Diagnostics(), numbered(path, span) if span.start else span):
            if page.page_id in seen:
                text = f"{record.location}: page {page.page_id!r} repeats an earlier one"
                diagnostics.error(f"repeated pages in {record.path}", text)
            elif _hash(page.page_id) in repeated:
                seen.add(page.page_id)
    if not any(report["num_pages"] for report in reports) and not diagnostics.num_errors:
        diagnostics.error("no pages", f"no pages in {', '.join(dict.fromkeys(path for path, _ in pieces))}")
    return diagnostics
