"""Two jobs and one output folder."""

import contextlib
import errno
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from crashes import NUM_REQUESTS, counted, start_job, stored, wait_until, without_delay, write_larger
from tiny import job_command

from erag_ray.store import lease
from erag_ray.store.folder import Folder
from erag_ray.store.lease import LEASES, Lease
from erag_ray.store.stages.lock import locked
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError


def leave(folder: pathlib.Path, name: str, process: object = ("elsewhere", 1, "1"), **fields: object) -> None:
    """The sign of life of a job that was killed."""
    content = {"process": process, "beat": 1, **fields}
    Folder(str(folder), is_shared=True).overwrite(json.dumps(content).encode(), LEASES, name)


def sign_of(pid: int) -> tuple[object, ...]:
    """The process of a sign of this machine."""
    return (lease._machine(), pid, lease._start_of(pid))


def refuse(out: pathlib.Path, name: str) -> None:
    match = rf"out: the job {re.escape(name)} is writing to .*choose another out"
    with pytest.raises(InputError, match=match), locked(str(out)):
        raise AssertionError("two jobs at once")


@contextlib.contextmanager
def beating(folder: pathlib.Path, name: str, **fields: object) -> Iterator[None]:
    """A living job of another machine."""
    closing = threading.Event()

    def beat() -> None:
        number = 0
        while not closing.wait(0.05):
            number += 1
            leave(folder, name, **fields, number=number)

    leave(folder, name, **fields)
    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()
        Folder(str(folder), is_shared=True).delete(LEASES, name)


def test_a_job_that_shows_life_keeps_others_out(tmp_path: pathlib.Path) -> None:
    name = "20260101T000000-01234567@elsewhere@1"
    with beating(tmp_path, name, has_folder=True):
        refuse(tmp_path, name)
    with locked(str(tmp_path)):
        # in the same process too
        (own,) = Folder(str(tmp_path)).names(LEASES)
        refuse(tmp_path, own)


def test_what_a_killed_job_has_left_on_this_machine_holds_nobody_up(tmp_path: pathlib.Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    leave(tmp_path, f"killed@x@{process.pid}", sign_of(process.pid), has_folder=True)
    # a number that another process has now
    leave(tmp_path, f"old@x@{os.getpid()}", (lease._machine(), os.getpid(), "7"), has_folder=True)
    refuse(tmp_path, f"killed@x@{process.pid}")
    process.communicate()
    start = time.monotonic()
    with locked(str(tmp_path)):
        assert time.monotonic() - start < 5
        assert len(Folder(str(tmp_path)).names(LEASES)) == 1


def test_a_suspended_job_keeps_its_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erag_ray.store.lease.LEASE_SECONDS", 0.1)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    leave(tmp_path, f"0@x@{process.pid}", sign_of(process.pid), has_folder=True)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    refuse(tmp_path, f"0@x@{process.pid}")
    process.send_signal(signal.SIGCONT)
    process.communicate()


def test_what_it_has_left_on_another_machine_runs_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("erag_ray.store.lease.LEASE_SECONDS", 1.0)
    leave(tmp_path, "killed@elsewhere@1", has_folder=True)
    start = time.monotonic()
    with locked(str(tmp_path)):
        assert 1.0 <= time.monotonic() - start < 10
        assert "the job killed@elsewhere@1 may still be writing; waiting up to" in capsys.readouterr().err


def test_containers_that_share_a_host_name_are_different_machines(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = lease._machine()
    with monkeypatch.context() as patch:
        patch.setattr(os, "readlink", lambda path: "pid:[1]")
        lease._machine.cache_clear()
        there = lease._machine()
    lease._machine.cache_clear()
    assert there != here
    assert there.split()[0] == here.split()[0] == socket.gethostname()
    assert lease.runs_here(json.dumps({"process": [there, os.getpid(), "1"]}).encode()) is None


def test_of_two_that_begin_at_once_one_gets_the_folder(tmp_path: pathlib.Path) -> None:
    with beating(tmp_path, "0@elsewhere@1", has_folder=False):
        refuse(tmp_path, "0@elsewhere@1")
    # the later gives way to this one
    with contextlib.ExitStack() as stack:
        stack.enter_context(beating(tmp_path, "z@elsewhere@1", has_folder=False))
        ending = threading.Timer(1.5, stack.close)
        ending.start()
        with locked(str(tmp_path)):
            assert not (tmp_path / LEASES / "z@elsewhere@1").exists()
        ending.join()


def test_at_most_one_of_many_threads_has_the_folder(tmp_path: pathlib.Path) -> None:
    inside, most = 0, []
    start = threading.Barrier(4)

    def begin(number: int) -> None:
        nonlocal inside
        start.wait()
        with contextlib.suppress(InputError), locked(str(tmp_path)):
            inside += 1
            most.append(inside)
            time.sleep(1.5)
            inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(4)))
    assert most == [1]


def test_a_job_that_lost_its_folder_seals_nothing(tmp_path: pathlib.Path) -> None:
    store = TableStore(str(tmp_path))
    with locked(str(tmp_path)):
        store.write_manifest({}, "first")
        (own,) = store.folder.names(LEASES)
        # another machine saw no life here for a minute
        Folder(str(tmp_path), is_shared=True).delete(LEASES, own)
        with pytest.raises(JobError, match=r"another job took .*start the same command again"):
            store.write_manifest({}, "second")
        with pytest.raises(JobError, match="another job took"):
            TableStore(str(tmp_path / "compare")).write_manifest({}, "third")
    assert not store.folder.exists("second")
    # not a sign that it wrote again, either
    assert not store.folder.names(LEASES)


def test_a_job_that_writes_its_sign_again_learns_that_it_was_replaced(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erag_ray.store.lease.HEARTBEAT_SECONDS", 0.05)
    with Lease(Folder(str(tmp_path), is_shared=True), "a@x@1") as first:
        leave(tmp_path, "b@y@2", replaced=["a@x@1"])
        wait_until(lambda: first.is_lost, "it has not learned it")


def test_a_lock_that_cannot_be_had_is_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for place in (str(tmp_path / "file"), str(tmp_path / "file" / "x"), "nowhere://x"):
        with pytest.raises(InputError, match="out: cannot write to "), locked(place):
            raise AssertionError("no lock")
    overwrite, faults = Folder.overwrite, [OSError(errno.EACCES, "no")]

    def fails_once(folder: Folder, data: bytes, *names: str) -> None:
        if LEASES in names and faults:
            raise faults.pop()
        overwrite(folder, data, *names)

    monkeypatch.setattr(Folder, "overwrite", fails_once)
    with pytest.raises(InputError, match="out: cannot write to "), locked(str(tmp_path / "out")):
        raise AssertionError("no lock")


@pytest.mark.cluster
def test_a_job_that_is_started_twice_runs_once(tmp_path: pathlib.Path) -> None:
    config = without_delay(write_larger(tmp_path))
    start = time.monotonic()
    first, second = (start_job(job_command(config, tmp_path)) for _ in range(2))
    told = [process.communicate(timeout=240)[1] for process in (first, second)]
    assert sorted([first.returncode, second.returncode]) == [0, 2]
    assert "is writing to" in told[0 if first.returncode else 1]
    counts = counted(config)
    counts.row("nothing (the whole command)", time.monotonic() - start)
    assert (counts.lost, counts.repeated, counts.again, len(stored(config))) == (0, 0, 0, NUM_REQUESTS)
