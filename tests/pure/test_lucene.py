"""BM25 by Lucene: the scores of BM25, ties, odd questions. Skipped where the extra is not installed."""

from __future__ import annotations

import importlib.util
import pathlib

import numpy as np
import polars as pl
import pytest
from ranked_lists import corpus_of

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve import lucene, make_retriever
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import do_tasks

is_missing = any(importlib.util.find_spec(name) is None for name in lucene.PACKAGES)
needs_lucene = pytest.mark.skipif(is_missing, reason="needs the extra lucene")


def search(
    folder: pathlib.Path, kind: str, corpus: pl.DataFrame, questions: list[str], depth: int
) -> pl.DataFrame:
    retriever = make_retriever(kind, RetrieverConfig(kind=kind))
    index, work = Folder(str(folder / kind)), Folder(str(folder / f"{kind}-work"))
    retriever.build(corpus, index, do_tasks)
    asked = pl.DataFrame(
        {"query_id": [f"q{number}" for number in range(len(questions))], "question": questions}
    )
    found: pl.DataFrame = retriever.search(index, asked, work, depth, do_tasks)
    return found


def lists_of(found: pl.DataFrame) -> dict[str, list[str]]:
    return {
        query: rows["doc_id"].to_list() for (query,), rows in found.group_by("query_id", maintain_order=True)
    }


@needs_lucene
def test_scores_are_those_of_bm25_where_lengths_are_not_rounded(tmp_path: pathlib.Path) -> None:
    generator = np.random.default_rng(0)
    vocabulary = [f"{first}{second}x" for first in "bcdfg" for second in "klmnp"]
    texts = [" ".join(generator.choice(vocabulary, generator.integers(1, 30))) for _ in range(300)]
    corpus = corpus_of({f"d{number:03}": ("", text) for number, text in enumerate(texts)})
    questions = [" ".join(generator.choice(vocabulary, 3)) for _ in range(40)]
    ours, theirs = (search(tmp_path, kind, corpus, questions, 300) for kind in ("bm25", "lucene"))
    both = ours.join(theirs, on=["query_id", "doc_id"], how="full", suffix="_lucene")
    assert both.height == ours.height == theirs.height > 1000
    assert both["score"].to_numpy() == pytest.approx(both["score_lucene"].to_numpy(), abs=2e-3)
    assert (both["score"] - both["score_lucene"]).abs().median() < 1e-4  # type: ignore[operator]


@needs_lucene
def test_ties_go_by_document_id_last_one_first_also_where_a_list_is_cut(tmp_path: pathlib.Path) -> None:
    corpus = corpus_of({f"d{number}": ("", "the same words " * 20) for number in range(120)})
    lists = lists_of(search(tmp_path, "lucene", corpus, ["same words"], 7))
    assert lists["q0"] == sorted((f"d{number}" for number in range(120)), reverse=True)[:7]


@needs_lucene
def test_odd_questions_have_a_list_or_none(tmp_path: pathlib.Path) -> None:
    corpus = corpus_of({"a": ("", "alpha beta"), "b": ("", ""), "c": ("Gamma", "delta")})
    asked = [
        "",
        "the of",
        "zzz",
        "alpha " * 10_000,
        " ".join(f"w{n}" for n in range(10_000)) + " delta",
        'a+b "~(',
    ]
    lists = lists_of(search(tmp_path, "lucene", corpus, asked, 10))
    assert lists == {"q3": ["a"], "q4": ["c"]}


@needs_lucene
def test_a_half_written_index_is_written_again(tmp_path: pathlib.Path) -> None:
    corpus = corpus_of({"a": ("", "alpha beta"), "c": ("", "delta")})
    (tmp_path / "lucene" / "lucene").mkdir(parents=True)
    (tmp_path / "lucene" / "lucene" / "segments_1").write_bytes(b"torn")
    assert lists_of(search(tmp_path, "lucene", corpus, ["delta"], 10)) == {"q0": ["c"]}


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"lucene needs the packages pyserini, jnius: pip install 'erag-ray\[lucene\]'"
    ):
        make_retriever("lucene", RetrieverConfig(kind="lucene"))
