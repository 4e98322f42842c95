"""Sizes of the tasks of an index, and the files between them."""

from __future__ import annotations

import polars as pl

from erag_ray.retrieve.lists import FOUND_COLUMNS
from erag_ray.retrieve.passage_fields import SEARCHED
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import part, read_frame, write_frame

QUERIES_PER_TASK = 2048
TEXTS_PER_PART = 4096
PAIRS_PER_PART = 16_384


def write_texts(corpus: pl.DataFrame, searches: str, per_file: int, index: Folder) -> pl.Series:
    """Write the searched fields of CORPUS as ``texts``, ``per_file`` passages in a file; return their doc_ids in order.

    The order is that of ties. Passages are gathered file by file, since they may fill most of the memory.
    """
    order = corpus["doc_id"].arg_sort(descending=True)
    for number, start in enumerate(range(0, corpus.height, per_file)):
        rows = corpus[order.slice(start, per_file)]
        texts = pl.DataFrame({"text": SEARCHED[searches](rows)})
        write_frame(texts, index, "texts", f"{part(number)}.parquet")
    return corpus["doc_id"].gather(order)


def write_queries(queries: pl.DataFrame, work: Folder) -> int:
    """Write the queries in slices of `QUERIES_PER_TASK`; return the number of slices."""
    slices = list(queries.iter_slices(QUERIES_PER_TASK))
    for number, rows in enumerate(slices):
        write_frame(rows, work, "queries", f"{part(number)}.parquet")
    return len(slices)


def read_found(work: Folder, count: int) -> pl.DataFrame:
    """Return the candidates of all ``count`` tasks."""
    names = [f"{part(number)}.parquet" for number in range(count)]
    return pl.concat(
        [pl.DataFrame(schema=FOUND_COLUMNS), *(read_frame(work, "found", name) for name in names)]
    )
