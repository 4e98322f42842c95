"""Load the sealed tables of a finished job for its report; missing or changed ones are left out and named."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl

from erag_ray.analyses.contract import Results
from erag_ray.analyses.every import all_tables, every_analysis
from erag_ray.analyses.means import MEANS
from erag_ray.extensions import installed
from erag_ray.inference.output_tables import SINGLE_DOCUMENT
from erag_ray.store.schemas import COSTS, LABELS, OF_OUTPUTS, OF_STAGES, QUERIES, UTILITY, TableSchema
from erag_ray.store.stages.stage import EXPORT, JOB_STAGES, judge_stage, stale
from erag_ray.store.tables import MANIFEST, TableStore, read_manifest
from erag_ray.support.errors import InputError

T = TypeVar("T")


def load(folder: str) -> Results:
    """Load the results of a job from its ``out``.

    Raises:
        InputError: the folder has no sealed MEANS, or they were changed, or computed from other versions of its tables.
    """
    store = TableStore(folder)
    if not store.is_sealed(MEANS):
        raise InputError([f"{folder}: no sealed means; run erag-ray compare or erag-ray evaluate first"])
    loading = Loading(store)
    if others := stale(store.manifest(MEANS), store, loading.known):
        text = f"{folder}: means were computed from an earlier version of {', '.join(others)}"
        raise InputError([f"{text}; run erag-ray compare or erag-ray evaluate again"])
    return loading.results()


class Loading:
    """Loads tables of one folder, and collects what is ``missing``, and why, by table."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.missing: dict[str, str] = {}
        self.known: dict[str, str | None] = {}
        # the stages that LABELS and UTILITY are made from
        self.sources = [self._config(schema.name).get("stage") for schema in (LABELS, UTILITY)]

    def results(self) -> Results:
        # a damaged table of means is an error: no part of the report works without it
        means, stages = self.store.read(MEANS), list(self._stages())
        analyses = every_analysis()
        needed = [schema for one in analyses for schema in one.tables if not one.is_optional]
        shown = dict.fromkeys((*needed, *(schema for one in analyses for schema in one.tables)))
        tables = {
            schema.name: self.frame(schema, stages, is_needed=schema in needed)
            for schema in shown
            if schema != MEANS
        }
        results = [one.schema for one in analyses if one.schema]
        configs = {schema.name: self._config(schema.name) for schema in (QUERIES, *results, LABELS, UTILITY)}
        of_extensions = (one for extension in installed() for one in extension.analyses)
        clashing = [one.schema.name for one in of_extensions if one.schema and one not in analyses]
        text = "left out: an extension's table with the name of another table or folder"
        export = self._manifest(EXPORT, {"notes": list})
        return Results(
            tables={MEANS.name: means, **tables},
            configs=configs | {EXPORT: export or {}, "": {"notes": self._unknown()}},
            stages=[stage for stage in stages if any(self._uses(stage["stage"]))],
            missing=(*self.missing.values(), *(f"{text}: {name}" for name in clashing)),
        )

    def frame(
        self, schema: TableSchema, stages: Sequence[Mapping[str, Any]] = (), *, is_needed: bool = False
    ) -> pl.DataFrame:
        """Return a table, or of the tables of stages all rows; one that is missing, damaged or stale is empty."""
        root, empty = self.store.folder.root.rstrip("/"), schema.empty()
        of_stages = schema in OF_STAGES
        stores = [TableStore(f"{root}/{stage['stage']}") for stage in stages] if of_stages else [self.store]
        sealed = [store for store in stores if store.is_sealed(schema)]
        if not sealed and is_needed:
            self.missing[schema.name] = f"table {schema.name} is missing"
        if not of_stages and self._manifest(schema.name, {}) is None:
            return empty
        parts = [empty]
        for store in sealed:
            part = self._attempt(store.folder.at(schema.name), functools.partial(store.read, schema))
            of_one, of_several = map(pl.lit, self._uses(store.folder.root.rpartition("/")[2]))
            if part is not None and schema in OF_OUTPUTS:
                part = part.filter(pl.when(kind=SINGLE_DOCUMENT).then(of_one).otherwise(of_several))
            elif part is not None and schema == COSTS:
                # those of earlier steps were not in the last run
                part = part.with_columns(pl.col("num_requests") * (of_one | of_several))
            parts += [] if part is None else [part]
        return pl.concat(parts)

    def _uses(self, stage: str) -> list[bool]:
        # an earlier run of other steps, maybe with another reader, may have left its stage; settle has no outputs
        names = (None, stage.removesuffix(judge_stage("")))
        return [source in names or stage.startswith("settle") for source in self.sources]

    def _unknown(self) -> list[str]:
        """Return a note on sealed tables that are not shown, such as those of another version or of earlier steps."""
        folder, used = self.store.folder, (stage for stage in JOB_STAGES if any(self._uses(stage)))
        known = {*all_tables(), *used, EXPORT}
        names = [name for name in folder.entries() if name not in known and folder.exists(name, MANIFEST)]
        return [f"not part of this report, and left as they are: {', '.join(names)}"] if names else []

    def _stages(self) -> Iterator[Mapping[str, Any]]:
        for name in JOB_STAGES:
            manifest = self._manifest(name, {"counts": list, "summary": str})
            if manifest is not None:
                yield {**manifest, "stage": name}

    def _config(self, name: str) -> Mapping[str, Any]:
        manifest = self._manifest(name, {"config": dict})
        return {} if manifest is None else dict(manifest["config"])

    def _manifest(self, name: str, form: Mapping[str, type]) -> dict[str, Any] | None:
        folder = self.store.folder
        if not folder.exists(name, MANIFEST):
            return None
        manifest = self._attempt(folder.at(name), functools.partial(read_manifest, folder, name, form=form))
        if manifest is not None and (others := stale(manifest, self.store, self.known)):
            text = f"it was computed from an earlier version of {', '.join(others)}; run the job again"
            self.missing[folder.at(name)] = f"left out: {folder.at(name)}: {text}"
            return None
        return manifest

    def _attempt(self, path: str, read: Callable[[], T]) -> T | None:
        """Return the result of ``read``; record a damaged or changed file and return None."""
        try:
            return read()
        except InputError as error:
            self.missing[path] = f"left out: {'; '.join(error.problems)}"
        except ValueError as error:
            self.missing[path] = f"left out: {path}: {error}; run the job that writes it again"
        return None
