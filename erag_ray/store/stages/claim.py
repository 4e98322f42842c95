"""Marking of a folder as a job's ``out``: only an empty folder, or one that jobs have written, becomes one."""

from __future__ import annotations

from erag_ray.store.folder import Folder
from erag_ray.store.lease import LEASES
from erag_ray.support.errors import InputError
from erag_ray.support.ownership import MARKER, RECORDS, UNFINISHED, read_marker, write_marker


def claim(folder: Folder) -> None:
    """Mark a folder as a job's, before anything else is written to it.

    Raises:
        InputError: it has files, and no marker or a damaged one.
    """
    if read_marker(folder) is not None:
        return
    entries = [name for name in folder.entries() if name not in (LEASES, UNFINISHED, RECORDS)]
    if entries:
        subfolder = "/".join([folder.root.rstrip("/"), "erag_ray"])
        reason = "its marker is damaged" if MARKER in entries else f"no marker of a job ({MARKER})"
        text = f"out: {folder.root} has files, such as {entries[0]}, and {reason}"
        raise InputError([f"{text}. Choose an empty folder, such as {subfolder}"])
    write_marker(folder, [])
