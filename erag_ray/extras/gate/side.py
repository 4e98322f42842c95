"""Load one side of a comparison, a run in the sealed tables of a finished job, or say why that cannot be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.settings import ANY
from erag_ray.annotators import judged_pairs, request_specs
from erag_ray.data.runs.references import REFERENCES
from erag_ray.extras.prediction_powered import OF_LISTS
from erag_ray.store.schemas import CORPUS, GIVEN, LABELS, LIST_OUTPUTS, QUERIES, RUNS, UTILITY, TableSchema
from erag_ray.store.stages.stage import stale
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.registry import suggestion

NEEDED = (QUERIES, CORPUS, RUNS, GIVEN, UTILITY, LIST_OUTPUTS)
NEEDED_KEYS: Mapping[TableSchema, Sequence[str]] = {
    QUERIES: ("datasets", "passages", "runs"),
    UTILITY: ("end_to_end_depths", "reader"),
}
"""Settings in the manifests of tables that a comparison looks at."""
AGAIN = "Run erag-ray compare again (what was answered is not computed again)"


@dataclass(frozen=True, kw_only=True)
class Side:
    """The baseline or the candidate."""

    name: str
    """``baseline`` or ``candidate``: the key that names its folder."""
    run: str
    store: TableStore
    queries: pl.DataFrame
    """QUERIES, all datasets."""
    utility: pl.DataFrame
    """UTILITY of the run, all depths."""
    settings: Mapping[str, Any]
    """Settings of its inputs (`inputs.stage.INPUT_KEYS`) and their datasets."""
    reading: Mapping[str, Any]
    """Settings that its end-to-end scores depend on: reader, depths, judge."""
    packages: Mapping[str, Any]
    """Versions of the libraries that scored it."""

    @property
    def folder(self) -> str:
        """The job's ``out``."""
        return self.store.folder.root

    @property
    def depths(self) -> list[int]:
        """The depths of its end-to-end scores, ascending."""
        return sorted(self.utility["depth"].unique())

    @property
    def given(self) -> pl.DataFrame:
        """The outputs of the run that exist."""
        rows = self.store.read(GIVEN).filter(run_id=self.run)
        return rows.select("query_id", "depth", "output").sort(pl.all())

    def lists(self, depth: int) -> pl.DataFrame:
        """Return query_id and doc_ids, the first ``depth`` documents of each list of the run."""
        rows = self.store.read(RUNS).filter(pl.col("rank") <= depth, run_id=self.run)
        return rows.sort("rank").group_by("query_id").agg(doc_ids="doc_id")

    def predictor(self, auxiliary: str, depth: int) -> pl.DataFrame:
        """Return query_id and value: what an annotator's labels say of each list of the run.

        Raises:
            InputError: the job has no measures of lists by this annotator, the annotator asks the reader, or its judge
                graded a sample of the questions only.
        """
        is_sealed = self.store.is_sealed(PER_QUERY)
        values = self.store.read(PER_QUERY) if is_sealed else PER_QUERY.empty()
        names = ", ".join(values.filter(reader="")["annotator"].unique().sort()) or "none"
        chosen = values.filter(
            annotator=auxiliary, run_id=self.run, depth=depth, cutoff=depth, ideal=ANY, reader=""
        )
        where = f"{self.name}: {self.folder}"
        judge = self.store.manifest(LABELS)["config"].get("judge", {})
        is_judged = any(spec.lists is judged_pairs for spec in request_specs([auxiliary]))
        if is_judged and judge.get("num_queries") is not None:
            text = f"{where}: {auxiliary} must label all questions, but its judge graded a sample"
            raise InputError([f"auxiliary: {text}. Run erag-ray compare without judge.num_queries"])
        for measure in OF_LISTS:
            column = chosen.filter(measure=measure).drop_nulls("value")
            if column.height:
                return column.select("query_id", "value")
        text = (
            f"{where} has no {' or '.join(OF_LISTS)} of lists by {auxiliary}; annotators that ask no reader"
        )
        raise InputError([f"auxiliary: {text}: {names}. Name one of these, or run erag-ray compare with it"])


def load_side(name: str, folder: str, run: str | None) -> Side:
    """Load a side from the ``out`` of its job; a run of None is its only one.

    Raises:
        InputError: the job is not finished, its tables are damaged, stale or of another version, or there is no such
            run. All messages name the side and its folder.
    """
    store = TableStore(folder)
    where = f"{name}: {folder}"
    manifests = _manifests(store, where)
    for schema in (QUERIES, UTILITY, CORPUS, RUNS, LIST_OUTPUTS):
        if missing := [name for name in schema.columns.names if name not in manifests[schema]["columns"]]:
            text = f"sealed by another version: table {schema.name}: missing columns {missing}"
            raise InputError([f"{where}: {text}. {AGAIN}"])
    queries, utility = store.read(QUERIES), store.read(UTILITY)
    chosen = _run(name, run, utility, folder)
    return Side(
        name=name,
        run=chosen,
        store=store,
        queries=queries,
        utility=utility.filter(run_id=chosen),
        settings=manifests[QUERIES]["config"],
        reading=manifests[UTILITY]["config"],
        packages=manifests[UTILITY].get("packages", {}),
    )


def _manifests(store: TableStore, where: str) -> dict[TableSchema, Mapping[str, Any]]:
    if missing := [schema.name for schema in NEEDED if not store.is_sealed(schema)]:
        text = f"no sealed {', '.join(missing)}, so it is no finished job of this version"
        raise InputError([f"{where}: {text}. Run erag-ray compare with its config first"])
    manifests: dict[TableSchema, Mapping[str, Any]] = {schema: store.manifest(schema) for schema in NEEDED}
    for schema, keys in NEEDED_KEYS.items():
        if lacking := [key for key in keys if key not in manifests[schema]["config"]]:
            text = f"the manifest of {schema.name} is of another version and lacks {', '.join(lacking)}"
            raise InputError([f"{where}: {text}. {AGAIN}"])
    # means depend on labels, lists and passages too, so a change of any table is found
    for schema in filter(store.is_sealed, (UTILITY, MEANS)):
        if others := stale(store.manifest(schema), store):
            text = f"{schema.name} were computed from an earlier version of {', '.join(others)}"
            raise InputError([f"{where}: {text}. {AGAIN}"])
    return manifests


def _run(name: str, run: str | None, utility: pl.DataFrame, folder: str) -> str:
    names = sorted(set(utility["run_id"].unique()) - set(REFERENCES))
    if run is None and len(names) == 1:
        return str(names[0])
    listed = f"its runs: {', '.join(names) or 'none'}"
    if run is None:
        raise InputError([f"{name}_run: must name one of the {len(names)} runs of {folder}; {listed}"])
    if run not in names:
        raise InputError([f"{name}_run: {folder} has no run {run!r}; {listed}{suggestion(run, names)}"])
    return run
