"""Leases: heartbeats of jobs that write into a shared folder."""

from __future__ import annotations

import contextlib
import threading
import time

from erag_ray.store.folder import Folder

LEASES = "_leases"
HEARTBEAT_SECONDS = 10.0
LEASE_SECONDS = 60.0


def last_beat(folder: Folder, job: str) -> float | None:
    """Return the time of a job's last heartbeat in a folder (seconds since 1970); None without one or after its end."""
    try:
        return float(folder.read_bytes(LEASES, job))
    except (FileNotFoundError, ValueError):
        return None


def is_leased(folder: Folder, job: str) -> bool:
    """Return whether a job's last heartbeat in a folder is at most `LEASE_SECONDS` old."""
    beat = last_beat(folder, job)
    return beat is not None and time.time() - beat < LEASE_SECONDS


class Lease:
    """Context manager that writes a heartbeat to a file, as a sign of life for other jobs on the folder."""

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
            # one failed write must not end the lease; the next heartbeat comes before it expires
            with contextlib.suppress(OSError):
                self._write()

    def _write(self) -> None:
        self._folder.write_bytes(str(time.time()).encode(), LEASES, self._job)
