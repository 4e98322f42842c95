"""Print a report on a console: the leaderboard and the verdict in at most 40 lines, and all tables if verbose.

Text from files is reduced to printable characters of one line, so it cannot control the terminal or forge a line.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import rich.box
import rich.console
import rich.containers
import rich.table
import rich.text
from rich.cells import cell_len

from erag_ray.analyses.order import MAX_RUNS
from erag_ray.analyses.parts.formats import compact_text_of, counted, one_line, shortened, text_of
from erag_ray.analyses.parts.model import Column, Finding, Format, Report, Table, Verdict
from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.report.leaderboard import leaderboard

LINE_WIDTH = 120
"""Width in characters when the output is a file or a pipe."""
MAX_LINES = 40
"""Lines of a verdict, including the lines that name the files of the report."""
MAX_HEAD_LINES = 32
"""Lines of the leaderboard, with the question above it; a longer one shows fewer runs, or is left out."""
NUM_RUNS = (MAX_RUNS, 4, 2)
MAX_ENTRY_LINES, MAX_WORD = 4, 40
MAX_HEAD, MAX_TEXT, MIN_NAME = 24, 40, 12
"""Widths in characters before wrapping: of a header over numbers, of text, and the minimum for a name."""
INDENT = "  "
FEW_DATASETS = 2
BESIDE_A_TABLE = ("certainty", "depth", "missing", "cost")
"""Topics that are printed below a leaderboard of more datasets; of the others only warnings."""


def open_console() -> rich.console.Console:
    """Return a console on standard output: as wide as the terminal, or `LINE_WIDTH` for a file or a pipe."""
    return rich.console.Console(width=None if sys.stdout.isatty() else LINE_WIDTH)


def print_report(
    report: Report, console: rich.console.Console, *, locations: Sequence[str] = (), verbose: bool = False
) -> None:
    """Print the leaderboard and the verdict, if ``verbose`` after all tables, warnings and notes.

    Lines wrap at the console's width, but not ``locations``, which name the report's files: a path can be copied.
    """
    if verbose:
        show(tables_of(report), console)
        for name, lines in (("WARNING", report.warnings), ("NOTE", report.notes)):
            for line in lines:
                _print_wrapped(f"{name}: {line}", console)
    verdict, head = report.verdict, _head(report.verdict, console)
    if head:
        verdict = _without_tabled(verdict)
    unwrapped = [rich.text.Text(one_line(location)) for location in locations]
    height = sum(-(-text.cell_len // console.width) for text in unwrapped)
    for text in (*head, *verdict_lines(verdict, console, MAX_LINES - len(head) - height), *unwrapped):
        console.print(text, soft_wrap=True)


def _head(verdict: Verdict, console: rich.console.Console) -> list[rich.text.Text]:
    """Return the question and the leaderboard as lines; none of very many datasets, whose statements come first."""
    question = verdict_lines(Verdict(question=verdict.question, datasets=()), console, MAX_LINES)
    for most in NUM_RUNS:
        table = leaderboard(verdict.datasets, most)
        if table is None:
            break
        with console.capture() as captured:
            for block in _blocks(table, console.width):
                console.print(block)
            _print_wrapped(table.caption, console, "dim italic")
        texts = (rich.text.Text.from_ansi(line.rstrip()) for line in captured.get().splitlines())
        lines = [*question, *(text for text in texts if text.plain.strip())]
        if len(lines) <= MAX_HEAD_LINES:
            return lines
    return []


def _without_tabled(verdict: Verdict) -> Verdict:
    """Leave out the question, which is above the leaderboard; of many datasets also what is not about runs."""
    if len(verdict.datasets) <= FEW_DATASETS:
        return replace(verdict, question="")
    datasets = [
        replace(one, findings=tuple(f for f in one.findings if f.is_warning or f.topic in BESIDE_A_TABLE))
        for one in verdict.datasets
    ]
    before, after = (sum(len(one.findings) for one in part) for part in (verdict.datasets, datasets))
    left_out = counted(before - after, "more statement")
    more = Finding(topic="label", text=f"on labels, and why: {left_out} in the report")
    findings = (*verdict.findings, *[more] * (after < before))
    return Verdict(question="", datasets=tuple(datasets), findings=findings)


# --- the verdict ---


def verdict_lines(verdict: Verdict, console: rich.console.Console, max_lines: int) -> list[rich.text.Text]:
    """Return a verdict as lines of the console's width.

    Findings are in order of importance: if not all fit, the last ones of each dataset are dropped and counted.
    """
    entries = dict(_entries(verdict, console))
    lines = [line for of_entry in entries.values() for line in of_entry]
    if len(lines) <= max_lines:
        return lines
    room, printed = max_lines - 1, set()
    for rank in sorted(entries):
        room -= len(entries[rank])
        if room < 0:
            break
        printed.add(rank)
    lines = [line for rank, of_entry in entries.items() if rank in printed for line in of_entry]
    left_out = counted(len(entries) - len(printed), "more statement")
    return [*lines, rich.text.Text(f"{left_out}: in the report", style="italic")]


def _entries(
    verdict: Verdict, console: rich.console.Console
) -> Iterator[tuple[tuple[int, int, int], list[rich.text.Text]]]:
    """Yield the rank of each statement, of which the lowest are dropped last, and its lines."""
    if verdict.question:
        yield (0, 0, 0), _wrapped(rich.text.Text(one_line(verdict.question), style="bold"), console)
    for number, dataset in enumerate(verdict.datasets):
        name, answer = (shortened(one_line(one), MAX_WORD) for one in (dataset.dataset, dataset.answer))
        text = rich.text.Text.assemble((f"{name}: " if name else "", "bold"), answer)
        yield (2, 0, number), _wrapped(text, console)
        for index, finding in enumerate(dataset.findings):
            yield (3, index, number), _wrapped(_finding(finding), console, INDENT)
    for index, finding in enumerate(verdict.findings):
        # the first findings of the whole job outrank those of the datasets
        rank = (1, 0, index) if index < 3 else (4, 0, index)
        yield rank, _wrapped(_finding(finding), console)


def _finding(finding: Finding) -> rich.text.Text:
    text = shortened(one_line(finding.text), MAX_WORD)
    return (
        rich.text.Text.assemble(("Warning: ", "yellow"), text) if finding.is_warning else rich.text.Text(text)
    )


def _wrapped(text: rich.text.Text, console: rich.console.Console, indent: str = "") -> list[rich.text.Text]:
    """Wrap text into lines with a hanging indent; text of more than `MAX_ENTRY_LINES` is cut."""
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

    The numbers of a wide table are printed in compact form. If it is still too wide, its columns are split into
    several blocks, each with the columns that name the rows.
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
            _width(column, [row[index] for row in printed]) for index, column in enumerate(table.columns)
        ]
        if _total(widths) <= width:
            break
    for indices, block_widths in _fitting(table.columns, widths, width):
        yield _rich_table(table.columns, printed, indices, block_widths)


def _width(column: Column, cells: Sequence[str]) -> int:
    """Return the preferred width of a column: numbers in full, long headers and texts wrapped."""
    widest = max(map(cell_len, cells), default=0)
    head = cell_len(one_line(column.name))
    if column.format is Format.NAME:
        return max(widest, head, 1)
    if column.format is Format.TEXT:
        return max(min(max(widest, head), MAX_TEXT), 1)
    return max(widest, min(head, MAX_HEAD), 1)


def _total(widths: Sequence[int]) -> int:
    """Return the width of a table: a space on each side, and two between columns."""
    return sum(widths) + 2 * len(widths)


def _fitting(
    columns: Sequence[Column], widths: Sequence[int], width: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the column indices of each block, and their widths."""
    indices = range(len(columns))
    num_names = next((index for index in indices if columns[index].format is not Format.NAME), len(columns))
    rest = list(indices)[num_names:]
    names = list(widths[:num_names])
    most = width - max((widths[index] for index in rest), default=0) - 4
    # names shrink if they must, the widest first
    while _total(names) > most and max(names, default=0) > MIN_NAME:
        names[names.index(max(names))] -= 1
    start = 0
    while True:
        end = start + 1
        while (
            end < len(rest) and _total([*names, *(widths[index] for index in rest[start : end + 1])]) <= width
        ):
            end += 1
        block = rest[start:end]
        room = width - _total(names) - 2 * len(block)
        block_widths = [min(widths[index], max(room, 1)) for index in block]
        yield [*range(num_names), *block], [*names, *block_widths]
        start = end
        if start >= len(rest):
            return


def _rich_table(
    columns: Sequence[Column], printed: Sequence[Sequence[str]], indices: Sequence[int], widths: Sequence[int]
) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for index, width in zip(indices, widths, strict=True):
        column = columns[index]
        justify = "left" if column.is_text else "right"
        head = rich.text.Text(one_line(column.name), overflow="fold")
        table.add_column(head, justify=justify, width=width, overflow="fold")  # type: ignore[arg-type]
    for row in printed:
        table.add_row(*(rich.text.Text(row[index], overflow="fold") for index in indices))
    return table
