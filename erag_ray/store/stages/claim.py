"""Marking of a folder as a job's ``out``: only an empty folder, or one that jobs have written, becomes one."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator

from erag_ray.store.folder import Folder
from erag_ray.store.lease import LEASES
from erag_ray.store.schemas import LABELS, RUNS
from erag_ray.store.tables import DIGEST, MANIFEST, TableStore, whole_manifest
from erag_ray.support.errors import InputError
from erag_ray.support.ownership import MARKER, RECORDS, UNFINISHED, read_marker, write_marker

OLD_FILES = re.compile(
    r"report\.md|report/(index\.html|charts\.js|questions/\d{4}\.js)|errors/[^/]+_\d+\.txt"
    r"|[\w/-]+/pending/[^/]+/part-\d{5}\.parquet|(work|indexes)/[^/]+/([\w/]+/)?(\d{5}|\w+)\.(parquet|npy|json)"
    r"|given/(config\.yaml|questions\.jsonl|passages\.parquet|runs/[^/]+\.parquet)"
    r"|(log\.csv|messages\.txt|training\.json)|data/(train|dev)/(examples|corpus)\.arrow"
    r"|(start|reader|checkpoints/step-\d{8})/[^/]+"
)
"""Files that version 0.2 wrote next to its sealed tables, and that no manifest names."""


def claim(folder: Folder) -> None:
    """Mark a folder as a job's, before anything else is written to it.

    A folder of an earlier version has no marker: it is recognised by its manifests.

    Raises:
        InputError: it has files that no job has written, and no marker.
    """
    if read_marker(folder) is not None:
        return
    entries = [name for name in folder.entries() if name not in (LEASES, UNFINISHED, RECORDS)]
    names = sorted(set(_names_of_version_02(folder))) if entries else []
    if entries and not names:
        subfolder = "/".join([folder.root.rstrip("/"), "erag_ray"])
        reason = "its marker is damaged" if MARKER in entries else f"no marker of a job ({MARKER})"
        text = f"out: {folder.root} has files, such as {entries[0]}, and {reason}"
        raise InputError([f"{text}. Choose an empty folder, such as {subfolder}"])
    if MARKER in entries:
        folder.set_aside(MARKER)
    write_marker(folder, names)


def _names_of_version_02(folder: Folder) -> Iterator[str]:
    """Yield the files that jobs of version 0.2 wrote, and the marker was not yet; none without a sealed manifest."""
    sealed = [below for below in _folders(folder, 2) if _is_sealed(folder, *below)]
    for below in sealed:
        manifest = whole_manifest(folder, *below) or {}
        names: list[str] = [MANIFEST, *manifest.get("parts", ()), *manifest.get("lines", ())]
        yield from ("/".join([*below, name]) for name in names)
    if sealed:
        files = ("/".join([*below, name]) for below in _folders(folder, 4) for name in folder.names(*below))
        yield from (name for name in files if OLD_FILES.fullmatch(name))
        for name in folder.names(RUNS.name, suffix=".json"):
            if whole_manifest(folder, RUNS.name, name=name, form={"run_id": str, "sha256": str}):
                yield from (f"{RUNS.name}/{name}", f"{RUNS.name}/{name.removesuffix('json')}parquet")
        yield from _exported(folder)


def _is_sealed(folder: Folder, *below: str) -> bool:
    """Return whether a folder has a manifest with its digest, or that of a world."""
    manifest = folder.exists(*below, MANIFEST) and whole_manifest(folder, *below)
    if not manifest:
        return False
    is_world = not below and manifest.keys() == {"settings", "lines"}
    return is_world or DIGEST in json.loads(folder.read_bytes(*below, MANIFEST))


def _exported(folder: Folder) -> Iterator[str]:
    """Yield the TREC files that are named after sealed runs and annotators, as the manifest there names none."""
    names = folder.names("trec")
    if MANIFEST not in names:
        return
    tables = TableStore(folder.root)
    with contextlib.suppress(InputError, OSError):
        runs, labels = tables.read(RUNS)["run_id"], tables.read(LABELS)["annotator"]
        known = {*(f"{run}.trec" for run in runs.unique()), *labels.unique()}
        for name in names:
            if name in known or name.partition(".")[0] in known or re.match("[0-9a-f]{8}-", name):
                yield f"trec/{name}"


def _folders(folder: Folder, depth: int, *below: str) -> Iterator[tuple[str, ...]]:
    """Yield a folder and those inside it, without links and other jobs' folders, by the names that lead to them."""
    yield below
    files = set(folder.names(*below))
    for name in folder.entries(*below) if depth else ():
        inside = folder.inside("/".join([*below, name]))
        if name not in files and read_marker(inside) is None and not os.path.islink(inside.path):
            yield from _folders(folder, depth - 1, *below, name)
