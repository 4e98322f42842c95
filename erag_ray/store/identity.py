"""What something is, in few letters: fingerprints of values and files, job ids, the code that made a table."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import uuid
from collections.abc import Iterable, Mapping

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from erag_ray.store.folder import Folder
from erag_ray.uris import is_uri

PACKAGES = (
    "erag-ray",
    "ray",
    "torch",
    "transformers",
    "tokenizers",
    "polars",
    "pyarrow",
    "scipy",
    "numpy",
    "bm25s",
    "numba",
    "kiwipiepy",
    "sentence-transformers",
    "faiss-cpu",
    "faiss-gpu",
    "spacy",
    "langchain-text-splitters",
    "PyStemmer",
)
DIGESTED_ROWS = 1_000_000
NOT_LOCAL = "not a local file"
"""The stamp of what is not there, or cannot be reached from here."""


def fingerprint(value: object) -> str:
    """32 hex digits (128 bits of SHA-256) of a value's canonical JSON form.

    As in JSON, a tuple is a list, and a key of a mapping is its text (1 is "1").

    Raises:
        TypeError: the value holds something without a stable form (a set, an object, NaN).
    """
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False, default=stable, ensure_ascii=True)
    except ValueError as error:
        raise TypeError(f"no stable form: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stable(value: object) -> object:
    """The JSON form of what JSON itself does not know: a dataclass is a mapping."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} has no stable form")


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a local file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def frame_digest(frame: pl.DataFrame) -> str:
    """SHA-256 of a frame's columns and rows, in hex; another order of the rows is another frame."""
    digest = hashlib.sha256()
    for rows in (frame.clear(), *frame.iter_slices(DIGESTED_ROWS)):
        sink = pa.BufferOutputStream()
        # written from one piece: where pages end must follow from the values alone
        pq.write_table(rows.rechunk().to_arrow(), sink, compression="none")
        digest.update(sink.getvalue())
    return digest.hexdigest()


def file_stamp(path: str) -> str:
    """Size and time of a file, enough to notice that it has changed; of a folder those of its manifest.

    A folder without one has the names, sizes and times of all files in it.
    """
    if is_uri(path):
        return _remote_stamp(path)
    place = pathlib.Path(path)
    if place.is_dir() and not (place / "manifest.json").is_file():
        inside = [(file.name, file_stamp(str(file))) for file in sorted(place.iterdir()) if file.is_file()]
        return f"{len(inside)} files, {fingerprint(inside)}"
    try:
        found = os.stat(place / "manifest.json" if place.is_dir() else place)
    except OSError:
        return NOT_LOCAL
    return f"{found.st_size} bytes, modified {found.st_mtime_ns} ns"


def _remote_stamp(path: str) -> str:
    try:
        folder = Folder(path)
        (found,) = folder.filesystem.get_file_info([folder.at()])
        if found.is_file:
            return _stamp_of(found)
        files = folder.files()
    except (OSError, ValueError, pa.ArrowException):
        return NOT_LOCAL
    for file in files:
        if file.base_name == "manifest.json":
            return _stamp_of(file)
    inside = [(file.base_name, _stamp_of(file)) for file in files]
    return f"{len(inside)} files, {fingerprint(inside)}" if inside else NOT_LOCAL


def _stamp_of(found: pafs.FileInfo) -> str:
    return f"{found.size} bytes, modified {found.mtime_ns} ns"


def frame_digests(frames: Mapping[str, pl.DataFrame]) -> dict[str, str]:
    """Return name -> `frame_digest` of the same rows in any order: a store gives them in that of its files."""
    return {name: frame_digest(frame.sort(pl.all())) for name, frame in frames.items()}


def new_job_id() -> str:
    """A name for one start of one job: sorts by time, never repeats."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


@functools.cache
def provenance_of_code() -> dict[str, object]:
    """Package versions and the commit of the source tree (null outside one), for manifests."""
    return {"packages": dict(_versions(PACKAGES)), "commit": _commit()}


@functools.cache
def code_fingerprint() -> str:
    """Fingerprint of this package's source files and of the versions of `PACKAGES`: another one may give other tables.

    Not a version number, which would stay the same while somebody works on the code, nor the commit, which does not see
    what is not committed.
    """
    root = pathlib.Path(__file__).parents[1]
    files = {str(path.relative_to(root)): file_digest(path) for path in sorted(root.rglob("*.py"))}
    return fingerprint([files, dict(_versions(PACKAGES))])


def _versions(packages: Iterable[str]) -> Iterable[tuple[str, str | None]]:
    for package in packages:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, None


def _commit() -> str | None:
    here = pathlib.Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
