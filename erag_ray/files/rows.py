"""Rows of a dataset of the library `datasets` -> records."""

from __future__ import annotations

from collections.abc import Iterator

from erag_ray.files.diagnostics import Diagnostics
from erag_ray.files.jsonl import Record
from erag_ray.store import dataset_rows


def read_dataset(path: str, diagnostics: Diagnostics) -> Iterator[Record]:
    """Yield a record for each row, numbered from 1; a dataset that cannot be loaded is an error in ``diagnostics``.

    Args:
        path: such as ``hf:NAME:SPLIT`` (see `erag_ray.store.huggingface`).
        diagnostics: receives the error.
    """
    try:
        for number, row in enumerate(dataset_rows(path), 1):
            yield Record(row, path, number, diagnostics)
    except ValueError as error:
        diagnostics.error(f"unreadable dataset {path}", f"{path}: {error}")
