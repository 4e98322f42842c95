"""Damaged files through a job's first step, pages into a corpus, and damaged configs: sealed tables or one message."""

import contextlib
import gzip
import io
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Callable

import pytest
from fuzz_forms import KILT_PAGES, TEXTS, WIKI_PAGES, Rows
from fuzzing import as_lines, check_messages, damaged, is_clean, odd_records, tried
from hypothesis import given
from hypothesis import strategies as st
from tiny import Tiny, compare, write_tiny

from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.config.keys.values import paths_of
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.corpus import make_corpus
from erag_ray.extras.train.config import TrainConfig
from erag_ray.inputs.stage import INPUT_TABLES, prepare
from erag_ray.store import schemas
from erag_ray.store.schemas import CORPUS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

# --- what stands where a file should be ---


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize(
    "what", ["folder", "nothing", "half of a gzip", "damaged gzip", "gzip of nothing", "loop"]
)
def test_what_is_no_file_is_named(tmp_path: pathlib.Path, form: str, what: str) -> None:
    file, content, read = TEXTS[form]
    path = tmp_path / file
    whole = gzip.compress(content)
    if what == "folder":
        path.mkdir()
    elif what == "loop":
        path.symlink_to(path)
    elif what != "nothing":
        kept = {"half of a gzip": whole[:-9], "damaged gzip": whole[:-8] + bytes(8)}
        path.write_bytes(kept.get(what, gzip.compress(b"")))
    diagnostics = Diagnostics()
    found = read(path, diagnostics)
    check_messages(diagnostics, path)
    assert diagnostics.errors or found == []


# --- the first step of a job ---

FILES = {"queries": "queries.jsonl", "passages": "passages.jsonl", "run": "good.trec"}


def prepare_changed(tiny: Tiny, file: str, data: bytes) -> None:
    """Sealed tables that conform, or an `InputError` of clean lines that name files, runs or queries."""
    (tiny.folder / file).write_bytes(data)
    try:
        inputs = prepare(tiny.config)
    except InputError as error:
        check_problems(error, str(tiny.folder), "run '", "... and ")
        return
    assert all(map(is_clean, inputs.notes)), inputs.notes
    for schema in INPUT_TABLES:
        schemas.conform(TableStore(tiny.config.out).read(schema), schema)


def check_problems(error: InputError, *named: str) -> None:
    """Every problem is a clean line that holds one of these."""
    for problem in error.problems:
        assert is_clean(problem), ascii(problem)
        assert any(name in problem for name in named), problem


@pytest.mark.parametrize("file", FILES.values())
@tried(12)
@given(data=st.data())
def test_a_job_prepares_damaged_files_or_names_them(file: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny(pathlib.Path(folder))
        prepare_changed(tiny, file, data.draw(damaged((tiny.folder / file).read_bytes())))


@pytest.mark.parametrize("file", [FILES["queries"], FILES["passages"]])
@tried(12)
@given(data=st.data())
def test_a_job_prepares_odd_records_or_names_them(file: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny(pathlib.Path(folder))
        records = [json.loads(line) for line in (tiny.folder / file).read_text().splitlines()]
        prepare_changed(tiny, file, as_lines(data.draw(odd_records(records))))


def test_a_report_holds_no_control_characters(tmp_path: pathlib.Path, reads_here: list[int]) -> None:
    # without white space, which a TREC file cannot hold
    mark = "\x00\x07\x1b[2J\x7f\x9b|`<b>[/b]*_é"
    tiny = write_tiny(tmp_path)
    for file in tmp_path.glob("*.*"):
        written = json.dumps(mark)[1:-1] if file.suffix == ".jsonl" else mark
        file.write_text(
            re.sub(r"\b([qd]\d+)\b", lambda found, mark=written: found[1] + mark, file.read_text())
        )
    runs = {f"{name}{mark}": path for name, path in tiny.config.runs.items()}
    compare(tiny.with_config(runs=runs, dataset=f"tiny{mark}", num_queries=3))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "good" in report
    assert all(map(is_clean, report.splitlines()))


# --- pages into a corpus ---


@pytest.mark.parametrize("pages", [KILT_PAGES, WIKI_PAGES])
@tried(10)
@given(data=st.data())
def test_a_corpus_is_made_of_odd_pages_or_they_are_named(pages: Rows, data: st.DataObject) -> None:
    content = data.draw(st.one_of(damaged(as_lines(pages)), odd_records(pages).map(as_lines)))
    per_piece = data.draw(st.sampled_from([40, 1 << 20]))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "pages.jsonl"
        path.write_bytes(content)
        try:
            made = make_corpus(path, f"{folder}/out", per_piece=per_piece)
        except InputError as error:
            check_problems(error, str(path))
            return
        rows = TableStore(f"{folder}/out").read(CORPUS)
    assert all(map(is_clean, made.notes))
    assert made.num_passages == schemas.conform(rows, CORPUS).num_rows


# --- configs ---

YAML = b"""queries: [questions.jsonl, "~/more.jsonl"]
runs:
  bm25: bm25.trec
  dense: "dense.parquet"
reader: {kind: causal, model: some/model, dtype: bfloat16}
depth: 5
cutoffs: [1, 5]
num_queries: null
threshold: 0.5
out: results/job
"""
KEYS = [
    "depth", "queries", "runs.x", "reader.kind", "reader.model", "cutoffs", "threshold", "seed", "out", "score",
    "nokey",
]  # fmt: skip
VALUES = [
    "", "0", "-1", "5", "1e3", "1e400", "nan", ".nan", ".inf", "null", "[", "[]", "[1, [2]]", "{a: b}", "{", "true",
    "&a [*a]", "*a", "!!python/object:os.system x", "9" * 5000, "\x1b[2J", "\udce9", "[" * 2000,
    "$NOSUCH", "a\nb", "s3://a:b@c", "\u3000",
]  # fmt: skip
# no argument of a process holds a NUL
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
KINDS: list[type] = [JobConfig, RetrieveConfig, TrainConfig]


def parse_quietly(kind: type, *arguments: str) -> object:
    """The config, or else the message on standard error of an end with code 2."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
            return parse(kind, "A job.", arguments)
    except SystemExit as stopped:
        if stopped.code != 2 or not told.getvalue().strip():
            raise AssertionError(f"{arguments} ended with {stopped.code}: {told.getvalue()}") from stopped
        return told.getvalue()


def check_parsed(parsed: object) -> None:
    """A message, or a config that holds no numbers that are none and no paths that cannot be."""
    if isinstance(parsed, str):
        return
    assert "=nan" not in repr(parsed)
    paths = [path for _, path in paths_of(parsed)]
    assert all("\0" not in path and os.fsencode(path) for path in paths if path), paths


@pytest.mark.long
@tried(30)
@given(content=damaged(YAML))
def test_a_damaged_config_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "job.yaml"
        path.write_bytes(content)
        check_parsed(parse_quietly(JobConfig, "--config", str(path)))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@tried(12)
@given(key=st.sampled_from(KEYS), value=st.one_of(st.sampled_from(VALUES), words))
def test_an_odd_override_is_read_or_refused(kind: type, key: str, value: str) -> None:
    check_parsed(parse_quietly(kind, f"--{key}={value}"))


ODD_FILES: dict[str, Callable[[], bytes]] = {
    "half a surrogate pair": lambda: b'out: "\\ud800"',
    "list that holds itself": lambda: b"queries: &a [*a]",
    "nesting without end": lambda: b"queries: " + b"[" * 5000,
    "UTF-16": lambda: "depth: 3".encode("utf-16"),
    "nothing": lambda: b"",
    "a text": lambda: b"depth",
    "gzip": lambda: gzip.compress(YAML),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ODD_FILES)
def test_an_odd_config_file_is_read_or_refused(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(ODD_FILES[name]())
    check_parsed(parse_quietly(JobConfig, "--config", str(path)))
