"""One table as people see it, and how its figures are written."""

from __future__ import annotations

import math
from dataclasses import dataclass

NOTHING = "-"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One table as people see it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    num_names: int = 1
    """The first columns are names, aligned left; the others are figures."""
    on_console: bool = True
    """Also printed, not only in the file."""
    in_file: bool = True
    """Also in the file, not only printed."""


def number(value: float | None, digits: int = 3) -> str:
    """A figure of a table; a missing one is a dash."""
    return NOTHING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def p_number(value: float | None) -> str:
    """A p-value; a small one in powers of ten, since none is 0."""
    return NOTHING if value is None else number(value) if value >= 0.001 else f"{value:.1e}"


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """``value [low, high]``, or what there is of it."""
    if value is None or low is None or high is None:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"
