"""A report as data: sections of typed tables and figures, and the verdict. Renderers turn it into text and pages.

Builders make these from sealed tables and are pure; renderers (console, Markdown, page) know nothing of the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

Plain = float | int | str | None


class Format(enum.Enum):
    """How the values of a column are printed."""

    NAME = "name"
    """Text that names a row."""
    TEXT = "text"
    """Other text."""
    NUMBER = "number"
    """Three digits after the point."""
    NUMBER_2 = "number_2"
    NUMBER_4 = "number_4"
    TENTHS = "tenths"
    """One digit after the point."""
    COUNT = "count"
    """A whole number with commas."""
    SHARE = "share"
    """A share of 1 as a percentage with one digit."""
    SHARE_0 = "share_0"
    SHARE_2 = "share_2"
    CHANGE = "change"
    """A difference of two numbers: a sign, and three digits after the point."""
    GENERAL = "general"
    """As many digits as the number has, with commas."""
    P_VALUE = "p_value"
    """Three digits, or a power of ten below .001."""


@dataclass(frozen=True, slots=True)
class Value:
    """One cell of a table: a value, what is known of its certainty, and what is to be said about it."""

    value: Plain = None
    low: float | None = None
    high: float | None = None
    """Ends of the interval of ``value``."""
    note: str = ""
    """Printed behind the value, such as ``n=30``."""
    reason: str = ""
    """Why the value or its interval is missing."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its head, how its values are printed, and what its head means."""

    name: str
    format: Format = Format.NUMBER
    meaning: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it holds text, aligned left."""
        return self.format in (Format.NAME, Format.TEXT)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a report: every row has a `Value` for every column."""

    name: str
    """Identifies it in the report, for links: letters, digits, ``-`` and ``_``."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    caption: str = ""
    is_main: bool = False
    """Also in the Markdown report; the page and ``--verbose true`` show all tables."""
    dataset: str = ""
    """The dataset that it is about; "" for several."""


Mark = Literal["line", "interval", "bar", "point"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a report: data, and which column is drawn as what."""

    name: str
    """Identifies it in the report, as of `Table`."""
    title: str
    data: pl.DataFrame
    """A row for each mark; the columns that the encoding names, and ``dataset`` where there are several."""
    mark: Mark
    """line: y over x with a band from low to high; interval: a point and its interval; bar; point."""
    x: str
    y: str
    low: str | None = None
    high: str | None = None
    """Ends of an interval around the value (of y; of x where y holds names)."""
    color: str | None = None
    color_names: tuple[str, ...] = ()
    """All names that ``color`` can hold, in order, so that a name looks the same in every figure; (): as they come."""
    facet: str | None = None
    rules: Mapping[str, float] = field(default_factory=dict)
    """Name -> a constant value, drawn as a line across."""
    x_title: str = ""
    y_title: str = ""
    caption: str = ""
    is_main: bool = False
    dataset: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Part of a report: a heading with tables and figures, in reading order."""

    name: str
    title: str
    parts: tuple[Table | Figure, ...]


Topic = Literal["run", "certainty", "reader", "label", "trust", "outputs", "depth", "cost", "missing"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence of a verdict."""

    topic: Topic
    text: str
    is_warning: bool = False


@dataclass(frozen=True, kw_only=True)
class DatasetVerdict:
    """What a report says about one dataset, the answer first."""

    dataset: str
    answer: str
    """Which run serves the reader best, and how sure that is, in one line."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a report says in at most 40 lines."""

    question: str
    """Which retriever serves which reader best."""
    datasets: tuple[DatasetVerdict, ...]
    findings: tuple[Finding, ...] = ()
    """Of the whole job: cost, what is missing."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a report says, for any renderer."""

    title: str
    verdict: Verdict
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """On the inputs, and what could not be shown."""
