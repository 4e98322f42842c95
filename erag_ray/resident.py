"""The most memory that a process has held."""

from __future__ import annotations

import pathlib
import resource
import sys

STATUS = pathlib.Path("/proc/self/status")


def peak_resident_bytes() -> int:
    """Most resident memory of this process since its program began.

    Without the pages that it shares with others, which are Ray's: blocks it was given stay in view when they have gone.
    Where the system does not tell (it is not Linux, or leaves lines out) with them, and at least its parent's peak.
    """
    text = STATUS.read_text() if STATUS.is_file() else ""
    found = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "VmHWM" not in found:
        # macOS counts in bytes
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    resident, shared = (int(found.get(name, "0").split()[0]) * 1024 for name in ("VmHWM", "RssShmem"))
    return resident - shared
