"""Memory-mapped Arrow files: tables for random access from many processes of a machine."""

from __future__ import annotations

import os
import pathlib
import uuid

import polars as pl
import pyarrow as pa

from erag_ray.store.folder import Folder, replace_file
from erag_ray.store.schemas import TableSchema, conform
from erag_ray.support.ownership import UNFINISHED


def write_mapped(table: pa.Table | pl.DataFrame, schema: TableSchema, path: str | os.PathLike[str]) -> None:
    """Write a table as one uncompressed Arrow file, atomically.

    Raises:
        ValueError: the table does not conform to the schema.
    """
    # one batch, so that access to a row needs no search
    conformed = conform(table, schema).combine_chunks()
    file = pathlib.Path(path)
    unfinished = file.parent / UNFINISHED / f"{file.name}-{uuid.uuid4().hex[:8]}"
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    Folder(str(file.parent)).record(file.name)
    with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, schema.columns) as writer:
        writer.write_table(conformed)
    replace_file(unfinished, file)
    Folder(str(file.parent)).prune(UNFINISHED)


def open_mapped(path: str | os.PathLike[str]) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
