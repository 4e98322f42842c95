"""What every analysis owes by its contract: it reads what it declares, shows odd tables, and fails alone."""

import dataclasses
import io
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import polars as pl
import pytest
import rich.console
from conftest import finish
from evaluated import measured, numbered, used
from given_results import view_of
from report_texts import results_of
from tiny import Tiny, write_tiny

from erag_ray.analyses import every
from erag_ray.analyses.cells import columns_of_cells
from erag_ray.analyses.contract import Analysis, Evaluation, Results, estimated
from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.every import ANALYSES, all_tables
from erag_ray.analyses.parts.shapes import parts_of, tables_of
from erag_ray.analyses.settings import Settings, settings_of
from erag_ray.config.report import ReportConfig
from erag_ray.inputs.stage import prepare
from erag_ray.report.build import build_report
from erag_ray.report.load import load
from erag_ray.report.stage import report
from erag_ray.store.schemas import TableSchema, table_schema
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import JobError
from erag_ray.support.progress import stage_progress

MADE = [one for one in ANALYSES if one.make and one.schema]
RUNS = {("r", name, 2) for name in "AB"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A finished job with slices."""
    tiny = write_tiny(tmp_path_factory.mktemp("finished")).with_config(slices=["known"])
    return finish(tiny)


class Reading(TableStore):
    """A store that remembers which tables were read."""

    def __init__(self, out: str) -> None:
        super().__init__(out)
        self.names = set[str]()

    def read(self, schema: TableSchema) -> pl.DataFrame:
        self.names.add(schema.name)
        return super().read(schema)

    def read_parts(self, schema: TableSchema) -> Iterator[pl.DataFrame]:
        self.names.add(schema.name)
        return super().read_parts(schema)


@pytest.mark.parametrize("analysis", MADE, ids=lambda one: one.schema.name)
def test_it_is_made_from_the_tables_and_settings_that_it_declares(finished: Tiny, analysis: Analysis) -> None:
    read = set[str]()

    class Recorded(Settings):
        def __getattribute__(self, name: str) -> object:
            read.add(name)
            return super().__getattribute__(name)

    config = finished.config
    tables = Reading(config.out)
    evaluation = Evaluation(config, prepare(config), tables)
    fields = {field.name for field in dataclasses.fields(Settings)}
    # the columns that several results share are made before; their settings are those of the draws
    assert all(evaluation.once(one) for one in (estimated, columns_of_cells))
    whole = settings_of(config)
    evaluation.settings = Recorded(**{name: getattr(whole, name) for name in fields})
    tables.names.clear()
    assert analysis.make is not None
    assert analysis.schema is not None
    with stage_progress(analysis.schema.name, show=False) as at:
        assert list(analysis.make(evaluation, at))
    assert tables.names <= {schema.name for schema in analysis.sources}
    assert read & fields <= {*analysis.settings, "slices", *analysis.more_settings(config)}


@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda one: one.show.__module__)
def test_it_is_shown_from_the_tables_that_it_declares(finished: Tiny, analysis: Analysis) -> None:
    seen = set[str]()

    class Recorded(Results):
        def __getitem__(self, schema: TableSchema) -> pl.DataFrame:
            seen.add(schema.name)
            return super().__getitem__(schema)

    whole = load(finished.config.out)
    view = view_of(whole, "tiny")
    recorded = Recorded(tables=whole.tables, configs=whole.configs, stages=whole.stages)
    list(analysis.show(dataclasses.replace(view, results=recorded)))
    list(analysis.show_all(recorded))
    assert seen <= {schema.name for schema in analysis.tables}


Columns = Mapping[tuple[str, str, int], Sequence[float | None]]
ODD: dict[str, tuple[Columns, Columns]] = {
    "nothing": ({}, {}),
    "one question": ({key: [1.0] for key in RUNS}, {key: [1.0] for key in RUNS}),
    "labels that are null": ({key: [None] * 4 for key in RUNS}, {key: [1.0, 0.0, 1.0, 0.0] for key in RUNS}),
    "labels that are constant": (
        {key: [1.0] * 4 for key in RUNS},
        {key: [1.0, 0.0, 1.0, 0.0] for key in RUNS},
    ),
    "scores that are null": ({key: [1.0, 0.0] for key in RUNS}, {key: [None, None] for key in RUNS}),
    "no useful document": ({key: [0.0] * 4 for key in RUNS}, {key: [0.0] * 4 for key in RUNS}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_tables_are_shown(name: str) -> None:
    labels, scores = ODD[name]
    count = max((len(column) for column in scores.values()), default=1)
    made = build_report(results_of(measured(labels), used(scores), numbered(count)))
    assert made.failures == ()
    names = [part.name for part in parts_of(made)]
    assert len(set(names)) == len(names)
    for table in tables_of(made):
        assert {len(row) for row in table.rows} <= {len(table.columns)}


BROKEN = table_schema("broken", "dataset*")
AFTER = table_schema("after", "dataset*")


def fails(*_: object) -> list[pl.DataFrame]:
    raise ZeroDivisionError("of mine")


def test_one_that_fails_is_named_and_the_others_are_made_and_shown(
    compared: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Analysis(schema=BROKEN, make=fails, show=fails)
    after = Analysis(schema=AFTER, sources=(BROKEN,), make=fails)
    monkeypatch.setattr(every, "ANALYSES", (broken, after, *ANALYSES))
    assert {"broken", "after"} <= all_tables().keys()
    assert evaluate(compared.config, prepare(compared.config)) == [
        "the table broken was not made: ZeroDivisionError('of mine')",
        "the table after was not made: it needs broken",
    ]
    shown = io.StringIO()
    with pytest.raises(JobError, match=r"the report lacks what failed: .*fails failed: ZeroDivisionError"):
        report(
            ReportConfig(out=compared.config.out, progress=False), rich.console.Console(file=shown, width=200)
        )
    assert "good" in shown.getvalue()
    text = (pathlib.Path(compared.config.out) / "report.md").read_text()
    assert "which runs differ" in text
    assert "fails failed: ZeroDivisionError" in text.replace("\\", "")
