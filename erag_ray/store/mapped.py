"""Memory-mapped Arrow files: tables for random access from many processes of a machine."""

from __future__ import annotations

import os
import pathlib
import uuid

import polars as pl
import pyarrow as pa

from erag_ray.schemas import TableSchema, conform


def write_mapped(table: pa.Table | pl.DataFrame, schema: TableSchema, path: str | os.PathLike[str]) -> None:
    """Write a table as one uncompressed Arrow file, atomically.

    Raises:
        ValueError: the table does not conform to the schema.
    """
    # one batch, so that access to a row needs no search
    conformed = conform(table, schema).combine_chunks()
    file = pathlib.Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}-{uuid.uuid4().hex[:8]}")
    with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, schema.columns) as writer:
        writer.write_table(conformed)
    os.replace(unfinished, file)


def open_mapped(path: str | os.PathLike[str]) -> pa.Table:
    """Open the table of an Arrow file, memory-mapped."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
