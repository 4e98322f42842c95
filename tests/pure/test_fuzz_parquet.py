"""Parquet files of passages, runs and pages, with columns of any type or damaged bytes: a right table, or a message."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import math
import pathlib
import tempfile
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz_oracles import read_all_pages, read_corpus, read_lists
from fuzzing import check_messages, check_outcome, damaged, need, tried
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.data.files.diagnostics import Diagnostics

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
    arrays = {name: array_of(kind, values) for name, (kind, values) in found.items()}
    out = io.BytesIO()
    pq.write_table(pa.table(arrays), out)
    return out.getvalue()


def array_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


# --- oracles: the columns, read again in the plainest way ---


def texts(found: Columns, name: str) -> list[str | None]:
    kind, values = found[name]
    need(kind in TEXTS or kind in WHOLE or kind == pa.null())
    return [None if value is None else str(value) for value in values]


def ids(found: Columns, name: str) -> list[str | None]:
    """As `texts`; whole numbers may be stored as floats."""
    kind, values = found[name]
    if kind not in (*REAL, pa.float16(), pa.decimal128(5, 2)):
        return texts(found, name)
    numbers = [None if value is None else float(value) for value in array_of(kind, values).to_pylist()]
    need(all(value is None or (value.is_integer() and abs(value) < 2**53) for value in numbers))
    return [None if value is None else str(int(value)) for value in numbers]


def is_id(value: str | None) -> bool:
    return value is not None and bool(value.strip())


def passages_of(found: Columns) -> list[Any]:
    nothing = pa.null(), [None] * len(found["doc_id"][1])
    found = {"page_id": nothing, "title": nothing, **found}
    doc_ids, page_ids = ids(found, "doc_id"), ids(found, "page_id")
    titles, bodies = texts(found, "title"), texts(found, "text")
    need(doc_ids and all(map(is_id, doc_ids)) and len(set(doc_ids)) == len(doc_ids) and None not in bodies)
    return [*zip(doc_ids, page_ids, [title or "" for title in titles], bodies, strict=True)]


def pages_of(found: Columns) -> list[Any]:
    titles, bodies = texts(found, "title"), texts(found, "text")
    need(all(map(is_id, titles)) and None not in bodies)
    names = [unicodedata.normalize("NFC", str(title)).strip() for title in titles]
    return [(name, name, (name, *str(body).split("\n\n"))) for name, body in zip(names, bodies, strict=True)]


def numbers(found: Columns, name: str, kinds: tuple[pa.DataType, ...]) -> list[Any]:
    kind, values = found[name]
    need(kind in kinds or kind == pa.null())
    return [None if value is None else value for value in array_of(kind, values).to_pylist()]


def lists_of(found: Columns) -> list[Any]:
    queries, docs = ids(found, "query_id"), ids(found, "doc_id")
    need("rank" in found or "score" in found)
    scores = (
        numbers(found, "score", (*WHOLE, *REAL, pa.float16())) if "score" in found else [None] * len(queries)
    )
    need(all(score is None or math.isfinite(score) for score in scores))
    rows = [
        row for row in zip(queries, docs, scores, range(len(queries)), strict=True) if row[3] in chosen(found)
    ]
    ranks = numbers(found, "rank", (*WHOLE, *REAL, pa.float16())) if "rank" in found else []
    need(all(rank is not None and float(rank).is_integer() and abs(rank) < 2**64 for rank in ranks))
    of_lists = [[ranks[row[3]] for row in rows if row[0] == query] for query in set(queries)] if ranks else []
    longer = [one for one in of_lists if len(one) > 1]
    is_constant = (
        longer and all(len({*one}) == 1 for one in longer) and any(row[2] is not None for row in rows)
    )
    if ranks and not is_constant:
        rows.sort(key=lambda row: (str(row[0]).encode(), ranks[row[3]]))
        made = ranked(rows)
        start = min(ranks[row[3]] for row in rows) == 0
        need(all(ranks[row[3]] + start == one[1] for row, one in zip(rows, made, strict=True)))
        need_falling(rows, [one[1] for one in made])
        return made
    need(all(row[2] is not None for row in rows))
    if not ranks:
        need_falling(rows, [row[3] + 1 for row in rows])
    with np.errstate(over="ignore"):
        rows.sort(key=lambda row: (np.float32(row[2]), str(row[1]).encode()), reverse=True)
    rows.sort(key=lambda row: str(row[0]).encode())
    return ranked(rows)


def need_falling(rows: list[Any], ranks: list[int]) -> None:
    """Scores may not rise in nearly all lists; ``rows`` are in the order that the file claims."""
    lists: dict[Any, list[tuple[float, int]]] = {}
    for row, rank in zip(rows, ranks, strict=True):
        if row[2] is not None:
            lists.setdefault(row[0], []).append((row[2], rank))
    differing = [pairs for pairs in lists.values() if len({score for score, _ in pairs}) > 1]
    rising = [pairs for pairs in differing if pairs == sorted(pairs, key=lambda pair: pair[0])]
    steps = sum(before[0] < after[0] for pairs in rising for before, after in itertools.pairwise(pairs))
    are_ranks = all(score == rank for pairs in rising for score, rank in pairs)
    need(not rising or len(rising) < 0.9 * len(differing) or not (are_ranks or steps > 1))


def chosen(found: Columns) -> set[int]:
    """The rows of the run called r; all where the file holds one run."""
    if "run_id" not in found:
        return {*range(10)}
    kind, values = found["run_id"]
    need(kind in TEXTS or kind in WHOLE or kind == pa.null())
    runs = [None if value is None else str(value) for value in values]
    several = len(set(runs)) > 1
    return {place for place, run in enumerate(runs) if not several or run == "r"}


def ranked(rows: list[Any]) -> list[Any]:
    need(rows and all(is_id(query) and is_id(doc) for query, doc, *_ in rows))
    need(len({row[:2] for row in rows}) == len(rows))
    made, count = [], {}
    for query, doc, score, _ in rows:
        count[query] = count.get(query, 0) + 1
        made.append((query, count[query], doc, None if score is None else float(score), None, None))
    return made


FORMS: dict[str, tuple[Callable[[pathlib.Path, Diagnostics], list[Any]], Callable[[Columns], list[Any]]]] = {
    "passages": (read_corpus, passages_of),
    "runs": (read_lists, lists_of),
    "pages": (read_all_pages, pages_of),
}


@pytest.mark.parametrize("form", FORMS)
@tried(30)
@given(data=st.data())
def test_columns_of_any_type(form: str, data: st.DataObject) -> None:
    check(form, data.draw(columns(form)))


def check(form: str, found: Columns) -> None:
    read, oracle = FORMS[form]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "file.parquet"
        path.write_bytes(parquet(found))
        diagnostics = Diagnostics()
        rows = read(path, diagnostics)
        check_outcome(diagnostics, rows, lambda: oracle(found), path)


GOOD: dict[str, Columns] = {
    "passages": {name: (pa.string(), ["a", "b", "c"]) for name in NAMES["passages"]},
    "runs": {
        "query_id": (pa.string(), ["q", "q", "p"]),
        "doc_id": (pa.string(), ["a", "b", "a"]),
        "rank": (pa.int32(), [1, 2, 1]),
        "score": (pa.float64(), [2.0, 1.0, 3.0]),
    },
    "pages": {name: (pa.string(), ["a", "b", "c"]) for name in NAMES["pages"]},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_oracles_agree_on_whole_files(form: str) -> None:
    assert FORMS[form][1](GOOD[form]) != []
    check(form, GOOD[form])


@pytest.mark.parametrize("form", FORMS)
@tried(30)
@given(data=st.data())
def test_damaged_bytes_of_parquet(form: str, data: st.DataObject) -> None:
    content = data.draw(damaged(parquet(GOOD[form])))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "file.parquet"
        path.write_bytes(content)
        diagnostics = Diagnostics()
        FORMS[form][0](path, diagnostics)
        check_messages(diagnostics, path)
