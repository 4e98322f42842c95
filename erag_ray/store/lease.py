"""Signs of life: what a job that writes into a folder leaves there, so that others know."""

from __future__ import annotations

import contextlib
import threading
import time

from erag_ray.store.folder import Folder

LEASES = "_leases"
HEARTBEAT_SECONDS = 10.0
LEASE_SECONDS = 60.0


def last_beat(folder: Folder, job: str) -> float | None:
    """When a job last showed life in a folder, in seconds since 1970; None if it never did, or has ended."""
    try:
        return float(folder.read_bytes(LEASES, job))
    except (FileNotFoundError, ValueError):
        return None


def is_leased(folder: Folder, job: str) -> bool:
    """Whether a job that may still write into a folder has shown life within `LEASE_SECONDS`."""
    beat = last_beat(folder, job)
    return beat is not None and time.time() - beat < LEASE_SECONDS


class Lease:
    """While open, tells other jobs on the same folder that this one is alive (a heartbeat in a file)."""

    def __init__(self, folder: Folder, job: str) -> None:
        self._folder = folder
        self._job = job
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{job}", daemon=True)

    def __enter__(self) -> Lease:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._thread.join()
        self._folder.delete(LEASES, self._job)

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_SECONDS):
            # a disk that fails once must not end the lease; the next beat comes before it runs out
            with contextlib.suppress(OSError):
                self._write()

    def _write(self) -> None:
        self._folder.write_bytes(str(time.time()).encode(), LEASES, self._job)
