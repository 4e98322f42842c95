"""Fixtures that several rooms' tests share; the data of the tiny comparison stand in `tiny`."""

import contextlib
import gc
import logging
import os
import pathlib
import runpy
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import polars as pl
import pyarrow.fs as pafs
import pytest
import ray
from object_store import Server, serving
from quiet_ray import ENVIRONMENT
from tiny import RunJob, Tiny, compare, job_command, write_tiny

from erag_ray.config.job import JobConfig
from erag_ray.inference import stage as reading
from erag_ray.inference.in_process import run_in_process
from erag_ray.inference.work import Done, Work
from erag_ray.support.logs import on_stderr

ROOT = pathlib.Path(__file__).parents[1]
# a slow machine is no fault of what is tested
hypothesis.settings.register_profile("no_clock", deadline=None)
hypothesis.settings.load_profile("no_clock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that need nodes or a Ray come first: they take longest, and short ones at the end are dealt more evenly."""

    def place(item: pytest.Item) -> list[bool]:
        names = {*item.keywords, *getattr(item, "fixturenames", ())}
        return ["cluster" not in names, "local_ray" not in names]

    items.sort(key=place)


@pytest.fixture(autouse=True, scope="session")
def joins_with_distinct_columns() -> Iterator[None]:
    """A join in the package of frames with another column of one name in both fails: polars keeps both, one renamed.

    That is how a null page_id of a run hid the page_id of its passages, and KILT's measures were 0 in every cell.
    """
    join = pl.DataFrame.join

    def checked(left: pl.DataFrame, right: pl.DataFrame, *arguments: Any, **named: Any) -> pl.DataFrame:
        joined = join(left, right, *arguments, **named)
        is_package = sys._getframe(1).f_globals["__name__"].startswith("erag_ray")
        made = {*joined.columns} - {*left.columns, *right.columns} if is_package else set()
        assert not made, f"both frames of a join have {sorted(name.removesuffix('_right') for name in made)}"
        return joined

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.DataFrame, "join", checked)
        yield


@pytest.fixture(autouse=True)
def messages_on_stderr() -> Iterator[None]:
    """What the package logs stands on standard error, as in a job."""
    with on_stderr():
        yield


@pytest.fixture(scope="session")
def ray_environment() -> Iterator[None]:
    """The environment of the Ray for these tests; what still runs at the end of them is shut down."""
    with pytest.MonkeyPatch.context() as patch:
        for name, setting in ENVIRONMENT.items():
            patch.setenv(name, setting)
        patch.delenv("RAY_ADDRESS", raising=False)
        # its workers find the package where this process does, and the readers that tests define
        places = [
            *map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "helpers")),
            os.environ.get("PYTHONPATH", ""),
        ]
        patch.setenv("PYTHONPATH", os.pathsep.join(places))
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def local_ray(ray_environment: None) -> None:
    """A Ray for these tests alone; started again where another file's tests connected to one of their own."""
    if not ray.is_initialized():
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=150_000_000,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )


@pytest.fixture
def other_job(local_ray: None) -> Iterator[ray.actor.ActorHandle]:
    """An actor of another job, which has all CPUs."""
    # a job that has failed has its readers until its exception is collected
    gc.collect()

    class Holder:
        def is_here(self) -> bool:
            return True

    holder = ray.remote(num_cpus=4)(Holder).remote()
    ray.get(holder.is_here.remote())
    yield holder
    ray.kill(holder)


@pytest.fixture
def tiny(tmp_path: pathlib.Path) -> Tiny:
    """The tiny comparison in a folder of its own."""
    return write_tiny(tmp_path)


@pytest.fixture(scope="session")
def finished_tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tiny, pathlib.Path]:
    """The tiny comparison after its job, and a copy of its folder."""
    folder = tmp_path_factory.mktemp("compared")
    tiny = finish(write_tiny(folder / "tiny"))
    return tiny, pathlib.Path(shutil.copytree(tiny.folder, folder / "copy"))


def put_back(finished_tiny: tuple[Tiny, pathlib.Path]) -> Tiny:
    tiny, copy = finished_tiny
    shutil.rmtree(tiny.folder)
    shutil.copytree(copy, tiny.folder)
    return tiny


@pytest.fixture
def compared(finished_tiny: tuple[Tiny, pathlib.Path], reads_here: list[int]) -> Tiny:
    """The tiny comparison after its job, without running it: its folder is put back for each test."""
    return put_back(finished_tiny)


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny T5; tests only read it."""
    import models

    return models.t5_folder(tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny causal model; tests only read it."""
    import models

    return models.causal_folder(tmp_path_factory.mktemp("causal"))


@pytest.fixture(scope="session")
def folders(t5: str, llama: str) -> dict[str, str]:
    """Kind of reader -> the folder of its model."""
    return {"fid": t5, "ipa": t5, "causal": llama}


@pytest.fixture(scope="session")
def data_folder() -> pathlib.Path:
    """The folder of public data that ``ERAG_RAY_DATA`` names; tests that need it skip without."""
    name = os.environ.get("ERAG_RAY_DATA")
    if not name or not pathlib.Path(name).is_dir():
        pytest.skip("needs the data folder: set ERAG_RAY_DATA")
    return pathlib.Path(name)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    """An S3 in this process."""
    with serving() as server:
        yield server


@pytest.fixture
def s3_environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """What a process needs to find the S3 of these tests: another where ``ERAG_RAY_S3`` is the address of one."""
    outside = os.environ.get("ERAG_RAY_S3")
    if outside:
        return {"AWS_ENDPOINT_URL": outside, "AWS_EC2_METADATA_DISABLED": "true"}
    server: Server = request.getfixturevalue("s3_server")
    return server.environment


@pytest.fixture
def s3(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of its own."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"test-{uuid.uuid4().hex[:8]}"
    filesystem, _ = pafs.FileSystem.from_uri(f"s3://{bucket}?allow_bucket_creation=true")
    filesystem.create_dir(bucket)
    return f"s3://{bucket}"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunJob:
    """Runs a job's file in this process; gives its exit code and what it said. A traceback fails the test."""

    def run(name: str, tiny: Tiny) -> tuple[int, str]:
        _, *arguments = job_command(tiny.config, tiny.folder, name)
        monkeypatch.setattr("sys.argv", arguments)
        code = 0
        try:
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, capsys.readouterr().err

    return run


def read_here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run requests in this process, without Ray; the list gets the number of requests to each model."""
    amounts: list[int] = []

    def run(work: Work, config: JobConfig, job: str) -> Done:
        amounts.append(work.num_requests)
        return run_in_process(work, config, job)

    monkeypatch.setattr(reading, "run", run)
    monkeypatch.setattr(reading, "ray_session", lambda address: contextlib.nullcontext())
    return amounts


def finish(tiny: Tiny, run: Callable[[Tiny], object] = compare) -> Tiny:
    """The same comparison after its job, or after ``run``, without Ray."""
    with pytest.MonkeyPatch.context() as patch:
        read_here(patch)
        run(tiny)
    return tiny


@pytest.fixture
def reads_here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Requests are run in this process, without Ray; the list gets the number of requests to each model."""
    return read_here(monkeypatch)


@pytest.fixture
def no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to read, or to start Ray, fails the test."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("a reader was asked for")

    monkeypatch.setattr(reading, "run", refuse)
    monkeypatch.setattr(reading, "ray_session", refuse)
