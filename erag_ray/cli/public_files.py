"""Where public data sets publish their files, and downloading them once: ``kilt:nq-dev-kilt.jsonl`` in a config.

A download that was stopped goes on where it was (where the server can), by the package pypdl. A file counts as there
when ``NAME.download.json`` stands beside it: its address, size and SHA-256, as they were when it came. Neither KILT nor
KLUE publishes checksums.
"""

from __future__ import annotations

import json
import logging
import pathlib
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from erag_ray.errors import InputError
from erag_ray.ownership import UNFINISHED as UNFINISHED_FILES
from erag_ray.store import Folder, cache_folder, file_digest, replace_file, whole_manifest

RECEIPT = ".download.json"
UNFINISHED = ".unfinished"
LOOK_EVERY_SECONDS = 0.5
RETRIES = 5

# facebookresearch/KILT, README.md and scripts/download_all_kilt_data.py; KLUE-benchmark/KLUE, klue_benchmark/
PUBLISHED: dict[str, Callable[[str], str]] = {
    "kilt": lambda name: f"http://dl.fbaipublicfiles.com/KILT/{name}",
    "klue": lambda name: (
        "https://raw.githubusercontent.com/KLUE-benchmark/KLUE/main/klue_benchmark/"
        f"{re.sub(r'_(train|dev)[.]json$', '', name)}/{name}"
    ),
}

OnProgress = Callable[[int], None]
Show = Callable[[str, int], AbstractContextManager[OnProgress]]
"""Shows how far a download is: gets its name and size in bytes, gives a function that is told the bytes done."""


def is_public(path: str) -> bool:
    """Whether a path of a config names a published file."""
    source, _, name = path.partition(":")
    return source in PUBLISHED and bool(name) and "/" not in name


def fetch_public(path: str, show: Show) -> str:
    """The local copy of a published file, downloaded if it is not there yet.

    Args:
        path: ``kilt:NAME`` or ``klue:NAME``.
        show: shows how far it is.

    Raises:
        InputError: it cannot be downloaded, or the copy is not what it was.
    """
    source, _, name = path.partition(":")
    return str(download(PUBLISHED[source](name), cache_folder() / source / name, show))


def download(url: str, target: pathlib.Path, show: Show) -> pathlib.Path:
    """A file of the web, downloaded if its receipt is not there.

    Raises:
        InputError: it cannot be downloaded, or the copy is not as long as its receipt says.
    """
    receipt = target.with_name(target.name + RECEIPT)
    if content := whole_manifest(
        Folder(str(target.parent)), name=receipt.name, form={"url": str, "size": int}
    ):
        _check(target, content)
        return target
    unfinished = target.with_name(target.name + UNFINISHED)
    unfinished.mkdir(parents=True, exist_ok=True)
    came = unfinished / target.name
    _fetch(url, came, show)
    content = {"url": url, "size": came.stat().st_size, "sha256": file_digest(came)}
    replace_file(came, target)
    folder = Folder(str(target.parent), is_shared=True)
    folder.write_bytes(json.dumps(content, indent=1).encode(), receipt.name)
    folder.prune(UNFINISHED_FILES)
    for left in unfinished.iterdir():
        left.unlink()
    unfinished.rmdir()
    return target


def _check(target: pathlib.Path, content: Mapping[str, object]) -> None:
    size = target.stat().st_size if target.is_file() else None
    if size != content["size"]:
        text = f"{target}: has {size} bytes, but {content['size']} came from {content['url']}"
        raise InputError([f"{text}; delete it and {target.name}{RECEIPT} to download it again"])


def _fetch(url: str, came: pathlib.Path, show: Show) -> None:
    # it brings an HTTP client, which a job without downloads need not wait for
    import pypdl

    log = logging.getLogger("erag_ray.download")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    loader = pypdl.Pypdl(allow_reuse=True, logger=log)
    try:
        # one segment: servers that count connections are not troubled
        job = loader.start(
            url, str(came), segments=1, retries=RETRIES, overwrite=True, block=False, display=False
        )
        while loader.size is None and not loader.completed:
            time.sleep(LOOK_EVERY_SECONDS / 10)
        with show(came.name, loader.size or 0) as on_progress:
            while not loader.completed:
                on_progress(loader.current_size)
                time.sleep(LOOK_EVERY_SECONDS)
            on_progress(loader.current_size)
        job.result()
        failed, size = bool(loader.failed), loader.size
    finally:
        loader.shutdown()
    if failed or not came.is_file():
        raise InputError(
            [f"{url}: cannot be downloaded; what has come stays, so that the same command goes on"]
        )
    # the package counts one byte too few
    if size and came.stat().st_size < size:
        raise InputError(
            [f"{url}: {came.stat().st_size} bytes came, not {size}; start the same command again"]
        )
