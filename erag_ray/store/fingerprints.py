"""Fingerprints of values, files, tables and code, and job ids."""

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import importlib.metadata
import inspect
import json
import os
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Mapping

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from erag_ray.store.folder import Folder
from erag_ray.store.huggingface import dataset_stamp, is_dataset

PACKAGES = (
    "erag-ray", "ray", "torch", "transformers", "tokenizers", "polars", "pyarrow", "scipy", "numpy", "bm25s",
    "numba", "kiwipiepy", "sentence-transformers", "faiss-cpu", "faiss-gpu", "langchain-text-splitters",
    "PyStemmer", "rouge", "rouge-score",
)  # fmt: skip
DIGESTED_ROWS = 1_000_000
NOT_LOCAL = "not a local file"
"""The stamp of a file that does not exist or cannot be reached from this machine."""


def fingerprint(value: object) -> str:
    """Return 32 hex digits (128 bits of SHA-256) of a value's canonical JSON form.

    As in JSON, tuples equal lists, and keys of mappings are strings (1 is "1"). Raise TypeError if the value contains
    something without a stable form (a set, an object, NaN).
    """
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False, default=stable, ensure_ascii=True)
    except ValueError as error:
        raise TypeError(f"no stable form: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stable(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} has no stable form")


def file_digest(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def frame_digest(frame: pl.DataFrame) -> str:
    """Return the SHA-256 of a frame's columns and rows in hex; it depends on the order of the rows."""
    digest = hashlib.sha256()
    for rows in (frame.clear(), *frame.iter_slices(DIGESTED_ROWS)):
        sink = pa.BufferOutputStream()
        # one chunk: the boundaries of Parquet pages must depend on the values only
        pq.write_table(rows.rechunk().to_arrow(), sink, compression="none")
        digest.update(sink.getvalue())
    return digest.hexdigest()


def file_stamp(path: str) -> str:
    """Return size and time of a file, which detect changes; for a folder, with the names of its files.

    For a dataset (``hf:NAME``), the stamp covers its rows.
    """
    try:
        if is_dataset(path):
            return dataset_stamp(path)
        folder = Folder(path)
        (info,) = folder.filesystem.get_file_info([folder.at()])
        if info.is_file:
            return _stamp_of(info)
        stamps = {file.base_name: _stamp_of(file) for file in folder.infos() if file.is_file}
    except (OSError, ValueError, pa.ArrowException):
        return NOT_LOCAL
    exists = info.type != pafs.FileType.NotFound
    return f"{len(stamps)} files, {fingerprint(list(stamps.items()))}" if exists else NOT_LOCAL


def _stamp_of(info: pafs.FileInfo) -> str:
    return f"{info.size} bytes, modified {info.mtime_ns} ns"


def frame_digests(frames: Mapping[str, pl.DataFrame]) -> dict[str, str]:
    """Return name -> `frame_digest` of the sorted rows: the order of rows read from a store is arbitrary."""
    return {name: frame_digest(frame.sort(pl.all())) for name, frame in frames.items()}


def new_job_id() -> str:
    """Return a unique id for this start of a job; ids sort by time."""
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


@functools.cache
def provenance_of_code() -> dict[str, object]:
    """Return package versions and the commit of the source tree (None outside one), for manifests."""
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        commit = process.stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        commit = None
    return {"packages": _versions(), "commit": commit}


def code_stamp(name: str) -> str | None:
    """Return the fingerprint of the module of a ``package.module:name`` that is loaded; None for another name."""
    module, colon, _ = name.partition(":")
    return fingerprint(inspect.getsource(sys.modules[module])) if colon else None


@functools.cache
def code_fingerprint() -> str:
    """Return the fingerprint of this package's source files and of the versions of `PACKAGES`.

    A version number would not change during development, and a commit would miss uncommitted changes.
    """
    root = pathlib.Path(__file__).parents[1]
    files = {str(path.relative_to(root)): file_digest(path) for path in sorted(root.rglob("*.py"))}
    return fingerprint([files, _versions()])


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
