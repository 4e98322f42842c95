"""What a reader of the report sees: the figures that belong there, and nothing that a name could smuggle in."""

from __future__ import annotations

import html
import io
import pathlib
import re

import markdown_it
import polars as pl
import pytest
import rich.console
from test_evaluate import comparisons, contrasts, correlations, means, measured, numbered, settings, used
from tiny import RIGHT, Tiny, compare, table

from erag_ray.report import Grid, Results, markdown, number, pages, show, with_interval
from erag_ray.schemas import BEST_DEPTHS, COMMON_OUTPUTS, COSTS, MEANS, OUTPUTS, POOLING

Rows = list[list[str]]
NO_COSTS = pl.DataFrame(COSTS.empty())
NO_POOLING = pl.DataFrame(POOLING.empty())
NO_OUTPUTS = pl.DataFrame(OUTPUTS.empty())
NO_COMMON_OUTPUTS = pl.DataFrame(COMMON_OUTPUTS.empty())


def rendered(text: str) -> str:
    """The Markdown as a browser would get it, raw HTML let through as most sites do."""
    return markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def tables_of(text: str) -> list[Rows]:
    """The cells of each table, head first, as a reader sees them."""
    found = re.findall(r"<table>(.*?)</table>", rendered(text), re.DOTALL)
    return [
        [
            [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
            for row in re.findall(r"<tr>(.*?)</tr>", one, re.DOTALL)
        ]
        for one in found
    ]


def report_of(tiny: Tiny) -> str:
    compare(tiny)
    return (pathlib.Path(tiny.config.out) / "report.md").read_text()


def results_of(x: pl.DataFrame, y: pl.DataFrame, asked: pl.DataFrame) -> Results:
    """All tables of measures and utilities."""
    given = (x, y, asked, settings())
    return Results(
        means=means(*given),
        correlations=correlations(*given),
        comparisons=comparisons(*given),
        contrasts=contrasts(*given),
        pooling=NO_POOLING,
        best_depths=pl.DataFrame(BEST_DEPTHS.empty()),
        costs=NO_COSTS,
        outputs=NO_OUTPUTS,
        common_outputs=NO_COMMON_OUTPUTS,
    )


def made_up(**changes: object) -> Results:
    """Of two runs and four queries."""
    columns = {("r", "A", 2): [0, 1, 1, 0], ("r", "B", 2): [0, 0, 1, 0]}
    changed = {**columns, **changes.get("utility", {})}  # type: ignore[dict-item]
    return results_of(measured(columns), used(changed), numbered(4))


# --- the figures ---


def test_the_first_table_answers_which_retriever(tiny: Tiny, reads_here: list[int]) -> None:
    text = report_of(tiny)
    first = tables_of(text)[0]
    everything = " ".join(cell for row in first for cell in row)
    assert everything.index("good") < everything.index("bad")  # best first, not by name
    assert "no passages" in everything
    assert "gold passages" in everything
    rows = table(tiny, MEANS)
    shown = rows.filter(
        (pl.col("annotator") == "end_to_end") | ((pl.col("depth") == 3) & (pl.col("cutoff") == 3))
    )
    for row in shown.iter_rows(named=True):
        assert with_interval(row["mean"], row["low"], row["high"]) in everything, row


def test_utility_is_what_the_echo_reader_gets_right(tiny: Tiny, reads_here: list[int]) -> None:
    first = tables_of(report_of(tiny))[0]
    for (run, depth), right in RIGHT.items():
        if run in first[0]:
            (row,) = [row for row in first if f"utility@{depth}" in row]
            assert row[first[0].index(run)].startswith(number(len(right) / 6))


def test_every_row_of_a_table_has_a_cell_for_every_column(tiny: Tiny, reads_here: list[int]) -> None:
    for rows in tables_of(report_of(tiny)):
        assert len({len(row) for row in rows}) == 1


def test_two_datasets_have_tables_of_their_own(tiny: Tiny, reads_here: list[int]) -> None:
    lines = [
        line.replace('"id"', '"kilt_task": "other", "id"', 1)
        for line in tiny.queries.read_text().splitlines()
    ]
    tiny.queries.write_text(
        "\n".join(lines[:3]).replace('"other"', '"first"') + "\n" + "\n".join(lines[3:]) + "\n"
    )
    text = report_of(tiny.with_config(dataset=None))
    heads = re.findall(r"<h2>(.*?)</h2>", rendered(text))
    assert sum("which retriever" in head for head in heads) == 2
    assert any(head.startswith("first") for head in heads)
    assert any(head.startswith("other") for head in heads)


def test_a_missing_figure_is_a_dash_and_its_reason_is_counted() -> None:
    constant = {("r", "A", 2): [1, 1, 1, 1], ("r", "B", 2): [1, 1, 1, 1]}
    made = made_up(utility=constant)
    found = made.correlations
    text = markdown("t", pages(made, [], 0.95), [])
    over_queries = [rows for rows in tables_of(text) if any("-" in row for row in rows)]
    assert over_queries
    counted = [int(count) for count in re.findall(r"every utility is 1\.0 \((\d+) cells?\)", rendered(text))]
    dashes = [cell for rows in over_queries for row in rows[1:] for cell in row if cell == "-"]
    # two runs that are equal have a difference of 0, no variation for an effect size, and no detectable difference
    assert sum(cell == "no variation" for rows in tables_of(text) for row in rows for cell in row) == 1
    assert made.comparisons.filter(annotator="end_to_end")["effect_size"].null_count() == 1
    assert sum(counted) == found.filter(over="queries")["value"].null_count()
    assert len(dashes) == 1 + found["value"].null_count()
    assert "nan" not in text.lower()


def test_a_warning_names_runs_whose_utility_hardly_varies() -> None:
    rare = {("r", "A", 2): [1, 0, 0, 0] * 5, ("r", "B", 2): [1] + [0] * 19}
    many = {("r", "A", 2): [1, 0] * 20, ("r", "B", 2): [0, 1] * 20}
    text = [
        markdown("t", pages(results_of(measured(some), used(some), numbered(count)), [], 0.95), [])
        for some, count in ((rare, 20), (many, 40))
    ]
    assert "hang on few queries, those with another utility than the rest (A: 5 of 20; B: 1 of 20)" in text[0]
    assert "hang on few queries" not in text[1]


def test_a_column_that_was_never_judged_is_a_dash() -> None:
    columns = {("r", "A", 2): [None, None], ("r", "B", 2): [0, 1]}
    utility = used({("r", "A", 2): [0, 1], ("r", "B", 2): [1, 1]})
    made = results_of(measured(columns), utility, numbered(2))
    first = tables_of(markdown("t", pages(made, [], 0.95), []))[0]
    (row,) = [row for row in first if "P@2" in row]
    assert row[first[0].index("A")] == "-"
    assert row[first[0].index("B")].startswith("0.500")


def test_few_runs_are_named_beside_the_correlation_over_them() -> None:
    text = markdown("t", pages(made_up(), [], 0.95), [])
    assert "2 runs" in text
    assert "p = " not in text


def test_published_figures_stand_in_tables_of_their_own() -> None:
    x, y = measured({("r", "A", 2): [0, 1, 1, 0]}), used({("r", "A", 2): [0, 1, 1, 0]})
    asked = numbered(4).with_columns(dataset=pl.lit("nq"))
    shown = tables_of(markdown("t", pages(results_of(x, y, asked), [], 0.95), []))
    (bm25,) = [rows for rows in shown if ("nq (KILT dev) tau" in rows[0] and rows[1][:2] == ["contains_answer", "AP"])
               or any(row[:4] == ["contains_answer", "AP", "0.349", "0.417"] for row in rows)]  # fmt: skip
    assert bm25[0] == ["annotator", "measure", "nq (KILT dev) tau", "nq (KILT dev) rho"]
    assert len(bm25) == 25
    assert "as published" not in markdown("t", pages(results_of(x, y, numbered(4)), [], 0.95), [])


def test_numbers() -> None:
    assert number(0.12345) == "0.123"
    assert number(None) == number(float("nan")) == "-"
    assert with_interval(0.5, None, None) == "0.500"
    assert with_interval(0.5, 0.25, 0.75) == "0.500 [0.250, 0.750]"


# --- names that bite ---

NAMES = [
    "a|b",
    "<script>alert(1)</script>",
    "`code`",
    "**bold** _it_ # head",
    "back\\slash\\|",
    "[bold]rich[/bold]",
    "two\nlines",
    "[click](http://example.org)",
    "![seen](http://example.org/x.png)",
    "&lt;b&gt;",
]


def grids_with(name: str) -> list[Grid]:
    """The report of a dataset, an annotator and a run that are all called ``name``, beside a run B."""
    columns = {("r", name, 2): [0, 1, 1, 0], ("r", "B", 2): [0, 0, 1, 0]}
    x, y = measured(columns, annotator=name), used(columns)
    asked = numbered(4).with_columns(dataset=pl.lit(name))
    return pages(results_of(x, y, asked), [], 0.95)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_comes_out_as_it_went_in(name: str) -> None:
    text = markdown(name, grids_with(name), [name])
    plain = " ".join(name.split())
    for rows in tables_of(text):
        assert len({len(row) for row in rows}) == 1
    assert plain in tables_of(text)[0][0]
    assert any(plain in row for row in tables_of(text)[0][1:])
    page = rendered(text)
    assert not re.search(r"<(script|code|strong|em|a|img|b)\b", page)
    escaped = html.escape(plain, quote=False)
    assert f"<h1>{escaped}</h1>" in page
    assert f"<h2>{escaped}: which" in page
    assert f"<li>{escaped}</li>" in page


def test_a_note_cannot_add_a_line_or_a_table() -> None:
    notes = ["first\n\n## forged\n| a | b |\n| - | - |\n| 1 | 2 |", "<img src=x>"]
    page = rendered(markdown("t", [], notes))
    assert page.count("<li>") == 2
    assert "<table>" not in page
    assert "<img" not in page
    assert page.count("<h2>") == 1


@pytest.mark.parametrize("name", ["[bold]rich[/bold]", "[/]", "[link=file:///x]y", "end\\"])
def test_the_console_shows_names_as_they_are(name: str) -> None:
    out = io.StringIO()
    show(grids_with(name), rich.console.Console(file=out, width=300))
    assert out.getvalue().count(name) >= 3


def test_no_escape_sequence_of_a_terminal_gets_out() -> None:
    name = "red\x1b[31m\x07"
    out = io.StringIO()
    show(grids_with(name), rich.console.Console(file=out, width=300))
    text = markdown(name, grids_with(name), [name])
    for control in "\x1b\x07":
        assert control not in out.getvalue()
        assert control not in text
