"""Row order and measure names, shared by all tables."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.evaluate import ANY
from erag_ray.measures import MEASURES

KEYS = ["annotator", "measure", "cutoff", "ideal"]


def measure_name(measure: str, cutoff: int, ideal: str) -> str:
    """Return a name such as ``nDCG@10 (pool)``; measures without an ideal have no bracket."""
    return f"{measure}@{cutoff}" if ideal == ANY else f"{measure}@{cutoff} ({ideal})"


def in_reading_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by annotator (eRAG first), measure (order of `MEASURES`), cut-off and ideal."""
    annotators = sorted(rows["annotator"].unique(), key=lambda name: (name != "erag", name))
    measures = [*MEASURES, *sorted(set(rows["measure"].unique()) - set(MEASURES))]
    positions = [
        pl.col("annotator").replace_strict(annotators, range(len(annotators)), return_dtype=pl.Int64),
        pl.col("measure").replace_strict(measures, range(len(measures)), return_dtype=pl.Int64),
    ]
    return rows.sort(*positions, "cutoff", "ideal", maintain_order=True)


def by_measure(rows: pl.DataFrame) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Yield (annotator, name of the measure, rows) in reading order."""
    for (annotator, measure, cutoff, ideal), part in in_reading_order(rows).group_by(
        KEYS, maintain_order=True
    ):
        yield str(annotator), measure_name(str(measure), int(str(cutoff)), str(ideal)), part
