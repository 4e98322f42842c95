"""A report on a console: the verdict in at most 40 lines, and all tables where they are asked for.

Nothing that came from a file can steer the terminal or forge a line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import rich.box
import rich.console
import rich.containers
import rich.table
import rich.text
from rich.cells import cell_len

from erag_ray.report.formats import compact_text_of, one_line, text_of
from erag_ray.report.model import Column, Finding, Format, Report, Table, Verdict
from erag_ray.report.values import tables_of

LINE_WIDTH = 120
"""Columns of text where the output is a file or a pipe."""
MAX_LINES = 40
"""Lines of a verdict with the places of the report."""
MAX_ENTRY_LINES = 4
MAX_HEAD, MAX_TEXT, MIN_NAME = 24, 40, 12
"""Columns of text: of a head over numbers, of a text, and the least for a name, before they are broken."""
INDENT = "  "


def open_console() -> rich.console.Console:
    """Return standard output: as wide as the terminal, or `LINE_WIDTH` where it goes to a file or a pipe."""
    return rich.console.Console(width=None if sys.stdout.isatty() else LINE_WIDTH)


def print_report(
    report: Report, console: rich.console.Console, *, places: Sequence[str] = (), verbose: bool = False
) -> None:
    """Print the verdict and where the rest is.

    Args:
        report: what to print.
        console: where; lines are broken at its width.
        places: lines on where the rest is, which stay whole so that a path can be copied.
        verbose: first all tables, warnings and notes.
    """
    if verbose:
        show(tables_of(report), console)
        for name, lines in (("WARNING", report.warnings), ("NOTE", report.notes)):
            for line in lines:
                _print_wrapped(f"{name}: {line}", console)
    for text in verdict_lines(report.verdict, console, MAX_LINES - _height(places, console)):
        console.print(text, soft_wrap=True)
    for place in places:
        _print_whole(place, console)


def _print_whole(line: str, console: rich.console.Console) -> None:
    console.print(rich.text.Text(one_line(line)), soft_wrap=True)


def _height(places: Iterable[str], console: rich.console.Console) -> int:
    return sum(-(-cell_len(one_line(place)) // console.width) for place in places)


# --- the verdict ---


@dataclass(frozen=True)
class _Entry:
    """One statement of a verdict, broken into lines; statements of the least rank are printed first."""

    rank: tuple[int, int, int]
    lines: Sequence[rich.text.Text]


def verdict_lines(verdict: Verdict, console: rich.console.Console, max_lines: int) -> list[rich.text.Text]:
    """Return a verdict as lines of the console's width.

    Findings are taken to stand in the order of their importance: where not all fit, the last ones of each dataset are
    left out, and counted.
    """
    entries = list(_entries(verdict, console))
    if sum(len(entry.lines) for entry in entries) <= max_lines:
        return [line for entry in entries for line in entry.lines]
    room, kept = max_lines - 1, set()
    for entry in sorted(entries, key=lambda entry: entry.rank):
        room -= len(entry.lines)
        if room < 0:
            break
        kept.add(entry.rank)
    lines = [line for entry in entries if entry.rank in kept for line in entry.lines]
    num_left_out = len(entries) - len(kept)
    noun = "statement" if num_left_out == 1 else "statements"
    return [*lines, rich.text.Text(f"{num_left_out} more {noun}: in the report", style="italic")]


def _entries(verdict: Verdict, console: rich.console.Console) -> Iterator[_Entry]:
    """Yield the statements in the order in which they are printed."""
    if verdict.question:
        yield _Entry((0, 0, 0), _wrapped(rich.text.Text(one_line(verdict.question), style="bold"), console))
    for place, dataset in enumerate(verdict.datasets):
        name, answer = one_line(dataset.dataset), one_line(dataset.answer)
        text = rich.text.Text.assemble((f"{name}: " if name else "", "bold"), answer)
        yield _Entry((2, 0, place), _wrapped(text, console))
        for index, finding in enumerate(dataset.findings):
            yield _Entry((3, index, place), _wrapped(_finding(finding), console, INDENT))
    for index, finding in enumerate(verdict.findings):
        # some of the whole job's come before any dataset's
        rank = (1, 0, index) if index < 3 else (4, 0, index)
        yield _Entry(rank, _wrapped(_finding(finding), console))


def _finding(finding: Finding) -> rich.text.Text:
    text = one_line(finding.text)
    return (
        rich.text.Text.assemble(("Warning: ", "yellow"), text) if finding.is_warning else rich.text.Text(text)
    )


def _wrapped(text: rich.text.Text, console: rich.console.Console, indent: str = "") -> list[rich.text.Text]:
    """Return a text in lines; what follows the first is indented further, and a very long text is cut."""
    inner = max(1, console.width - len(indent) - len(INDENT))
    lines = text.wrap(console, inner)
    for line in lines:
        line.rstrip()
    if len(lines) > MAX_ENTRY_LINES:
        lines = rich.containers.Lines(lines[:MAX_ENTRY_LINES])
        lines[-1].truncate(inner - 4)
        lines[-1].append(" ...")
    starts = [indent, *[indent + INDENT] * (len(lines) - 1)]
    return [rich.text.Text.assemble(start, line) for start, line in zip(starts, lines, strict=True)]


# --- tables ---


def show(tables: Iterable[Table], console: rich.console.Console) -> None:
    """Print tables, each within the console's width.

    Where a table is too wide its numbers are printed in the compact form; where that is too wide its columns come in
    several blocks, each after the columns that name its rows.
    """
    for table in tables:
        _print_wrapped(table.title, console, "bold")
        for block in _blocks(table, console.width):
            console.print(block)
        if table.caption:
            _print_wrapped(table.caption, console, "dim italic")
        console.print()


def _print_wrapped(line: str, console: rich.console.Console, style: str = "") -> None:
    console.print(rich.text.Text(one_line(line), style=style, overflow="fold"))


def _blocks(table: Table, width: int) -> Iterator[rich.table.Table]:
    printed: list[list[str]] = []
    for to_text in (text_of, compact_text_of):
        printed = [
            [one_line(to_text(*pair)) for pair in zip(row, table.columns, strict=True)] for row in table.rows
        ]
        widths = [
            _width(column, [row[place] for row in printed]) for place, column in enumerate(table.columns)
        ]
        if _total(widths) <= width:
            break
    for places, chosen in _fitting(table.columns, widths, width):
        yield _rich_table(table.columns, printed, places, chosen)


def _width(column: Column, cells: Sequence[str]) -> int:
    """Return how wide a column is at best: numbers whole, heads and texts broken where they are long."""
    widest = max(map(cell_len, cells), default=0)
    head = cell_len(one_line(column.name))
    if column.format is Format.NAME:
        return max(widest, head, 1)
    if column.format is Format.TEXT:
        return max(min(max(widest, head), MAX_TEXT), 1)
    return max(widest, min(head, MAX_HEAD), 1)


def _total(widths: Sequence[int]) -> int:
    """Return how wide a table is: a space on each side of it, and two between columns."""
    return sum(widths) + 2 * len(widths)


def _fitting(
    columns: Sequence[Column], widths: Sequence[int], width: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the columns of each block, and their widths."""
    places = range(len(columns))
    num_names = next((place for place in places if columns[place].format is not Format.NAME), len(columns))
    rest = list(places)[num_names:]
    names = _narrowed(widths[:num_names], width - max((widths[place] for place in rest), default=0) - 4)
    start = 0
    while True:
        end = start + 1
        while (
            end < len(rest) and _total([*names, *(widths[place] for place in rest[start : end + 1])]) <= width
        ):
            end += 1
        block = rest[start:end]
        room = width - _total(names) - 2 * len(block)
        chosen = [min(widths[place], max(room, 1)) for place in block]
        yield [*range(num_names), *block], [*names, *chosen]
        start = end
        if start >= len(rest):
            return


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """Return widths of columns of names that fit into a room where that can be; the widest gives way first."""
    narrowed = list(widths)
    while sum(narrowed) + 2 * len(narrowed) > room and max(narrowed, default=0) > MIN_NAME:
        narrowed[narrowed.index(max(narrowed))] -= 1
    return narrowed


def _rich_table(
    columns: Sequence[Column], printed: Sequence[Sequence[str]], places: Sequence[int], widths: Sequence[int]
) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for place, width in zip(places, widths, strict=True):
        column = columns[place]
        justify = "left" if column.is_text else "right"
        head = rich.text.Text(one_line(column.name), overflow="fold")
        table.add_column(head, justify=justify, width=width, overflow="fold")  # type: ignore[arg-type]
    for row in printed:
        table.add_row(*(rich.text.Text(row[place], overflow="fold") for place in places))
    return table
