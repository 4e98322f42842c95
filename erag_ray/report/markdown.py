"""Render a report as Markdown: the verdict, warnings, main tables and notes.

Text from files is escaped: in a comment on GitHub it has no markup, links nothing and notifies nobody.
"""

import html
import io
import re
from collections.abc import Sequence

from erag_ray.analyses.parts.formats import one_line, rows_of_text
from erag_ray.analyses.parts.model import Figure, Finding, Report, Table, Verdict
from erag_ray.analyses.parts.shapes import tables_of

MAX_LINES = 150
"""Lines after the verdict."""
MAX_LISTED = 20
"""Warnings, and notes, that are listed; the rest is counted."""
LINK = re.compile(
    r"""(?<![A-Za-z0-9])@(?=\w)                           # @name
    | (?<=[A-Za-z0-9])@(?=[\w\\-]+(?:\.[\w\\-]+)*\.[A-Za-z])  # name@host
    | \\\#(?=\d) | \bGH-(?=\d)                             # an issue
    | \b(?:https?|ftp):(?=//) | \bwww(?=\.) | \b(?:mailto|xmpp):""",
    re.IGNORECASE | re.VERBOSE,
)
"""Start of what GitHub makes a link of, in escaped text; what follows must be something else, and invisible."""
INVISIBLE = "&#8203;"
LINES_AROUND = 8
"""Lines of a table besides its rows: heading, header, caption, and the count of omitted rows."""


def markdown(report: Report, *, location: str = "") -> str:
    """Return the verdict and, in at most `MAX_LINES`, warnings, the first rows of the main tables, and notes.

    The last line is the ``location`` of the rest.
    """
    out = io.StringIO()
    _write_head(out, report.title, report.verdict)
    _write_list(out, "Warnings", _listed(report.warnings))
    tables = tables_of(report)
    main = [table for table in tables if table.is_main]
    notes = _listed(report.notes)
    num_listed = sum(len(lines) + 3 for lines in (_listed(report.warnings), notes) if lines)
    shown, max_rows = _fitting(main, MAX_LINES - num_listed - 4)
    for table in shown:
        _write_table(out, table, max_rows)
    _write_list(out, "Notes on the inputs", notes)
    left_out = len(tables) - len(shown)
    rest = [f"{left_out} more tables: printed with --verbose true." if left_out else "", location]
    out.write(f"\n{_paragraph(' '.join(filter(None, rest)))}\n" if any(rest) else "")
    return out.getvalue()


def parts_as_markdown(title: str, parts: Sequence[Table | Figure], notes: Sequence[str] = ()) -> str:
    """Return tables with all rows, figures as image links (`picture_name`), and notes, under one title."""
    out = io.StringIO()
    out.write(f"# {_plain(title)}\n")
    for part in parts:
        if isinstance(part, Figure):
            title = _plain(part.title)
            out.write(f"\n## {title}\n\n![{title}]({picture_name(part)})\n")
            out.write(f"\n{_paragraph(part.caption)}\n" if part.caption else "")
        else:
            _write_table(out, part, len(part.rows))
    _write_list(out, "Notes on the inputs", notes)
    return out.getvalue()


def picture_name(figure: Figure) -> str:
    return f"{figure.name}.svg"


def _write_head(out: io.StringIO, title: str, verdict: Verdict) -> None:
    out.write(f"# {_plain(title)}\n")
    if verdict.question and one_line(verdict.question) != one_line(title):
        out.write(f"\n{_paragraph(verdict.question)}\n")
    out.write("\n" if verdict.datasets or verdict.findings else "")
    for dataset in verdict.datasets:
        name = f"**{_plain(dataset.dataset)}**: " if dataset.dataset.strip() else ""
        out.write(f"- {name}{_paragraph(dataset.answer)}\n")
        out.writelines(f"  - {_finding(finding)}\n" for finding in dataset.findings)
    out.writelines(f"- {_finding(finding)}\n" for finding in verdict.findings)


def _finding(finding: Finding) -> str:
    return f"Warning: {_plain(finding.text)}" if finding.is_warning else _paragraph(finding.text)


def _listed(lines: Sequence[str]) -> list[str]:
    """Return the first `MAX_LISTED` lines, and a line that counts the rest."""
    more = len(lines) - MAX_LISTED
    return [*lines[:MAX_LISTED], *([f"{more} more"] if more > 0 else [])]


def _fitting(tables: Sequence[Table], max_lines: int) -> tuple[Sequence[Table], int]:
    """Return the tables that fit with at least one row each, and the maximum number of rows per table."""
    while tables and (LINES_AROUND + 1) * len(tables) > max_lines:
        tables = tables[:-1]
    room = max_lines - LINES_AROUND * len(tables)
    max_rows = max((len(table.rows) for table in tables), default=0)
    while max_rows > 1 and sum(min(len(table.rows), max_rows) for table in tables) > room:
        max_rows -= 1
    return tables, max_rows


def _write_list(out: io.StringIO, title: str, lines: Sequence[str]) -> None:
    if lines:
        out.write(f"\n## {title}\n\n")
        out.writelines(f"- {_paragraph(line)}\n" for line in lines)


def _write_table(out: io.StringIO, table: Table, max_rows: int) -> None:
    out.write(f"\n## {_plain(table.title)}\n\n")
    out.write(_line([column.name for column in table.columns]))
    out.write(f"| {' | '.join('---' if column.is_text else '---:' for column in table.columns)} |\n")
    rows = rows_of_text(table)
    out.writelines(map(_line, rows[:max_rows]))
    left_out = len(rows) - max_rows
    captions = [f"{left_out} more rows." if left_out > 0 else "", table.caption]
    out.write(f"\n{_paragraph(' '.join(filter(None, captions)))}\n" if any(captions) else "")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_plain, cells)) + " |\n"


def _plain(text: str) -> str:
    """Escape text for Markdown: no markup, HTML, links, line breaks or control characters."""
    escaped = re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", html.escape(one_line(text), quote=False))
    return LINK.sub(lambda start: f"{start[0]}{INVISIBLE}", escaped)


def _paragraph(text: str) -> str:
    """Escape text that starts a block, so that it starts no list, rule or heading."""
    return re.sub(r"^(\d{0,9})([-+=.)])", r"\1\\\2", _plain(text))
