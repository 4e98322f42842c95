"""Repeated texts in lists: against a plain quadratic Jaccard, and through a whole comparison."""

from __future__ import annotations

import itertools
import re
import unicodedata

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tiny import Tiny, compare, passage_line, table, tables_text, trec_lines

from erag_ray.runs import NEARLY_EQUAL, SHINGLE_WORDS, list_duplicates
from erag_ray.schemas import LIST_DUPLICATES
from erag_ray.store import TableStore

WORDS = st.sampled_from(["a", "b", "the", "Sea", "sea,"])
TEXTS = st.lists(st.one_of(st.just(""), st.lists(WORDS, max_size=14).map(" ".join)), min_size=1, max_size=8)


def tables_of(texts: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two runs of one query over these texts, one in their order and one in reverse, and the corpus."""
    ids = [f"d{number}" for number in range(len(texts))]
    rows = [
        (run, "q", rank, doc_id)
        for run, order in (("one", ids), ("two", ids[::-1]))
        for rank, doc_id in enumerate(order, 1)
    ]
    runs = pl.DataFrame(rows, schema=["run_id", "query_id", "rank", "doc_id"], orient="row")
    return runs, pl.DataFrame({"doc_id": ids, "text": texts})


def words_of(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()))


def plain_counts(texts: list[str], depth: int) -> tuple[int, int, int]:
    """Documents, exact and near ones, by comparing each with all before it."""
    num_exact = num_near = 0
    shingles = []
    for text in texts:
        words = words_of(text)
        starts = range(max(1, len(words) - SHINGLE_WORDS + 1))
        shingles.append({words[start : start + SHINGLE_WORDS] for start in starts} if words else set())
    for number in range(min(depth, len(texts))):
        earlier = range(number)
        if any(words_of(texts[number]) == words_of(texts[other]) != () for other in earlier):
            num_exact += 1
        elif any(
            shingles[number]
            and len(shingles[number] & shingles[other]) / len(shingles[number] | shingles[other])
            >= NEARLY_EQUAL
            for other in earlier
        ):
            num_near += 1
    return min(depth, len(texts)), num_exact, num_near


@given(texts=TEXTS)
def test_counts_are_those_of_a_plain_quadratic_jaccard(texts: list[str]) -> None:
    found = list_duplicates(*tables_of(texts), [2, 8]).rows_by_key(["run_id", "depth"], unique=True)
    for (run, order), depth in itertools.product((("one", texts), ("two", texts[::-1])), (2, 8)):
        assert found[run, depth][1:] == plain_counts(order, depth)


def test_a_text_with_one_more_word_is_nearly_equal() -> None:
    text = "a b c d e f g h i j"
    rows = list_duplicates(*tables_of([text, text.upper(), f"{text} k", "k l m"]), [4]).filter(run_id="one")
    assert rows.select("num_documents", "num_exact", "num_near").row(0) == (4, 1, 1)


def test_duplicates_in_a_comparison(tiny: Tiny, reads_here: list[int]) -> None:
    with tiny.passages.open("a") as file:
        file.write(passage_line("d13", "p9", "Copy", "She built the Marn bridge!"))
    tiny.run("bad").write_text(trec_lines({"q1": "d1 d13 d2", "q2": "d3"}))
    tiny = tiny.with_config(duplicates=True)
    compare(tiny)
    counts = table(tiny, LIST_DUPLICATES, depth=3).select("run_id", "query_id", "num_documents", "num_exact")
    assert {("bad", "q1", 3, 1), ("bad", "q2", 1, 0), ("good", "q1", 3, 0)} <= set(counts.rows())
    assert "how often lists repeat a text" in tables_text(tiny)
    compare(tiny.with_config(duplicates=False))
    assert not TableStore(tiny.config.out).is_sealed(LIST_DUPLICATES)
    assert "how often lists repeat a text" not in tables_text(tiny)
