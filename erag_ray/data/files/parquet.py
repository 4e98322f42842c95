"""Parquet files as lazy frames with checked columns; errors go to `Diagnostics`."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import ID_FORM, MAX_EXACT, IdKeys
from erag_ray.store.files import ROW, scan_file
from erag_ray.support.uris import searched_in

# some damaged files make Polars panic; PanicException is not an Exception
READ_ERRORS = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
NO_TEXT = pl.lit(None, pl.String())
"""A column of strings that a file lacks."""


def is_filled(column: str) -> pl.Expr:
    """Return whether a column of strings is neither null nor blank."""
    return pl.col(column).fill_null("").str.strip_chars() != ""


def scan_parquet(path: str, diagnostics: Diagnostics) -> ParquetFile | None:
    """Scan the file and add (or replace) the column ``row``, from 1; None, and an error, if it is unreadable."""
    try:
        frame = scan_file(path)
        return ParquetFile(path, diagnostics, frame, frame.collect_schema(), diagnostics.num_errors)
    except READ_ERRORS as error:
        _report_unreadable(path, error, diagnostics)
        return None


def _report_unreadable(path: str, error: BaseException, diagnostics: Diagnostics) -> None:
    text = getattr(error, "strerror", None) or str(error)
    reason = text.splitlines()[0] if text else type(error).__name__
    reason += searched_in(path) if isinstance(error, FileNotFoundError) else ""
    diagnostics.error(f"unreadable file {path}", f"{path}: cannot be read: {reason}")


@dataclass(frozen=True)
class ParquetFile:
    """A scanned Parquet file. Its columns are checked one by one; with an error in any of them no row is read."""

    path: str
    diagnostics: Diagnostics
    frame: pl.LazyFrame
    types: pl.Schema
    num_errors_before: int

    @property
    def names(self) -> list[str]:
        """The names of the file's own columns."""
        return [name for name in self.types if name != ROW]

    def collect(self, frame: pl.LazyFrame) -> pl.DataFrame | None:
        """Return rows of the file; None if a column is wrong, or, with an error, if the rows cannot be read."""
        if self.diagnostics.num_errors > self.num_errors_before:
            return None
        try:
            return frame.collect()
        except READ_ERRORS as error:
            _report_unreadable(self.path, error, self.diagnostics)
            return None

    def report_missing(self, name: str) -> None:
        """Record that the file has no column of this name, or of these: ``'rank' or 'score'``."""
        text = f"{self.path}: no column {name}; it has {', '.join(self.names)}"
        self.diagnostics.error(f"missing columns in {self.path}", text)

    def ids(self, keys: IdKeys) -> pl.Expr:
        """Return the column of ids as strings, as `ids.identifier` reads them."""
        names = keys.among(self.names)
        if len(names) > 1:
            self.diagnostics.error(f"several ids in {self.path}", f"{self.path}: {keys.several(names)}")
            return NO_TEXT
        name = names[0] if names else keys.first
        if names and _has_fractions(self.types[name]):
            return self._whole(name, ID_FORM).cast(pl.String)
        return self.texts(name)

    def texts(self, name: str) -> pl.Expr:
        """Return the column as strings, from strings or integers."""
        if name not in self.names:
            self.report_missing(repr(name))
            return NO_TEXT
        dtype = self.types[name]
        if dtype == pl.String:
            return pl.col(name)
        if dtype.is_integer() or isinstance(dtype, pl.Categorical | pl.Enum) or dtype == pl.Null:
            return pl.col(name).cast(pl.String)
        return self._wrong_type(name, "strings")

    def numbers(self, name: str, kind: type[pl.DataType] = pl.Float64, noun: str = "numbers") -> pl.Expr:
        """Return the column as numbers of a kind."""
        if self.types[name].is_numeric() or self.types[name] == pl.Null:
            return pl.col(name).cast(kind)
        return self._wrong_type(name, noun)

    def whole_numbers(self, name: str) -> pl.Expr:
        """Return the column as integers."""
        if _has_fractions(self.types[name]):
            return self._whole(name, "it must be a whole number")
        return self.numbers(name, pl.Int64, "whole numbers")

    def _wrong_type(self, name: str, expected: str) -> pl.Expr:
        text = f"{self.path}: column {name!r} holds {self.types[name]}; it must hold {expected}"
        self.diagnostics.error(f"wrong columns in {self.path}", text)
        return NO_TEXT

    def _whole(self, name: str, form: str) -> pl.Expr:
        """Return whole numbers that are stored as floats; record an error for each that is not whole."""
        column = pl.col(name).cast(pl.Float64)
        is_whole = column.is_finite() & (column == column.floor()) & (column.abs() < MAX_EXACT)
        try:
            wrong = self.frame.filter(~is_whole.fill_null(True)).select(ROW, value=column).collect()
        except READ_ERRORS as error:
            _report_unreadable(self.path, error, self.diagnostics)
            return NO_TEXT
        text = f"{{path}}: row {{{ROW}}}: {{name}} is {{value!r}}; {form}"
        self.diagnostics.error_rows(f"wrong {name} in {self.path}", wrong, text, path=self.path, name=name)
        return column.cast(pl.Int64)


def _has_fractions(dtype: pl.DataType) -> bool:
    return dtype.is_float() or dtype.is_decimal()
