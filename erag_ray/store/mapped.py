"""Tables that many processes of a machine read at random places: Arrow files, memory-mapped, held by none of them."""

from __future__ import annotations

import os
import pathlib
import uuid

import polars as pl
import pyarrow as pa

from erag_ray.schemas import TableSchema, conform


def write_mapped(table: pa.Table | pl.DataFrame, schema: TableSchema, path: str | os.PathLike[str]) -> None:
    """Write a table as one uncompressed Arrow file that appears whole.

    Raises:
        ValueError: the table does not conform to the schema.
    """
    # one batch: a row is then found without a search
    conformed = conform(table, schema).combine_chunks()
    place = pathlib.Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f"{place.name}-{uuid.uuid4().hex[:8]}")
    with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, schema.columns) as writer:
        writer.write_table(conformed)
    os.replace(unfinished, place)


def open_mapped(path: str | os.PathLike[str]) -> pa.Table:
    """The table of an Arrow file; its pages are read as they are looked at."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
