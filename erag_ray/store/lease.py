"""Leases: signs of life of jobs that write into a folder. No clock of another machine is trusted.

A sign is a file that its job changes every `HEARTBEAT_SECONDS`. A job is gone if its process ran on this machine and
has ended; or if its sign is unchanged for `LEASE_SECONDS` of this process's own monotonic clock.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import socket
import threading
import uuid
from collections.abc import Callable
from time import monotonic
from typing import Any

from erag_ray.store.folder import Folder
from erag_ray.support.errors import JobError

LEASES = "_leases"
HEARTBEAT_SECONDS = 10.0
LEASE_SECONDS = 60.0
_SEEN: dict[str, tuple[bytes, float]] = {}
"""Path of a sign -> its content, and since when this process knows it."""
ON_FOLDERS: list[Lease] = []
"""Leases on job folders of this process, which one job has at a time; `check_lease` looks at them."""


def read_sign(folder: Folder, job: str) -> bytes | None:
    """Return the content of a job's sign; None after its end."""
    try:
        return folder.read_bytes(LEASES, job)
    except FileNotFoundError:
        return None


def is_leased(folder: Folder, job: str) -> bool:
    """Return whether a job that may still write to a folder is not known to be gone."""
    sign, path = read_sign(folder, job), folder.at(LEASES, job)
    if sign is None:
        _SEEN.pop(path, None)
        return False
    is_running = runs_here(sign)
    if is_running is not None:
        return is_running
    content, since = _SEEN.get(path, (None, 0.0))
    if content != sign:
        _SEEN[path] = sign, monotonic()
        return True
    return monotonic() - since < LEASE_SECONDS


def runs_here(sign: bytes) -> bool | None:
    """Return whether the process of a sign runs on this machine; None if it is, or may be, another machine's."""
    process = fields_of(sign).get("process")
    if not isinstance(process, list) or len(process) != 3 or process[0] != _machine():
        return None
    number = process[1]
    return isinstance(number, int) and _start_of(number) == process[2]


def fields_of(sign: bytes) -> dict[str, Any]:
    """Return the fields of a sign; none if it is being written."""
    try:
        content = json.loads(sign)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


@functools.cache
def _machine() -> str:
    """Return what tells machines apart: containers with the same host name have their own processes."""
    node = uuid.getnode()
    # without a network card it is another number in each process
    parts = [socket.gethostname(), "" if node >> 40 & 1 else f"{node:x}"]
    with contextlib.suppress(OSError):
        parts.append(pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _start_of(process: int) -> str | None:
    """Return when a process of this machine started, as numbers are used again; None if there is no such process."""
    try:
        os.kill(process, 0)
    except PermissionError:
        pass
    except (OSError, OverflowError):
        return None
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "unknown"
    # a zombie has ended
    return None if status[0] == "Z" else status[19]


class Lease:
    """Context manager of a job's sign of life in a folder; the first has ``fields`` (see `tell`).

    ``on_beat`` is called after each heartbeat, such as for what jobs that are gone have left.
    """

    def __init__(
        self, folder: Folder, job: str, on_beat: Callable[[], object] = lambda: None, **fields: object
    ) -> None:
        self.folder = folder
        self.job = job
        self._fields = fields
        self._on_beat = on_beat
        self._num_beats = 0
        self._is_lost = False
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{job}", daemon=True)

    def __enter__(self) -> Lease:
        try:
            self.tell()
        except OSError:
            self._delete()
            raise
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._thread.join()
        self._delete()

    def _delete(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.filesystem.delete_file(self.folder.at(LEASES, self.job))
        self.folder.prune(LEASES)

    @property
    def is_lost(self) -> bool:
        """Whether another job has taken the folder: it saw no life here for `LEASE_SECONDS`."""
        if not self._is_lost:
            self._is_lost = read_sign(self.folder, self.job) is None or self._is_replaced()
        return self._is_lost

    def tell(self, **fields: object) -> None:
        """Change the sign, which tells these fields to other jobs from now on."""
        with self._writing:
            self._num_beats += 1
            self._fields |= fields
            process = [_machine(), os.getpid(), _start_of(os.getpid())]
            content = {**self._fields, "process": process, "beat": self._num_beats}
            self.folder.overwrite(json.dumps(content).encode(), LEASES, self.job)

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_SECONDS):
            # one failed write must not end the lease; the next heartbeat comes before it expires
            with contextlib.suppress(OSError):
                if not self.is_lost:
                    self.tell()
                    self._on_beat()

    def _is_replaced(self) -> bool:
        """Return whether another job took the folder while this one wrote its sign again."""
        others = [name for name in self.folder.names(LEASES) if name != self.job]
        signs = [fields_of(read_sign(self.folder, name) or b"") for name in others]
        replaced = [sign.get("replaced") for sign in signs]
        return any(isinstance(names, list) and self.job in names for names in replaced)


def check_lease(path: str) -> None:
    """Raise JobError, before something in a job's folder is sealed, if another job has taken the folder."""
    for lease in ON_FOLDERS:
        if f"{path}/".startswith(f"{lease.folder.path.rstrip('/')}/") and lease.is_lost:
            text = f"out: another job took {lease.folder.root}, as this one showed no life for {LEASE_SECONDS:.0f} s"
            raise JobError(
                f"{text} (was it suspended?). Nothing more is written there. Responses so far are kept: wait for that "
                "job, and start the same command again"
            )
