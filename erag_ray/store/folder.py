"""Folders on a local path or an object store."""

from __future__ import annotations

import contextlib
import hashlib
import os
import urllib.parse
import uuid
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from erag_ray.uris import SCHEMES, is_uri, uri_fault

UNFINISHED = "_unfinished"
# names in pyarrow.fs: there a file becomes visible when it is complete, and a rename would be a copy
OBJECT_STORES = ("s3", "gcs", "abfs")
NUM_ATTEMPTS = 5
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class Folder:
    """A folder by local path or URI (``s3://``, ``gs://``, ...)."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.filesystem, self.path = _open_filesystem(root)
        self.needs_rename = self.filesystem.type_name not in OBJECT_STORES

    def at(self, *names: str) -> str:
        """Return the path of a file or folder inside."""
        return "/".join([self.path.rstrip("/"), *names])

    @property
    def address(self) -> str:
        """The URI or absolute path, valid in any process."""
        return self.root if is_uri(self.root) else self.path

    def names(self, *below: str, suffix: str = "") -> list[str]:
        """Return the sorted names of the files directly in a folder; none if it does not exist."""
        if not isinstance(self.filesystem, pafs.LocalFileSystem):
            return [info.base_name for info in self.files(*below) if info.base_name.endswith(suffix)]
        # Arrow raises for a name that is not UTF-8
        with contextlib.suppress(FileNotFoundError), os.scandir(self.at(*below)) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(suffix) and entry.is_file())
        return []

    def files(self, *below: str) -> list[pafs.FileInfo]:
        """Return the files directly in a folder with sizes and times, sorted by name; none if it does not exist."""
        selector = pafs.FileSelector(self.at(*below), allow_not_found=True)
        infos = self.filesystem.get_file_info(selector)
        return sorted((info for info in infos if info.is_file), key=lambda info: info.base_name)

    def exists(self, *names: str) -> bool:
        """Return whether a file or folder inside exists."""
        return self.has(self.at(*names))

    def has(self, path: str) -> bool:
        """Return whether a path of the folder's file system exists."""
        return bool(self.filesystem.get_file_info(path).type != pafs.FileType.NotFound)

    def delete(self, *names: str) -> None:
        """Delete a file if it exists."""
        try:
            self.filesystem.delete_file(self.at(*names))
        except FileNotFoundError:
            return

    def delete_folder(self, *names: str) -> None:
        """Delete a folder and its content if it exists."""
        if self.exists(*names):
            self.filesystem.delete_dir(self.at(*names))

    def move(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Move a file: create the target's folder, and replace an existing target."""
        self._make(*target[:-1])
        self.filesystem.move(self.at(*source), self.at(*target))

    def write_bytes(self, data: bytes, *names: str) -> None:
        """Write a file atomically: by a rename, which object stores do not need."""
        if not self.needs_rename:
            return self._write(data, *names)
        # a unique name: an abandoned task and its retry may write the same file at the same time
        unfinished = (*names[:-1], UNFINISHED, f"{names[-1]}-{uuid.uuid4().hex[:8]}")
        try:
            self._write(data, *unfinished)
            self.move(unfinished, names)
        except OSError as error:
            # on a full disk, a partial file would fill the rest
            with contextlib.suppress(OSError):
                self.delete(*unfinished)
            raise _with_path(self.at(*names), error) from error

    def _write(self, data: bytes, *names: str) -> None:
        self._make(*names[:-1])
        with self.filesystem.open_output_stream(self.at(*names), compression=None) as stream:
            stream.write(data)

    def _make(self, *names: str) -> None:
        """Create a folder; object stores need none."""
        if self.needs_rename:
            self.filesystem.create_dir(self.at(*names), recursive=True)

    def write_parquet(self, table: pa.Table, *names: str, **options: Any) -> str:
        """Write a table as one Parquet file, atomically; return the file's SHA-256 in hex."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", **options)
        data = sink.getvalue()
        self.write_bytes(data, *names)
        return hashlib.sha256(data).hexdigest()

    def read_bytes(self, *names: str) -> bytes:
        """Return the content of a file."""
        with self.filesystem.open_input_stream(self.at(*names), compression=None) as stream:
            return bytes(stream.read())

    def read_parquet(self, *names: str, columns: list[str] | None = None) -> pa.Table:
        """Read a Parquet file."""
        with self.filesystem.open_input_file(self.at(*names)) as file:
            return pq.ParquetFile(file, page_checksum_verification=True).read(columns=columns)


def _with_path(path: str, error: OSError) -> OSError:
    """Return the error with a path in its message."""
    text = f"{path}: {error.strerror or error}"
    # Python chooses the same subclass by the number
    return OSError(text) if error.errno is None else OSError(error.errno, text)


def _open_filesystem(root: str) -> tuple[pafs.FileSystem, str]:
    if not is_uri(root):
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(root))
    if fault := uri_fault(root):
        raise ValueError(fault)
    scheme = root.partition("://")[0]
    is_store = scheme in SCHEMES
    # escape characters that are not allowed in a URI
    uri = urllib.parse.quote(root, safe="/:@!$&'()*+,;=~") + SCHEMES[scheme] if is_store else root
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid:
        if is_store:
            raise
        return _open_by_fsspec(root)
    return (_with_backoff(filesystem) if scheme == "s3" else filesystem), path


def _with_backoff(filesystem: pafs.S3FileSystem) -> pafs.S3FileSystem:
    """Return the same file system with exponential backoff and a limit of about half a minute.

    The default of Arrow's `from_uri` is thirty retries without pauses: too fast for a busy store, too long for one that
    never answers.
    """
    endpoint = next(filter(None, map(os.environ.get, ENDPOINTS)), None)
    retry = pafs.AwsStandardS3RetryStrategy(max_attempts=NUM_ATTEMPTS)
    return pafs.S3FileSystem(
        region=filesystem.region or None, endpoint_override=endpoint, retry_strategy=retry
    )


def _open_by_fsspec(root: str) -> tuple[pafs.FileSystem, str]:
    """Open a scheme that Arrow does not support by fsspec."""
    import fsspec

    try:
        handler, path = fsspec.core.url_to_fs(root)
    except ImportError as error:
        raise ValueError(f"{root.partition('://')[0]}:// paths need another package: {error}") from error
    return pafs.PyFileSystem(pafs.FSSpecHandler(handler)), path


def as_frame(table: pa.Table) -> pl.DataFrame:
    """Convert an Arrow table to a Polars frame, without a copy if possible."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
