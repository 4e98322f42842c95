"""Only the questions whose records hold the given values; a condition that nothing can meet is an error."""

import json
import pathlib

import pytest
from input_files import diagnosed
from tiny import Tiny

from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.inputs.stage import prepare, prepared


def line(name: str, **more: object) -> str:
    return json.dumps({"id": name, "input": f"what is {name}", "output": [{"answer": "yes"}], **more}) + "\n"


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[str]:
    """Two data sets; only the second has splits."""
    (tmp_path / "nq.jsonl").write_text(line("n1") + line("n2", meta={"level": 3, "hard": True}))
    (tmp_path / "fever.jsonl").write_text(
        line("f1", meta={"split": "dev"})
        + line("f2", meta={"split": "test", "level": 3})
        + line("f3")
        + line("f4", meta="test")
    )
    return [str(tmp_path / "nq.jsonl"), str(tmp_path / "fever.jsonl")]


def kept(files: list[str], *filters: str) -> tuple[list[str], Diagnostics]:
    loaded, diagnostics = diagnosed(load_queries, files, filters=filters)
    return loaded.queries["query_id"].to_list(), diagnostics


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ["n1", "n2", "f1", "f2", "f3", "f4"]),
        (["meta.split=test"], ["f2"]),
        (["fever:meta.split=test"], ["n1", "n2", "f2"]),
        (["meta.level=3"], ["n2", "f2"]),
        (["meta.hard=true"], ["n2"]),
        (["meta.level=3", "meta.split=test"], ["f2"]),
        (["fever:meta.split=test", "nq:id=n1"], ["n1", "f2"]),
        (["input=what is f3"], ["f3"]),
    ],
)
def test_a_record_is_kept_if_it_meets_every_condition(
    files: list[str], filters: list[str], expected: list[str]
) -> None:
    found, diagnostics = kept(files, *filters)
    assert found == expected
    assert diagnostics.errors == ()


def test_what_is_left_out_is_counted(files: list[str]) -> None:
    _, diagnostics = kept(files, "fever:meta.split=test")
    assert diagnostics.warnings == ("questions left out by filters fever:meta.split=test: 3 (f1, f3, f4)",)


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        ("meta.spilt=test", "filters: meta.spilt=test: no record has meta.spilt"),
        ("nq:meta.split=test", "filters: nq:meta.split=test: no record of data set 'nq' has meta.split"),
        ("wow:meta.split=test", "filters: wow:meta.split=test: no record of data set 'wow' has meta.split"),
        ("meta.split", "filters: 'meta.split' is not of the form path=value"),
        ("=test", "filters: '=test' is not of the form path=value"),
    ],
)
def test_a_condition_that_nothing_can_meet_is_a_problem(files: list[str], filters: str, problem: str) -> None:
    _, diagnostics = kept(files, filters)
    assert problem in diagnostics.errors


def test_a_value_that_no_record_has_leaves_no_questions(files: list[str]) -> None:
    _, diagnostics = kept(files, "meta.split=train")
    (problem,) = diagnostics.errors
    assert problem.startswith("no questions in")
    assert "; questions left out by filters meta.split=train: " in problem


def test_the_prepared_inputs_know_it(tiny: Tiny) -> None:
    job = tiny.with_config(filters=["id=q1"]).config
    assert prepare(job).queries["query_id"].to_list() == ["q1"]
    assert prepared(job).queries.height == 1
    with pytest.raises(ValueError, match="sealed with another filters"):
        prepared(tiny.config)
