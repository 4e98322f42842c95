"""Parquet and CSV files as lazy frames with checked columns; errors go to `Diagnostics`."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.documents import METADATA_KEYS, TEXT_KEYS
from erag_ray.data.files.ids import DOCUMENT_IDS, ID_FORM, MAX_EXACT, IdKeys
from erag_ray.data.files.jsonl import open_bytes, report_unreadable, text_start
from erag_ray.store.files import ROW, scan_file

# some damaged files make Polars panic; PanicException is not an Exception
READ_ERRORS = (OSError, EOFError, zlib.error, pl.exceptions.PolarsError, pl.exceptions.PanicException)
NO_TEXT = pl.lit(None, pl.String())
"""A column of strings that a file lacks."""
TABLE = re.compile(r"\.(tsv|csv)(\.gz)?$", re.IGNORECASE)
_NUMBERS = ("rank", "score", "seconds", "depth", "num_prompt_tokens", "num_output_tokens")
_OF_QUESTIONS = ("question", "query", "answer", "answers", "golden_answers")
COLUMN_NAMES = {*TEXT_KEYS, *_NUMBERS, *_OF_QUESTIONS, "title", "passage", "output"}
"""Columns that are known in any case, besides ids."""


def is_filled(column: str) -> pl.Expr:
    """Return whether a column of strings is neither null nor blank."""
    return pl.col(column).fill_null("").str.strip_chars() != ""


def scan_parquet(path: str, diagnostics: Diagnostics) -> ParquetFile | None:
    """Scan the file and set the column ``row``, from 1 (a header of CSV); None, and an error, if it is unreadable."""
    try:
        frame = _read_csv(path, separator).lazy() if (separator := separator_of(path)) else scan_file(path)
        return ParquetFile(path, diagnostics, frame, frame.collect_schema(), diagnostics.num_errors)
    except READ_ERRORS as error:
        report_unreadable(path, error, diagnostics)
        return None


def separator_of(path: str) -> str:
    """Return what separates the columns of a CSV file, by its header: a comma or a semicolon; "" for other files."""
    header = text_start(path).partition("\n")[0] if TABLE.search(path) else ""
    signs = [] if "\t" in header or header[:1] in ("{", "[") else [sign for sign in ",;" if sign in header]
    return max(signs, key=header.count, default="")


def _read_csv(path: str, separator: str) -> pl.DataFrame:
    """Read a table with a header; all but `_NUMBERS` are texts, and rows of empty cells are left out."""
    with open_bytes(path) as stream:
        frame = pl.read_csv(stream, separator=separator, infer_schema=False)
    names = [name.partition("_duplicated_")[0].strip() or name for name in frame.columns]
    names = [name.lower() if name.lower() in COLUMN_NAMES else name for name in names]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise OSError(f"two columns of one name, {repeated[0]}. Rename one")
    frame.columns = names
    rows = frame.drop(ROW, strict=False).with_row_index(ROW, 2)
    numbers = [pl.col(name).cast(pl.Float64) for name in _NUMBERS if name in names]
    return rows.filter(pl.any_horizontal(pl.exclude(ROW).is_not_null())).with_columns(numbers)


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
            report_unreadable(self.path, error, self.diagnostics)
            return None

    def of_documents(self) -> ParquetFile:
        """Return the file with id and title of the metadata as columns, where it has none (as `document_of`)."""
        for column in METADATA_KEYS:
            if isinstance(dtype := self.types.get(column), pl.Struct):
                inner = [field.name for field in dtype.fields]
                ids = [] if DOCUMENT_IDS.among(self.names) else DOCUMENT_IDS.among(inner)
                names = [*ids, *({"title"} & {*inner} - {*self.names})]
                frame = self.frame.with_columns(pl.col(column).struct.field(name) for name in names)
                return replace(self, frame=frame, types=frame.collect_schema())
        return self

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

    def numbers(self, name: str, *, are_whole: bool = False) -> pl.Expr:
        """Return the column as numbers, or as integers."""
        if are_whole and _has_fractions(self.types[name]):
            return self._whole(name, "it must be a whole number")
        if self.types[name].is_numeric() or self.types[name] == pl.Null:
            return pl.col(name).cast(pl.Int64 if are_whole else pl.Float64)
        return self._wrong_type(name, "whole numbers" if are_whole else "numbers")

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
            report_unreadable(self.path, error, self.diagnostics)
            return NO_TEXT
        text = f"{{path}}: row {{{ROW}}}: {{name}} is {{value!r}}; {form}"
        self.diagnostics.error_rows(f"wrong {name} in {self.path}", wrong, text, path=self.path, name=name)
        return column.cast(pl.Int64)


def _has_fractions(dtype: pl.DataType) -> bool:
    return dtype.is_float() or dtype.is_decimal()
