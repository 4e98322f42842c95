"""Parquet files as lazy frames with checked columns; errors go to `Diagnostics`."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from erag_ray.data.files.diagnostics import NUM_NAMED, Diagnostics
from erag_ray.data.files.ids import ID_FORM, MAX_EXACT, IdKeys, shown
from erag_ray.store.files import ROW, scan_file
from erag_ray.support.uris import searched_in

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
    names = column_names(frame)
    missing = [name for name in columns if name not in names]
    for name in missing:
        diagnostics.error(
            f"missing columns in {path}", f"{path}: no column {name!r}; it has {', '.join(names)}"
        )
    return not missing


def column_names(frame: pl.LazyFrame) -> list[str]:
    """Return the names of the file's own columns."""
    return [name for name in frame.collect_schema().names() if name != ROW]


def id_column(frame: pl.LazyFrame, keys: IdKeys, path: str, diagnostics: Diagnostics) -> pl.Expr | None:
    """Return the column of ids as strings, as `ids.identifier` reads them; None, and an error, if there is none."""
    names = keys.among(column_names(frame))
    if len(names) > 1:
        diagnostics.error(f"several ids in {path}", f"{path}: {keys.several(names)}")
        return None
    if not names:
        has_columns(frame, [keys.first], path, diagnostics)
        return None
    dtype = frame.collect_schema()[names[0]]
    if dtype.is_float() or dtype.is_decimal():
        return _whole(frame, names[0], path, diagnostics, ID_FORM, pl.String())
    return text_column(frame, names[0], path, diagnostics)


def _whole(
    frame: pl.LazyFrame, name: str, path: str, diagnostics: Diagnostics, form: str, dtype: pl.DataType
) -> pl.Expr | None:
    """Return whole numbers that are stored as floats; None, and errors, if some are not whole."""
    column = pl.col(name).cast(pl.Float64)
    is_whole = column.is_finite() & (column == column.floor()) & (column.abs() < MAX_EXACT)
    try:
        wrong = frame.filter(~is_whole.fill_null(True)).select(ROW, column).collect()
    except READ_ERRORS as error:
        report_unreadable(path, error, diagnostics)
        return None
    texts = [
        f"{path}: row {row}: {name} is {shown(value)}; {form}"
        for row, value in wrong.head(NUM_NAMED).iter_rows()
    ]
    diagnostics.error(f"wrong {name} in {path}", *texts, count=wrong.height)
    return None if texts else column.cast(pl.Int64).cast(dtype)


def report_unreadable(path: str, error: BaseException, diagnostics: Diagnostics) -> None:
    """Record that a Parquet file cannot be read."""
    text = getattr(error, "strerror", None) or str(error)
    reason = text.splitlines()[0] if text else type(error).__name__
    reason += searched_in(path) if isinstance(error, FileNotFoundError) else ""
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
    if (dtype.is_float() or dtype.is_decimal()) and whole:
        return _whole(frame, name, path, diagnostics, "it must be a whole number", pl.Int64())
    if dtype.is_numeric() or dtype == pl.Null:
        return pl.col(name).cast(pl.Int64 if whole else pl.Float64)
    expected = "whole numbers" if whole else "numbers"
    diagnostics.error(
        f"wrong columns in {path}", f"{path}: column {name!r} holds {dtype}; it must hold {expected}"
    )
    return None
