"""Parquet files as lazy frames with checked columns; errors go to `Diagnostics`."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from erag_ray.files.diagnostics import Diagnostics
from erag_ray.store import ROW, scan_file

# some damaged files make Polars panic; PanicException is not an Exception
READ_ERRORS = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def scan_parquet(path: str, columns: Iterable[str], diagnostics: Diagnostics) -> pl.LazyFrame | None:
    """Scan the file and add (or replace) the column ``row``, from 1; None if unreadable or without ``columns``."""
    try:
        frame = scan_file(path)
        frame.collect_schema()
    except READ_ERRORS as error:
        report_unreadable(path, error, diagnostics)
        return None
    return frame if has_columns(frame, columns, path, diagnostics) else None


def has_columns(frame: pl.LazyFrame, columns: Iterable[str], path: str, diagnostics: Diagnostics) -> bool:
    """Return whether a scanned file has these columns; record an error for each that it lacks."""
    names = [name for name in frame.collect_schema().names() if name != ROW]
    missing = [name for name in columns if name not in names]
    for name in missing:
        diagnostics.error(
            f"missing columns in {path}", f"{path}: no column {name!r}; it has {', '.join(names)}"
        )
    return not missing


def report_unreadable(path: str, error: BaseException, diagnostics: Diagnostics) -> None:
    """Record that a Parquet file cannot be read."""
    text = getattr(error, "strerror", None) or str(error)
    reason = text.splitlines()[0] if text else type(error).__name__
    diagnostics.error(f"unreadable file {path}", f"{path}: cannot be read: {reason}")


def text_column(frame: pl.LazyFrame, name: str, path: str, diagnostics: Diagnostics) -> pl.Expr | None:
    """Return the column as strings, from strings or integers; None, and an error, for other types."""
    dtype = frame.collect_schema()[name]
    if dtype == pl.String:
        return pl.col(name)
    if dtype.is_integer() or isinstance(dtype, pl.Categorical | pl.Enum) or dtype == pl.Null:
        return pl.col(name).cast(pl.String)
    diagnostics.error(
        f"wrong columns in {path}", f"{path}: column {name!r} holds {dtype}; it must hold strings"
    )
    return None


def number_column(
    frame: pl.LazyFrame, name: str, path: str, diagnostics: Diagnostics, *, whole: bool
) -> pl.Expr | None:
    """Return the column as numbers; None, and an error, for other types."""
    dtype = frame.collect_schema()[name]
    if dtype.is_integer() or dtype == pl.Null or (dtype.is_float() and not whole):
        return pl.col(name).cast(pl.Int64 if whole else pl.Float64)
    expected = "whole numbers" if whole else "numbers"
    diagnostics.error(
        f"wrong columns in {path}", f"{path}: column {name!r} holds {dtype}; it must hold {expected}"
    )
    return None
