"""A disk that is full: a small one in memory, which takes root. The job ends with one message; with room it goes on."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator

import pytest
from crashes import NUM_REQUESTS, counted, environment, finish, stored, without_delay, write_larger
from scripts import python
from tiny import RunJob, Tiny, assert_same, job_command, results

PAGE = 4096
MESSAGES = ("No space left on device", "MB of free space, and ")


@dataclasses.dataclass(frozen=True)
class Disk:
    """A file system of its own, with a file that takes up room."""

    place: pathlib.Path

    def leave(self, pages: int) -> None:
        """Take all room but so many pages; files and folders take one at least."""
        ballast = self.place / "ballast"
        ballast.unlink(missing_ok=True)
        ballast.touch()
        free = os.statvfs(self.place).f_bavail * PAGE
        os.truncate(ballast, 0)
        with ballast.open("wb") as file:
            file.write(bytes(max(free - pages * PAGE, 0)))

    def make_room(self) -> None:
        mount("-o", "remount,size=16m", str(self.place))


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def small_disk(place: pathlib.Path) -> Iterator[Disk]:
    """One of four megabytes: the report's charts take one."""
    place.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a disk cannot be mounted here: {getattr(error, 'stderr', None) or error}")
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def last_line(told: str) -> str:
    return told.strip().splitlines()[-1]


def assert_told(code: int, told: str) -> None:
    """One message, which says what to do."""
    assert code == 1, told
    assert "Traceback" not in told
    assert any(message in last_line(told) for message in MESSAGES), told
    assert last_line(told).endswith("and start the same command again")


@pytest.mark.cluster
@pytest.mark.parametrize("on_it", ["out", "cache_dir"])
def test_a_disk_that_is_full_at_any_step_is_told_and_with_room_the_job_ends_well(
    compared: Tiny, tmp_path: pathlib.Path, job: RunJob, on_it: str
) -> None:
    with small_disk(tmp_path / "small") as disk:
        expected = results(compared)
        small = compared.with_config(
            out=str((disk.place if on_it == "out" else compared.folder) / "other"),
            cache_dir=str((disk.place if on_it == "cache_dir" else compared.folder) / "fresh"),
        )
        num_full = 0
        for pages in range(0, 900, 25 if on_it == "out" else 1):
            disk.leave(pages)
            code, told = job("compare", small)
            if not code:
                break
            assert_told(code, told)
            # a half-written file would take what room there is
            assert not [file for file in disk.place.rglob("_unfinished/*") if file.is_file()]
            num_full += 1
        assert num_full >= 2
        assert code == 0
        assert_same(results(small), expected)
        disk.make_room()
        assert job("compare", small)[0] == 0
        assert_same(results(small), expected)


@pytest.mark.cluster
def test_a_job_whose_disk_fills_up_ends_at_once_and_goes_on_with_room(tmp_path: pathlib.Path) -> None:
    larger, start = write_larger(tmp_path), time.monotonic()
    with small_disk(tmp_path / "for_out") as out, small_disk(tmp_path / "for_cache") as cache:
        config = dataclasses.replace(larger, out=str(out.place / "out"), cache_dir=str(cache.place / "store"))
        command = job_command(config, tmp_path)
        for disk in (out, cache):
            disk.leave(40)
            done = python(*command[1:], env=environment())
            assert_told(done.returncode, done.stderr)
            assert f"{disk.place}/" in done.stderr
            disk.make_room()
        assert 0 < len(stored(config)) < NUM_REQUESTS
        finish(dataclasses.replace(without_delay(config), num_readers=0), tmp_path)
        counts = counted(config)
        counts.row("the disk of out is full, then that of the cache; room is made", time.monotonic() - start)
        assert (counts.lost, counts.repeated) == (0, 0)
        assert counts.again <= NUM_REQUESTS // 3
