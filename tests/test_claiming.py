"""Two jobs and one output folder."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest
from crashes import NUM_REQUESTS, stored, write_larger
from quiet_ray import ENVIRONMENT
from tiny import job_command

from erag_ray.errors import InputError
from erag_ray.stages import lock as claiming
from erag_ray.stages.lock import locked
from erag_ray.store import LEASES, Folder, Lease

ROOT = pathlib.Path(__file__).parents[1]


def leave(folder: pathlib.Path, name: str, age: float = 0.0) -> None:
    """The sign of life of a job that was killed."""
    Folder(str(folder)).write_bytes(str(time.time() - age).encode(), LEASES, name)


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_job_that_shows_life_keeps_others_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erag_ray.store.lease.HEARTBEAT_SECONDS", 0.05)
    with (
        Lease(Folder(str(tmp_path)), "first@elsewhere@1"),
        pytest.raises(InputError, match=r"out: the job first@elsewhere@1 is writing to .*choose another out"),
        locked(str(tmp_path)),
    ):
        raise AssertionError("two jobs at once")
    with locked(str(tmp_path)):
        assert len(Folder(str(tmp_path)).names(LEASES)) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_job_has_left_on_this_machine_holds_nobody_up(tmp_path: pathlib.Path) -> None:
    leave(tmp_path, f"killed@{socket.gethostname()}@{ended_process()}")
    start = time.monotonic()
    with locked(str(tmp_path)):
        assert time.monotonic() - start < 5
        assert len(Folder(str(tmp_path)).names(LEASES)) == 1


def test_what_it_has_left_on_another_machine_runs_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("erag_ray.store.lease.LEASE_SECONDS", 1.0)
    leave(tmp_path, "killed@elsewhere@1")
    with locked(str(tmp_path)):
        assert "the job killed@elsewhere@1 may still be writing; waiting up to" in capsys.readouterr().err


def test_of_two_that_begin_at_once_the_later_gives_way(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # it shows its first sign of life after this one has looked
    monkeypatch.setattr(claiming, "_wait_for", lambda folder, other: None)
    leave(tmp_path, "0@elsewhere@1")
    with pytest.raises(InputError, match="0@elsewhere@1"), locked(str(tmp_path)):
        raise AssertionError("two jobs at once")
    leave(tmp_path, "0@elsewhere@1", age=1000.0)
    leave(tmp_path, "z@elsewhere@1")
    with locked(str(tmp_path)):
        pass


def test_a_folder_that_cannot_be_written_is_left_to_the_jobs_own_checks(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    entered = []
    for place in (str(tmp_path / "file"), "nowhere://x"):
        with locked(place):
            entered.append(place)
    assert len(entered) == 2


@pytest.mark.cluster
def test_a_job_that_is_started_twice_runs_once(tmp_path: pathlib.Path) -> None:
    config = write_larger(tmp_path)
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    environment.pop("RAY_ADDRESS", None)
    command = job_command(config, tmp_path)
    first, second = (
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    told = [process.communicate(timeout=240)[1] for process in (first, second)]
    assert sorted([first.returncode, second.returncode]) == [0, 2]
    assert "is writing to" in told[0 if first.returncode else 1]
    rows = stored(config)
    assert len(rows) == rows.select("question_key", "passages_key").n_unique() == NUM_REQUESTS
