"""Digests of large files, remembered by each file's size and times: a model's weights are hashed once on a node."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Iterator

import filelock

from erag_ray.store.identity import file_digest

CACHE = "ERAG_RAY_CACHE"
DEFAULT_CACHE = "~/.cache/erag_ray"
LARGE = 16 << 20
"""Bytes from which on a digest is remembered: smaller files are hashed in no time."""
SETTLED_SECONDS = 2.0
"""Age from which on a file's times tell a later change: a file system may count in whole seconds."""
LOCK_SECONDS = 600.0
"""How long a process waits for another that hashes the same file, before it does so itself."""


def cache_folder() -> pathlib.Path:
    """Return the folder of this machine's cache: ERAG_RAY_CACHE, else ~/.cache/erag_ray.

    Raises:
        RuntimeError: it is in a home folder that there is not.
    """
    return pathlib.Path(os.environ.get(CACHE) or DEFAULT_CACHE).expanduser()


def cached_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a local file, in hex; of a large one that has not changed, as it was hashed before.

    Processes that want the same file at once wait for the first of them. Where nothing can be remembered, each hashes.
    """
    place = pathlib.Path(path).resolve()
    try:
        folder = cache_folder() / "digests"
    except RuntimeError:
        folder = None  # a user without a home
    if folder is None or place.stat().st_size < LARGE:
        return file_digest(place)
    note = folder / f"{hashlib.sha256(str(place).encode()).hexdigest()[:32]}.json"
    with _locked(note):
        stamp = _stamp(place)
        digest = _noted(note, stamp)
        if digest is None:
            digest = file_digest(place)
            _remember(note, stamp, digest)
    return digest


def _stamp(place: pathlib.Path) -> dict[str, int | str]:
    """A file's path, size, place and times; the time of its last change in any way cannot be set by hand."""
    found = place.stat()
    return {
        "path": str(place),
        "bytes": found.st_size,
        "inode": found.st_ino,
        "modified_ns": found.st_mtime_ns,
        "changed_ns": found.st_ctime_ns,
    }


@contextlib.contextmanager
def _locked(note: pathlib.Path) -> Iterator[None]:
    lock = filelock.FileLock(note.with_suffix(".lock"), timeout=LOCK_SECONDS)
    with contextlib.ExitStack() as held:
        # a folder that cannot be written or locked, or a process that takes very long
        with contextlib.suppress(OSError, NotImplementedError, filelock.Timeout):
            note.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock)
        yield


def _noted(note: pathlib.Path, stamp: dict[str, int | str]) -> str | None:
    """The digest that is remembered for a file with this stamp; None where there is none."""
    try:
        content = json.loads(note.read_text())
        return str(content["sha256"]) if content["stamp"] == stamp else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(note: pathlib.Path, stamp: dict[str, int | str], digest: str) -> None:
    changed = max(int(stamp["modified_ns"]), int(stamp["changed_ns"])) / 1e9
    if time.time() - changed < SETTLED_SECONDS or _stamp(pathlib.Path(str(stamp["path"]))) != stamp:
        return
    unfinished = note.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        unfinished.write_text(json.dumps({"stamp": stamp, "sha256": digest}))
        os.replace(unfinished, note)
