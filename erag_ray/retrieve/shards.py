"""Sizes of the tasks of an index, and the files between them."""

from __future__ import annotations

import polars as pl

from erag_ray.retrieve.lists import FOUND_COLUMNS
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import part, read_frame

QUERIES_PER_TASK = 2048
TEXTS_PER_PART = 4096
PAIRS_PER_PART = 16_384


def read_found(work: Folder, count: int) -> pl.DataFrame:
    """Return the candidates of all ``count`` tasks."""
    names = [f"{part(number)}.parquet" for number in range(count)]
    return pl.concat(
        [pl.DataFrame(schema=FOUND_COLUMNS), *(read_frame(work, "found", name) for name in names)]
    )
