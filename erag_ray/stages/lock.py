"""One job at a time in one output folder: two would take the seals off each other's tables."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator

import pyarrow as pa

from erag_ray.errors import InputError
from erag_ray.store import (
    LEASE_SECONDS,
    LEASES,
    UNFINISHED,
    Folder,
    Lease,
    is_leased,
    last_beat,
    new_job_id,
)

logger = logging.getLogger(__name__)
LOOK_SECONDS = 0.5


@contextlib.contextmanager
def locked(out: str) -> Iterator[None]:
    """While open, no other job begins to write to ``out``.

    What a job that was killed has left is waited for until it has shown no life for `LEASE_SECONDS`; on this machine it
    is known at once whether its process is gone. A folder that cannot be written is left to the checks of the job.

    Raises:
        InputError: another job is writing there.
    """
    with contextlib.ExitStack() as stack:
        try:
            _claim(stack, out)
        except InputError:
            raise
        except (OSError, ValueError, pa.ArrowException):
            pass
        yield


def _claim(stack: contextlib.ExitStack, out: str) -> None:
    folder, name = Folder(out), f"{new_job_id()}@{socket.gethostname()}@{os.getpid()}"
    for other in folder.names(LEASES):
        _wait_for(folder, other)
    # at the end of the stack the lease ends first
    stack.callback(_tidy, folder)
    stack.enter_context(Lease(folder, name))
    # of two that begin at once, the one of the later name gives way
    for other in (other for other in folder.names(LEASES) if other < name):
        if is_leased(folder, other):
            raise _refusal(folder, other)


def _tidy(folder: Folder) -> None:
    """Folders of signs are deleted when no job is left that needs them."""
    with contextlib.suppress(OSError):
        for name in (LEASES, UNFINISHED):
            if not folder.names(LEASES) and not folder.names(name):
                folder.delete_folder(name)


def _wait_for(folder: Folder, other: str) -> None:
    """Until another job has ended, or has shown no life for so long that it must have."""
    first = last_beat(folder, other)
    is_named = False
    while is_leased(folder, other) and not _is_gone(other):
        if last_beat(folder, other) != first:
            raise _refusal(folder, other)
        if not is_named:
            text = f"{folder.root}: the job {other} may still be writing; waiting up to {LEASE_SECONDS:.0f} s for it"
            logger.warning("%s", text)
        is_named = True
        time.sleep(LOOK_SECONDS)
    folder.delete(LEASES, other)


def _is_gone(other: str) -> bool:
    """Whether it ran on this machine and its process is no more."""
    *_, host, process = other.split("@")
    if host != socket.gethostname() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _refusal(folder: Folder, other: str) -> InputError:
    return InputError(
        [f"out: the job {other} is writing to {folder.root}; wait for it, or choose another out"]
    )
