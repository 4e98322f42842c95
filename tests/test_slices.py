"""Slices of the questions: their values, and means, comparisons and cells by slice, against other ways to them."""

from __future__ import annotations

import itertools
import json
import math
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pytest
from cell_tables import framed
from evaluated import queries
from evaluated import settings as settings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from paired import holm_by_hand
from polars.testing import assert_frame_equal
from tiny import Tiny, compare, table

from erag_ray.agreement import holm
from erag_ray.datasets import load_queries
from erag_ray.errors import InputError
from erag_ray.evaluate import (
    all_slices,
    by_dataset,
    cell_columns,
    cell_shares,
    comparisons,
    means,
    slice_comparisons,
    slice_means,
)
from erag_ray.evaluate.stage import evaluate
from erag_ray.files import Diagnostics
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.report.tables.slices import slice_tables
from erag_ray.schemas import (
    CELL_SHARES,
    CELLS,
    MEANS,
    PER_QUERY,
    SLICE_COMPARISONS,
    SLICE_MEANS,
    SLICES,
    UTILITY,
    TableSchema,
)
from erag_ray.store import TableStore

Values = Mapping[str, Sequence[float | None]]
"""Run -> a value of each question."""


def tables_of(values: Values, used: Values) -> tuple[pl.DataFrame, pl.DataFrame]:
    """PER_QUERY of eRAG's P and UTILITY, of questions q00, q01, ..."""
    measured = [
        ("r", "s", "erag", f"q{place:02}", run, 2, "P", 2, "any", value)
        for run, column in values.items()
        for place, value in enumerate(column)
    ]
    scores = [
        ("r", "s", run, f"q{place:02}", 2, value)
        for run, column in used.items()
        for place, value in enumerate(column)
    ]
    return framed(measured, PER_QUERY), framed(scores, UTILITY)


def asked(count: int) -> pl.DataFrame:
    return queries(*((f"q{place:02}", "d", "s") for place in range(count)))


def slices_of(**values: Sequence[str]) -> pl.DataFrame:
    """Slice -> the value of each question."""
    rows = [(f"q{place:02}", name, value) for name, own in values.items() for place, value in enumerate(own)]
    return framed(rows, SLICES)


@st.composite
def sliced(draw: st.DrawFn) -> tuple[Values, Values, dict[str, list[str]]]:
    count = draw(st.integers(1, 30))
    value = st.sampled_from([0.0, 0.25, 1.0, None])
    runs = ["A", "B", "C"][: draw(st.integers(2, 3))]
    columns = st.lists(value, min_size=count, max_size=count)
    names = st.lists(st.sampled_from(["2", "10", "bridge", "(none)"]), min_size=count, max_size=count)
    values, used = ({run: draw(columns) for run in runs} for _ in range(2))
    return values, used, {"hops": draw(names), "meta.type": draw(names)}


@pytest.mark.long
@settings(max_examples=40)
@given(drawn=sliced())
def test_a_slice_is_its_questions_and_holm_goes_over_all_slices(
    drawn: tuple[Values, Values, dict[str, list[str]]],
) -> None:
    values, used, named = drawn
    count, given_settings = len(named["hops"]), settings_of(num_resamples=100)
    lists, scores = tables_of(values, used)
    whole = by_dataset([lists], scores, asked(count), given_settings)
    slices = slices_of(**named)
    found_means = slice_means(whole, slices, given_settings)
    found_tests = slice_comparisons(whole, slices, given_settings)
    shown = {name: set(own) for name, own in named.items() if set(own) != {"(none)"}}
    assert set(found_means.select("slice", "value").rows()) == {
        (name, value) for name, own in shown.items() for value in own
    }
    for name, value in ((name, value) for name, own in shown.items() for value in own):
        kept = [place for place, one in enumerate(named[name]) if one == value]
        part = found_means.filter(slice=name, value=value)
        for row in part.iter_rows(named=True):
            column = (used if row["annotator"] == "end_to_end" else values)[row["run_id"]]
            own = [one for place in kept if (one := column[place]) is not None]
            assert (row["num_queries"], row["num_dropped"]) == (len(own), len(kept) - len(own))
            assert row["mean"] == (pytest.approx(np.mean(own)) if own else None)
        check_comparisons(found_tests.filter(slice=name, value=value), values, used, kept)
    for (annotator,), family in found_tests.group_by("annotator"):
        columns = used if annotator == "end_to_end" else values
        differences, parts = [], []
        for row in family.iter_rows(named=True):
            kept = [place for place, one in enumerate(named[row["slice"]]) if one == row["value"]]
            pairs = [(columns[row["run_a"]][place], columns[row["run_b"]][place]) for place in kept]
            differences.append([math.nan if a is None or b is None else a - b for a, b in pairs])
            parts.append((row["slice"], row["value"]))
        expected = holm_by_hand(differences, family["p_value"].to_list(), parts)
        for p, wanted in zip(family["p_adjusted"], expected, strict=True):
            assert p == (None if wanted is None else pytest.approx(wanted))


def check_comparisons(part: pl.DataFrame, values: Values, used: Values, kept: Sequence[int]) -> None:
    """The differences, and a reason exactly where there is no test."""
    pairs = list(itertools.combinations(sorted(values), 2))
    assert part.height == 2 * len(pairs)
    for row in part.iter_rows(named=True):
        columns = used if row["annotator"] == "end_to_end" else values
        both = [(columns[row["run_a"]][place], columns[row["run_b"]][place]) for place in kept]
        own = [a - b for a, b in both if a is not None and b is not None]
        assert (row["num_queries"], row["num_dropped"]) == (len(own), len(kept) - len(own))
        assert row["difference"] == (pytest.approx(np.mean(own), abs=1e-9) if own else None)
        known = {value for pair in both if None not in pair for value in pair}
        is_tested = len(own) >= 10 and len(known) > 1
        assert (row["p_value"] is not None) == is_tested
        assert (row["low"] is not None) == is_tested
        if 0 < len(own) < 10:
            assert row["reason"] == f"{len(own)} questions, fewer than 10: no test"


def test_a_slice_with_all_questions_equals_the_whole() -> None:
    generator = np.random.default_rng(0)
    values, used = (
        {run: generator.choice([0.0, 0.5, 1.0], 40).tolist() for run in ("A", "B", "C")} for _ in range(2)
    )
    lists, scores = tables_of(values, used)
    whole = by_dataset([lists], scores, asked(40), settings_of())
    slices = slices_of(split=["all"] * 40)
    for by_slice, of_all in ((slice_means, means), (slice_comparisons, comparisons)):
        found = by_slice(whole, slices, settings_of())
        assert found.select("slice", "value").unique().rows() == [("split", "all")]
        assert_frame_equal(found.drop("slice", "value"), of_all(whole, settings_of()), check_exact=True)


def test_the_resamples_of_a_slice_are_those_of_all_questions() -> None:
    # a column that is null outside the slice is the other way to the same interval
    generator = np.random.default_rng(1)
    values = {run: generator.choice([0.0, 0.5, 1.0], 30).tolist() for run in ("A", "B")}
    is_in = [place % 3 != 0 for place in range(30)]
    masked = {
        run: [one if kept else None for one, kept in zip(own, is_in, strict=True)]
        for run, own in values.items()
    }
    own, other = (
        by_dataset([tables_of(some, some)[0]], tables_of(some, some)[1], asked(30), settings_of())
        for some in (values, masked)
    )
    found = slice_means(own, slices_of(part=["in" if one else "out" for one in is_in]), settings_of())
    expected = means(other, settings_of())
    keys = ["annotator", "run_id"]
    both = found.filter(value="in").join(expected, on=keys)
    for name in ("mean", "low", "high"):
        assert both[name].to_list() == pytest.approx(both[f"{name}_right"].to_list(), abs=1e-12)


def compared(values: Values, **named: Sequence[str]) -> pl.DataFrame:
    """SLICE_COMPARISONS of eRAG's P."""
    lists, scores = tables_of(values, values)
    count = len(next(iter(values.values())))
    whole = by_dataset([lists], scores, asked(count), settings_of())
    return slice_comparisons(whole, slices_of(**named), settings_of()).filter(annotator="erag")


def test_holm_goes_over_all_slices_and_their_values() -> None:
    # A is better than B in 12 questions of the first half, and in one in the second, as B is
    values = {
        "A": [1.0] * 16 + [0.0] * 4 + [1.0] + [0.0] * 19,
        "B": [0.0] * 4 + [1.0] * 4 + [0.0] * 31 + [1.0],
    }
    half = ["1"] * 20 + ["2"] * 20
    alone, both = compared(values, hops=half), compared(values, hops=half, split=["all"] * 40)
    assert alone["p_value"].null_count() == both["p_value"].null_count() == 0
    for found in (alone, both):
        assert found["p_adjusted"].to_list() == pytest.approx(holm(found["p_value"].to_numpy()).tolist())
    # more slices, a stricter correction; and one that is not each slice's own
    assert both["p_adjusted"][0] > alone["p_adjusted"][0] > alone["p_value"][0]


def test_ten_questions_are_enough_for_a_test_and_nine_are_not() -> None:
    values = {"A": [1.0, 0.0] * 9 + [1.0], "B": [0.0] * 19}
    found = compared(values, hops=["1"] * 10 + ["2"] * 9)
    assert found.select("value", "num_queries").rows() == [("1", 10), ("2", 9)]
    assert found["p_value"].is_null().to_list() == [False, True]
    assert found["reason"].to_list() == [None, "9 questions, fewer than 10: no test"]
    assert found["difference"].to_list() == pytest.approx([0.5, 5 / 9])


def test_a_dataset_without_values_leaves_the_slice_out() -> None:
    values = {"A": [1.0, 0.0], "B": [0.0, 0.0]}
    found = compared(values, hops=["(none)"] * 2, split=["dev", "(none)"])
    assert found.select("slice", "value").rows() == [("split", "dev"), ("split", "(none)")]


def test_values_come_in_the_order_of_numbers_then_texts_then_none() -> None:
    names = ["(none)", "10", "2", "nan", "bridge", "-1.5"]
    column = {"A": [1.0] * 6, "B": [0.0] * 6}
    lists, scores = tables_of(column, column)
    whole = by_dataset([lists], scores, asked(6), settings_of())
    found = slice_means(whole, slices_of(hops=names), settings_of())
    assert found["value"].unique(maintain_order=True).to_list() == [
        "-1.5",
        "2",
        "10",
        "bridge",
        "nan",
        "(none)",
    ]


def cells_of(known: Sequence[bool | None]) -> pl.DataFrame:
    """CELLS of run A: every question is found or kept."""
    rows = [
        (
            "r",
            "s",
            "A",
            f"q{place:02}",
            2,
            True,
            True,
            one,
            None if one is None else "kept" if one else "found",
        )
        for place, one in enumerate(known)
    ]
    return framed(rows, CELLS)


def test_known_is_what_the_reader_answers_closed_book() -> None:
    found = all_slices(slices_of(hops=["2", "2", "3"]), cells_of([True, False, None]), ["known", "hops"])
    assert found.rows() == [
        ("q00", "known", "yes"),
        ("q01", "known", "no"),
        ("q02", "known", "(none)"),
        ("q00", "hops", "2"),
        ("q01", "hops", "2"),
        ("q02", "hops", "3"),
    ]


def test_cells_have_shares_by_slice() -> None:
    cells = cells_of([True, False, False, None])
    columns = cell_columns(cells, asked(4), settings_of())
    found = cell_shares(
        columns, all_slices(slices_of(hops=["2", "2", "3", "3"]), cells, ["hops", "known"]), settings_of()
    )
    shares = found.filter(cell="found").select("slice", "value", "share", "num_queries", "num_dropped").rows()
    assert shares == [
        ("", "", 2 / 3, 3, 1),
        ("hops", "2", 0.5, 2, 0),
        ("hops", "3", 1.0, 1, 1),
        ("known", "no", 1.0, 2, 0),
        ("known", "yes", 0.0, 1, 0),
        ("known", "(none)", None, 0, 1),
    ]


# --- files ---


def write(folder: pathlib.Path, *metas: object) -> pathlib.Path:
    path = folder / "nq.jsonl"
    lines = [
        json.dumps(
            {
                "id": f"q{place}",
                "question": "who",
                "answers": ["x"],
                **({} if meta is ... else {"meta": meta}),
            }
        )
        for place, meta in enumerate(metas)
    ]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_values_are_texts_as_those_of_where(tmp_path: pathlib.Path) -> None:
    metas = [
        {"hops": 2},
        {"hops": "2"},
        {"hops": True},
        {"hops": None},
        {"hops": " "},
        {},
        ...,
        "flat",
        {"hops": [1]},
    ]
    diagnostics = Diagnostics()
    loaded = load_queries(write(tmp_path, *metas), diagnostics, slices=["meta.hops", "meta.hops"])
    diagnostics.raise_errors()
    assert loaded.slices["slice"].unique().to_list() == ["meta.hops"]
    assert loaded.slices["value"].to_list() == ["2", "2", "true", *["(none)"] * 5, "[1]"]
    kept = load_queries(write(tmp_path, *metas), Diagnostics(), filters=["meta.hops=2"], slices=["meta.hops"])
    assert kept.slices.rows() == [("q0", "meta.hops", "2"), ("q1", "meta.hops", "2")]


@pytest.mark.parametrize(
    ("slices", "problem"),
    [
        (["meta.hop"], "slices: meta.hop: no record has meta.hop"),
        ([""], "slices: : no record has "),
        (["id"], "slices: id: 51 values, more than 50: it does not group questions. Name another path"),
    ],
)
def test_a_path_that_no_record_has_or_that_groups_nothing_is_a_problem(
    tmp_path: pathlib.Path, slices: list[str], problem: str
) -> None:
    diagnostics = Diagnostics()
    load_queries(write(tmp_path, *[{"hops": 2}] * 51), diagnostics, slices=slices)
    assert diagnostics.errors == (problem,)


def test_fifty_values_are_not_too_many(tmp_path: pathlib.Path) -> None:
    diagnostics = Diagnostics()
    assert load_queries(write(tmp_path, *[{}] * 50), diagnostics, slices=["id"]).slices.height == 50
    assert diagnostics.errors == ()


# --- jobs ---


def with_meta(tiny: Tiny) -> None:
    """Questions 1 to 3 have one hop, 4 and 5 two, and the last one does not say."""
    lines = []
    for place, line in enumerate(tiny.queries.read_text().splitlines()):
        meta = {} if place == 5 else {"meta": {"hops": 1 if place < 3 else 2}}
        lines.append(json.dumps({**json.loads(line), **meta}))
    tiny.queries.write_text("".join(line + "\n" for line in lines))


BY_SLICE: tuple[TableSchema, ...] = (CELL_SHARES, SLICE_MEANS, SLICE_COMPARISONS)


@pytest.mark.long
def test_other_slices_cost_no_reading_and_are_those_of_a_job_that_had_them_at_once(
    tiny: Tiny, reads_here: list[int]
) -> None:
    with_meta(tiny)
    compare(tiny)
    assert table(tiny, SLICE_MEANS).is_empty()
    other = tiny.with_config(slices=["meta.hops", "known"])
    evaluate(other.config, prepared(other.config))
    assert reads_here == [37]
    assert dict(table(other, SLICES).select("query_id", "value").rows()) == {
        "q1": "1", "q2": "1", "q3": "1", "q4": "2", "q5": "2", "q6": "(none)",
    }  # fmt: skip
    found = table(other, SLICE_MEANS, run_id="good", annotator="end_to_end", depth=3)
    # q1 is wrong; the reader knows nothing
    assert found.select("slice", "value", "mean").rows() == [
        ("meta.hops", "1", pytest.approx(2 / 3)),
        ("meta.hops", "2", 1.0),
        ("meta.hops", "(none)", 1.0),
        ("known", "no", pytest.approx(5 / 6)),
    ]
    assert set(table(other, SLICE_COMPARISONS)["p_value"]) == {None}
    at_once = other.with_config(out=f"{tiny.config.out}-other")
    compare(at_once)
    for schema in (SLICES, *BY_SLICE):
        assert_frame_equal(table(other, schema), table(at_once, schema))


def test_sealed_slices_need_no_question_files_and_others_do(tiny: Tiny, reads_here: list[int]) -> None:
    with_meta(tiny)
    own = tiny.with_config(slices=["meta.hops"])
    compare(own)
    tiny.queries.unlink()
    evaluate(own.config, prepared(own.config))
    more = own.with_config(slices=["meta.hops", "known"])
    evaluate(more.config, prepared(more.config))
    assert set(table(more, SLICE_MEANS)["slice"]) == {"meta.hops", "known"}
    others = own.with_config(slices=["id"])
    with pytest.raises(InputError, match=r"queries.jsonl: cannot be read: No such file"):
        prepared(others.config)
    assert not table(more, SLICES).is_empty()


def test_a_wrong_slice_ends_the_job_before_anything_is_sealed(tiny: Tiny) -> None:
    wrong = tiny.with_config(slices=["meta.hops", "known"])
    with pytest.raises(InputError, match=r"slices: meta.hops: no record has meta.hops"):
        prepare(wrong.config)
    assert not TableStore(wrong.config.out).is_sealed(SLICES)
    prepare(tiny.config)
    # and what stands there stays
    with pytest.raises(InputError, match=r"slices: meta.hops: no record has meta.hops"):
        prepare(wrong.config)
    assert TableStore(wrong.config.out).is_sealed(SLICES)


def test_tables_of_a_report_by_slice(tiny: Tiny, reads_here: list[int]) -> None:
    with_meta(tiny)
    own = tiny.with_config(slices=["meta.hops"])
    compare(own)
    tables = slice_tables(
        table(own, SLICE_MEANS), table(own, SLICE_COMPARISONS), "tiny", ["good", "bad"], 0.95
    )
    assert [one.name for one in tables] == ["slice-means-tiny", "slice-comparisons-tiny"]
    for one in tables:
        assert {len(row) for row in one.rows} == {len(one.columns)}
    first, tests = tables
    assert [column.name for column in first.columns] == [
        "slice", "value", "mean of", "questions", "good", "bad", "no passages", "gold passages",
    ]  # fmt: skip
    assert [value.value for value in first.rows[0]] == [
        "meta.hops", "1", "utility@3", 3, pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0, pytest.approx(2 / 3),
    ]  # fmt: skip
    assert [row[2].value for row in first.rows] == ["utility@3", "erag P@3"] * 3
    assert [value.value for value in tests.rows[0][:5]] == ["meta.hops", "1", "bad - good", "utility@3", 3]
    assert tests.rows[0][6].reason == "3 questions, fewer than 10: no test"
    assert (
        slice_tables(table(own, SLICE_MEANS).clear(), table(own, SLICE_COMPARISONS).clear(), "tiny", [], 0.9)
        == []
    )
    assert set(table(own, MEANS)["dataset"]) == {"tiny"}
