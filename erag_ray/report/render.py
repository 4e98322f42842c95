"""Grids -> a console, or one Markdown text. Nothing that came from a file can break either."""

from __future__ import annotations

import html
import io
import re
import sys
from collections.abc import Sequence

import rich.box
import rich.console
import rich.markup
import rich.table

from erag_ray.report.grid import Grid

LINE_WIDTH = 200
"""Columns of text where the output is a file or a pipe."""


def open_console() -> rich.console.Console:
    """Standard output: as wide as the terminal, or `LINE_WIDTH` where it goes to a file or a pipe."""
    return rich.console.Console(width=None if sys.stdout.isatty() else LINE_WIDTH)


def show(grids: Sequence[Grid], console: rich.console.Console) -> None:
    """Print the tables that belong on a console."""
    for grid in grids:
        if grid.on_console:
            console.print(_rich_table(grid))
            console.print()


def _rich_table(grid: Grid) -> rich.table.Table:
    table = rich.table.Table(
        title=_on_console(grid.title),
        caption=_on_console(grid.caption),
        box=rich.box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        collapse_padding=True,
    )
    for index, column in enumerate(grid.columns):
        justify: str = "left" if index < grid.num_names else "right"
        table.add_column(_on_console(column), justify=justify, no_wrap=index < grid.num_names)  # type: ignore[arg-type]
    for row in grid.rows:
        table.add_row(*map(_on_console, row))
    return table


def markdown(title: str, grids: Sequence[Grid], notes: Sequence[str], warnings: Sequence[str] = ()) -> str:
    """The report as one Markdown text; nothing that came from a file can break its tables."""
    out = io.StringIO()
    out.write(f"# {_plain(title)}\n")
    _write_list(out, "Warnings", warnings)
    for grid in (grid for grid in grids if grid.in_file):
        out.write(f"\n## {_plain(grid.title)}\n\n")
        out.write(_line(grid.columns))
        out.write(
            _line(["---"] * grid.num_names + ["---:"] * (len(grid.columns) - grid.num_names), escape=False)
        )
        out.writelines(_line(row) for row in grid.rows)
        out.write(f"\n{_plain(grid.caption)}\n" if grid.caption else "")
    _write_list(out, "Notes on the inputs", notes)
    return out.getvalue()


def _write_list(out: io.StringIO, title: str, lines: Sequence[str]) -> None:
    if lines:
        out.write(f"\n## {title}\n\n")
        out.writelines(f"- {_plain(line)}\n" for line in lines)


def _line(cells: Sequence[str], *, escape: bool = True) -> str:
    return "| " + " | ".join(_plain(cell) if escape else cell for cell in cells) + " |\n"


def _plain(text: str) -> str:
    """A text that Markdown shows as it is: no markup, no HTML, no new line, no control character."""
    escaped = re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", html.escape(_printable(text), quote=False))
    return " ".join(escaped.split())


def _printable(text: str) -> str:
    """Control characters could steer a terminal; they become a visible mark."""
    return "".join(mark if mark.isprintable() or mark.isspace() else "\ufffd" for mark in text)


def _on_console(text: str) -> str:
    return rich.markup.escape(_printable(text))
