"""Lists do not depend on how an index is cut: shards, parts, repeated passages, rounding on the way."""

import math
import pathlib
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranked_lists import corpus_of, lists_of

from erag_ray.retrieve import bm25
from erag_ray.retrieve.dense import index as dense
from erag_ray.retrieve.dense.index import Shard, exact
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import write_array


@pytest.mark.long
def test_compiled_or_not_the_lists_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    words = [" ".join(generator.choice(list("abcdefgh"), 6)) for _ in range(200)]
    corpus = corpus_of({f"d{number}": ("", text) for number, text in enumerate(words)})
    asked = ("b c", "h h e f", "z", "d")
    plain = [lists_of(corpus, *asked, depth=depth) for depth in (1, 7, 500)]
    monkeypatch.setattr(bm25, "COMPILED_FROM", 0)
    assert [lists_of(corpus, *asked, depth=depth) for depth in (1, 7, 500)] == plain


def test_equal_scores_beyond_the_margin_go_by_document_id() -> None:
    corpus = corpus_of({f"d{number:03}": ("", "mill") for number in range(100)} | {"x": ("", "river")})
    (found,) = lists_of(corpus, "mill", depth=3)
    assert [name for name, _ in found] == ["d099", "d098", "d097"]


# --- vectors ---


def write_index(place: pathlib.Path, vectors: np.ndarray, numbers: Sequence[int], per_part: int) -> Folder:
    """An index of given vectors: document ``place`` has text ``numbers[place]``."""
    index = Folder(str(place))
    for number, start in enumerate(range(0, len(vectors), per_part)):
        write_array(
            vectors[start : start + per_part].astype(np.float16), index, "vectors", f"{number:05}.npy"
        )
    frame = pl.DataFrame({"doc_id": [f"d{one}" for one in range(len(numbers))], "number": numbers})
    index.write_parquet(frame.cast({"number": pl.UInt32}).to_arrow(), "documents.parquet")
    return index


def by_hand(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Every score, one by one."""
    halves = vectors.astype(np.float16).astype(np.float64)
    return np.array(
        [[float(np.float32(np.dot(half, query))) for half in halves] for query in queries.astype(np.float64)]
    )


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 5), st.integers(0, 10_000), st.booleans())
def test_the_best_texts_of_all_shards_are_those_of_a_whole_sort(
    tmp_path_factory: pytest.TempPathFactory, count: int, depth: int, per_shard: int, seed: int, close: bool
) -> None:
    generator = np.random.default_rng(seed)
    # few values: many ties; or vectors that differ by less than single precision can tell
    vectors = generator.integers(-1, 2, (count, 4)).astype(np.float64)
    if close:
        vectors = np.ones((count, 64)) + generator.integers(0, 2, (count, 64)) * 2.0**-10
    queries = generator.normal(size=(3, vectors.shape[1])).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "TEXTS_PER_PART", 4)
        patch.setattr(dense, "MARGIN", 1)
        index = write_index(tmp_path_factory.mktemp("index"), vectors, range(count), 4)
        parts = range(math.ceil(count / 4))
        shards = [Shard(index, parts[start : start + per_shard]) for start in parts[::per_shard]]
        found = [shard.search(queries, depth) for shard in shards]
    expected = by_hand(queries, vectors)
    for query in range(3):
        pairs = sorted(
            (-float(score), int(text)) for shard in found for text, score in zip(*shard[query], strict=True)
        )
        wanted = sorted((-score, text) for text, score in enumerate(expected[query]))
        assert [text for _, text in pairs[:depth]] == [text for _, text in wanted[:depth]]
        assert [score for score, _ in pairs[:depth]] == pytest.approx(
            [score for score, _ in wanted[:depth]], rel=1e-6
        )


def test_a_pair_has_the_same_score_wherever_it_is_computed() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(500, 384)).astype(np.float16)
    queries = generator.normal(size=(70, 384)).astype(np.float32)
    texts = np.stack([generator.permutation(500) for _ in range(70)])
    whole = exact(queries, vectors, texts)
    for row in (0, 5, 69):
        alone = exact(queries[row : row + 1], vectors[texts[row, 3:4]], np.zeros((1, 1), np.int64))
        assert alone[0, 0] == whole[row, 3]


@settings(max_examples=25)
@given(width=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
def test_products_are_those_of_double_precision(width: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(5, width)).astype(np.float16)
    queries = generator.normal(size=(3, width)).astype(np.float32)
    found = exact(queries, vectors, np.tile(np.arange(5), (3, 1)))
    assert found == pytest.approx(
        queries.astype(np.float64) @ vectors.astype(np.float64).T, rel=2e-7, abs=1e-12
    )
