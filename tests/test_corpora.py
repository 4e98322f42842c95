"""Runs that search several corpora: equal ids stay apart, numbers stay the same, no ideal is over the pool of all."""

import json
import pathlib
from typing import Any

import polars as pl
import pytest
from pages import page_line
from polars.testing import assert_frame_equal
from tiny import PASSAGES, RUNS, Tiny, make_tables, num_reader_calls, table, tables_text

import erag_ray as er
from erag_ray.analyses.columns import PER_QUERY
from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.config.retrieval import CorpusConfig, RetrieverConfig
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.retrieve.stage import make_runs
from erag_ray.store.schemas import CORPUS, GOLD, LABELS, LIST_TOKENS, UTILITY
from erag_ray.store.schemas import RUNS as RUN_TABLE
from erag_ray.support.errors import InputError

OWN_IDEAL = pl.col("ideal") != "pool"


def in_two_corpora(tiny: Tiny, **changes: object) -> Tiny:
    """The comparison with each run in a corpus of its own; both have the same passages."""
    corpora = {name: CorpusConfig(passages=[str(tiny.passages)]) for name in ("left", "right")}
    two = tiny.with_config(passages=[], corpora=corpora, run_corpora={"good": "left", "bad": "right"})
    return two.with_config(out=f"{tiny.config.out}-two", **changes)


def without_corpus(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the ids that the passage files have."""
    return rows.with_columns(pl.col("doc_id").str.split("/").list.last())


@pytest.mark.long
def test_the_numbers_are_those_of_one_corpus(compared: Tiny) -> None:
    asked = num_reader_calls(compared)
    two = in_two_corpora(compared)
    make_tables(two)
    # a request has texts and no ids: nothing is asked again
    assert (asked > 0, num_reader_calls(two)) == (True, 0)
    labels = without_corpus(table(two, LABELS)).unique().sort(LABELS.key)
    assert_frame_equal(labels, table(compared, LABELS).sort(LABELS.key), check_exact=True)
    for schema in (UTILITY, PER_QUERY):
        expected = table(compared, schema)
        expected = expected.filter(OWN_IDEAL) if schema is PER_QUERY else expected
        assert_frame_equal(table(two, schema).sort(schema.key), expected.sort(schema.key), check_exact=True)
    assert set(table(two, RUN_TABLE, run_id="bad")["doc_id"].str.split("/").list.first()) == {"right"}


@pytest.mark.long
def test_no_ideal_is_over_the_pool_of_all_corpora(compared: Tiny) -> None:
    make_tables(two := in_two_corpora(compared))
    assert (
        table(compared, PER_QUERY, ideal="pool").height > 0,
        table(two, PER_QUERY, ideal="pool").height,
    ) == (True, 0)
    note = "no measure has the pool of all runs as ideal (corpora: left, right)"
    assert (note in tables_text(two), note in tables_text(compared)) == (True, False)
    one = compared.with_config(
        passages=[], corpora={"left": CorpusConfig(passages=[str(compared.passages)])},
        run_corpora={"good": "left", "bad": "left"}, out=f"{compared.config.out}-one",
    )  # fmt: skip
    make_tables(one)
    # runs that search the same corpus have a pool
    assert_frame_equal(table(one, PER_QUERY), table(compared, PER_QUERY), check_exact=True)


def test_gold_pages_are_read_in_the_first_corpus(tiny: Tiny) -> None:
    prepare(in_two_corpora(tiny).config)
    prepare(tiny.config)
    two = table(in_two_corpora(tiny), GOLD)
    assert set(two["doc_id"].str.split("/").list.first()) == {"left"}
    assert_frame_equal(without_corpus(two), table(tiny, GOLD), check_exact=True)


def test_gold_passages_are_not_used_across_corpora(tiny: Tiny) -> None:
    qrels = tiny.folder / "qrels"
    qrels.write_text("q6 0 d10 1\n")
    inputs = prepare(in_two_corpora(tiny, qrels=[str(qrels)]).config)
    assert any("gold passages, not used: they name documents of one corpus" in note for note in inputs.notes)
    assert "q6" not in inputs.gold["query_id"].to_list()


def test_one_retriever_over_two_splittings(tiny: Tiny, reads_here: list[int]) -> None:
    source = tiny.folder / "source.json"
    pages = {page: page_line(page, title, [title, text]) for page, title, text in PASSAGES.values()}
    source.write_text("".join(pages.values()))
    config = {
        "queries": [str(tiny.queries)], "dataset": "tiny", "reader": {"kind": "echo"}, "depth": 2, "progress": False,
        "corpora": {
            f"{size} words": {"knowledge_source": [str(source)], "splitter": f"whitespace{size}"} for size in (3, 100)
        },
        "retrievers": {"short": {"kind": "bm25"}, "long": {"kind": "bm25"}},
        "run_corpora": {"short": "3 words", "long": "100 words"},
        "out": str(tiny.folder / "sizes"), "cache_dir": str(tiny.folder / "store"),
    }  # fmt: skip
    file = tiny.folder / "sizes.yaml"
    file.write_text(json.dumps(config))
    job = parse(JobConfig, "", ["--config", str(file)])
    make_runs(job)
    made = Tiny(folder=tiny.folder, config=job)
    make_tables(made)
    words = table(made, CORPUS).with_columns(
        corpus=pl.col("doc_id").str.split("/").list.first(), words=pl.col("text").str.split(" ").list.len()
    )
    assert dict(words.group_by("corpus").agg(pl.col("words").max()).iter_rows()) == {
        "3 words": 3,
        "100 words": 8,
    }
    tokens = table(made, LIST_TOKENS)
    sums = dict(tokens.filter(depth=2).group_by("run_id").agg(pl.col("num_prompt_tokens").sum()).iter_rows())
    assert sums["short"] < sums["long"]
    # the single steps find the same
    assert prepared(job).runs.equals(table(made, RUN_TABLE))
    assert pathlib.Path(job.out, "retrieval", "3 words", "runs", "short.parquet").exists()


def test_lists_with_texts_need_only_the_names_of_their_corpora(tiny: Tiny, reads_here: list[int]) -> None:
    for name in ("good", "bad"):
        lines = [
            {
                "query_id": query,
                "documents": [{"doc_id": doc, "text": f"{name} {PASSAGES[doc][2]}"} for doc in docs.split()],
            }
            for query, docs in RUNS[name].items()
        ]
        (tiny.folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    texts = tiny.with_config(
        passages=[], runs={name: str(tiny.folder / f"{name}.jsonl") for name in ("good", "bad")}
    )
    with pytest.raises(InputError, match="document 'd1' has two texts"):
        prepare(texts.config)
    prepare(texts.with_config(run_corpora={"good": "a", "bad": "b"}).config)
    found = dict(table(texts, CORPUS).select("doc_id", "text").iter_rows())
    assert (found["a/d1"], found["b/d1"]) == tuple(f"{name} {PASSAGES['d1'][2]}" for name in ("good", "bad"))


def test_a_document_that_a_corpus_lacks_is_named_with_its_corpus(tiny: Tiny) -> None:
    other = tiny.folder / "other.jsonl"
    other.write_text(tiny.passages.read_text().replace('"d4"', '"d44"'))
    two = in_two_corpora(tiny)
    corpora = {**two.config.corpora, "right": CorpusConfig(passages=[str(other)])}
    with pytest.raises(
        InputError, match=r"run 'bad', query 'q2': document 'right/d4' is not in the passages"
    ):
        prepare(two.with_config(corpora=corpora).config)


@pytest.mark.long
def test_corpora_of_python_are_those_of_the_job(tiny: Tiny, reads_here: list[int]) -> None:
    make_tables(two := in_two_corpora(tiny))
    given: dict[str, Any] = {
        "questions": [str(tiny.queries)], "dataset": "tiny", "reader": {"kind": "echo"}, "runs": two.config.runs,
        "run_corpora": two.config.run_corpora, "depth": 3, "progress": False, "out": f"{tiny.folder}/api",
        "cache_dir": two.config.cache_dir,
    }  # fmt: skip
    corpora = {name: {"passages": [str(tiny.passages)]} for name in ("left", "right")}
    labels = er.label(**given, corpora=corpora).filter(annotator="erag")
    keys = ["query_id", "doc_id", "label"]
    expected = table(two, LABELS, annotator="erag").select(keys).sort(keys)
    assert_frame_equal(labels.select(keys).sort(keys), expected, check_exact=True)
    for wrong, message in (
        ({"left": "x"}, "corpora.left: expected keys .passages, .*, got 'x'"),
        ({"left": {"nosuch": 1}}, "nosuch"),
    ):
        with pytest.raises(InputError, match=message):
            er.label(**given, corpora=wrong)


CORPORA = {"a": CorpusConfig(passages=["a.jsonl"]), "b": CorpusConfig(passages=["b.jsonl"])}
RUN_CORPORA = {"good": "a", "bad": "b"}
FUSED = {"fused": RetrieverConfig(kind="rrf", of=["one", "two"])}
MADE = {"one": RetrieverConfig(kind="bm25"), "two": RetrieverConfig(kind="bm25"), **FUSED}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run_corpora": {"good": "a"}}, "run_corpora: add which corpus bad searches"),
        ({"run_corpora": {**RUN_CORPORA, "nosuch": "a"}}, "run_corpora: nosuch is no run; the runs are good, bad"),
        ({"run_corpora": {"good": "a", "bad": "c"}}, "run_corpora: bad: c is none of the corpora a, b"),
        ({"run_corpora": {"good": "a", "bad": "a"}}, "corpora: no run searches b"),
        ({"passages": ["x.jsonl"]}, "give corpora in place of passages"),
        ({"corpora": {"a/b": CORPORA["a"]}}, "corpora: 'a/b' cannot be a file name"),
        (
            {"corpora": {**CORPORA, "b": CorpusConfig(knowledge_source=["b"])}},
            "corpora.b: a knowledge_source is split for retrievers alone",
        ),
        (
            {"retrievers": MADE, "run_corpora": {**RUN_CORPORA, "one": "a", "two": "b", "fused": "a"}},
            "retrievers.fused: two searches another corpus",
        ),
    ],
)  # fmt: skip
def test_corpora_that_do_not_go_together(tiny: Tiny, changes: dict[str, Any], message: str) -> None:
    given: dict[str, object] = {"passages": [], "corpora": CORPORA, "run_corpora": RUN_CORPORA}
    with pytest.raises(ValueError, match=message):
        tiny.with_config(**{**given, **changes})


def test_a_corpus_is_passages_or_pages() -> None:
    for changes in ({}, {"passages": ["a"], "knowledge_source": ["b"]}):
        with pytest.raises(ValueError, match="either passages or a knowledge_source"):
            CorpusConfig(**changes)
