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

PART = "part-00000.parquet"


class TableStore:
    """Sealed tables: ``<root>/<table>/part-00000.parquet`` and, written last, ``manifest.json``."""

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
        self.unseal(schema)
        self._remove_unfinished(schema)
        digest = self.folder.write_parquet(conformed, schema.name, PART)
        self._seal(schema, conformed.num_rows, digest, config, inputs)
        return conformed

    def unseal(self, schema: TableSchema) -> None:
        """From here to the next `write` the table does not exist."""
        self.folder.delete(schema.name, "manifest.json")

    def _remove_unfinished(self, schema: TableSchema) -> None:
        # a table has one writer, so these are left from one that was killed
        for name in self.folder.names(schema.name, UNFINISHED):
            self.folder.delete(schema.name, UNFINISHED, name)

    def _seal(
        self,
        schema: TableSchema,
        num_rows: int,
        digest: str,
        config: Mapping[str, object] | None,
        inputs: Mapping[str, str] | None,
    ) -> None:
        content = {
            "table": schema.name,
            "columns": {field.name: str(field.type) for field in schema.columns},
            "num_rows": num_rows,
            "sha256": digest,
            "config": dict(config or {}),
            "inputs": dict(inputs or {}),
            **provenance_of_code(),
        }
        self.write_manifest(content, schema.name)

    def write_manifest(self, content: Mapping[str, object], *below: str) -> None:
        """Write a ``manifest.json``: the last act of whatever it describes."""
        data = json.dumps(content, indent=1, sort_keys=True, default=stable).encode()
        self.folder.write_bytes(data, *below, "manifest.json")

    def is_sealed(self, schema: TableSchema) -> bool:
        """Whether the table is complete."""
        return self.folder.exists(schema.name, "manifest.json")

    def manifest(self, schema: TableSchema) -> dict[str, Any]:
        """The manifest of a sealed table.

        Raises:
            FileNotFoundError: the table is not sealed.
            InputError: the manifest is not JSON.
        """
        if not self.is_sealed(schema):
            raise FileNotFoundError(f"table {schema.name} in {self.folder.root} is not there or not sealed")
        return self.read_manifest(schema.name)

    def read_manifest(self, *below: str) -> dict[str, Any]:
        """A ``manifest.json`` that is there.

        Raises:
            InputError: it is not JSON.
        """
        try:
            content: dict[str, Any] = json.loads(self.folder.read_bytes(*below, "manifest.json"))
        except ValueError as error:
            place = self.folder.at(*below, "manifest.json")
            problem = f"{place}: the manifest is damaged ({error}); run the job that writes it again"
            raise InputError([problem]) from error
        return content

    def read(self, schema: TableSchema) -> pl.DataFrame:
        """A sealed table.

        Raises:
            FileNotFoundError: the table is not sealed.
            InputError: its file is not the one that was sealed.
        """
        manifest = self.manifest(schema)
        data = self.folder.read_bytes(schema.name, PART)
        if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
            raise InputError(
                [f"table {schema.name}: {self.folder.at(schema.name, PART)} is not what was sealed"]
            )
        return as_frame(conform(pq.read_table(pa.BufferReader(data)), schema, unique=False))
