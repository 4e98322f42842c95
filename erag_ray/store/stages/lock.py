"""The lock of a job on its output folder, and values that its steps share in memory.

Two jobs in one folder would take the seals off each other's tables.
"""

import contextlib
import errno
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import pyarrow as pa

from erag_ray.store import lease as leases
from erag_ray.store.fingerprints import new_job_id
from erag_ray.store.folder import Folder
from erag_ray.support.errors import InputError
from erag_ray.support.ownership import MARKER, RECORDS, UNFINISHED, Ledger, read_marker, write_marker

T = TypeVar("T")
logger = logging.getLogger(__name__)
LOOK_SECONDS = 0.5
SIGN = re.compile(r".+@.*@\d+")
"""Names of signs: job, host and process."""
_SHARED: ContextVar[dict[str, Any] | None] = ContextVar("shared by the steps of this job", default=None)
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


@contextlib.contextmanager
def locked(out: str) -> Iterator[None]:
    """While open, this job has the folder ``out``: it is marked as a job's, and no other job begins to write there.

    A job whose process has ended on this machine is known to be gone; any other is waited for until its sign is
    unchanged for `LEASE_SECONDS`. Raise InputError if the folder cannot be written, is no job's, or another job is
    writing there.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = Folder(out, is_shared=True)
            _mark(folder)
            lease = stack.enter_context(_only_lease(folder))
            leases.ON_FOLDERS.append(lease)
            stack.callback(leases.ON_FOLDERS.remove, lease)
            ledger = folder.claim()
            ledger.check_links()
            ledger.settle()
        except InputError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            if getattr(error, "errno", None) in DISK_ERRORS:
                raise
            raise InputError([f"out: cannot write to {out}: {error}"]) from error
        stack.callback(_settle, ledger, lease)
        yield


def _mark(folder: Folder) -> None:
    """Mark a folder as a job's, before anything else is written to it."""
    if read_marker(folder) is not None:
        return
    entries = [name for name in folder.entries() if name not in (leases.LEASES, UNFINISHED, RECORDS)]
    if entries:
        subfolder = "/".join([folder.root.rstrip("/"), "erag_ray"])
        reason = "its marker is damaged" if MARKER in entries else f"no marker of a job ({MARKER})"
        text = f"out: {folder.root} has files, such as {entries[0]}, and {reason}"
        raise InputError([f"{text}. Choose an empty folder, such as {subfolder}"])
    write_marker(folder, [])


def _settle(ledger: Ledger, lease: leases.Lease) -> None:
    # what a full disk does not take is in the records, for the next job
    with contextlib.suppress(OSError):
        if not lease.is_lost:
            ledger.settle()


@contextlib.contextmanager
def _only_lease(folder: Folder) -> Iterator[leases.Lease]:
    """Yield a lease that no other job has: of several that begin at once, the first by name."""
    name = f"{new_job_id()}@{socket.gethostname()}@{os.getpid()}"
    first: dict[str, bytes] = {}
    replaced: list[str] = []
    is_logged = False
    with leases.Lease(folder, name, has_folder=False) as lease:
        while others := [
            other for other in folder.names(leases.LEASES) if other != name and SIGN.fullmatch(other)
        ]:
            for other in others:
                sign = leases.read_sign(folder, other)
                if sign is None:
                    continue
                if not leases.is_leased(folder, other):
                    replaced.append(other)
                    lease.tell(replaced=replaced)
                    folder.delete(leases.LEASES, other)
                    continue
                is_alive = leases.runs_here(sign) or sign != first.setdefault(other, sign)
                # a sign without fields is being written
                if is_alive and (other < name or leases.fields_of(sign).get("has_folder") is True):
                    text = f"out: the job {other} is writing to {folder.root}; wait for it, or choose another out"
                    raise InputError([text])
            if first and not is_logged:
                is_logged = True
                logger.warning(
                    "%s: the job %s may still be writing; waiting up to %.0f s for it",
                    folder.root,
                    next(iter(first)),
                    leases.LEASE_SECONDS,
                )
            time.sleep(LOOK_SECONDS)
        lease.tell(has_folder=True)
        if lease.is_lost:
            text = f"another job has taken {folder.root}; wait for it, or choose another out"
            raise InputError([f"out: {text}"])
        yield lease


@contextlib.contextmanager
def job_memory() -> Iterator[None]:
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def shared(key: str, make: Callable[[], T]) -> T:
    """Return what this job has under a key, which is made at its first use; outside of a job it is always made."""
    memory = _SHARED.get()
    if memory is None:
        return make()
    if key not in memory:
        memory[key] = make()
    value: T = memory[key]
    return value
