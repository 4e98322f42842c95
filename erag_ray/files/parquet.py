"""Parquet files -> lazy frames with checked columns; what is wrong goes to `Diagnostics`."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from erag_ray.files.diagnostics import Diagnostics
from erag_ray.store import ROW, scan_file

# polars panics, which is no Exception, at some damaged files
READ_ERRORS = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def scan_parquet(path: str, columns: Iterable[str], diagnostics: Diagnostics) -> pl.LazyFrame | None:
    """The file with a column ``row`` (from 1; one of its own goes); None where it cannot be read or lacks ``columns``.

    Columns of ids that hold whole numbers become text; other types are left for `check_type`.
    """
    try:
        frame = scan_file(path)
        names = [name for name in frame.collect_schema().names() if name != ROW]
    except READ_ERRORS as error:
        report_unreadable(path, error, diagnostics)
        return None
    missing = [name for name in columns if name not in names]
    for name in missing:
        diagnostics.error(
            f"missing columns in {path}", f"{path}: no column {name!r}; it has {', '.join(names)}"
        )
    return None if missing else frame


def report_unreadable(path: str, error: BaseException, diagnostics: Diagnostics) -> None:
    """Record that a Parquet file cannot be read."""
    text = getattr(error, "strerror", None) or str(error)
    reason = text.splitlines()[0] if text else type(error).__name__
    diagnostics.error(f"unreadable file {path}", f"{path}: cannot be read: {reason}")


def text_column(frame: pl.LazyFrame, name: str, path: str, diagnostics: Diagnostics) -> pl.Expr | None:
    """The column as text: strings as they are, whole numbers written out; None, and a problem, for others."""
    kind = frame.collect_schema()[name]
    if kind == pl.String:
        return pl.col(name)
    if kind.is_integer() or isinstance(kind, pl.Categorical | pl.Enum) or kind == pl.Null:
        return pl.col(name).cast(pl.String)
    diagnostics.error(
        f"wrong columns in {path}", f"{path}: column {name!r} holds {kind}; it must hold strings"
    )
    return None


def number_column(
    frame: pl.LazyFrame, name: str, path: str, diagnostics: Diagnostics, *, whole: bool
) -> pl.Expr | None:
    """The column as numbers; None, and a problem, where it holds something else."""
    kind = frame.collect_schema()[name]
    if kind.is_integer() or kind == pl.Null or (kind.is_float() and not whole):
        return pl.col(name).cast(pl.Int64 if whole else pl.Float64)
    wanted = "whole numbers" if whole else "numbers"
    diagnostics.error(
        f"wrong columns in {path}", f"{path}: column {name!r} holds {kind}; it must hold {wanted}"
    )
    return None
