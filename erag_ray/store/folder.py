"""A folder on a local path or an object store, with the few operations that stores need."""

from __future__ import annotations

import hashlib
import os
import uuid
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

UNFINISHED = "_unfinished"
# by the names of pyarrow.fs: there a file appears when its last byte has arrived, and a rename would be a copy
OBJECT_STORES = ("s3", "gcs", "abfs")


class Folder:
    """A folder by local path or URI (``s3://``, ``gs://``, ...), with the few operations that stores need."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.filesystem, self.path = _open_filesystem(root)
        self.needs_rename = self.filesystem.type_name not in OBJECT_STORES

    def at(self, *names: str) -> str:
        """The path of something inside."""
        return "/".join([self.path.rstrip("/"), *names])

    @property
    def address(self) -> str:
        """What opens the same folder in another process, wherever that starts."""
        return self.root if "://" in self.root else self.path

    def names(self, *below: str, suffix: str = "") -> list[str]:
        """Names of the files directly in a folder, sorted; none if it does not exist."""
        selector = pafs.FileSelector(self.at(*below), allow_not_found=True)
        infos = self.filesystem.get_file_info(selector)
        return sorted(
            i.base_name for i in infos if i.type == pafs.FileType.File and i.base_name.endswith(suffix)
        )

    def exists(self, *names: str) -> bool:
        """Whether something is there."""
        return bool(self.filesystem.get_file_info(self.at(*names)).type != pafs.FileType.NotFound)

    def delete(self, *names: str) -> None:
        """Delete a file; one that is gone already is fine."""
        try:
            self.filesystem.delete_file(self.at(*names))
        except FileNotFoundError:
            return

    def delete_folder(self, *names: str) -> None:
        """Delete a folder with all that is in it; one that is gone already is fine."""
        if self.exists(*names):
            self.filesystem.delete_dir(self.at(*names))

    def move(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Move a file; the target's folder is made, an existing target is replaced."""
        self.filesystem.create_dir(self.at(*target[:-1]), recursive=True)
        self.filesystem.move(self.at(*source), self.at(*target))

    def write_bytes(self, data: bytes, *names: str) -> None:
        """Write a file so that it appears whole: object stores do that themselves, others by a rename."""
        if not self.needs_rename:
            return self._write(data, *names)
        # a name of its own: a task that was given up and its second try may write the same file at once
        unfinished = (*names[:-1], UNFINISHED, f"{names[-1]}-{uuid.uuid4().hex[:8]}")
        self._write(data, *unfinished)
        self.move(unfinished, names)

    def _write(self, data: bytes, *names: str) -> None:
        self.filesystem.create_dir(self.at(*names[:-1]), recursive=True)
        with self.filesystem.open_output_stream(self.at(*names)) as stream:
            stream.write(data)

    def write_parquet(self, table: pa.Table, *names: str, **options: Any) -> str:
        """Write a table as one Parquet file that appears whole; gives the file's SHA-256 in hex."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", **options)
        data = sink.getvalue()
        self.write_bytes(data, *names)
        return hashlib.sha256(data).hexdigest()

    def read_bytes(self, *names: str) -> bytes:
        """The content of a file."""
        with self.filesystem.open_input_stream(self.at(*names)) as stream:
            return bytes(stream.read())

    def read_parquet(self, *names: str, columns: list[str] | None = None) -> pa.Table:
        """A Parquet file as a table."""
        with self.filesystem.open_input_file(self.at(*names)) as file:
            return pq.ParquetFile(file).read(columns=columns)


def _open_filesystem(root: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in root:
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(root))
    try:
        filesystem, path = pafs.FileSystem.from_uri(root)
    except pa.ArrowInvalid:
        # a scheme that Arrow does not know itself: fsspec may
        import fsspec

        handler, path = fsspec.core.url_to_fs(root)
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(handler))
    return filesystem, path


def as_frame(table: pa.Table) -> pl.DataFrame:
    """An Arrow table as a Polars frame, without a copy where there need not be one."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
