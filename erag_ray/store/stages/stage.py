"""Stages: tables with everything that their content depends on.

A stage has inputs, settings, a function and tables. The manifests of its tables store its fingerprint and the digests
of its source tables: `ensure` recomputes tables that are not current, `stale` lists sources that have changed.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from erag_ray.measures.scores import is_language_score
from erag_ray.store.fingerprints import NOT_LOCAL, code_fingerprint, fingerprint
from erag_ray.store.schemas import COSTS, TableSchema
from erag_ray.store.tables import TABLE_MANIFEST, TableStore, TableWriter, content_digest, whole_manifest
from erag_ray.support.registry import plugins

NAMED = ("annotator", "measure", "query format", "score", "statistic")
"""Kinds of entries that a stage names."""
TABLE = "table "
"""Prefix of names of tables among the inputs in a manifest."""
INFERENCE_STAGES = ("annotate", "end_to_end", "compare", "settle", "settle_auxiliary")


def judge_stage(stage: str) -> str:
    return f"{stage}_judge"


JOB_STAGES = tuple(name for stage in INFERENCE_STAGES for name in (stage, judge_stage(stage)))
"""Folders in a job's ``out`` of the stages that run models, and of their judges."""


def read_costs(out: str) -> pl.DataFrame:
    """Return COSTS of all stages of a job; those that are missing or damaged are left out."""
    stores = [TableStore("/".join([out.rstrip("/"), stage])) for stage in JOB_STAGES]
    parts = [store.read(COSTS) for store in stores if store.manifest_if_whole(COSTS) is not None]
    return pl.concat([COSTS.empty(), *parts])


EXPORT = "trec"
"""Folder of the TREC files; its manifest lists results that could not be exported."""
Append = Callable[[TableSchema, pa.Table | pl.DataFrame], None]
"""Appends a part to a table of the stage."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Tables, and everything that their content depends on."""

    name: str
    """Name for messages."""
    tables: Sequence[TableSchema]
    """Tables that it seals."""
    settings: Mapping[str, object]
    """Config settings that the tables depend on."""
    make: Callable[[Append], Mapping[str, object]]
    """Writes the tables and returns further entries of their manifests; a table that it does not write is empty."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Name -> digest of the sealed tables that it reads (`digests`)."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Name -> digest or stamp of its other inputs."""
    names: Sequence[str] = ()
    """Names from the config of code that it calls, such as annotators. Tables that depend on code from outside the
    package are always recomputed, since that code and its imports can change under the same name."""

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of everything that the tables depend on, including this package's code; None if unknown."""
        if NOT_LOCAL in self.inputs.values() or any(map(_is_outside, self.names)):
            return None
        return fingerprint([self.settings, self.manifest_inputs, sorted(self.names), code_fingerprint()])

    @property
    def manifest_inputs(self) -> dict[str, str]:
        """Inputs and sources, as stored in the manifests of the tables."""
        return {**self.inputs, **{f"{TABLE}{name}": digest for name, digest in self.sources.items()}}

    def differences(self, store: TableStore) -> list[str]:
        """Return how the sealed tables differ from what this stage would make; not by this package's code.

        Files that are not on this machine count as unchanged.
        """
        missing = [schema.name for schema in self.tables if not store.is_sealed(schema)]
        if missing:
            return [f"no sealed {', '.join(missing)}"]
        manifest = store.manifest(self.tables[0])
        # as JSON has it, like the manifest
        settings = json.loads(json.dumps(self.settings))
        keys = [key for key in settings if manifest["config"].get(key) != settings[key]]
        stamps = {name: stamp for name, stamp in self.manifest_inputs.items() if stamp != NOT_LOCAL}
        changed = [name for name, stamp in stamps.items() if manifest["inputs"].get(name) != stamp]
        other = [f"sealed with another {', '.join(keys)}"] if keys else []
        return other + [f"{name} has changed since" for name in changed]


def ensure(stage: Stage, store: TableStore) -> bool:
    """Compute and seal the tables of a stage unless they are current; return whether they were computed.

    If a table has changed, a report in the same folder is deleted.
    """
    made_from = stage.fingerprint
    if all(store.is_made_from(schema, made_from) for schema in stage.tables):
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
        store.folder.delete("report.md")
        store.folder.delete_folder("report")
    config, inputs = {**stage.settings, **notes}, stage.manifest_inputs
    for schema, writer in writers.items():
        store.seal(schema, writer.parts, writer.num_rows, config=config, inputs=inputs, made_from=made_from)
    return True


def digests(store: TableStore, schemas: Iterable[TableSchema]) -> dict[str, str]:
    """Return the fingerprints of the contents of sealed tables, which do not depend on their inputs."""
    return {schema.name: content_digest(store.manifest(schema)) for schema in schemas}


def stale(
    manifest: Mapping[str, Any], store: TableStore, known: dict[str, str | None] | None = None
) -> list[str]:
    """Return the source tables that have changed, or are stale themselves, since a table was computed.

    ``known`` receives the sources that were read: name -> digest of the content, "" if stale, None if missing or
    damaged (then it has not changed). Calls that share it read each manifest once.
    """
    known = {} if known is None else known
    inputs = manifest.get("inputs", {}).items()
    sources = {name.removeprefix(TABLE): digest for name, digest in inputs if name.startswith(TABLE)}
    for name in sources.keys() - known.keys():
        source = whole_manifest(store.folder, name, form=TABLE_MANIFEST)
        if source is None:
            known[name] = None
        else:
            known[name] = "" if stale(source, store, known) else content_digest(source)
    return [name for name, digest in sources.items() if known[name] not in (None, digest)]


def _is_outside(name: str) -> bool:
    """Return whether a name refers to code from outside the package, as ``module:name`` or by an entry point."""
    modules = [names[name] for names in map(plugins, NAMED) if name in names]
    is_of_plugin = any(not module.startswith("erag_ray.") for module in modules)
    return (":" in name and not is_language_score(name)) or is_of_plugin
