"""Reading of single files by a local path or a URI (``s3://``, ``gs://``, ...): as bytes, or as Parquet.

A file that does not exist or cannot be reached is an OSError.
"""

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from typing import IO

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from erag_ray.store.folder import Folder
from erag_ray.support.uris import is_uri

# each buffer is one request to an object store, which takes as long for a few bytes as for a megabyte
BUFFER_BYTES = 1 << 23
MAX_CHECKED_BYTES = 1 << 28
ROW = "row"


def open_file(path: str) -> IO[bytes]:
    return io.BufferedReader(_opened(path), BUFFER_BYTES) if is_uri(path) else open(path, "rb")


def start_of(path: str, num_bytes: int) -> bytes:
    with _opened(path) if is_uri(path) else open(path, "rb") as stream:
        return bytes(stream.read(num_bytes))


def size_of(path: str) -> int:
    with _opened(path) as file:
        return int(file.size())


def is_folder(path: str) -> bool:
    """Return whether a path is a folder; False also if it cannot be reached (opening it then raises the reason)."""
    if not is_uri(path):
        return os.path.isdir(path)
    try:
        with _as_os_error(path):
            folder = Folder(path)
            return bool(folder.filesystem.get_file_info(folder.path).type == pafs.FileType.Directory)
    except OSError:
        return False


def scan_file(path: str) -> pl.LazyFrame:
    """Scan a Parquet file lazily and add (or replace) the column ``row``, from 1.

    Raises:
        OSError, polars.exceptions.PolarsError: it is not Parquet.
    """
    # Polars decodes texts of needed rows only, but some damaged files make it end the process
    if not is_uri(path) and os.path.getsize(path) > MAX_CHECKED_BYTES:
        return pl.scan_parquet(path, glob=False).drop(ROW, strict=False).with_row_index(ROW, offset=1)
    with _as_os_error(path), _opened(path) as file:
        schema = pl.DataFrame(pq.read_schema(file).empty_table()).drop(ROW, strict=False).schema

    def batches(
        columns: list[str] | None, predicate: pl.Expr | None, num_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        names = [ROW, *schema] if columns is None else columns
        start = 0
        with _as_os_error(path), _opened(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=[name for name in names if name != ROW]):
                end = min(start + batch.num_rows, start + batch.num_rows if num_rows is None else num_rows)
                numbers = pl.Series(ROW, range(start + 1, end + 1), dtype=pl.get_index_type())
                rows = pl.DataFrame(pa.Table.from_batches([batch.slice(0, end - start)])).with_columns(
                    numbers
                )
                yield (rows if predicate is None else rows.filter(predicate)).select(names)
                if (start := end) == num_rows:
                    return

    return register_io_source(batches, schema={ROW: pl.get_index_type(), **schema})


def _opened(path: str) -> pa.NativeFile:
    if not is_uri(path):
        return pa.OSFile(path)
    with _as_os_error(path):
        folder = Folder(path)
        try:
            return folder.filesystem.open_input_file(folder.path)
        except FileNotFoundError:
            bucket = folder.path.partition("/")[0]
            is_known = folder.needs_rename or folder.shared(bucket).exists()
            absence = "there is no such file" if is_known else f"there is no bucket {bucket}"
            raise FileNotFoundError(errno.ENOENT, absence) from None


@contextlib.contextmanager
def _as_os_error(path: str) -> Iterator[None]:
    """Convert errors of URIs to OSError, as for local files."""
    try:
        yield
    except (ValueError, pa.ArrowException) as error:
        raise OSError(errno.EINVAL, str(error)) from error
