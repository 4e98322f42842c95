"""Stages: how a table comes to be, and whether the one that is sealed was made from exactly this.

A stage names its inputs, settings, function and tables. Its fingerprint stands in the manifests of its tables, beside
the digests of the tables that it read: `ensure` makes what is missing, `stale` names what was made from other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from erag_ray.schemas import TableSchema
from erag_ray.scores import is_language_score
from erag_ray.store import (
    NOT_LOCAL,
    TABLE_MANIFEST,
    TableStore,
    TableWriter,
    code_fingerprint,
    content_digest,
    fingerprint,
    whole_manifest,
)

TABLE = "table "
"""Starts the names of tables among the inputs in a manifest."""
Append = Callable[[TableSchema, pa.Table | pl.DataFrame], None]
"""Writes the next part of one of a stage's tables."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Tables, and all that their content depends on.

    Attributes:
        name: for people.
        tables: that it seals.
        settings: the part of the config.
        sources: name -> digest of the sealed tables that it reads (`digests`).
        inputs: name -> digest or stamp of what else it reads.
        make: writes the tables and returns what else their manifests say; a table that it does not write is empty.
        names: of what it calls by a name of the config, such as annotators. Code from outside the package can change
            without its name, and so can modules that it imports: tables made by it are made anew every time.
    """

    name: str
    tables: Sequence[TableSchema]
    settings: Mapping[str, object]
    make: Callable[[Append], Mapping[str, object]]
    sources: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of all that the tables depend on, this package's code included; None where it is unknown."""
        if NOT_LOCAL in self.inputs.values() or any(map(_is_outside, self.names)):
            return None
        return fingerprint([self.settings, self.manifest_inputs, sorted(self.names), code_fingerprint()])

    @property
    def manifest_inputs(self) -> dict[str, str]:
        """Inputs and sources, as the manifests of the tables hold them."""
        return {**self.inputs, **{f"{TABLE}{name}": digest for name, digest in self.sources.items()}}

    def is_current(self, store: TableStore) -> bool:
        """Return whether all of the tables stand there whole, made from exactly this."""
        made_from = self.fingerprint
        return all(store.is_made_from(schema, made_from) for schema in self.tables)


def ensure(stage: Stage, store: TableStore) -> bool:
    """Make and seal the tables of a stage, unless they are current; return whether it had to.

    A report in the same folder goes where a table has changed.
    """
    if stage.is_current(store):
        return False
    writers: dict[TableSchema, TableWriter] = {}

    def append(schema: TableSchema, part: pa.Table | pl.DataFrame) -> None:
        if schema not in writers:
            writers[schema] = store.writer(schema)
        writers[schema].append(part)

    notes = stage.make(append)
    for schema in stage.tables:
        if schema not in writers:
            append(schema, schema.empty())
    if any(writer.is_changed for writer in writers.values()):
        delete_report(store)
    for writer in writers.values():
        writer.seal(
            config={**stage.settings, **notes}, inputs=stage.manifest_inputs, made_from=stage.fingerprint
        )
    return True


def delete_report(store: TableStore) -> None:
    """Delete the report in a folder: it is about tables that are about to change."""
    store.folder.delete("report.md")
    store.folder.delete_folder("report")


def digests(store: TableStore, schemas: Iterable[TableSchema]) -> dict[str, str]:
    """Return name -> `TableStore.digest` of sealed tables."""
    return {schema.name: store.digest(schema) for schema in schemas}


def stale(manifest: Mapping[str, Any], store: TableStore) -> list[str]:
    """Return the tables of a folder that are others now than those that something was made from.

    Args:
        manifest: of what was made.
        store: the folder of the tables; what they were made from themselves is looked at in turn.
    """
    inputs = manifest.get("inputs", {})
    sources = {name.removeprefix(TABLE): digest for name, digest in inputs.items() if name.startswith(TABLE)}
    return [name for name, digest in sources.items() if _is_other(name, digest, store)]


def _is_other(name: str, digest: str, store: TableStore) -> bool:
    """Return whether a sealed table has another content, or is stale itself; False where it is gone or damaged."""
    manifest = whole_manifest(store.folder, name, form=TABLE_MANIFEST)
    return manifest is not None and (content_digest(manifest) != digest or bool(stale(manifest, store)))


def _is_outside(name: str) -> bool:
    """Return whether a name is that of code from outside the package."""
    return ":" in name and not is_language_score(name)
