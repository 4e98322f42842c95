"""BM25 by Lucene: the scores of BM25, ties, odd questions. Skipped where the extra is not installed."""

from __future__ import annotations

import importlib.util
import pathlib

import numpy as np
import polars as pl
import pytest
from ranked_lists import corpus_of, questions, searched

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve import lucene, make_retriever
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import do_tasks

is_missing = any(importlib.util.find_spec(name) is None for name in lucene.PACKAGES)
needs_lucene = pytest.mark.skipif(is_missing, reason="needs the extra lucene")


def lists_of(found: pl.DataFrame) -> dict[str, list[str]]:
    return dict(found.group_by("query_id", maintain_order=True).agg("doc_id").iter_rows())


@needs_lucene
def test_scores_are_those_of_bm25_where_lengths_are_not_rounded() -> None:
    generator = np.random.default_rng(0)
    vocabulary = [f"{first}{second}x" for first in "bcdfg" for second in "klmnp"]
    texts = [" ".join(generator.choice(vocabulary, generator.integers(1, 30))) for _ in range(300)]
    corpus = corpus_of({f"d{number:03}": ("", text) for number, text in enumerate(texts)})
    asked = [" ".join(generator.choice(vocabulary, 3)) for _ in range(40)]
    ours, theirs = (searched(corpus, *asked, depth=300, kind=kind) for kind in ("bm25", "lucene"))
    both = ours.join(theirs, on=["query_id", "doc_id"], how="full", suffix="_lucene")
    assert both.height == ours.height == theirs.height > 1000
    assert both["score"].to_numpy() == pytest.approx(both["score_lucene"].to_numpy(), abs=2e-3)
    assert (both["score"] - both["score_lucene"]).abs().median() < 1e-4  # type: ignore[operator]


@needs_lucene
def test_ties_go_by_document_id_last_one_first_also_where_a_list_is_cut() -> None:
    corpus = corpus_of({f"d{number}": ("", "the same words " * 20) for number in range(120)})
    lists = lists_of(searched(corpus, "same words", depth=7, kind="lucene"))
    assert lists["q0"] == sorted((f"d{number}" for number in range(120)), reverse=True)[:7]


@needs_lucene
def test_odd_questions_have_a_list_or_none() -> None:
    corpus = corpus_of({"a": ("", "alpha beta"), "b": ("", ""), "c": ("Gamma", "delta")})
    asked = [
        "",
        "the of",
        "zzz",
        "alpha " * 10_000,
        " ".join(f"w{n}" for n in range(10_000)) + " delta",
        'a+b "~(',
    ]
    lists = lists_of(searched(corpus, *asked, depth=10, kind="lucene"))
    assert lists == {"q3": ["a"], "q4": ["c"]}


@needs_lucene
def test_a_half_written_index_is_written_again(tmp_path: pathlib.Path) -> None:
    corpus = corpus_of({"a": ("", "alpha beta"), "c": ("", "delta")})
    index, retriever = Folder(str(tmp_path)), make_retriever("lucene", RetrieverConfig(kind="lucene"))
    (tmp_path / "lucene").mkdir()
    (tmp_path / "lucene" / "segments_1").write_bytes(b"torn")
    retriever.build(corpus, index, do_tasks)
    found = retriever.search(index, questions("delta"), index, 10, do_tasks)
    assert lists_of(found) == {"q0": ["c"]}


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"lucene needs the packages pyserini, jnius: pip install 'erag-ray\[lucene\]'"
    ):
        make_retriever("lucene", RetrieverConfig(kind="lucene"))
