"""Data model of a report: sections of typed tables and figures, and the verdict.

Builders create it from sealed tables and are pure. Renderers (console, Markdown, page) see only this model.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

Plain = float | int | str | None


class Format(enum.Enum):
    """Format of a column: of text, of p-values, or the Python format specification of its numbers."""

    NAME = "name"
    """Text that names a row."""
    TEXT = "text"
    P_VALUE = "p-value"
    """Three digits, or a power of ten below .001."""
    NUMBER = ".3f"
    NUMBER_2 = ".2f"
    NUMBER_4 = ".4f"
    TENTHS = ".1f"
    COUNT = ",.0f"
    SHARE = ".1%"
    SHARE_0 = ".0%"
    SHARE_2 = ".2%"
    CHANGE = "+.3f"
    GENERAL = ",g"


@dataclass(frozen=True, slots=True)
class Value:
    """One cell of a table: a value, its interval and its annotations."""

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
    """A column of a table: its header, number format and explanation."""

    name: str
    format: Format = Format.NUMBER
    meaning: str = ""

    @property
    def is_text(self) -> bool:
        """Whether the column contains text, which is left-aligned."""
        return self.format in (Format.NAME, Format.TEXT)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a report: every row has a `Value` for every column."""

    name: str
    """Unique identifier in the report, for links: letters, digits, ``-`` and ``_``."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    caption: str = ""
    is_main: bool = False
    """Whether the Markdown report includes it; the page and ``--verbose true`` show all tables."""
    dataset: str = ""
    """The dataset of the table; "" for several."""
    group: str = ""
    """Heading under which the page folds it together with its neighbours; "": it is not folded."""


Mark = Literal["line", "interval", "bar", "point"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a report: data, a mark, and the encoding of columns."""

    name: str
    """Unique identifier in the report, as in `Table`."""
    title: str
    data: pl.DataFrame
    """One row per mark: the columns of the encoding, and ``dataset`` if there are several."""
    mark: Mark
    """line: y over x with a band from low to high; interval: a point and its interval; bar; point."""
    x: str
    y: str
    low: str | None = None
    high: str | None = None
    """Columns with the ends of the interval around y (around x if y has names)."""
    color: str | None = None
    color_names: tuple[str, ...] = ()
    """All values of ``color`` in a fixed order, so that each has one color in all figures; (): order of appearance."""
    grey: tuple[str, ...] = ()
    """Those of them that are drawn in grey."""
    facet: str | None = None
    rules: Mapping[str, float] = field(default_factory=dict)
    """Name -> constant value, drawn as a reference line."""
    x_title: str = ""
    y_title: str = ""
    caption: str = ""
    is_main: bool = False
    dataset: str = ""
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report: a heading with tables and figures, in reading order."""

    name: str
    title: str
    parts: tuple[Table | Figure, ...]


Topic = Literal["run", "certainty", "missing", "reader", "depth", "label", "trust", "outputs", "cost"]
"""In the order of a verdict; findings of one topic are in the order of the analyses."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    topic: Topic
    text: str
    is_warning: bool = False


@dataclass(frozen=True, kw_only=True)
class Note:
    """A line below the report: about the inputs, or a warning above its tables."""

    text: str
    is_warning: bool = False


Part = Table | Figure | Finding | Note
"""What an analysis shows."""

State = Literal["leads", "worse", "equal", "inconclusive", "not compared", "not ranked", "reference"]
"""Of a run against the one that leads; ``not ranked``: no run can lead; ``reference``: with no or gold passages."""


@dataclass(frozen=True, kw_only=True)
class RankedRun:
    name: str
    mean: float | None
    low: float | None
    high: float | None
    state: State


@dataclass(frozen=True, kw_only=True)
class DatasetVerdict:
    """The verdict on one dataset: its runs, the answer, then its findings."""

    dataset: str
    answer: str
    """One line: which run serves the reader best, and with what certainty."""
    findings: tuple[Finding, ...]
    ranking: tuple[RankedRun, ...] = ()
    """Its runs, best first, then the references."""
    score: str = ""
    depth: int = 0
    """Documents that the reader gets."""
    num_queries: int = 0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The summary of a report, at most 40 lines on a console."""

    question: str
    """Which retriever serves which reader best."""
    datasets: tuple[DatasetVerdict, ...]
    findings: tuple[Finding, ...] = ()
    """Findings about the whole job: cost, missing tables."""


@dataclass(frozen=True, kw_only=True)
class Report:
    title: str
    verdict: Verdict
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes on the inputs and on missing parts."""
    failures: tuple[str, ...] = ()
    """Analyses that raised an error, and which."""
