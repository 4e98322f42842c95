"""SIGTERM and Ctrl-C: a job closes what it has opened, says one line and ends with the code of the signal."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from crashes import NUM_REQUESTS, environment, stored, without_delay, write_larger
from misbehaving_server import MODEL, MisbehavingServer, Reply, serving
from scripts import ROOT, python
from tiny import job_command, write_tiny
from trainings import tiny_training

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.config.retrieval import RetrieveConfig, RetrieverConfig, SearchConfig
from erag_ray.extras.train.config import StageConfig
from erag_ray.extras.train.log import read_log
from erag_ray.store.lease import LEASES
from erag_ray.support.termination import keep_handler, sigterm_interrupts

STOPPED = "stopped; start the same command again to go on"
# what Ray and C++ write on standard error, here or of an abort
NOISE = re.compile(
    r"\[20\d\d-|\d\d\d\d-\d\d-\d\d |logging\.cc|Started a local Ray|retries|\*\*\* SIG|Traceback|ray::"
)
SLEEPER = """
import pathlib, time

class Sleeper:
    def __init__(self):
        pathlib.Path("{mark}").touch()
        time.sleep(120)

SLEEPER = Sleeper()
"""


def stop(
    command: list[str],
    is_there: Callable[[subprocess.Popen[str]], bool],
    number: signal.Signals,
    *,
    in_background: bool = False,
) -> tuple[int, list[str]]:
    """Start a job, signal its driver once ``is_there``, wait for its end: its exit code and what it has told.

    ``in_background``: as a shell starts a job with ``&``: it does not hear Ctrl-C.
    """
    ignore = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if in_background else None
    known = environment()
    # as for a user, who has not set it
    known.pop("RAY_BACKEND_LOG_LEVEL")
    with subprocess.Popen(
        command, cwd=ROOT, env=known, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=ignore
    ) as job:  # fmt: skip
        deadline = time.monotonic() + 120
        while not is_there(job):
            assert job.poll() is None, "the job ended before it could be stopped"
            assert time.monotonic() < deadline, "the moment did not come"
            time.sleep(0.05)
        family = psutil.Process(job.pid).children(recursive=True)
        job.send_signal(number)
        told = job.communicate(timeout=60)[1]
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive, "processes are left"
    return job.returncode, told.splitlines()


def assert_clean(told: list[str], config: JobConfig) -> None:
    """One line at the end, none of Ray's, nothing left that says that the job still writes."""
    assert told[-1] == STOPPED
    assert told.count(STOPPED) == 1
    assert not [line for line in told if NOISE.search(line)]
    for folder in (config.out, config.cache_dir):
        assert not [path for path in pathlib.Path(folder).rglob(f"{LEASES}/*") if path.is_file()]


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "in_background", "code"),
    [(signal.SIGTERM, False, 143), (signal.SIGTERM, True, 143), (signal.SIGINT, False, 130)],
)
def test_a_job_that_checks_its_inputs_stops_with_one_line(
    tmp_path: pathlib.Path, number: signal.Signals, in_background: bool, code: int
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "sleeper.py").write_text(SLEEPER.format(mark=mark))
    tiny = write_tiny(tmp_path).with_config(annotators=["sleeper:SLEEPER"])
    command = job_command(tiny.config, tiny.folder, "prepare")
    path = os.environ.get("PYTHONPATH", "")
    command = ["env", f"PYTHONPATH={os.pathsep.join([str(ROOT), str(tmp_path), path])}", *command]
    ended, told = stop(command, lambda job: mark.exists(), number, in_background=in_background)
    assert ended == code
    assert_clean(told, tiny.config)


@pytest.mark.cluster
def test_a_job_that_reads_stops_with_one_line_and_goes_on_later(tmp_path: pathlib.Path) -> None:
    config, written = write_larger(tmp_path), 0
    has_written_more = lambda job: len(stored(config)) > written  # noqa: E731
    for number in (signal.SIGTERM, signal.SIGINT):
        command = job_command(config, tmp_path)
        ended, told = stop(command, has_written_more, number, in_background=number == signal.SIGTERM)
        assert ended == 128 + number
        assert_clean(told, config)
        before, written = written, len(stored(config))
        assert written > before
    again = python(*job_command(without_delay(config), tmp_path)[1:], env=environment())
    assert again.returncode == 0, again.stderr
    assert not [line for line in again.stderr.splitlines() if NOISE.search(line)]
    assert len(stored(config)) == NUM_REQUESTS


@pytest.mark.cluster
def test_a_job_whose_ray_is_starting_stops_with_one_line(tmp_path: pathlib.Path) -> None:
    config = write_larger(tmp_path)

    def is_starting(job: subprocess.Popen[str]) -> bool:
        children = psutil.Process(job.pid).children(recursive=True)
        return any("gcs_server" in child.name() for child in children)

    ended, told = stop(job_command(config, tmp_path), is_starting, signal.SIGTERM)
    assert ended == 143
    assert_clean(told, config)


@pytest.mark.cluster
@pytest.mark.parametrize(("number", "num_readers"), [(signal.SIGTERM, 2), (signal.SIGINT, 0)])
def test_a_job_that_is_stopped_keeps_what_a_server_has_answered(
    tmp_path: pathlib.Path, number: signal.Signals, num_readers: int
) -> None:
    with serving(MisbehavingServer()) as server:
        server.behave = lambda asked: Reply(delay=float("inf") if asked.number > 40 else 0.0)
        reader = ReaderConfig(kind="served", model=MODEL, base_url=server.url, revision="1", concurrency=8)
        settings = {"num_readers": num_readers, "rows_per_block": 120, "write_every_seconds": 3600.0}
        config = dataclasses.replace(write_larger(tmp_path), reader=reader, **settings)
        num_in_flight = 8 * max(num_readers, 1)
        is_silent = lambda job: len(server.asked) >= 40 + num_in_flight  # noqa: E731
        ended, told = stop(job_command(config, tmp_path), is_silent, number)
    assert ended == 128 + number
    assert_clean(told, config)
    assert len(stored(config)) == 40


@pytest.mark.cluster
def test_a_training_stops_with_one_line(tmp_path: pathlib.Path) -> None:
    config = tiny_training(tmp_path, curriculum=[StageConfig(steps=100_000, num_passages=[1])])
    is_training = lambda job: len(read_log(pathlib.Path(config.out, "log.csv"))) > 2  # noqa: E731
    ended, told = stop(job_command(config, tmp_path, "train"), is_training, signal.SIGTERM)
    assert ended == 143
    assert told[-1] == STOPPED
    assert not [line for line in told if NOISE.search(line)]


@pytest.mark.cluster
def test_ray_says_nothing_while_it_makes_runs(tmp_path: pathlib.Path) -> None:
    tiny = write_tiny(tmp_path)
    config = RetrieveConfig(
        queries=tiny.config.queries,
        passages=tiny.config.passages,
        retrievers={"bm25": RetrieverConfig(kind="bm25")},
        search=SearchConfig(num_actors=1),
        out=str(tmp_path / "runs"),
    )
    known = environment()
    known.pop("RAY_BACKEND_LOG_LEVEL")
    done = python(*job_command(config, tmp_path, "retrieve")[1:], env=known)
    assert done.returncode == 0, done.stderr
    assert "bm25: 6 questions" in done.stderr
    assert not [line for line in done.stderr.splitlines() if NOISE.search(line)]


# --- the handlers ---


def test_of_two_signals_at_once_the_second_is_ignored() -> None:
    with sigterm_interrupts() as termination:
        assert termination.exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert termination.exit_code == 143


def test_a_signal_that_was_lost_can_be_sent_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erag_ray.support.termination.REPEAT_SECONDS", 0.0)
    with sigterm_interrupts():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def no_handler() -> Iterator[None]:
    """Nobody handles SIGTERM; Ray, which earlier tests may have started, has set a handler."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("no_handler")
def test_a_handler_that_a_library_sets_does_not_stay() -> None:
    with sigterm_interrupts() as termination:
        with keep_handler(signal.SIGTERM):
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
        assert signal.getsignal(signal.SIGTERM) is termination
        # while it is there, it ends the process by SystemExit
        with pytest.raises(KeyboardInterrupt), keep_handler(signal.SIGTERM):
            sys.exit(1)
        assert termination.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("no_handler")
def test_where_nobody_has_set_a_handler_the_librarys_stays() -> None:
    own = lambda number, frame: None  # noqa: E731
    with keep_handler(signal.SIGTERM):
        signal.signal(signal.SIGTERM, own)
    assert signal.getsignal(signal.SIGTERM) is own
