"""Parquet files of passages, runs and pages, columns of any type: tables that conform, or messages."""

import datetime
import decimal
import io
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz_forms import Read, check, read_all_pages, read_corpus, read_lists
from fuzzing import tried
from hypothesis import given
from hypothesis import strategies as st

Columns = dict[str, tuple[pa.DataType, list[Any]]]
TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
CODED = pa.dictionary(pa.int32(), pa.int64())
WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), CODED)
REAL = (pa.float32(), pa.float64())
words = st.one_of(
    st.sampled_from(
        ["a", "b", "d1", "", " ", "\x00", "\x1b[2J", "\u3000", "x" * 5000, "e\u0301", "é", "a\n\nb", "["]
    ),
    st.text(max_size=3),
)
OTHERS: dict[pa.DataType, Any] = {
    pa.binary(): b"\xff",
    pa.bool_(): True,
    pa.float16(): np.float16(1),
    pa.list_(pa.string()): ["a"],
    pa.large_list(pa.int32()): [1],
    pa.struct({"a": pa.string()}): {"a": "b"},
    pa.map_(pa.string(), pa.string()): [("a", "b")],
    pa.date32(): datetime.date(2024, 1, 1),
    pa.timestamp("us", "UTC"): datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    pa.duration("us"): datetime.timedelta(1),
    pa.decimal128(5, 2): decimal.Decimal("1.25"),
    pa.dictionary(pa.int8(), pa.binary()): b"a",
}
NAMES = {
    "passages": ["doc_id", "page_id", "title", "text"],
    "runs": ["query_id", "doc_id", "rank", "score", "run_id"],
    "pages": ["title", "text"],
}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind in TEXTS:
        return words
    if kind == CODED:
        return st.integers(0, 4)
    if kind in WHOLE:
        signed = not str(kind).startswith("u")
        low, high = -(2 ** (kind.bit_width - 1)) * signed, 2 ** (kind.bit_width - signed) - 1
        return st.one_of(st.integers(0, 4), st.integers(low, high))
    if kind in REAL:
        return st.one_of(st.sampled_from([0.5, 1.0, 2.0, math.nan, math.inf, -math.inf]), st.floats(width=32))
    return st.just(OTHERS.get(kind))


@st.composite
def columns(draw: st.DrawFn, form: str) -> Columns:
    """Columns of the form, most of types that are read, some not, with some nulls; few rows."""
    height = draw(st.integers(0, 4))
    found: Columns = {}
    for name in NAMES[form]:
        fitting = (*WHOLE, *REAL) if name in ("rank", "score") else (*TEXTS, *TEXTS, *WHOLE)
        kind = draw(st.one_of(st.sampled_from(fitting), st.sampled_from(fitting), st.sampled_from(ALL)))
        value = (
            st.one_of(values_of(kind), values_of(kind), values_of(kind), st.none())
            if draw(st.booleans())
            else values_of(kind)
        )
        found[name] = kind, draw(st.lists(value, min_size=height, max_size=height))
    if draw(st.booleans()) and "rank" in found:
        found["rank"] = draw(st.sampled_from([pa.int32(), pa.int64(), pa.uint8()])), [*range(1, height + 1)]
    for name in draw(st.sets(st.sampled_from([*NAMES[form], "row", "place", "order"]), max_size=2)):
        if name in found:
            del found[name]
        else:
            found[name] = pa.int64(), [*range(height)]
    return found


ALL = (*TEXTS, *WHOLE, *REAL, *OTHERS, pa.null())


def parquet(found: Columns) -> bytes:
    arrays = {
        name: pa.array(values, kind.value_type).dictionary_encode().cast(kind)
        if pa.types.is_dictionary(kind)
        else pa.array(values, kind)
        for name, (kind, values) in found.items()
    }
    out = io.BytesIO()
    pq.write_table(pa.table(arrays), out)
    return out.getvalue()


FORMS: dict[str, Read] = {"passages": read_corpus, "runs": read_lists, "pages": read_all_pages}


@pytest.mark.parametrize("form", FORMS)
@tried(30)
@given(data=st.data())
def test_columns_of_any_type(form: str, data: st.DataObject) -> None:
    check("file.parquet", parquet(data.draw(columns(form))), FORMS[form])
