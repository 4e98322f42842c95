"""Figures: their data against plain Python, and what a viewer gets of them."""

import dataclasses
import json
import math
import random
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl
import pytest
import vl_convert
from given_results import figures_of_dataset, results, view_of

from erag_ray.analyses import agreement, question_by_question
from erag_ray.analyses.comparisons import COMPARISONS, run_differences, show_all
from erag_ray.analyses.contract import View
from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.order import MAX_RUNS
from erag_ray.analyses.parts.model import Figure, Mark, Table
from erag_ray.analyses.question_by_question import MAX_BARS, gain_by_question
from erag_ray.analyses.useful_documents import shares_by_rank
from erag_ray.extras.papers.figures import agreement_of_readers, figure_1
from erag_ray.extras.papers.pictures import PICTURE_CONFIG, svg
from erag_ray.report import charts
from erag_ray.report.vega_lite import CHART_WIDTH, COLORS
from erag_ray.store.schemas import LABELS, QUERIES, REQUESTS, RUNS, UTILITY, TableSchema, conform

HOSTILE = "b</script><img src=x onerror=alert(1)> \"q\" 'r' \\ & \u2028 \u202e[0].x"
Row = dict[str, Any]


def frame(schema: TableSchema, rows: Sequence[Row], **constant: object) -> pl.DataFrame:
    """A table that conforms to its schema; what no row says is ``constant``, or null."""
    full = [{**dict.fromkeys(schema.columns.names), **constant, **row} for row in rows]
    table = pl.DataFrame(full, schema=schema.empty().schema)
    conform(table, schema)
    return table


OF_MEANS: Row = {"dataset": "d", "reader": "R", "score": "em", "annotator": "end_to_end", "measure": "em"}
OF_MEANS |= {"ideal": "any", "num_queries": 4, "num_dropped": 0, "num_estimated": 0}


def means_of(rows: Sequence[Row]) -> pl.DataFrame:
    return frame(MEANS, rows, cutoff=0, **OF_MEANS)


def around(value: float | None, end: str = "") -> Row:
    return {} if value is None else {f"low{end}": value - 0.1, f"high{end}": value + 0.1}


def mean(run: str, depth: int, value: float | None, **more: object) -> Row:
    return {"run_id": run, "depth": depth, "mean": value, **around(value), **more}


MEANS_OF_TWO = [
    mean("A", 1, 0.5),
    mean("A", 2, 0.6),
    mean("B", 1, 0.4),
    mean("B", 2, 0.7),
    mean("no_passages", 0, 0.25),
    mean("gold_passages", 2, 0.9, num_queries=3),
]
ROWS = [*({"query_id": f"q{n}", "dataset": "d"} for n in range(4)), {"query_id": "other", "dataset": "e"}]
QUESTIONS = frame(QUERIES, ROWS, question="?", answers=["a"], score="em")


def view(*runs: str, score: str = "em", **tables: pl.DataFrame) -> View:
    """Of runs at depth 2, best first."""
    rows = [mean(run, 2, 1 - number / 10, score=score) for number, run in enumerate(runs)]
    return view_of(results(means=means_of(rows), **tables), "d")


def data_of(figure: Figure | None) -> list[Row]:
    assert figure is not None
    return figure.data.to_dicts()


# --- what figures show ---


def test_figures_have_the_runs_in_their_order_and_name_the_interval() -> None:
    (figure,) = figures_of_dataset(results(0.9, means=means_of(MEANS_OF_TWO)), "d")
    assert [(row["run"], row["documents"]) for row in data_of(figure)] == [
        ("B", 1),
        ("B", 2),
        ("A", 1),
        ("A", 2),
    ]
    assert figure.rules == {"no passages": 0.25, "gold passages": 0.9}
    assert "bands: 90% interval. Gold passages: 3 of 4 questions." in figure.caption


def test_a_dataset_without_utility_has_no_figures() -> None:
    for rows in ([], [mean("A", 1, None)], [mean("no_passages", 0, 0.25)]):
        assert figures_of_dataset(results(means=means_of(rows)), "d") == []


def test_of_many_runs_the_best_are_shown_and_the_caption_says_so() -> None:
    rows = [mean(f"r{n:02}", depth, n / 20) for n in range(12) for depth in (1, 5)]
    (figure,) = figures_of_dataset(results(means=means_of(rows)), "d")
    best = [f"r{n:02}" for n in range(11, 11 - MAX_RUNS, -1)]
    assert [row["run"] for row in data_of(figure)][::2] == best
    assert figure.color_names == (*sorted(best[:4]), *sorted(best[4:]))
    assert "best 8 of 12 runs" in figure.caption


# --- utility ---


def test_utility_without_references_has_no_rules_and_leaves_out_what_is_null() -> None:
    rows = [mean("A", 1, 0.5), mean("A", 2, None), mean("A", 3, 0.5)]
    (figure,) = figures_of_dataset(results(means=means_of(rows)), "d")
    assert figure.rules == {}
    assert [row["documents"] for row in data_of(figure)] == [1, 3]
    # the first picture of the page shows one depth
    assert figures_of_dataset(results(means=means_of(rows[:2])), "d") == []


def comparisons_of(rows: Sequence[tuple[str, str, int, float | None, float]]) -> pl.DataFrame:
    return frame(
        COMPARISONS,
        [
            {"run_a": a, "run_b": b, "depth": depth, "cutoff": depth, "difference": value, "p_adjusted": p}
            | around(value, "_adjusted")
            for a, b, depth, value, p in rows
        ],
        **OF_MEANS,
    )


def test_pairs_that_were_not_compared_are_counted_and_runs_beyond_the_scope_left_out() -> None:
    rows = [("A", "B", 2, 0.1, 0.2), ("A", "C", 2, None, 1.0), ("A", "Z", 2, 0.5, 0.01)]
    figure = next(run_differences(view("A", "B", "C", comparisons=comparisons_of(rows))), None)
    assert figure is not None
    assert [row["pair"] for row in data_of(figure)] == ["A - B"]
    assert "Not compared: 1 of 2" in figure.caption
    assert next(run_differences(view("A", "C", comparisons=comparisons_of(rows[1:2]))), None) is None


def test_the_best_run_is_compared_in_each_dataset() -> None:
    rows = comparisons_of([("A", "B", 2, 0.1, 0.2), ("A", "B", 1, 0.3, 0.2)])
    several = pl.concat([rows, rows.with_columns(dataset=pl.lit("e"))])
    whole = dataclasses.replace(results(comparisons=several), rankings={"d": ["B", "A"], "e": ["A", "B"]})
    (table,) = show_all(whole)
    shown = [[cell.value for cell in row[:4]] for row in table.rows]
    assert shown == [["d", "B - A", "utility@2", -0.1], ["e", "A - B", "utility@2", 0.1]]


def utility_of(values: dict[str, Sequence[float | None]], ids: Sequence[str] | None = None) -> pl.DataFrame:
    rows = [
        {"run_id": run, "query_id": query, "value": value}
        for run, column in values.items()
        for query, value in zip(ids or [f"q{n}" for n in range(len(column))], column, strict=True)
    ]
    return frame(UTILITY, rows, reader="R", score="em", depth=2)


def test_the_gain_of_the_best_run_leaves_out_what_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    table = utility_of({"A": [1, 0, 1, None], "B": [0, 0.5, 1, 1], "C": [0, 0, 0, 0]})
    figure = next(gain_by_question(view("A", "B", "C", utility=table, queries=QUESTIONS)), None)
    assert [(row["place"], row["query"], row["difference"], row["better"]) for row in data_of(figure)] == [
        (1, "q0", 1.0, "A better"),
        (2, "q2", 0.0, "equal"),
        (3, "q1", -0.5, "B better"),
    ]
    assert next(gain_by_question(view("A", utility=table, queries=QUESTIONS)), None) is None
    monkeypatch.setattr(question_by_question, "score_sign", lambda name: -1)
    less = next(gain_by_question(view("A", "B", utility=table, queries=QUESTIONS)), None)
    assert less is not None
    assert "A serves the reader better on 1 questions, B on 1" in less.caption
    others = QUESTIONS.filter(dataset="e")
    assert next(gain_by_question(view("A", "B", utility=table, queries=others)), None) is None


def test_a_measure_of_harm_agrees_best_where_it_agrees_least() -> None:
    of_measures = {("gain", "P", "A"): 0.2, ("gain", "Harmful", "A"): -0.5, ("erag", "P", "A"): 0.1}
    best = agreement.best_measures(correlations_of(of_measures), ["A"])
    assert dict(best.select("annotator", "measure").rows()) == {"gain": "Harmful", "erag": "P"}


def test_of_many_questions_a_bar_is_the_mean_of_neighbours() -> None:
    draw, count = random.Random(1), 1003
    columns = {run: [draw.random() for _ in range(count)] for run in "AB"}
    constant = {"dataset": "d", "question": "?", "answers": ["a"], "score": "em"}
    questions = frame(QUERIES, [{"query_id": f"q{n}"} for n in range(count)], **constant)
    bars = data_of(
        next(gain_by_question(view("A", "B", utility=utility_of(columns), queries=questions)), None)
    )
    assert len(bars) == MAX_BARS
    assert {bar["questions"] for bar in bars} == {2, 3}
    wanted = sorted((a - b for a, b in zip(*columns.values(), strict=True)), reverse=True)
    for bar in bars:
        own, wanted = wanted[: bar["questions"]], wanted[bar["questions"] :]
        assert bar["difference"] == pytest.approx(sum(own) / len(own))
    assert wanted == []


# --- labels ---


def test_what_cannot_be_shown_of_harm_is_said() -> None:
    lists = frame(RUNS, [{"run_id": "A", "query_id": "q0", "rank": 1, "doc_id": "x"}])
    rows = [{"annotator": "erag", "query_id": "q0", "doc_id": "x", "label": 0.5}]
    tables = {"runs": lists, "queries": QUESTIONS}
    labels = frame(LABELS, rows, reader="R", score="em")
    figure = next(shares_by_rank(view("A", labels=labels, **tables)), None)
    assert figure is not None
    assert "Harm is not shown" in figure.caption
    assert "any score above 0 counts as useful" in figure.caption
    assert next(shares_by_rank(view("A", score="abstained", labels=labels, **tables)), None) is None
    rows = [{"annotator": "provenance", "query_id": "q0", "doc_id": "x", "label": 1.0}]
    labels = frame(LABELS, rows, reader="", score="")
    assert next(shares_by_rank(view("A", labels=labels, **tables)), None) is None


def correlations_of(values: dict[tuple[str, str, str], float | None], **more: object) -> pl.DataFrame:
    """CORRELATIONS by annotator, measure and run."""
    rows = [
        {"annotator": annotator, "measure": measure, "run_id": run, "value": value}
        | around(value)
        | ({} if value is None else {"ceiling": 0.9})
        for (annotator, measure, run), value in values.items()
    ]
    constant = {"dataset": "d", "reader": "R", "score": "em", "over": "queries", "depth": 2}
    constant |= {"cutoff": 2, "ideal": "any", "statistic": "kendall_tau_b", "num_queries": 4, "num_runs": 1}
    return frame(CORRELATIONS, rows, **{**constant, "num_dropped": 0, "num_varied": 20, **more})


TAUS: dict[tuple[str, str, str], float | None] = {
    ("erag", "P", "A"): 0.5,
    ("erag", "P", "B"): 0.4,
    ("erag", "RR", "A"): 0.8,
    ("erag", "RR", "B"): 0.0,
    ("erag", "AP", "A"): 0.95,
    ("erag", "AP", "B"): None,
    ("provenance", "P", "A"): 0.1,
    ("provenance", "P", "B"): 0.2,
}


def test_agreement_without_any_value_is_not_drawn() -> None:
    nothing = correlations_of(dict.fromkeys(TAUS))
    for table in (nothing, nothing.clear()):
        assert not list(agreement.show(view("A", correlations=table)))


# --- cost ---


def request(kind: str, query: str, *docs: str, key: int, model: str = "m") -> Row:
    return {
        "kind": kind,
        "query_id": query,
        "doc_ids": list(docs),
        "model": model,
        "question_key": int(query[1:]) if query[1:].isdigit() else 99,
        "passages_key": key,
    }


ASKED = [
    request("answer", "q0", "x", key=1),
    # the same text under another name is asked once
    request("answer", "q0", "y", key=1),
    request("answer", "q0", "z", key=2),
    request("answer", "q1", "x", key=1),
    request("answer", "q0", key=0),
    request("answer", "q1", key=0),
    request("answer", "q0", "x", "z", key=3),
    request("answer", "other", "x", key=1),
    request("gold_likelihood", "q0", "x", key=1, model="l"),
    request("relevance", "q1", "x", key=1, model="judge"),
]


def labels_by(*names: str) -> pl.DataFrame:
    pairs = [("q0", "x"), ("q0", "y"), ("q0", "z"), ("q1", "x"), ("other", "x")]
    rows = [
        {
            "annotator": name,
            "query_id": query,
            "doc_id": doc,
            "label": 1.0,
            "reader": "R" if name in ("erag", "gain", "gold_likelihood") else "",
        }
        for name in names
        for query, doc in pairs
    ]
    return frame(LABELS, rows, score="")


def test_the_cost_of_a_label_is_its_distinct_requests_for_each_question() -> None:
    names = ("erag", "gain", "gold_likelihood", "provenance", "llm_relevance", "my.module:own")
    tables = {
        "labels": labels_by(*names),
        "requests": frame(REQUESTS, ASKED, reader="R"),
        "queries": QUESTIONS,
    }
    costs = agreement.requests_by_annotator(view("A", **tables))
    assert dict(costs.iter_rows()) == {
        "erag": 3 / 2,
        "gain": 5 / 2,
        "gold_likelihood": 1 / 2,
        "provenance": 0.0,
        "llm_relevance": 1 / 2,
    }


def cost_of(taus: pl.DataFrame, labels: pl.DataFrame, requests: pl.DataFrame) -> Figure | None:
    """The second figure of agreements, if there is one."""
    tables = {"correlations": taus, "labels": labels, "requests": requests, "queries": QUESTIONS}
    first, *others = agreement.show(view("A", **tables))
    assert "how well each label agrees" in first.title
    return next(iter(others), None)


def test_cost_is_drawn_the_cheapest_first_and_names_what_is_left_out() -> None:
    taus: dict[tuple[str, str, str], float | None] = {**TAUS, ("my.module:own", "P", "A"): 0.3}
    labels = labels_by("erag", "provenance", "my.module:own")
    figure = cost_of(correlations_of(taus), labels, frame(REQUESTS, ASKED, reader="R"))
    assert figure is not None
    assert [(row["label"], row["value"]) for row in figure.data.drop_nulls("requests").to_dicts()] == [
        ("provenance: P@2 (0.0 requests)", 0.1),
        ("erag: AP@2 (1.5 requests)", 0.95),
    ]
    assert "unknown: my.module:own" in figure.caption
    assert "own" not in str(figure.data["label"].to_list())


def test_cost_is_not_drawn_where_all_labels_cost_the_same_or_nothing_is_known_of_it() -> None:
    only = correlations_of({("provenance", "P", "A"): 0.1, ("contains_answer_dpr", "P", "A"): 0.2})
    requests, free = frame(REQUESTS, ASKED, reader="R"), labels_by("provenance", "contains_answer_dpr")
    assert cost_of(only, free, requests) is None
    assert cost_of(correlations_of(TAUS), labels_by("erag", "provenance"), requests.clear()) is None


# --- the papers' and the benchmark's ---


def test_figure_1_has_a_line_for_each_annotator_and_a_panel_for_each_dataset() -> None:
    values = [
        ("d", "erag", "P", 1, 0.1, 0.0, 0.2),
        ("d", "erag", "P", 10, 0.2, 0.1, 0.3),
        ("e", "provenance", "AP", 1, None, None, None),
        ("e", "provenance", "AP", 10, 0.4, 0.3, 0.5),
    ]
    names = ["dataset", "annotator", "measure", "depth", "value", "low", "high"]
    curves = pl.DataFrame(values, schema=names, orient="row").with_columns(num_queries=4)
    figure, _ = figure_1(curves, "bm25 <b>", "kendall_tau_b")
    assert isinstance(figure, Figure)
    rows = [(row["dataset"], row["annotator"], row["documents"], row["value"]) for row in data_of(figure)]
    assert rows == [("d", "erag", 1, 0.1), ("d", "erag", 10, 0.2), ("e", "provenance", 10, 0.4)]
    assert "e" in "".join(ET.fromstring(svg(figure)).itertext())
    assert [type(part) for part in figure_1(curves.clear(), "bm25", "kendall_tau_b")] == [Table]


def test_readers_are_compared_in_a_panel_for_each_dataset_and_run() -> None:
    values = [("d", "A", "P", "small", 0.1, 0.0, 0.2), ("d", "A", "P", "large", 0.2, 0.1, 0.3)]
    names = ["dataset", "run_id", "measure", "reader", "value", "low", "high"]
    rows = pl.DataFrame(values, schema=names, orient="row").with_columns(num_queries=4)
    figure, _ = agreement_of_readers(rows, "Figure 2, 50 documents", "kendall_tau_b")
    assert isinstance(figure, Figure)
    shown = [(row["reader"], row["lists"], row["value"]) for row in data_of(figure)]
    assert shown == [("small", "d: A", 0.1), ("large", "d: A", 0.2)]
    assert figure.name == "figure_2"
    assert [type(part) for part in agreement_of_readers(rows.clear(), "Figure 2", "kendall_tau_b")] == [Table]


# --- charts ---


def drawn(mark: Mark, **more: Any) -> Figure:
    rows = [
        {"name": HOSTILE, "k": 1, "value": 0.2, "low": 0.1, "high": 0.3},
        {"name": HOSTILE, "k": 50, "value": 0.3, "low": None, "high": math.nan},
        {"name": "plain", "k": 1, "value": 0.4, "low": 0.3, "high": 0.5},
        {"name": "plain", "k": 50, "value": math.nan, "low": 0.3, "high": 0.5},
        {"name": "plain", "k": 60, "value": math.inf, "low": 0.3, "high": 0.5},
        {"name": "plain", "k": 70, "value": None, "low": 0.3, "high": 0.5},
    ]
    facts: dict[str, Any] = {"x": "k", "y": "value", "low": "low", "high": "high", "color": "name"}
    facts |= {"rules": {"nothing": 0.0, "unknown": math.nan, "all": 1.0}, "x_title": "k", "y_title": "value"}
    return Figure(**{"name": "f", "title": "t", "data": pl.DataFrame(rows), "mark": mark, **facts, **more})


DATA, OF_DEPTHS = drawn("line").data, pl.DataFrame({"depth": range(1, 51)})
FORMS: dict[str, Figure] = {
    "line": drawn("line"),
    "one depth": drawn("line", data=DATA.filter(pl.col("k") == 1)),
    "many depths": drawn("line", data=DATA.head(1).join(OF_DEPTHS, how="cross"), x="depth", low=None),
    "panels": drawn("line", facet="name"),
    "one panel": drawn("line", facet="name", data=DATA.filter(pl.col("name") == "plain")),
    "rows": drawn("interval", x="value", y="name", color=None),
    "rows in panels": drawn("interval", x="value", y="name", facet="k", data=DATA.cast({"k": pl.String})),
    "columns": drawn("interval", x="name"),
    "bar": drawn("bar", low=None, high=None),
    "bars of names": drawn("bar", x="value", y="name", low=None, high=None, color=None),
    "point": drawn("point"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_chart_is_vega_lite_with_its_data_and_its_picture_names_its_runs(form: str) -> None:
    spec = charts.vega(FORMS[form])
    text = json.dumps(spec, allow_nan=False)
    alt.Chart.from_dict(spec)  # checks it against the schema
    assert "http" not in text
    assert '"url"' not in text
    assert spec["background"] == "transparent"
    assert "config" not in spec, "colours of text and axes are the page's"
    (rows,) = (part for part in spec["datasets"].values() if "value" in part[0])
    values = [row["value"] for row in rows]
    assert all(isinstance(value, float) and math.isfinite(value) for value in values)
    assert not any(None in row.values() for row in rows)
    picture = ET.fromstring(svg(FORMS[form]))
    words = " ".join(text for text in picture.itertext() if text.strip())
    for name in FORMS[form].data.filter(pl.col("value").is_finite())["name"].unique():
        # a long name may be cut at its end, and white space is joined
        assert name.split(" ")[0][:20] in words
    tags = {element.tag.split("}")[-1] for element in picture.iter()}
    assert not tags & {"a", "script", "image", "img"}


@pytest.mark.parametrize(("num_panels", "letters"), [(2, 4), (4, 4), (4, 20), (4, 60), (7, 20)])
def test_panels_have_room_on_the_page(num_panels: int, letters: int) -> None:
    rows = [{"run": f"{number}", "name": "n" * letters, "value": 0.5} for number in range(num_panels)]
    figure = drawn("point", data=pl.DataFrame(rows), x="value", y="name", facet="run", low=None, color=None)
    assert float(ET.fromstring(svg(figure)).attrib["width"]) <= CHART_WIDTH


def layers_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    inner = spec.get("spec", spec)
    return list(inner["layer"])


@pytest.mark.parametrize(
    ("mark", "channel"), [("line", "strokeDash"), ("interval", "shape"), ("point", "shape")]
)
def test_color_is_never_alone(mark: Mark, channel: str) -> None:
    names = [f"run {n}" for n in range(MAX_RUNS)]
    data = pl.DataFrame({"name": names, "k": [1.0] * MAX_RUNS, "value": [0.5] * MAX_RUNS})
    spec = charts.vega(drawn(mark, data=data, low=None, high=None))
    ranges = {
        name: layer["encoding"][name]["scale"]["range"]
        for layer in layers_of(spec)
        for name in ("color", channel)
        if name in layer["encoding"]
    }
    for values in ranges.values():
        assert len({json.dumps(value) for value in values}) == MAX_RUNS
    assert set(ranges) == {"color", channel}


def test_a_name_looks_the_same_where_others_are_missing() -> None:
    data = pl.DataFrame({"name": ["b"], "k": [1.0], "value": [0.5]})
    spec = charts.vega(drawn("point", data=data, low=None, high=None, color_names=("a", "b")))
    scale = layers_of(spec)[-1]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True))["b"] == COLORS[1]


@pytest.mark.parametrize("depths", [(10, 50), (1, 5, 100), (7,)])
def test_the_axis_names_every_depth(depths: tuple[int, ...]) -> None:
    data = pl.DataFrame({"name": "a", "k": depths, "value": 0.5})
    picture = ET.fromstring(svg(drawn("line", data=data, low=None, high=None)))
    assert set(map(str, depths)) <= set(picture.itertext())


def test_a_picture_has_no_marks_that_are_not_seen() -> None:
    spec = charts.vega(FORMS["many depths"])
    num_unseen = sum(layer["mark"].get("opacity") == 0 for layer in layers_of(spec))
    num_marks = svg(FORMS["many depths"]).count('class="mark-')
    spec["config"] = PICTURE_CONFIG
    whole = vl_convert.vegalite_to_svg(spec, vl_version=charts.VEGA_LITE, allowed_base_urls=[])
    assert num_unseen
    assert num_marks < whole.count('class="mark-')
