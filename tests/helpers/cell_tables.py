"""Tables of cells from rows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def framed(rows: Sequence[tuple[object, ...]], schema: object) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=pl.DataFrame(schema.empty()).schema, orient="row")  # type: ignore[attr-defined]
