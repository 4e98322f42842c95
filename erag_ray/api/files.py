"""The inputs of a comparison in Python as files of its job, in ``<out>/given``."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
import yaml

from erag_ray.config.job import JobConfig
from erag_ray.store.folder import Folder

GIVEN = "given"
"""Folder inside ``out``. Its ``config.yaml`` is that of a job with the same inputs."""


class Given:
    """The files of one comparison: in memory until `write`, so that nothing is written before the folder is locked.

    Args:
        out: folder of the comparison.
    """

    def __init__(self, out: str) -> None:
        self.out = out
        self._files: dict[tuple[str, ...], bytes] = {}

    def _add(self, data: bytes, *names: str) -> str:
        self._files[GIVEN, *names] = data
        return "/".join([self.out.rstrip("/"), GIVEN, *names])

    def add_lines(self, records: Iterable[Mapping[str, Any]], *names: str) -> str:
        """Add a file of JSON Lines; return its path."""
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        return self._add("".join(lines).encode(errors="surrogatepass"), *names)

    def add_table(self, table: pl.DataFrame, *names: str) -> str:
        """Add a Parquet file; return its path."""
        data = io.BytesIO()
        table.write_parquet(data)
        return self._add(data.getvalue(), *names)

    def write(self, config: JobConfig) -> None:
        """Write the files and the config; a file that is there already with the same content is left unchanged."""
        settings = json.loads(json.dumps(dataclasses.asdict(config)))
        self._add(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).encode(), "config.yaml")
        folder = Folder(self.out)
        for names, data in self._files.items():
            if not (folder.exists(*names) and folder.read_bytes(*names) == data):
                folder.write_bytes(data, *names)
