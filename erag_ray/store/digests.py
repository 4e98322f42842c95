"""Cached digests of large files, keyed by size and times: a model's weights are hashed once on each node."""

import contextlib
import hashlib
import json
import os
import pathlib
import time

from erag_ray.store.fingerprints import file_digest
from erag_ray.store.folder import replace_file

CACHE = "ERAG_RAY_CACHE"
DEFAULT_CACHE = "~/.cache/erag_ray"
LARGE = 16 << 20
"""Minimum size in bytes for caching: smaller files are hashed quickly."""
SETTLED_SECONDS = 2.0
"""Minimum age of a file for caching: with time stamps in whole seconds, a later change might go unnoticed."""


def cache_folder() -> pathlib.Path:
    """Return the folder of this machine's cache: ERAG_RAY_CACHE, else ~/.cache/erag_ray.

    Raises:
        RuntimeError: it is below the home folder, and the user has none.
    """
    return pathlib.Path(os.environ.get(CACHE) or DEFAULT_CACHE).expanduser()


def write_cached(file: pathlib.Path, text: str) -> None:
    """Write a file of the cache folder, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    replace_file(unfinished, file)


def cached_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a local file in hex, from the cache for a large, unchanged file.

    If the cache cannot be written, each call hashes the file.
    """
    file = pathlib.Path(path).resolve()
    try:
        folder = cache_folder() / "digests"
    except RuntimeError:
        folder = None  # a user without a home
    if folder is None or file.stat().st_size < LARGE:
        return file_digest(file)
    entry = folder / f"{hashlib.sha256(str(file).encode()).hexdigest()[:32]}.json"
    stamp = _stamp(file)
    # there may be no entry, or a damaged one
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(entry.read_text())
        if content["stamp"] == stamp:
            return str(content["sha256"])
    digest = file_digest(file)
    changed = max(int(stamp["modified_ns"]), int(stamp["changed_ns"])) / 1e9
    if time.time() - changed >= SETTLED_SECONDS and _stamp(file) == stamp:
        with contextlib.suppress(OSError):
            write_cached(entry, json.dumps({"stamp": stamp, "sha256": digest}))
    return digest


def _stamp(file: pathlib.Path) -> dict[str, int | str]:
    """Return path, size, inode and times of a file; users cannot set the change time (ctime)."""
    status = file.stat()
    return {
        "path": str(file),
        "bytes": status.st_size,
        "inode": status.st_ino,
        "modified_ns": status.st_mtime_ns,
        "changed_ns": status.st_ctime_ns,
    }
