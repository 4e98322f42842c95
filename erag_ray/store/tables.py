"""Sealed tables: Parquet parts and a manifest that is written last; without a manifest the table does not exist."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from erag_ray.store.fingerprints import fingerprint, provenance_of_code, stable
from erag_ray.store.folder import TORN, Folder
from erag_ray.store.lease import check_lease
from erag_ray.store.schemas import TableSchema, conform
from erag_ray.support.errors import InputError
from erag_ray.support.ownership import UNFINISHED

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"
DIGEST = "manifest_sha256"
PART = "part-"
# the keys of every table's manifest
TABLE_MANIFEST = {
    "table": str,
    "columns": dict,
    "num_rows": int,
    "parts": dict,
    "config": dict,
    "inputs": dict,
}


class TableStore:
    """Sealed tables: ``<root>/<table>/part-00000.parquet`` (and more) and, written last, ``manifest.json``."""

    def __init__(self, root: str) -> None:
        self.folder = Folder(root)

    def write(self, table: pa.Table | pl.DataFrame, schema: TableSchema, **origin: Any) -> None:
        """Write a whole table, its rows in the order in which they will be read, and `seal` it with its origin.

        Replaces an earlier one.
        """
        conformed = conform(table, schema)
        writer = self.writer(schema)
        writer.append(conformed)
        self.seal(schema, writer.parts, writer.num_rows, **origin)

    def writer(self, schema: TableSchema) -> TableWriter:
        """Return a writer for a table larger than memory: append parts, then `seal`. Deletes an earlier table."""
        manifest = self.manifest_if_whole(schema)
        self.clear(schema)
        return TableWriter(self, schema, PART, None if manifest is None else content_digest(manifest))

    def part_writer(self, schema: TableSchema, number: int) -> TableWriter:
        """Return a writer for one piece of a table that several processes write; `seal` takes the parts of all."""
        return TableWriter(self, schema, f"{PART}{number:07}-")

    def seal(
        self,
        schema: TableSchema,
        parts: Mapping[str, str],
        num_rows: int,
        *,
        config: Mapping[str, object] | None = None,
        inputs: Mapping[str, str] | None = None,
        made_from: str | None = None,
    ) -> None:
        """Write the manifest of the parts (file name -> SHA-256, in order): from now on the table exists.

        The content depends on ``config``, on ``inputs`` (name -> fingerprint), and on what ``made_from`` is the
        fingerprint of, for `is_made_from`; None never matches.
        """
        content = {
            **_content(schema, parts),
            "num_rows": num_rows,
            "config": dict(config or {}),
            "inputs": dict(inputs or {}),
            "made_from": made_from,
            **provenance_of_code(),
        }
        self.write_manifest(content, schema.name)

    def clear(self, schema: TableSchema) -> None:
        """Delete a table, sealed or not."""
        self.invalidate(schema)
        # a table has one writer, so unfinished files come from one that was killed
        for below in ((schema.name, UNFINISHED), (schema.name,)):
            for name in self.folder.names(*below):
                if name.startswith(PART):
                    self.folder.delete(*below, name)

    def invalidate(self, schema: TableSchema) -> None:
        """Delete the manifest: until the next `write` the table does not exist."""
        self.folder.delete(schema.name, MANIFEST)

    def write_manifest(self, content: Mapping[str, object], *below: str, name: str = MANIFEST) -> None:
        """Write a manifest with a digest of itself, which later detects damage. Must be the last file of its table.

        Raises:
            JobError: another job has taken the folder.
        """
        check_lease(self.folder.path)
        # convert keys to strings before they are sorted
        plain = json.loads(json.dumps(content, default=stable))
        self.folder.write_bytes(_text({**plain, DIGEST: _digest(plain)}), *below, name)

    def is_sealed(self, schema: TableSchema) -> bool:
        return self.folder.exists(schema.name, MANIFEST)

    def manifest(self, schema: TableSchema) -> dict[str, Any]:
        """Return the manifest of a sealed table.

        Raises:
            FileNotFoundError: the table is not sealed.
            InputError: the manifest is damaged.
        """
        if not self.is_sealed(schema):
            name = f"table {schema.name} in {self.folder.root}"
            raise FileNotFoundError(f"{name} does not exist or is not sealed")
        content = read_manifest(self.folder, schema.name, form=TABLE_MANIFEST)
        if content["table"] != schema.name:
            raise _damaged(self.folder.at(schema.name, MANIFEST), f"it belongs to {content['table']}")
        return content

    def manifest_if_whole(self, schema: TableSchema) -> dict[str, Any] | None:
        """Return the manifest for the job that writes the table; None if missing or damaged (then rewritten)."""
        return whole_manifest(self.folder, schema.name, form=TABLE_MANIFEST)

    def is_made_from(self, schema: TableSchema, made_from: str | None) -> bool:
        """Return whether the table was sealed with exactly this ``made_from``, and its files are unchanged."""
        manifest = self.manifest_if_whole(schema)
        if manifest is None or made_from is None or manifest.get("made_from") != made_from:
            return False
        try:
            return all(self._sealed_parts(schema, manifest))
        except InputError:
            return False

    def read(self, schema: TableSchema) -> pl.DataFrame:
        """Read a sealed table.

        Raises:
            FileNotFoundError: the table is not sealed.
            InputError: its files have changed since, or are of another version, with other columns.
        """
        return pl.concat([schema.empty(), *self.read_parts(schema)], rechunk=True)

    def read_parts(self, schema: TableSchema) -> Iterator[pl.DataFrame]:
        """Yield the parts of a sealed table in the order in which they were appended; raises as `read`."""
        for data in self._sealed_parts(schema, self.manifest(schema)):
            try:
                table = conform(pq.read_table(pa.BufferReader(data)), schema, unique=False)
            except ValueError as error:
                text = f"sealed by another version: {error}. Run the job that writes it again"
                raise InputError([f"{self.folder.at(schema.name)}: {text}"]) from error
            yield pl.DataFrame(table)

    def _sealed_parts(self, schema: TableSchema, manifest: Mapping[str, Any]) -> Iterator[bytes]:
        for name, digest in manifest["parts"].items():
            text = f"table {schema.name}: {self.folder.at(schema.name, name)}"
            try:
                data = self.folder.read_bytes(schema.name, name)
            except FileNotFoundError as error:
                raise InputError([f"{text} is missing. Run the job that writes it again"]) from error
            if hashlib.sha256(data).hexdigest() != digest:
                raise InputError([f"{text} is not what was sealed. Run the job that writes it again"])
            yield data


@dataclass
class TableWriter:
    """Writer of the parts of one table, or of a piece of it; created by `TableStore`."""

    tables: TableStore
    schema: TableSchema
    prefix: str
    replaced: str | None = None
    num_rows: int = 0
    parts: dict[str, str] = field(default_factory=dict)

    def append(self, table: pa.Table | pl.DataFrame) -> None:
        """Write the next part. Keys must be unique in it (checked) and over all parts (not checked)."""
        conformed = conform(table, self.schema)
        name = f"{self.prefix}{len(self.parts):05}.parquet"
        self.parts[name] = self.tables.folder.write_parquet(conformed, self.schema.name, name)
        self.num_rows += conformed.num_rows

    @property
    def is_changed(self) -> bool:
        """Whether the parts so far differ from the sealed table that they replace, or there was none."""
        return content_digest(_content(self.schema, self.parts)) != self.replaced


def read_manifest(
    folder: Folder, *below: str, name: str = MANIFEST, form: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """Read an existing manifest, without its digest; raise InputError if it is damaged."""
    path = folder.at(*below, name)
    try:
        content = json.loads(folder.read_bytes(*below, name))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(content, dict):
        raise _damaged(path, "not a JSON object")
    # manifests of older versions have none
    digest = content.pop(DIGEST, None)
    if digest is not None and digest != _digest(content):
        raise _damaged(path, "its digest differs")
    wrong = [key for key, kind in (form or {}).items() if not isinstance(content.get(key), kind)]
    if wrong:
        raise _damaged(path, f"without {', '.join(wrong)}")
    return content


def whole_manifest(
    folder: Folder,
    *below: str,
    name: str = MANIFEST,
    form: Mapping[str, type] | None = None,
    sets_aside: bool = False,
) -> dict[str, Any] | None:
    """Read a manifest, or another JSON file; None if missing or damaged.

    A damaged one is written again by the job that reads it; or else (``sets_aside``) it is set aside, and reported.
    """
    try:
        return read_manifest(folder, *below, name=name, form=form) if folder.exists(*below, name) else None
    except InputError as error:
        if sets_aside:
            with contextlib.suppress(FileNotFoundError):
                folder.set_aside(*below, name)
            logger.warning("%s", f"set aside in {folder.at(*below, TORN)}: {error.problems[0]}")
        return None


def content_digest(manifest: Mapping[str, Any]) -> str:
    """Return the fingerprint of a table's content by its manifest: name, columns and files."""
    return fingerprint([manifest["table"], manifest["columns"], sorted(manifest["parts"].items())])


def _content(schema: TableSchema, parts: Mapping[str, str]) -> dict[str, Any]:
    columns = {column.name: str(column.type) for column in schema.columns}
    return {"table": schema.name, "columns": columns, "parts": dict(parts)}


def _damaged(path: str, reason: str) -> InputError:
    return InputError([f"{path}: the manifest is damaged ({reason}). Run the job that writes it again"])


def _text(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()


def _digest(content: Mapping[str, object]) -> str:
    return hashlib.sha256(_text(content)).hexdigest()


def part_paths(path: str) -> list[str]:
    """Return the Parquet files, in order, of the sealed table in a folder; raise InputError if there is none."""
    folder = Folder(path)
    parts = read_manifest(folder, form={"parts": dict})["parts"] if folder.exists(MANIFEST) else None
    if not parts:
        text = f"{path}: not a sealed table. Let the job that writes it finish, or name its Parquet files"
        raise InputError([text])
    return ["/".join([path.rstrip("/"), name]) for name in parts]
