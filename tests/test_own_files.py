"""Jobs replace and delete files of their own only, in a folder that is marked as theirs."""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import re
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from crashes import environment
from fuzzing import tried
from hypothesis import given
from hypothesis import strategies as st
from scripts import python
from tiny import Tiny, job_command, write_tiny

from erag_ray.cli import run as commands
from erag_ray.cli.job import check_inputs, run
from erag_ray.config.report import ReportConfig
from erag_ray.config.retrieval import RetrieveConfig, RetrieverConfig
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.extras.papers.config import DualLabelsConfig, PapersConfig
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.extras.world.config import WorldConfig
from erag_ray.store.folder import Folder
from erag_ray.support.errors import InputError
from erag_ray.support.ownership import MARKER
from erag_ray.support.registry import find

FOLDERS = (
    "", "report", "report/questions", "errors", "compare", "compare/pending", "annotate", "end_to_end", "trec",
    "rehearsal", "runs", "corpus", "labels", "training", "work/bm25", "indexes/bm25", "_unfinished", "_files",
    "queries/_unfinished", "given", "mine", "_leases", "_torn",
)  # fmt: skip
NAMES = (
    "notes.txt", "older.trec", "part-mine.parquet", "part-99999.parquet", "thesis.tex", "mine.csv", "README",
    "figure_9.svg", "0001.js.bak", "manifest.json.bak", "00007.npy", "log", "train-00009.parquet",
    "part-00000.parquet-mine", "a@b@1x",
)  # fmt: skip
Files = dict[str, bytes]


class Killed(BaseException):
    """The process ends here."""


def job_config(tiny: Tiny, job: str) -> Any:
    """The config of a job on the tiny comparison; all jobs of one comparison have one folder."""
    folder, out = tiny.folder, tiny.config.out
    here = dataclasses.replace(tiny.config, num_readers=0)
    retrieval = {
        "queries": tiny.config.queries,
        "passages": tiny.config.passages,
        "retrievers": {"bm25": RetrieverConfig(kind="bm25"), "chance": RetrieverConfig(kind="random")},
        "depth": 3,
        "progress": False,
    }
    configs: dict[str, Any] = {
        "report": lambda: ReportConfig(out=out, progress=False),
        "retrieve": lambda: RetrieveConfig(**retrieval, out=f"{folder}/retrieve"),
        "dual_labels": lambda: DualLabelsConfig(**retrieval, out=f"{folder}/dual_labels"),
        "gate": lambda: GateConfig(
            baseline=out, baseline_run="good", candidate_run="bad", out=f"{folder}/gate"
        ),
        "papers": lambda: PapersConfig(comparison=out, out=f"{folder}/papers"),
        "export": lambda: ExportConfig(job=out, out=f"{folder}/export"),
        "world": lambda: WorldConfig(num_passages=300, num_processes=1, out=f"{folder}/world"),
        "settle": lambda: SettleConfig(**{**vars(here), "compare": ["good", "bad"]}),
    }
    return configs.get(job, lambda: here)()


JOBS = (
    "compare", "prepare", "annotate", "end_to_end", "evaluate", "report", "retrieve", "dual_labels", "gate",
    "papers", "export", "world", "settle",
)  # fmt: skip


def run_here(tiny: Tiny, job: str, **changes: object) -> int:
    """Run a job's ``main`` in its folder, as a command line does; return the exit code."""
    config = dataclasses.replace(job_config(tiny, job), **changes)
    try:
        run(config, find("job", job, commands.JOBS).main)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@contextlib.contextmanager
def killed_after(num_writes: int) -> Iterator[None]:
    """End the job at a write."""
    count = 0
    overwrite = Folder.overwrite

    def counted(folder: Folder, data: bytes, *names: str) -> None:
        nonlocal count
        count += 1
        if count > num_writes:
            raise Killed
        overwrite(folder, data, *names)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(Folder, "overwrite", counted)
        yield


def put(folder: pathlib.Path, names: list[tuple[str, str]]) -> Files:
    """Write files of a user where there are none; return them."""
    written = {}
    for below, name in names:
        path = folder / below / name
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(b"mine: %d" % len(written))
                written[str(path)] = path.read_bytes()
    return written


def assert_unchanged(files: Files) -> None:
    paths = {path: pathlib.Path(path) for path in files}
    assert [
        path for path in files if not paths[path].is_file() or paths[path].read_bytes() != files[path]
    ] == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A comparison with every job done, one after the other."""
    tiny = write_tiny(tmp_path_factory.mktemp("finished"))
    for job in JOBS:
        assert run_here(tiny, job) in (0, 3, 4), job
    return tiny


HOW = ("done", "bad input", "dry", "killed", "other inputs")


def out_of(tiny: Tiny, job: str) -> pathlib.Path:
    return pathlib.Path(job_config(tiny, job).out)


def run_somehow(tiny: Tiny, job: str, how: str, num_writes: int) -> None:
    """Run a job so that it ends in one of several ways, and so that it replaces what is there."""
    if how == "other inputs":
        tiny.queries.write_text(tiny.queries.read_text().replace("who built", "who has built"))
    if how == "bad input":
        tiny.queries.write_text("{\n")
    changes: dict[str, object] = {"dry_run": True} if how == "dry" and job == "compare" else {}
    with killed_after(num_writes) if how == "killed" else contextlib.nullcontext():
        code = run_here(tiny, job, **changes)
        assert code in (0, 2, 3, 4)


@hypothesis.settings(tried(6), phases=[hypothesis.Phase.generate])
@given(
    job=st.sampled_from(JOBS),
    how=st.sampled_from(HOW),
    names=st.lists(st.tuples(st.sampled_from(FOLDERS), st.sampled_from(NAMES)), min_size=8, max_size=30),
    num_writes=st.integers(1, 120),
)
def test_no_job_changes_a_file_that_is_not_its_own(
    finished: Tiny,
    tmp_path_factory: pytest.TempPathFactory,
    job: str,
    how: str,
    names: list[tuple[str, str]],
    num_writes: int,
) -> None:
    folder = tmp_path_factory.mktemp("users")
    shutil.copytree(finished.folder, folder, dirs_exist_ok=True)
    tiny = write_tiny(folder)
    files = {**put(folder, names), **put(out_of(tiny, job), names)}
    run_somehow(tiny, job, how, num_writes)
    assert_unchanged(files)
    if how != "bad input":
        # what a killed job has left is no obstacle for the next
        assert run_here(tiny, job) in (0, 2, 3, 4)
        assert_unchanged(files)


# --- which folder becomes an out ---


@pytest.mark.parametrize(
    ("job", "entry"),
    [
        *((job, "report/thesis.tex") for job in JOBS),
        *(("compare", entry) for entry in ("notes.txt", "labels/part-00000.parquet", MARKER, "empty/x/y")),
    ],
)
def test_a_folder_with_files_of_others_is_refused(
    finished: Tiny, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, job: str, entry: str
) -> None:
    files = put(tmp_path, [os.path.split(entry)])  # type: ignore[list-item]
    assert run_here(finished, job, out=str(tmp_path)) == 2
    assert f"out: {tmp_path} has files, such as {entry.split('/')[0]}, and " in caplog.text
    assert f"Choose an empty folder, such as {tmp_path}/erag_ray" in caplog.text
    assert_unchanged(files)
    assert {str(path) for path in tmp_path.rglob("*") if path.is_file()} == {*files}


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("runs", {"good": "OUT/compare/good.trec"}),
        ("queries", ["OUT/mine/q.jsonl"]),
        ("passages", ["OUT/../out/corpus"]),
        ("qrels", ["OUT/qrels.txt"]),
        ("cache_dir", "OUT/compare"),
        ("cache_dir", "OUT"),
        ("cache_dir", "LINK/cache"),
        ("reader.model", "OUT/model"),
    ],
)
def test_inputs_and_caches_inside_out_are_refused(
    tiny: Tiny, caplog: pytest.LogCaptureFixture, key: str, path: Any
) -> None:
    out, link = tiny.folder / "out", tiny.folder / "link"
    out.mkdir()
    link.symlink_to(out)
    named = json.loads(json.dumps(path).replace("OUT", str(out)).replace("LINK", str(link)))
    config = with_key(tiny.config, key, named)
    for name in re.findall(r'"([^"]*/out/[^"]+)"', json.dumps(named)) if key != "cache_dir" else ():
        pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(name).write_text("")
    match = rf"{key}: .* is inside out \({out}\), where this job writes and deletes"
    with pytest.raises(InputError, match=match):
        check_inputs(config)
    beside = json.loads(
        json.dumps(path).replace("OUT/..", "OUT").replace("OUT", f"{out}-2").replace("LINK", "LINK-2")
    )
    check_inputs(with_key(tiny.config, key, beside))


def with_key(config: Any, key: str, value: object) -> Any:
    if key == "reader.model":
        return dataclasses.replace(config, reader=dataclasses.replace(config.reader, model=value))
    return dataclasses.replace(config, **{key: value})


def test_a_file_of_another_with_the_name_of_a_result_is_not_replaced(
    tiny: Tiny, caplog: pytest.LogCaptureFixture
) -> None:
    assert run_here(tiny, "prepare") == 0
    files = put(
        out_of(tiny, "prepare"), [("trec", "good.trec"), ("", "report.md"), ("labels", "part-00000.parquet")]
    )
    assert run_here(tiny, "compare") == 2
    assert (
        "no job has written this file, and this one would replace it. Move it, or choose another out"
        in caplog.text
    )
    assert_unchanged(files)


# --- what a killed job leaves ---

KILLED = """
import os, runpy, signal, sys
from erag_ray.store.folder import Folder
overwrite, left = Folder.overwrite, int(sys.argv.pop(1))
def killed(folder, data, *names):
    global left
    left -= 1
    overwrite(folder, data, *names)
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
Folder.overwrite = killed
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_what_sigkill_leaves_is_gone_after_the_next_job(tiny: Tiny) -> None:
    files = put(tiny.folder, [("", "notes.txt"), ("_unfinished", "mine")])
    config = dataclasses.replace(tiny.config, num_readers=0, write_every_seconds=0.0)
    process = python("-c", KILLED, 30, *job_command(config, tiny.folder)[1:], env=environment())
    assert process.returncode == -signal.SIGKILL, process.stderr
    out, store = out_of(tiny, "compare"), pathlib.Path(tiny.config.cache_dir)
    assert list((out / "_leases").iterdir())
    files |= put(out, [("compare", "notes.txt"), ("queries", "part-mine.parquet"), ("_leases", "notes.txt")])
    assert run_here(tiny, "compare") == 0
    left = [
        path for path in (*out.rglob("*"), *store.rglob("*")) if path.is_file() and {*path.parts} & TEMPORARY
    ]
    assert [str(path) for path in left if str(path) not in files] == []
    assert_unchanged(files)


TEMPORARY = {"_unfinished", "_leases", "_files", "_attempts"}


def test_a_marker_that_cannot_be_read_now_is_not_taken_for_damaged(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_here(tiny, "prepare") == 0
    marker = out_of(tiny, "prepare") / MARKER
    before = marker.read_bytes()
    read = Folder.read_bytes

    def fail(folder: Folder, *names: str) -> bytes:
        if names[-1] == MARKER:
            raise OSError(errno.EIO, "the network is gone")
        return read(folder, *names)

    monkeypatch.setattr(Folder, "read_bytes", fail)
    assert run_here(tiny, "prepare") == 1
    monkeypatch.undo()
    assert marker.read_bytes() == before


# --- links, and folders inside others ---


def test_out_may_be_a_link_and_stays_one(tiny: Tiny) -> None:
    target, link = tiny.folder / "target", tiny.folder / "link"
    target.mkdir()
    link.symlink_to(target)
    for num_resamples in (100, 200):
        assert run_here(tiny, "compare", out=str(link), num_resamples=num_resamples) == 0
        assert link.is_symlink()
        assert (target / MARKER).exists()


def test_jobs_leave_an_out_inside_their_out_alone(tiny: Tiny, caplog: pytest.LogCaptureFixture) -> None:
    out = out_of(tiny, "compare")
    inner = out / "report" / "inner"
    assert run_here(tiny, "compare") == run_here(tiny, "compare", out=str(inner)) == 0
    files = {str(path): path.read_bytes() for path in inner.rglob("*") if path.is_file()}
    assert str(inner / MARKER) in files
    tiny.queries.write_text(tiny.queries.read_text().replace("who built", "who has built"))
    assert run_here(tiny, "compare") == 0
    assert_unchanged(files)
    # the folder around both is not a job's
    assert run_here(tiny, "compare", out=str(tiny.folder)) == 2
    assert_unchanged(files)


def test_a_link_in_the_place_of_a_result_is_not_followed(
    tiny: Tiny, caplog: pytest.LogCaptureFixture
) -> None:
    out, mine = out_of(tiny, "compare"), tiny.folder / "mine"
    assert run_here(tiny, "compare") == 0
    (out / "report").rename(mine)
    (out / "report").symlink_to(mine)
    files = {str(path): path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    tiny.queries.write_text(tiny.queries.read_text().replace("who built", "who has built"))
    assert run_here(tiny, "compare") == 2
    assert f"{out}/report is a link" in caplog.text
    assert_unchanged(files)
