"""Every sealed table of six small jobs is what the oracle computes, and what it was: by digest, with report and page.

A change of any number, order or text in them fails here, whether it was meant or not. The file of digests is made
again by ``ERAG_RAY_DIGESTS=write`` in the environment of this test; a commit that changes it says which and why.
Floats count to nine significant digits: sums in another order differ beyond them from CPU to CPU.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import polars as pl
import pytest
import yaml
from conftest import ROOT, read_here
from oracle import check
from several_datasets import three
from test_page import data_of
from tiny import Tiny, compare, write_tiny
from towns import towns

from erag_ray.analyses.every import all_tables
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.store.tables import TableStore

FILE = pathlib.Path(__file__).parent / "golden" / "digests.tsv"
OF_A_JOB = {"job", "seconds", "device_seconds", "peak_memory_bytes"}
"""Columns of COSTS that differ from run to run."""
COSTS_ROW = re.compile(r"^\| compare \|.*\n", re.MULTILINE)
SECONDS = re.compile(r"[\d.,]+ \w+ of reader time")


def options(folder: pathlib.Path) -> Tiny:
    """Three runs, facts, every rule for labels, credits and slices."""
    tiny = write_tiny(folder)
    records = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    for number, record in enumerate(records):
        record["meta"] = {"hops": 1 + number % 2}
    records[0]["answers_all"] = ["Ada Brunner", ["Marn", "the marn"]]
    # each of three documents gives two facts, so that the ideal order depends on how ties are broken
    records[1]["answers_all"] = ["Tessel", ["Tessel", "Orla"], ["Orla", "Elsewhere"], "Elsewhere"]
    # two documents of a list give one fact
    records[2]["answers_all"] = [["1874", "Skerry"], "Elsewhere"]
    tiny.queries.write_text("".join(json.dumps(record) + "\n" for record in records))
    return tiny.with_config(
        runs={name: str(tiny.run(name)) for name in ("good", "bad", "third")},
        annotators=["erag", "erag_facts", "contains_answer_dpr", "contains_answer_kilt", "provenance"],
        measures=["P", "R", "AP", "RR", "nDCG", "Success"],
        slices=["known", "meta.hops"],
        credits=["leave_one_out", "marginal", "shapley"],
    )


def gaps(folder: pathlib.Path) -> Tiny:
    """The same with a reader that refuses some lists: not all is judged."""
    return options(folder).with_config(reader=ReaderConfig(kind="failing:Refuses"), max_error_fraction=1.0)


def sample(folder: pathlib.Path) -> Tiny:
    """Answers of a sample of the questions, and a label that predicts the others."""
    tiny = towns(
        folder,
        {"good": 65, "half": 45},
        100,
        {"right": "Person {n} lives in town {n}", "wrong": "nobody lives in town {n}"},
    )
    records = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    with_parts = [record | {"part": number % 3} for number, record in enumerate(records)]
    tiny.queries.write_text("".join(json.dumps(record) + "\n" for record in with_parts))
    return tiny.with_config(
        slices=["part"],
        depth=1,
        end_to_end_depths=[1],
        annotators=["erag", "contains_answer_dpr"],
        reader_queries=40,
        auxiliary="contains_answer_dpr",
    )


def clusters(folder: pathlib.Path) -> Tiny:
    """Questions of one book belong together, and each list is answered three times."""
    right = {"good": 65, "half": 45, "third": 40}
    tiny = towns(folder, right, 100, {"right": "Person {n} lives here", "wrong": "nobody lives in town {n}"})
    records = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    # books of one to eight questions, and questions of none
    paged = [
        record | ({"book": number * number % 37} if number % 11 else {}) | {"part": number % 3}
        for number, record in enumerate(records)
    ]
    tiny.queries.write_text("".join(json.dumps(record) + "\n" for record in paged))
    return tiny.with_config(
        clusters="book",
        repeats=3,
        reader=ReaderConfig(kind="failing:Changes"),
        max_error_fraction=1.0,
        slices=["part", "known"],
        depth=1,
        end_to_end_depths=[1],
        annotators=["erag", "contains_answer_dpr"],
    )


def annotators(folder: pathlib.Path) -> Tiny:
    """Every annotator that asks reader or judge for more than answers to documents; and lists turned round."""
    tiny = write_tiny(folder)
    records = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    for record in records[::2]:
        record["output"].append({"answer": f"the {record['id']} of all"})
    tiny.queries.write_text("".join(json.dumps(record) + "\n" for record in records))
    by_reader = ["erag", "gain", "gold_likelihood", "usable", "udcg", "udcg_provenance", "distracting"]
    return tiny.with_config(
        reader=ReaderConfig(kind="failing:Tells"),
        judge=JudgeConfig(kind="failing:Tells"),
        annotators=[*by_reader, "llm_relevance", "llm_relevance_graded"],
        orders=["reversed"],
    )


JOBS = {
    "annotators": annotators,
    "options": options,
    "gaps": gaps,
    "datasets": three,
    "sample": sample,
    "clusters": clusters,
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def rounded(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return value


def without_run(text: str, folder: pathlib.Path) -> str:
    """Leave out what differs from run to run: the folder, the reader's seconds, and the rows of the costs."""
    return COSTS_ROW.sub("", SECONDS.sub("SECONDS of reader time", text.replace(str(folder), "FOLDER")))


def without_costs(value: Any) -> Any:
    """Leave out the table of the costs from the page's data."""
    if isinstance(value, list):
        return [
            without_costs(one) for one in value if not (isinstance(one, dict) and one.get("name") == "costs")
        ]
    return {key: without_costs(one) for key, one in value.items()} if isinstance(value, dict) else value


@pytest.fixture(scope="module", params=JOBS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Tiny]:
    """Name and files of a job that has run."""
    with pytest.MonkeyPatch.context() as patch:
        read_here(patch)
        tiny = JOBS[request.param](tmp_path_factory.mktemp(request.param))
        compare(tiny)
    return request.param, tiny


def digests_of(name: str, tiny: Tiny) -> dict[str, str]:
    """Name of a table or text -> its number of rows or lines, a blank, and its digest."""
    store, out, folder = TableStore(tiny.config.out), pathlib.Path(tiny.config.out), tiny.folder
    found = {}
    for schema in filter(store.is_sealed, all_tables().values()):
        frame = store.read(schema)
        rows = [rounded(list(row)) for row in frame.drop(OF_A_JOB, strict=False).iter_rows()]
        text = json.dumps([frame.columns, sorted(rows, key=repr)], default=str)
        found[f"{name}/{schema.name}"] = f"{frame.height} {digest(text)}"
    report = without_run((out / "report.md").read_text(), folder)
    found[f"{name}/report.md"] = f"{len(report.splitlines())} {digest(report)}"
    payload = without_run(json.dumps(data_of((out / "report" / "index.html").read_text())), folder)
    data_lines = json.dumps(rounded(without_costs(json.loads(payload))), indent=0)
    found[f"{name}/page"] = f"{len(data_lines.splitlines())} {digest(data_lines)}"
    return found


def written(lines: dict[str, str]) -> str:
    return "".join(f"{key}\t{value}\n" for key, value in sorted(lines.items()))


def test_every_table_and_text_is_as_before(made: tuple[str, Tiny]) -> None:
    name, tiny = made
    known = dict(line.split("\t") for line in FILE.read_text().splitlines()) if FILE.exists() else {}
    found = digests_of(name, tiny)
    others = {key: value for key, value in known.items() if not key.startswith(f"{name}/")}
    if os.environ.get("ERAG_RAY_DIGESTS") == "write":
        FILE.write_text(written(others | found))
        return
    before = {key: value for key, value in known.items() if key not in others}
    differing = sorted(key for key in {*before, *found} if before.get(key) != found.get(key))
    assert not differing, written({key: f"{before.get(key)} -> {found.get(key)}" for key in differing})


def test_the_oracle_computes_every_sealed_table_and_would_see_a_change_of_any_column(
    made: tuple[str, Tiny],
) -> None:
    config = dataclasses.asdict(made[1].config)
    computed = check.tables_of(config)
    assert check.differences(config, computed) == []
    for name in check.sealed_tables(config):
        sealed = check.read(config, name)
        for column in set(check.TABLES[name][1].split()) - {"reason"} if sealed.height else ():
            changed = sealed.with_columns(changed_first(sealed[column]))
            assert list(check.of_table(name, changed, computed[name])), f"{name}: a change of {column}"
        if sealed.height:
            assert list(check.of_table(name, sealed[1:], computed[name])), f"{name}: a row less"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_oracle_computes_every_sealed_table_of_the_demo(tmp_path: pathlib.Path) -> None:
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    # beside other work, two blocks may take longer than the tests' limit
    env = os.environ | {"RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S": "600"}
    for job, name, more in (
        ("world", "world", []),
        ("retrieve", "runs", []),
        ("compare", "compare", ["--num_permutations=200", "--num_resamples=200", "--cpus_per_reader=1"]),
    ):
        command = [sys.executable, f"jobs/{job}.py", "--config", f"jobs/demo/{name}.yaml", *more]
        done = subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    given = yaml.safe_load((ROOT / "jobs/demo/compare.yaml").read_text())
    given |= {key: f"{tmp_path}/{given[key]}" for key in ("out", "cache_dir")}
    given |= {key: [f"{tmp_path}/{one}" for one in given[key]] for key in ("queries", "passages")}
    given["runs"] = {name: f"{tmp_path}/{path}" for name, path in given["runs"].items()}
    given["reader"] = ReaderConfig(**given["reader"])
    config = dataclasses.asdict(JobConfig(**given, num_permutations=200, num_resamples=200))
    assert check.differences(config, check.tables_of(config)) == []
    measures = check.read({"out": f"{tmp_path}/results/demo/retrieval"}, "retrieval_measures")
    assert list(check.of_table("retrieval_measures", measures, check.retrieval_measures(config))) == []


def changed_first(column: pl.Series) -> pl.Series:
    """Another first value: 1.001 times as large, the other truth value, longer, or one where there was none."""
    values = column.to_list()
    first = values[0]
    if isinstance(first, bool):
        values[0] = not first
    elif isinstance(first, int | float):
        values[0] = first + 1 if isinstance(first, int) else first * 1.001 + 1e-6
    elif isinstance(first, list | str):
        values[0] = [*first, "x"] if isinstance(first, list) else first + "x"
    else:
        values[0] = {pl.String: "x", pl.Boolean: True}.get(type(column.dtype), 1)
    return pl.Series(column.name, values, dtype=column.dtype)
