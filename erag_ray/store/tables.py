"""Sealed tables: written whole, then their manifest; without the manifest they do not exist."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from erag_ray.schemas import InputError, TableSchema, conform
from erag_ray.store.folder import UNFINISHED, Folder, as_frame
from erag_ray.store.identity import provenance_of_code, stable

MANIFEST = "manifest.json"
PART = "part-"


class TableStore:
    """Sealed tables: ``<root>/<table>/part-00000.parquet`` (and more) and, written last, ``manifest.json``."""

    def __init__(self, root: str) -> None:
        self.folder = Folder(root)

    def write(
        self,
        table: pa.Table | pl.DataFrame,
        schema: TableSchema,
        *,
        config: Mapping[str, object] | None = None,
        inputs: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Write a whole table and seal it; what stood there before is replaced.

        Args:
            table: the rows, in the order in which they are to be read.
            schema: what they must conform to.
            config: the settings that the content depends on.
            inputs: name -> fingerprint of what it was made from.
        """
        conformed = conform(table, schema)
        writer = self.writer(schema)
        writer.append(conformed)
        writer.seal(config=config, inputs=inputs)
        return conformed

    def writer(self, schema: TableSchema) -> TableWriter:
        """For a table too large to lie in memory: its parts one by one, then the seal. What stood there is gone."""
        self.clear(schema)
        return TableWriter(self, schema, PART)

    def part_writer(self, schema: TableSchema, number: int) -> TableWriter:
        """For one piece of a table that several processes write; `seal` then takes what each has written."""
        return TableWriter(self, schema, f"{PART}{number:07}-")

    def seal(
        self,
        schema: TableSchema,
        parts: Mapping[str, str],
        num_rows: int,
        *,
        config: Mapping[str, object] | None = None,
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        """Write the manifest: from here on the table exists.

        Args:
            schema: of the table.
            parts: the files, in order (by name), and the SHA-256 of each.
            num_rows: of all of them.
            config: as for `write`.
            inputs: as for `write`.
        """
        content = {
            "table": schema.name,
            "columns": {field.name: str(field.type) for field in schema.columns},
            "num_rows": num_rows,
            "parts": dict(parts),
            "config": dict(config or {}),
            "inputs": dict(inputs or {}),
            **provenance_of_code(),
        }
        self.write_manifest(content, schema.name)

    def clear(self, schema: TableSchema) -> None:
        """Delete a table, sealed or not."""
        self.unseal(schema)
        # a table has one writer, so unfinished files are left from one that was killed
        for below in ((schema.name, UNFINISHED), (schema.name,)):
            for name in self.folder.names(*below):
                if name.startswith(PART):
                    self.folder.delete(*below, name)

    def unseal(self, schema: TableSchema) -> None:
        """From here to the next `write` the table does not exist."""
        self.folder.delete(schema.name, MANIFEST)

    def write_manifest(self, content: Mapping[str, object], *below: str, name: str = MANIFEST) -> None:
        """Write a manifest: the last act of whatever it describes."""
        data = json.dumps(content, indent=1, sort_keys=True, default=stable).encode()
        self.folder.write_bytes(data, *below, name)

    def is_sealed(self, schema: TableSchema) -> bool:
        """Whether the table is complete."""
        return self.folder.exists(schema.name, MANIFEST)

    def manifest(self, schema: TableSchema) -> dict[str, Any]:
        """The manifest of a sealed table.

        Raises:
            FileNotFoundError: the table is not sealed.
            InputError: the manifest is not JSON.
        """
        if not self.is_sealed(schema):
            raise FileNotFoundError(f"table {schema.name} in {self.folder.root} is not there or not sealed")
        return read_manifest(self.folder, schema.name)

    def read(self, schema: TableSchema) -> pl.DataFrame:
        """A sealed table.

        Raises:
            FileNotFoundError: the table is not sealed.
            InputError: its files are not those that were sealed.
        """
        parts = self.manifest(schema)["parts"]
        tables = [self._read_part(schema, name, digest) for name, digest in parts.items()]
        return as_frame(pa.concat_tables([schema.empty(), *tables]))

    def _read_part(self, schema: TableSchema, name: str, digest: str) -> pa.Table:
        data = self.folder.read_bytes(schema.name, name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise InputError(
                [f"table {schema.name}: {self.folder.at(schema.name, name)} is not what was sealed"]
            )
        return conform(pq.read_table(pa.BufferReader(data)), schema, unique=False)


class TableWriter:
    """The parts of one table, or of a piece of it, in order; `TableStore` makes it."""

    def __init__(self, tables: TableStore, schema: TableSchema, prefix: str) -> None:
        self.num_rows = 0
        self.parts: dict[str, str] = {}
        self._tables = tables
        self._schema = schema
        self._prefix = prefix

    def append(self, table: pa.Table | pl.DataFrame) -> None:
        """Write the next part; a key must not repeat inside it (nor over all parts: the caller's to see to)."""
        conformed = conform(table, self._schema)
        name = f"{self._prefix}{len(self.parts):05}.parquet"
        self.parts[name] = self._tables.folder.write_parquet(conformed, self._schema.name, name)
        self.num_rows += conformed.num_rows

    def seal(
        self, *, config: Mapping[str, object] | None = None, inputs: Mapping[str, str] | None = None
    ) -> None:
        """Write the manifest: from here on the table exists."""
        self._tables.seal(self._schema, self.parts, self.num_rows, config=config, inputs=inputs)


def read_manifest(folder: Folder, *below: str, name: str = MANIFEST) -> dict[str, Any]:
    """A manifest that is there.

    Raises:
        InputError: it is not JSON.
    """
    try:
        content: dict[str, Any] = json.loads(folder.read_bytes(*below, name))
    except ValueError as error:
        problem = (
            f"{folder.at(*below, name)}: the manifest is damaged ({error}); run the job that writes it again"
        )
        raise InputError([problem]) from error
    return content


def part_paths(place: str) -> list[str]:
    """The Parquet files of the sealed table in this very folder, in order.

    Raises:
        InputError: the folder holds no sealed table.
    """
    folder = Folder(place)
    parts = read_manifest(folder).get("parts") if folder.exists(MANIFEST) else None
    if not parts:
        text = f"{place}: holds no sealed table; let the job that writes it finish, or name its Parquet files"
        raise InputError([text])
    return ["/".join([place.rstrip("/"), name]) for name in parts]
