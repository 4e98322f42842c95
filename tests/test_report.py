"""What a reader of the report sees: the figures that belong there, and nothing that a name could smuggle in."""

import dataclasses
import html
import io
import re

import markdown_it
import pytest
import report_texts
import rich.console
from evaluated import measured, numbered, queries, used

from erag_ray.analyses.comparisons import COMPARISONS
from erag_ray.analyses.contract import Results
from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.parts.formats import compact_text_of, rows_of_text, text_of
from erag_ray.analyses.parts.model import Column, Format, Table, Value
from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.report.console import open_console, print_report, show
from erag_ray.report.markdown import INVISIBLE, markdown, parts_as_markdown

Rows = list[list[str]]


def rendered(text: str) -> str:
    """The Markdown as a browser would get it, raw HTML let through as most sites do."""
    return markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def tables_of_text(text: str) -> list[Rows]:
    """The cells of each table, head first, as a reader sees them."""
    found = re.findall(r"<table>(.*?)</table>", rendered(text), re.DOTALL)
    return [
        [
            [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
            for row in re.findall(r"<tr>(.*?)</tr>", one, re.DOTALL)
        ]
        for one in found
    ]


def text_of_all(results: Results) -> str:
    """All tables of a report as Markdown."""
    return parts_as_markdown("t", tables_of(report_texts.made_report(results)))


# --- the figures ---


def test_a_missing_figure_is_a_dash_and_its_reason_is_counted() -> None:
    constant = {("r", "A", 2): [1, 1, 1, 1], ("r", "B", 2): [1, 1, 1, 1]}
    made = report_texts.made_up(utility=constant)
    found = made[CORRELATIONS]
    text = text_of_all(made)
    # the best agreements are shown twice
    text = re.sub(r"## How well each label agrees.*?(?=\n## |$)", "", text, flags=re.DOTALL)
    over_queries = [rows for rows in tables_of_text(text) if any("-" in row for row in rows)]
    assert over_queries
    counted = [int(count) for count in re.findall(r"every utility is 1\.0 \((\d+) cells?\)", rendered(text))]
    dashes = [cell for rows in over_queries for row in rows[1:] for cell in row if cell == "-"]
    # two runs that are equal and constant have a difference of 0 and no other figure
    assert made[COMPARISONS].filter(annotator="end_to_end")["p_value"].null_count() == 1
    assert sum(counted) == found.filter(over="queries")["value"].null_count()
    assert len(dashes) == 5 + found["value"].null_count()
    assert "nan" not in text.lower()


def test_a_warning_names_runs_whose_utility_hardly_varies() -> None:
    rare = {("r", "A", 2): [1, 0, 0, 0] * 5, ("r", "B", 2): [1] + [0] * 19}
    many = {("r", "A", 2): [1, 0] * 20, ("r", "B", 2): [0, 1] * 20}
    text = [
        text_of_all(report_texts.results_of(measured(some), used(some), numbered(count)))
        for some, count in ((rare, 20), (many, 40))
    ]
    assert "hang on few queries, those with another utility than the rest (A: 5 of 20; B: 1 of 20)" in text[0]
    assert "hang on few queries" not in text[1]


def test_a_column_that_was_never_judged_is_a_dash() -> None:
    columns = {("r", "A", 2): [None, None], ("r", "B", 2): [0, 1]}
    utility = used({("r", "A", 2): [0, 1], ("r", "B", 2): [1, 1]})
    made = report_texts.results_of(measured(columns), utility, numbered(2))
    first = tables_of_text(text_of_all(made))[0]
    (row,) = [row for row in first if "P@2" in row]
    assert row[first[0].index("A")] == "-"
    assert row[first[0].index("B")].startswith("0.500")


def test_few_runs_are_named_beside_the_correlation_over_them() -> None:
    text = text_of_all(report_texts.made_up())
    assert "2 runs" in text
    assert "p = " not in text


# --- names that bite ---

NAMES = [
    "a|b", "<script>alert(1)</script>", "`code`", "**bold** _it_ # head", "back\\slash\\|", "[bold]rich[/bold]",
    "two\nlines", "[click](http://example.org)", "![seen](http://example.org/x.png)", "&lt;b&gt;",
    "@octocat and /@team, me@example.org", "see #12, GH-7, owner/name#3",
    "www.example.org ftp://example.org mailto:me",
]  # fmt: skip


# what GitHub makes links and notifications of, in the text that its Markdown shows
LIVE = re.compile(r"(^|\W)@\w|\w@[\w-]+\.[a-z]|#\d|\bGH-\d|https?://|ftp://|\bwww\.|mailto:\w", re.IGNORECASE)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_comes_out_as_it_went_in_links_nothing_and_notifies_nobody(name: str) -> None:
    made = report_texts.report_with(name)
    source = markdown(made, location=name)
    assert not LIVE.search(html.unescape(re.sub("<[^>]*>", "", rendered(source))))
    text = source.replace(INVISIBLE, "")
    plain = " ".join(name.split())
    for rows in tables_of_text(text):
        assert len({len(row) for row in rows}) == 1
    assert plain in tables_of_text(text)[0][0]
    assert any(plain in row for row in tables_of_text(text)[0][1:])
    page = rendered(text)
    assert not re.search(r"<(script|code|em|a|img|b|ol|hr|pre)\b", page)
    escaped = html.escape(plain, quote=False)
    assert re.findall(r"<strong>(.*?)</strong>", page, re.DOTALL) == [escaped]
    assert f"<h1>{escaped}</h1>" in page
    assert f"<h2>{escaped}: which" in page
    # the answer, findings of the dataset and of the job, a warning, two notes
    assert page.count("<li>") == 8
    assert page.count("<ul>") == 4
    assert page.count(f"<li>{escaped}</li>") == 5
    assert page.count(f"<li>Warning: {escaped}</li>") == 2


def test_measures_have_an_at_and_are_no_names() -> None:
    assert "P@10 of utility@k." in markdown(report_texts.report_with("P@10 of utility@k."), location="")


def test_a_note_cannot_add_a_line_or_a_table() -> None:
    notes = (
        "first\n\n## forged\n| a | b |\n| - | - |\n| 1 | 2 |",
        "<img src=x>",
        "- x",
        "1. x",
        "---",
        "===",
    )
    made = dataclasses.replace(report_texts.made_report(report_texts.made_up()), sections=(), notes=notes)
    page = rendered(markdown(made))
    assert page.partition("<h2>")[2].count("<li>") == len(notes)
    for tag in ("<table>", "<img", "<ol>", "<hr"):
        assert tag not in page
    assert page.count("<h2>") == 1


@pytest.mark.parametrize("name", ["[bold]rich[/bold]", "[/]", "[link=file:///x]y", "end\\"])
def test_the_console_shows_names_as_they_are(name: str) -> None:
    out = report_texts.printed(report_texts.report_with(name), 300, verbose=True)
    assert out.count(name) >= 8


def test_no_escape_sequence_of_a_terminal_gets_out() -> None:
    name = "red\x1b[31m\x07\x0b\x1c\x9b\u202e"
    out = report_texts.printed(report_texts.report_with(name), 120, verbose=True)
    text = markdown(report_texts.report_with(name), location=name)
    for control in "\x1b\x07\x0b\x1c\x9b\u202e":
        assert control not in out
        assert control not in text


def test_a_name_cannot_forge_a_line_of_the_verdict() -> None:
    lines = report_texts.printed(report_texts.report_with("A\nReport: /elsewhere\r\u2028B"), 120).splitlines()
    assert not any(line.startswith("Report") for line in lines)
    assert len(lines) == 6


# --- the console ---


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("num_datasets", "num_findings", "words"), [(1, 8, 10), (5, 8, 10), (5, 3, 40), (60, 2, 5), (1, 1, 900)]
)
def test_a_verdict_has_at_most_40_lines_of_the_consoles_width(
    width: int, num_datasets: int, num_findings: int, words: int
) -> None:
    locations = [f"Report: /{'folder/' * 20}report.md"]
    lines = report_texts.printed(
        report_texts.spoken(num_datasets, num_findings, words), width, locations=locations
    ).splitlines()
    assert max(map(len, lines[:-1])) <= width
    assert sum(-(-len(line) // width) for line in lines) <= 40
    # the path can be copied
    assert lines[-1] == locations[0]
    assert lines[0].startswith("question word")
    assert any(line.startswith("it cost this") for line in lines)


def test_what_does_not_fit_is_counted_and_the_last_findings_go_first() -> None:
    text = report_texts.printed(report_texts.spoken(5, 8, 2), 80)
    shown = re.findall(r"finding (\d)\.(\d)", text)
    assert re.search(r"^(\d+) more statements: in the report$", text, re.MULTILINE)[1] == str(40 - len(shown))  # type: ignore[index]
    assert len(text.splitlines()) == 40
    # every dataset has its answer and its first findings
    assert {dataset for dataset, _ in shown} == set("01234")
    assert max(int(place) for _, place in shown) == 6
    assert "more statement" not in report_texts.printed(report_texts.spoken(1, 8, 2), 80)


def test_findings_keep_their_order_and_warnings_are_marked() -> None:
    lines = report_texts.printed(report_texts.spoken(1, 3, 1), 80).splitlines()
    assert lines == [
        "question word",
        "dataset0: answer 0 word",
        "  finding 0.0 word",
        "  Warning: finding 0.1 word",
        "  finding 0.2 word",
        "it cost this",
    ]


def test_all_tables_are_printed_where_they_are_asked_for() -> None:
    made = report_texts.made_report(report_texts.made_up())
    for width in (80, 120):
        quiet, loud = (report_texts.printed(made, width, verbose=flag) for flag in (False, True))
        assert loud.endswith(quiet)
        flat = " ".join(loud.split())
        for one in tables_of(made):
            assert " ".join(one.title.split()) in flat
            assert " ".join(one.caption.split()) in flat
        assert max(map(len, loud.splitlines())) <= width
    assert "which runs differ" not in quiet


def test_without_a_terminal_lines_have_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    console = open_console()
    assert console.width == 120
    print_report(report_texts.spoken(2, 2, 100), console)
    lines = capsys.readouterr().out.splitlines()
    assert 110 < max(map(len, lines)) <= 120
    assert not any("\x1b" in line for line in lines)


def test_a_table_of_200_runs_comes_in_blocks_and_loses_no_number() -> None:
    runs = [f"run{number:03}" for number in range(200)]
    heads = (Column("measure", Format.NAME), *(Column(run) for run in runs))
    rows = ((Value("P@5"), *(Value(number / 1000, 0.1, 0.9) for number in range(200))),)
    out = io.StringIO()
    show([Table(name="t", title="t", columns=heads, rows=rows)], rich.console.Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert [word for line in lines for word in line.split() if word.startswith("run")] == runs
    assert re.findall(r"(\.\d{3}) \[\.10, \.90\]", out.getvalue()) == [
        f".{number:03}" for number in range(200)
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_long_names_and_texts_are_broken_not_cut(width: int) -> None:
    name, text = "name" * 60, "text " * 60
    heads = (Column("x" * 150, Format.NAME), Column("y" * 150, Format.COUNT), Column("z", Format.TEXT))
    out = io.StringIO()
    table_ = Table(name="t", title="t", columns=heads, rows=((Value(name), Value(12345), Value(text)),))
    show([table_], rich.console.Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    shown = out.getvalue()
    assert "12,345" in shown
    assert shown.count("text") == 60
    assert sum(shown.count(mark) for mark in "xz") >= 150
    assert len(re.findall(r"[name]", shown.replace("text", ""))) >= 240


# --- the Markdown ---


@pytest.mark.long
@pytest.mark.parametrize("num_datasets", [1, 5, 40])
def test_markdown_has_at_most_150_lines_after_the_verdict(num_datasets: int) -> None:
    runs = [f"run{number}" for number in range(12)]
    asked = queries(
        *((f"q{n}", f"dataset{n % num_datasets:02}", "exact_match") for n in range(4 * num_datasets))
    )
    columns = {
        ("r", run, 2): [(n + place) % (place + 2) % 2 for n in range(4 * num_datasets)]
        for place, run in enumerate(runs)
    }
    results = report_texts.results_of(measured(columns), used(columns), asked)
    made = dataclasses.replace(
        report_texts.made_report(results),
        warnings=tuple(f"warning {n}" for n in range(90)),
        notes=("note",) * 90,
    )
    text = markdown(made, location="The page: report/index.html")
    assert 60 < report_texts.lines_after_the_verdict(text) <= 150
    assert "- 70 more\n" in text
    # of five datasets all rows fit
    assert ("more rows. " in text) == (num_datasets != 5)
    heads = re.findall(r"<h2>(.*?)</h2>", rendered(text))
    assert heads[0] == "Warnings"
    assert heads[-1] == "Notes on the inputs"
    assert any("serves the reader best" in head for head in heads)
    assert any("differ" in head or "against the others" in head for head in heads)
    assert any("agrees" in head for head in heads)
    last = text.splitlines()[-1]
    assert last.endswith("The page: report/index.html")
    left_out = len(tables_of(made)) - len(heads) + 2
    assert last.startswith(f"{left_out} more tables")


def test_main_tables_are_whole_where_they_fit() -> None:
    made = report_texts.made_report(report_texts.made_up())
    text = markdown(made)
    assert "more rows" not in text
    shown = tables_of_text(text)
    for table_, rows in zip([one for one in tables_of(made) if one.is_main], shown, strict=True):
        assert [tuple(row) for row in rows[1:]] == rows_of_text(table_)


# --- what the values say ---


def test_the_text_of_a_value() -> None:
    for value, form, wide, narrow in (
        (Value(0.349, 0.3149, 0.391), Format.NUMBER, "0.349 [0.315, 0.391]", ".349 [.31, .39]"),
        (
            Value(-0.049, -0.091, 1.0, note="n=3"),
            Format.NUMBER,
            "-0.049 [-0.091, 1.000] n=3",
            "-.049 [-.09, 1.00] n=3",
        ),
        (Value(0.5, 0.25, None), Format.NUMBER, "0.500", ".500"),
        (Value(None, note="(0.231)", reason="one run"), Format.NUMBER, "- (0.231)", "- (0.231)"),
        (Value(float("nan")), Format.NUMBER, "-", "-"),
        (Value(0.12345, 0.1, 0.2), Format.NUMBER_4, "0.1235 [0.100, 0.200]", ".1235 [.10, .20]"),
        (Value(12345), Format.COUNT, "12,345", "12,345"),
        (Value(0.125, 0.1, 0.2), Format.SHARE, "12.5% [10.0%, 20.0%]", "12.5% [10.0%, 20.0%]"),
        (Value(0.0004), Format.P_VALUE, "4.0e-04", "4.0e-04"),
        (Value(0.04), Format.P_VALUE, "0.040", "0.040"),
        (Value("no variation"), Format.NUMBER_2, "no variation", "no variation"),
        (Value(""), Format.NUMBER, "", ""),
        (Value(0.25), Format.CHANGE, "+0.250", "+0.250"),
        (Value(1844.0), Format.GENERAL, "1,844", "1,844"),
        # a number that is rounded to 0 has no sign
        (Value(-0.0004), Format.NUMBER, "0.000", ".000"),
        (Value(-0.0006), Format.NUMBER, "-0.001", "-.001"),
        (Value(-0.0004), Format.CHANGE, "+0.000", "+0.000"),
        (Value(-0.0004), Format.SHARE, "0.0%", "0.0%"),
        (Value(-0.004), Format.SHARE_0, "0%", "0%"),
        (Value(0.0), Format.NUMBER, "0.000", ".000"),
    ):
        column = Column("c", form)
        assert (text_of(value, column), compact_text_of(value, column)) == (wide, narrow)


def test_names_of_parts_are_safe_and_differ() -> None:
    made = report_texts.report_with("a/b <c>")
    others = report_texts.report_with("a/b <d>")
    names = [part.name for one in (made, others) for section in one.sections for part in section.parts]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names)
    own = [part.name for section in made.sections for part in section.parts]
    assert len(set(own)) == len(own)
    assert len(set(names)) > len(set(own))
