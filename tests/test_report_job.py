"""The report made again from a finished folder: whole, with tables that are missing or changed, and of odd results."""

import dataclasses
import io
import pathlib
import shutil
from collections.abc import Callable
from unittest.mock import Mock

import polars as pl
import pytest
import rich.console
from conftest import finish
from evaluated import measured, numbered, used
from heavy_packages import HEAVY, job_without
from report_texts import lines_after_the_verdict, printed, results_of
from scripts import python
from tiny import Tiny, table, write_tiny

from erag_ray.analyses import every
from erag_ray.analyses.contract import Analysis
from erag_ray.analyses.costs import cost_text
from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.every import ANALYSES, all_tables
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.parts.model import Finding
from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.cli.run import JOBS
from erag_ray.config.report import ReportConfig
from erag_ray.extensions import Extension
from erag_ray.inference.output_tables import SINGLE_DOCUMENT
from erag_ray.inputs.stage import prepare
from erag_ray.report import load as loading
from erag_ray.report.build import build_report
from erag_ray.report.load import load
from erag_ray.report.markdown import markdown
from erag_ray.report.stage import report
from erag_ray.store.schemas import COSTS, OF_STAGES, OUTPUTS, UTILITY, TableSchema, table_schema
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

NEEDED = {schema for one in ANALYSES for schema in one.tables if not one.is_optional}
OTHERS = sorted(NEEDED - {MEANS}, key=lambda schema: schema.name)
CUTOFF_NOTE = "cut-offs beyond depth 3, left out: 1 (50)"
EXPORT_NOTE = "was not written"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A finished job of three runs, one of a name that no TREC file can hold; its inputs are gone."""
    tiny = write_tiny(tmp_path_factory.mktemp("finished"))
    runs = {"good": str(tiny.run("good")), "bad": str(tiny.run("bad")), "the third": str(tiny.run("third"))}
    tiny = tiny.with_config(runs=runs, cutoffs=[1, 3, 50])
    finish(tiny)
    for path in (tiny.queries, tiny.passages, *map(tiny.run, ("good", "bad", "third"))):
        path.unlink()
    return tiny


@pytest.fixture(scope="module")
def whole(finished: Tiny) -> set[str]:
    """Names of all tables of its report."""
    return {part.name for part in tables_of(build_report(load(finished.config.out)))}


@pytest.fixture
def out(finished: Tiny, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of its folder."""
    return pathlib.Path(shutil.copytree(finished.config.out, tmp_path / "copy"))


def again(out: pathlib.Path, **keys: object) -> str:
    """Make the report of a folder again; what the console shows."""
    shown = io.StringIO()
    report(ReportConfig(out=str(out), progress=False, **keys), rich.console.Console(file=shown, width=1000))  # type: ignore[arg-type]
    return shown.getvalue()


# figures are drawn in the job, by packages that stay out of everything that computes
REPORT = job_without(HEAVY.keys() - {"altair", "vl_convert"}, "report")


@pytest.mark.long
def test_the_job_needs_neither_ray_nor_torch_nor_the_inputs(out: pathlib.Path) -> None:
    before = (out / "report.md").read_bytes()
    (out / "report.md").unlink()
    done = python("-c", REPORT, "--out", str(out), "--progress", "false")
    assert done.returncode == 0, done.stderr
    assert (out / "report.md").read_bytes() == before
    lines = done.stdout.splitlines()
    assert lines[0] == "Which retriever serves the reader echo best?"
    assert any(line.startswith("tiny: ") and " good leads with exact_match " in line for line in lines)
    assert lines[-1] == f"Report: {out}/report.md"
    assert len(lines) <= 40
    loud = python("-c", REPORT, "--out", str(out), "--verbose", "true", "--progress", "false")
    assert loud.stdout.endswith(done.stdout)
    assert "tiny: which runs differ" in loud.stdout


@pytest.mark.long
def test_notes_of_the_config_and_of_the_export_are_sealed(out: pathlib.Path) -> None:
    other_columns(out / "of_version_0")
    results = load(str(out))
    assert "not part of this report, and left as they are: of_version_0" in results.notes
    assert CUTOFF_NOTE in results.notes
    assert [note for note in results.notes if "the_third" in note and EXPORT_NOTE in note]
    assert results.missing == ()
    assert (results.confidence, results.reader["kind"]) == (0.95, "echo")
    assert [stage["stage"] for stage in results.stages] == ["compare"]
    notes = (out / "report.md").read_text().partition("## Notes")[2]
    assert all(note in notes for note in (CUTOFF_NOTE, EXPORT_NOTE))


def test_outputs_of_an_earlier_reader_are_not_mixed_with_those_of_the_later_one(compared: Tiny) -> None:
    later = compared.with_config(reader=dataclasses.replace(compared.config.reader, max_new_tokens=1))
    for step in ("annotate", "end_to_end", "evaluate"):
        JOBS[step].main(later.config)
    results = load(compared.config.out)
    assert results[OUTPUTS].select("kind", "depth").is_unique().all()
    assert results[OUTPUTS].filter(kind=SINGLE_DOCUMENT)["num_at_limit"].to_list() == [18]
    assert [stage["stage"] for stage in results.stages] == ["annotate", "end_to_end"]
    assert "not part of this report, and left as they are: compare" in results.notes
    assert "new in the last run, 37 in 1 run before" in cost_text(results[COSTS])


def test_means_of_earlier_outputs_are_refused(compared: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    later = compared.with_config(reader=dataclasses.replace(compared.config.reader, max_new_tokens=1))
    monkeypatch.setattr("erag_ray.labels.document_labels.ensure", Mock(side_effect=InputError(["no labels"])))
    with pytest.raises(InputError, match="no labels"):
        JOBS["compare"].main(later.config)
    with pytest.raises(InputError, match="means were computed from an earlier version of per_query"):
        load(compared.config.out)


def test_an_analysis_with_the_table_of_another_is_left_out_and_named(
    compared: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Analysis(schema=table_schema("means", "dataset* value"), make=lambda *_: [])
    right = Analysis(shows=(UTILITY,), show=lambda _: [Finding(topic="reader", text="right is shown")])
    monkeypatch.setattr(every, "installed", lambda: [Extension(name="mine", analyses=(wrong, right))])
    monkeypatch.setattr(loading, "installed", every.installed)
    means = table(compared, MEANS)
    assert evaluate(compared.config, prepare(compared.config)) == []
    assert table(compared, MEANS).equals(means)
    text = again(pathlib.Path(compared.config.out))
    assert "left out: an extension's table with the name of another table or folder: means" in text
    assert "right is shown" in text


def test_of_two_extensions_with_one_table_the_first_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [Analysis(schema=table_schema("mine", "dataset* value"), make=lambda *_: []) for _ in range(2)]
    monkeypatch.setattr(every, "installed", lambda: [Extension(name="mine", analyses=(one,)) for one in both])
    assert [one for one in every.every_analysis() if one.schema and one.schema.name == "mine"] == both[:1]


def place_of(out: pathlib.Path, name: str) -> pathlib.Path:
    return out / ("compare" if all_tables()[name] in OF_STAGES else "") / name


@pytest.mark.long
@pytest.mark.parametrize("name", [schema.name for schema in OTHERS])
def test_a_table_that_is_not_there_is_named_and_the_rest_is_shown(
    whole: set[str], out: pathlib.Path, name: str
) -> None:
    (place_of(out, name) / "manifest.json").unlink()
    results = load(str(out))
    assert results.missing == (f"table {name} is missing",)
    made = build_report(results)
    names = {part.name for part in tables_of(made)}
    assert {"retrievers-tiny"} <= names <= whole
    # how the job shows it is held by test_of_means_alone_there_is_a_report
    assert f"table {name} is missing" in printed(made, 1000, verbose=True)
    assert f"table {name} is missing" in markdown(made).replace("\\", "")


def longer(place: pathlib.Path) -> None:
    part = sorted(place.glob("part-*.parquet"))[0]
    part.write_bytes(part.read_bytes() + b"x")


def gone(place: pathlib.Path) -> None:
    part = sorted(place.glob("part-*.parquet"))[0]
    part.unlink()


def torn(place: pathlib.Path) -> None:
    path = place / "manifest.json"
    path.write_bytes(path.read_bytes()[:-20])


def other_columns(place: pathlib.Path) -> None:
    """A table as another version sealed it, with other columns."""
    writer = TableStore(str(place.parent))
    name = place.name
    digest = writer.folder.write_parquet(pl.DataFrame({"x": [1]}).to_arrow(), name, "part-00000.parquet")
    schema = TableSchema(name=name, columns=pl.DataFrame({"x": [1]}).to_arrow().schema, key=("x",))
    writer.seal(schema, {"part-00000.parquet": digest}, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("labels", "means were computed from an earlier version of .*per_query.*; run erag-ray compare"),
        ("queries", "means were computed from an earlier version of .*queries.*; run erag-ray compare"),
        ("means", "means: sealed by another version: .* Run the job that writes it again"),
    ],
)
def test_means_of_other_tables_are_refused(out: pathlib.Path, changed: str, message: str) -> None:
    other_columns(place_of(out, changed))
    with pytest.raises(InputError, match=message):
        load(str(out))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "change"),
    # one that is shown, one that means were made from, which other columns would refuse, and one of a stage
    [
        *(("correlations", change) for change in (longer, gone, torn, other_columns)),
        *(("labels", change) for change in (longer, gone, torn)),
        *(("costs", change) for change in (longer, gone, torn, other_columns)),
    ],
)
def test_a_table_that_was_changed_is_left_out_and_named(
    out: pathlib.Path, name: str, change: Callable[[pathlib.Path], None]
) -> None:
    change(place_of(out, name))
    results = load(str(out))
    (text,) = results.missing
    assert f"{name}/" in text or name in text
    assert "the job that writes it again" in text
    assert results[all_tables()[name]].is_empty()
    assert text.split(";")[0] in again(out, verbose=True).replace("\n", " ")
    assert "good" in (out / "report.md").read_text()


def test_a_damaged_stage_is_left_out_and_named(out: pathlib.Path) -> None:
    torn(out / "compare")
    results = load(str(out))
    assert not results.stages
    assert any("compare/manifest.json" in text for text in results.missing)
    assert "table costs is missing" in results.missing


def test_of_means_alone_there_is_a_report(out: pathlib.Path) -> None:
    for schema in OTHERS:
        shutil.rmtree(place_of(out, schema.name))
    shutil.rmtree(out / "trec")
    shown = again(out, verbose=True)
    results = load(str(out))
    assert len(results.missing) == len(OTHERS)
    names = [part.name for part in tables_of(build_report(results))]
    assert names == ["retrievers-tiny", "tokens-tiny", "requests-compare"]
    assert "good leads with exact_match" in shown
    assert "the table comparisons, which says how sure that is, is missing" in " ".join(shown.split())


def test_without_means_the_message_says_what_to_run(out: pathlib.Path) -> None:
    longer(out / "means")
    with pytest.raises(InputError, match=r"means.*is not what was sealed. Run the job"):
        load(str(out))
    TableStore(str(out)).invalidate(MEANS)
    done = python("-c", REPORT, "--out", str(out))
    assert done.returncode == 2
    assert "no sealed means; run erag-ray compare or erag-ray evaluate first" in done.stderr
    assert "Traceback" not in done.stderr


# --- odd results ---


def test_30_runs() -> None:
    names = [f"run{number:03}" for number in range(30)]
    columns = {("r", name, 2): [float(number < 1), 1.0, 1.0, 0.0] for number, name in enumerate(names)}
    made = build_report(results_of(measured(columns), used(columns), numbered(4)))
    shown, text = printed(made, 80, verbose=True), markdown(made)
    assert max(map(len, shown.splitlines())) <= 80
    assert all(name in shown for name in names)
    assert lines_after_the_verdict(text) <= 150
    (pairs,) = [one for one in tables_of(made) if one.name.startswith("comparisons")]
    assert len(pairs.rows) == 2 * 29
    assert "Only pairs with run000" in pairs.caption
