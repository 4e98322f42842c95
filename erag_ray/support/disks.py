"""Free space of the local folders that a job writes to: before its requests, and while they run."""

import contextlib
import os
import pathlib
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping

from erag_ray.support.errors import JobError
from erag_ray.support.progress import beside
from erag_ray.support.uris import is_uri

LOOK_SECONDS = 5.0
FLOOR_BYTES, FLOOR_SHARE = 256 << 20, 0.01
"""A job ends when less is free, or of a small disk less than this share."""


@contextlib.contextmanager
def enough_space(needs: Mapping[tuple[str, str], int]) -> Iterator[None]:
    """While open in the main thread, a disk that is nearly full interrupts the job as Ctrl-C does.

    ``needs``: (name of a setting, its folder) -> bytes that will be written there; object stores are not checked. Raise
    JobError if a disk has too little free space, at the start or later.
    """
    if problem := disk_problem(needs):
        raise JobError(problem)
    is_main, problems = threading.current_thread() is threading.main_thread(), list[str]()
    try:
        with beside(_watch, dict.fromkeys(needs, 0), problems) if is_main else contextlib.nullcontext():
            yield
    except KeyboardInterrupt:
        if problems:
            raise JobError(problems[0]) from None
        raise


def disk_problem(needs: Mapping[tuple[str, str], int]) -> str | None:
    """Return what is wrong with the first folder whose disk has too little free space; folders may share a disk."""
    needed = Counter[int]()
    for (name, root), size in needs.items():
        if not is_uri(root):
            path = next(filter(os.path.exists, pathlib.Path(root, "part").absolute().parents))
            usage, device = shutil.disk_usage(path), path.stat().st_dev
            needed[device] += size
            least = min(FLOOR_BYTES, int(FLOOR_SHARE * usage.total)) + needed[device]
            if usage.free < least:
                return (
                    f"{name}: {root} has {usage.free / 1e6:,.1f} MB of free space, and {least / 1e6:,.1f} MB are "
                    f"needed. What was written is kept. Make room there, or set another {name}, and start the same "
                    "command again"
                )
    return None


def _watch(closing: threading.Event, needs: Mapping[tuple[str, str], int], problems: list[str]) -> None:
    while not problems and not closing.wait(LOOK_SECONDS):
        # a folder out of reach is reported where it is used
        with contextlib.suppress(OSError):
            problems += filter(None, [disk_problem(needs)])
    if problems:
        # a job in the background ignores SIGINT
        is_ignored = signal.getsignal(signal.SIGINT) in (None, signal.SIG_IGN)
        os.kill(os.getpid(), signal.SIGTERM if is_ignored else signal.SIGINT)
