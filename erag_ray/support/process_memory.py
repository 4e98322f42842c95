"""The memory of a process, and the most that it has used.

Without the pages that it shares with others, which are Ray's: blocks that a reader was given stay in view when they
have gone.
"""

from __future__ import annotations

import pathlib
import resource
import sys

STATUS = pathlib.Path("/proc/self/status")


def resident_bytes() -> int:
    """Resident memory of this process, on Linux."""
    return _unshared_bytes(_status(), "VmRSS")


def peak_resident_bytes() -> int:
    """Most resident memory of this process, less the pages that it shares now.

    Ray's only grow in number. Where such pages can also go, this is too high by what went after the peak, and too low
    by what came after it. A forked process starts with its parent's pages. Where the system does not tell (it is not
    Linux) it is all of them, and at least the peak of the parent.
    """
    status = _status() if STATUS.is_file() else {}
    if "VmHWM" not in status:
        # macOS counts in bytes
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return _unshared_bytes(status, "VmHWM")


def forget_peak() -> None:
    """The most that was resident counts from now on, on Linux."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def _status() -> dict[str, str]:
    return dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)


def _unshared_bytes(status: dict[str, str], name: str) -> int:
    whole, shared = (int(status.get(key, "0").split()[0]) * 1024 for key in (name, "RssShmem"))
    return whole - shared
