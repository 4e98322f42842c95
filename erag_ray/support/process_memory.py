"""The most memory that a process has used.

Without the pages that it shares with others, which are Ray's: blocks that a reader was given stay in view when they
have gone.
"""

from __future__ import annotations

import pathlib
import resource
import sys

STATUS = pathlib.Path("/proc/self/status")


def peak_resident_bytes() -> int:
    """Most resident memory of this process, less the pages that it shares now.

    Ray's only grow in number. Where such pages can also go, this is too high by what went after the peak, and too low
    by what came after it. A forked process starts with its parent's pages. Where the system does not tell (it is not
    Linux) it is all of them, and at least the peak of the parent.
    """
    lines = STATUS.read_text().splitlines() if STATUS.is_file() else []
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmHWM" not in status:
        # macOS counts in bytes
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    whole, shared = (int(status.get(key, "0").split()[0]) * 1024 for key in ("VmHWM", "RssShmem"))
    return whole - shared
