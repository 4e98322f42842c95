"""The examples of erag_ray/ADDING.md: applied as written to a copy of the package, and run."""

import ast
import os
import pathlib
import re
import shutil
import textwrap

import pytest
from guides import ROOT, blocks, text_of
from scripts import python

GUIDE = "erag_ray/ADDING.md"
HEAD = re.compile(r"# (?P<file>erag_ray/\S+\.py), (?P<where>[^\n]+)\n")
# what each change must do
PROOF = """
import types

import polars as pl

from erag_ray.annotators import Evidence, annotate
from erag_ray.prompts.kinds.abstention import ABSTENTION
from erag_ray.measures.lists import compute_all, list_ideal
from erag_ray.models import Response
from erag_ray.analyses.contract import Results
from erag_ray.analyses.every import ANALYSES, all_tables
from erag_ray.analyses.first_useful import ANALYSIS
from erag_ray.analyses.means import MEANS
from erag_ray.report.build import build_report
from erag_ray.store.schemas import CORPUS, PROVENANCE
from erag_ray.measures.scores import score_named

worst = compute_all(["Worst"], list_ideal([[1.0, 0.5], [0.0, 1.0]]), [2])["Worst", 2]
assert worst.tolist() == [0.5, 0.0]

assert score_named("starts_right").function("Ann Baker", ["Ann"]) == 1.0
assert score_named("starts_right").function("It was Ann", ["Ann"]) == 0.0

pairs = pl.DataFrame({"query_id": ["q1", "q1"], "doc_id": ["d1", "d2"]})
texts = pl.DataFrame({"doc_id": ["d1", "d2"], "text": ["brief", "a text of more than 25 characters"]})
corpus = texts.select("doc_id", page_id=pl.lit(None, pl.String), title=pl.lit(""), text="text")
row = {"query_id": "q1", "dataset": "nq", "question": "who", "answers": ["Ann"], "score": "exact_match"}
queries, provenance = pl.DataFrame([row]), PROVENANCE.empty()
evidence = Evidence(pairs=pairs, queries=queries, corpus=corpus, provenance=provenance)
assert annotate("short", evidence)["label"].to_pylist() == [1.0, 0.0]

assert ABSTENTION.fold([" I do not know"], Response(logprobs=(0.0,))) == 1.0

label = {"reader": "", "score": "", "annotator": "erag", "query_id": "q1"}
labels = pl.DataFrame([{**label, "doc_id": "d1", "label": 0.0}, {**label, "doc_id": "d2", "label": 1.0}])
run = {"run_id": "A", "query_id": "q1", "score": None}
runs = pl.DataFrame([{**run, "rank": 1, "doc_id": "d1"}, {**run, "rank": 2, "doc_id": "d2"}])
inputs = types.SimpleNamespace(runs=runs, queries=queries)
(made,) = ANALYSIS.make(types.SimpleNamespace(labels=labels, inputs=inputs), None)
assert made.rows() == [("nq", "A", 2.0, 1)]
assert ANALYSIS in ANALYSES
assert all_tables()["first_useful"] == ANALYSIS.schema
mean = {"dataset": "nq", "reader": "r", "score": "exact_match", "annotator": "end_to_end", "run_id": "A"}
mean |= {"depth": 2, "measure": "exact_match", "cutoff": 2, "ideal": "any", "mean": 1.0, "num_queries": 1}
means = pl.DataFrame([mean | {"num_dropped": 0, "num_estimated": 0}], schema=MEANS.empty().schema)
report = build_report(Results(tables={"means": means, "first_useful": made}))
assert not report.failures
parts = {part.name for section in report.sections for part in section.parts}
assert {"first_useful-nq", "first_useful_figure-nq"} <= parts
texts = [finding.text for finding in report.verdict.datasets[0].findings]
assert "A has a useful document first, at rank 2" in texts
"""


def examples() -> list[tuple[str, str, str]]:
    """File, place and code of every example, in the guide's order."""
    found = [(HEAD.match(body), body) for body in blocks("python", text_of(GUIDE))]
    return [(head["file"], head["where"], body[head.end() :]) for head, body in found if head]


def applied(text: str, where: str, code: str) -> str:
    """The text of a file with the code of an example at its place."""
    rule, _, name = where.rpartition(" ")
    imports = "".join(line for line in code.splitlines(keepends=True) if re.match("from|import", line))
    rest = code.removeprefix(imports).strip() + "\n"
    lines = text.splitlines(keepends=True)
    if rule == "above":
        index = _statement(text, name).lineno - 1
        lines[index:index] = [f"{rest}\n\n"]
    elif rule == "in":
        index = _last_line(_statement(text, name)) - 1
        lines[index:index] = [textwrap.indent(f"{rest.rstrip()},\n", " " * 8)]
    else:
        assert rule == "at the end of", where
        index = _last_line(_statement(text, name))
        lines[index:index] = [textwrap.indent(rest, " " * 4)]
    return "".join(lines).replace("\nfrom erag_ray", f"\n{imports}from erag_ray", 1)


def _statement(text: str, name: str) -> ast.stmt:
    """The function of a name, or the statement that assigns it."""
    for statement in ast.parse(text).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement]
        names = {getattr(getattr(one, "target", one), "id", getattr(one, "name", "")) for one in targets}
        if name in names:
            return statement
    raise AssertionError(f"there is no {name}")


def _last_line(statement: ast.stmt) -> int:
    """The last line of a function, or of the tuple from which a registry is made."""
    if isinstance(statement, ast.FunctionDef):
        return statement.end_lineno or 0
    tuples = [node for node in ast.walk(statement) if isinstance(node, ast.Tuple)]
    return max(tuples, key=lambda node: (node.end_lineno or 0) - node.lineno).end_lineno or 0


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the package with all examples."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "erag_ray", folder / "erag_ray", ignore=shutil.ignore_patterns("__pycache__"))
    for file, where, code in examples():
        path = folder / file
        if where == "a new file":
            assert not path.exists()
            path.write_text(code)
        else:
            path.write_text(applied(path.read_text(), where, code))
    return folder


def test_each_of_the_five_changes_is_one_file_and_at_most_one_line() -> None:
    entries = [
        [line for line in code.splitlines() if line]
        for _, where, code in examples()
        if where.split()[0] in ("in", "at")
    ]
    assert len(entries) == 4  # a kind of request has no line: its annotator imports it
    # beside the import of what stands in the new file, if that is not the line itself
    others = ([line for line in lines if not line.startswith("from ")] for lines in entries)
    assert all(len(lines) == 1 or len(other) == 1 for lines, other in zip(entries, others, strict=True))


@pytest.mark.long
def test_the_changes_work_as_they_are_written(changed: pathlib.Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(changed)}
    proof = python("-c", PROOF, cwd=changed, env=environment)
    assert proof.returncode == 0, proof.stderr


def test_the_files_of_the_examples_pass_the_linter(changed: pathlib.Path) -> None:
    files = [changed / file for file, where, _ in examples() if where == "a new file"]
    settings = ["--config", ROOT / "pyproject.toml"]
    for command in (["check", "--select", "E,F,I,UP,B,SIM,D"], ["format", "--check"]):
        done = python("-m", "ruff", *command, *settings, *files)
        assert done.returncode == 0, done.stdout + done.stderr
