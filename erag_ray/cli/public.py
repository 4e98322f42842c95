"""Published files that a config names (``kilt:NAME``, ``klue:NAME``) -> local copies."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TypeVar

from erag_ray.cli.public_files import OnProgress, fetch_public, is_public
from erag_ray.config import map_paths
from erag_ray.progress import counted

Config = TypeVar("Config")


def with_public(config: Config) -> Config:
    """The config with the local copies of published files in their place; what is not there yet is downloaded.

    Raises:
        InputError: a file cannot be downloaded.
    """
    return map_paths(config, lambda path: fetch_public(path, _show) if is_public(path) else path)


def _show(name: str, size: int) -> AbstractContextManager[OnProgress]:
    return counted(f"bytes of {name}", size)
