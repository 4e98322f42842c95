"""Slices of the questions: their values, and means, comparisons and cells by slice, against other ways to them."""

import datetime
import json
import math
import pathlib
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from evaluated import framed, queries
from evaluated import settings as settings_of
from input_files import diagnosed, without_errors
from polars.testing import assert_frame_equal
from tiny import Tiny, make_tables, table

from erag_ray.analyses.cell_shares import CELL_SHARES
from erag_ray.analyses.columns import PER_QUERY, by_dataset
from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.slices import SLICE_COMPARISONS, SLICE_MEANS, slice_comparisons, slice_means
from erag_ray.data.datasets.paths import SlicePaths
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.jsonl import Record
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.store.schemas import SLICES, UTILITY, TableSchema
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

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


def compared(values: Values, **named: Sequence[str]) -> pl.DataFrame:
    """SLICE_COMPARISONS of eRAG's P."""
    lists, scores = tables_of(values, values)
    count = len(next(iter(values.values())))
    (whole,) = by_dataset([lists], scores, asked(count), settings_of())
    return slice_comparisons(whole, slices_of(**named), settings_of()).filter(annotator="erag")


def test_a_dataset_without_values_leaves_the_slice_out() -> None:
    values = {"A": [1.0, 0.0], "B": [0.0, 0.0]}
    found = compared(values, hops=["(none)"] * 2, split=["dev", "(none)"])
    assert found.select("slice", "value").rows() == [("split", "dev"), ("split", "(none)")]


def test_values_come_in_the_order_of_numbers_then_texts_then_none() -> None:
    names = ["(none)", "10", "2", "nan", "bridge", "-1.5"]
    column = {"A": [1.0] * 6, "B": [0.0] * 6}
    lists, scores = tables_of(column, column)
    (whole,) = by_dataset([lists], scores, asked(6), settings_of())
    found = slice_means(whole, slices_of(hops=names), settings_of())
    assert ",".join(found["value"].unique(maintain_order=True)) == "-1.5,2,10,bridge,nan,(none)"


# --- files ---


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, "(none)"), (2020.0, "2020"), (datetime.date(2020, 1, 2), "2020-01-02"), (["é"], '["é"]')],
)
def test_values_of_tables_are_those_of_files(value: object, text: str) -> None:
    paths = SlicePaths(diagnostics=Diagnostics(), paths={"x": "slices"})
    paths.add("q1", Record({"x": value}, "q.parquet", 1, paths.diagnostics))
    assert paths.rows == [("q1", "x", text)]


def write(folder: pathlib.Path, *metas: object) -> pathlib.Path:
    path = folder / "nq.jsonl"
    records = [{"id": f"q{place}", "question": "who", "answers": ["x"]} for place in range(len(metas))]
    records = [
        one | ({} if meta is ... else {"meta": meta}) for one, meta in zip(records, metas, strict=True)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_values_are_texts_as_those_of_where(tmp_path: pathlib.Path) -> None:
    metas = [*({"hops": value} for value in (2, "2", True, None, " ")), {}, ..., "flat", {"hops": [1]}]
    loaded = without_errors(load_queries, write(tmp_path, *metas), slices=["meta.hops", "meta.hops"])
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
    _, diagnostics = diagnosed(load_queries, write(tmp_path, *[{"hops": 2}] * 51), slices=slices)
    assert diagnostics.errors == (problem,)
    # fifty values are not too many
    assert without_errors(load_queries, write(tmp_path, *[{}] * 50), slices=["id"]).slices.height == 50


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
    make_tables(tiny)
    assert table(tiny, SLICE_MEANS).is_empty()
    other = tiny.with_config(slices=["meta.hops", "known"])
    evaluate(other.config, prepared(other.config))
    assert reads_here == [37]
    at_once = other.with_config(out=f"{tiny.config.out}-other")
    make_tables(at_once)
    for schema in (SLICES, *BY_SLICE):
        assert_frame_equal(table(other, schema), table(at_once, schema))


def test_sealed_slices_need_no_question_files_and_others_do(tiny: Tiny, reads_here: list[int]) -> None:
    with_meta(tiny)
    own = tiny.with_config(slices=["meta.hops"])
    make_tables(own)
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
