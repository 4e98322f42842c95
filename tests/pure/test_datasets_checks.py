"""QUERIES, RUNS, CORPUS and gold_answers together; and the whole walk on real data where there is some."""

import dataclasses
import functools
import gzip
import pathlib
from collections.abc import Callable

import polars as pl
import pytest
from gold import gold_of
from input_files import diagnosed
from ranked_lists import runs_of

from erag_ray.data.datasets.queries import COLUMNS, LoadedQueries, load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.load import CORPUS_COLUMNS, load_passages
from erag_ray.data.runs.load import load_run
from erag_ray.data.runs.predictions import resolve_pages
from erag_ray.inputs.tables import (
    MANY,
    check_datasets,
    check_inputs,
    gold_lists,
    note_empty_cells,
    resolve_gold,
)
from erag_ray.store import schemas


def queries_of(**answers: list[str]) -> pl.DataFrame:
    rows = [(query, "nq", "?", gold_answers, "exact_match") for query, gold_answers in answers.items()]
    return pl.DataFrame(rows, schema=COLUMNS["queries"], orient="row")


def run_of(name: str, **lists: list[str]) -> pl.DataFrame:
    return runs_of({name: lists})


def corpus_of(**texts: str) -> pl.DataFrame:
    """``p1_d1="text"`` is the passage d1 of page p1."""
    rows = [(name.split("_")[1], name.split("_")[0], "", text) for name, text in texts.items()]
    return pl.DataFrame(rows, schema=CORPUS_COLUMNS, orient="row")


def checked(*tables: pl.DataFrame, depth: int = 1) -> Diagnostics:
    return diagnosed(check_inputs, *tables, depth=depth)[1]


QUERIES = queries_of(q1=["a"], q2=["b"])
CORPUS = corpus_of(p1_d1="x", p1_d2="y")


def test_what_a_file_holds_cannot_break_a_line_or_steer_a_terminal() -> None:
    diagnostics = Diagnostics()
    diagnostics.warning("left out", "a\nb", "\x1b[2J", "\ud800", "어디")
    diagnostics.error("long ids", f"nq.jsonl:3: {'x' * 100_000}")
    assert diagnostics.warnings == ("left out: 4 (a\\nb, \\x1b[2J, \\ud800, 어디)",)
    (problem,) = diagnostics.errors
    assert problem.startswith("nq.jsonl:3: xxx")
    assert len(problem) == 2000


def test_unknown_documents_are_named_within_the_depth_and_the_sample() -> None:
    bm25 = run_of("bm25", q1=["d1", "d8"], q2=["d9"], q3=["d7"])
    runs = pl.concat([bm25, run_of("dense", q1=["d9"], q2=["d1"])])
    diagnostics = checked(QUERIES, runs, CORPUS, depth=1)  # d8 is at rank 2, q3 is no question
    assert diagnostics.errors == (
        "run 'bm25', query 'q2': document 'd9' is not in the passages",
        "run 'dense', query 'q1': document 'd9' is not in the passages",
    )
    diagnostics = checked(QUERIES, runs, CORPUS, depth=2)
    assert "run 'bm25', query 'q1': document 'd8' is not in the passages" in diagnostics.errors


def test_no_query_in_common_is_a_problem_of_that_run_only() -> None:
    fitting = checked(QUERIES, run_of("bm25", q1=["d1"], q2=["d2", "d1"]), CORPUS)
    assert fitting.errors == fitting.warnings == ()
    runs = pl.concat([run_of("bm25", q1=["d1"], q2=["d1"]), run_of("dense", other=["d1"])])
    text = "run 'dense' has no query in common with the questions (such as 'other' against 'q1')"
    assert checked(QUERIES, runs, CORPUS).errors == (text,)


def test_a_run_has_lists_or_outputs_of_every_dataset() -> None:
    fever = queries_of(**{f"f{number}": ["a"] for number in range(10)}).with_columns(dataset=pl.lit("fever"))
    runs = [run_of("bm25", q1=["d1"], f3=["d1"]), run_of("nq", q1=["d1"]), run_of("given", q1=["d1"])]
    tables = pl.concat(runs), run_of("given", f3=["d1"])
    text = "run 'nq' has no list of the 10 questions of fever. Join its files, or compare by dataset"
    assert diagnosed(check_datasets, pl.concat([QUERIES, fever]), *tables)[1].errors == (text,)
    assert diagnosed(check_datasets, pl.concat([QUERIES, fever[1:]]), *tables)[1].errors == ()


def test_queries_without_a_list_short_lists_and_lists_outside_the_sample_are_counted() -> None:
    diagnostics = checked(QUERIES, run_of("bm25", q2=["d1"], q8=["d1"], q9=["d1"]), CORPUS, depth=2)
    assert diagnostics.errors == ()
    assert diagnostics.warnings == (
        "run 'bm25': queries without a list: 1 (q1)",
        "run 'bm25': lists of queries outside the sample, not used: 2 (q8, q9)",
        "runs with lists of fewer than 2 documents: 1 (bm25: 1 of 1)",
    )


def test_ids_that_trec_files_cannot_hold_and_texts_of_empty_cells_are_noted() -> None:
    diagnostics = checked(queries_of(q1=["a"]), run_of("bm25", q1=["d 1"]), corpus_of(**{"p_d 1": "x"}))
    assert diagnostics.warnings == ("ids with white space, which TREC files cannot hold: 1 ('d 1')",)
    _, diagnostics = diagnosed(note_empty_cells, QUERIES, corpus_of(p_d1=" nan", p_d2="None of it"))
    assert diagnostics.warnings == ("passages whose text looks like an empty cell (nan, None): 1 (d1)",)


def test_gold_lists_from_named_passages_and_from_pages() -> None:
    # an answer that normalises to nothing puts no passage first
    queries = queries_of(q1=["The", "The Sea!"], q2=["x"], q3=["x"])
    pages = [("q1", "p2"), ("q1", "p1"), ("q2", "p1"), ("q3", "p9")]
    gold = gold_of(pages, [("q2", "d3"), ("q2", "gone"), ("q2", "d2")])
    corpus = corpus_of(p1_d1="nothing", p2_d2="land", p3_d3="sea", p2_d4="SEA-side", p1_d5="the sea.")
    lists = gold_lists(queries, gold, corpus)
    # q1: "sea" is in d4 ("seaside") and d5; then d1 and d2 by place. q2: named. q3: its page is not there.
    rows = [f"{query_id} {rank} {doc_id}" for query_id, rank, doc_id in lists.rows()]
    assert rows == ["q1 1 d4", "q1 2 d5", "q1 3 d1", "q1 4 d2", "q2 1 d3", "q2 2 d2"]
    assert schemas.conform(lists, schemas.GOLD).num_rows == 6


LOADERS: dict[str, Callable[..., object]] = {
    "no questions in": load_queries,
    "no passages in": load_passages,
    "run 'bm25' has no list with a document": functools.partial(load_run, "bm25"),
}


@pytest.mark.parametrize("empty", LOADERS)
def test_a_file_that_is_missing_empty_or_damaged_is_named(tmp_path: pathlib.Path, empty: str) -> None:
    data = gzip.compress(b"\n" * 10_000)
    damaged = {
        "cannot be read: No such file or directory": None,
        "truncated gzip file": data[: len(data) // 2],
        "damaged gzip file": data[:-8] + bytes(8),
        empty: b"",
    }
    for message, content in damaged.items():
        path, diagnostics = tmp_path / "nq.jsonl", Diagnostics()
        if content is not None:
            path.write_bytes(content)
        LOADERS[empty](path, diagnostics)
        (problem,) = diagnostics.errors
        assert str(path) in problem
        assert message in problem


FEW = "gold passages that are not in the passages: 2 (d1, d2)"
PAGES_OF_SPLIT = "gold documents that are pages of the passages, whose passages are gold: 2 (d1, d2)"
OF_ONE = "gold passages, not used: they name documents of one corpus, and the runs search several: 2 (d1, d2)"


@pytest.mark.parametrize(
    ("corpus", "corpora", "documents", "pages", "note"),
    [
        ({"x_d1": "", "d1_d3": ""}, [], "d1 d2", "", "gold passages that are not in the passages: 1 (d2)"),
        # BEIR: a document is its own page
        ({"d1_d1": "", "d2_d2": ""}, [], "d1 d2", "d1 d2", None),
        ({"d1_d1": "", "x_d2": ""}, [], "d1 d2", "", None),
        # BEIR, split: no gold document is a passage, and one has passages
        ({"d1_c1": "", "d1_c2": "", "x_c3": ""}, [], "d1 d2", "d1 d2", PAGES_OF_SPLIT),
        ({"x_c3": ""}, [], "d1 d2", "", FEW),
        # documents of a named corpus have its name before their id; of several none can be meant, but pages can
        ({"x_one/d1": "", "x_one/d2": ""}, ["one"], "one/d1 one/d2", "", None),
        ({"x_one/d1": "", "x_two/d1": ""}, ["one", "two"], "", "", OF_ONE),
        ({"d1_one/c1": "", "d1_two/c7": ""}, ["one", "two"], "", "d1 d2", PAGES_OF_SPLIT),
    ],
)
def test_gold_documents_are_passages_or_pages(
    corpus: dict[str, str], corpora: list[str], documents: str, pages: str, note: str | None
) -> None:
    queries = queries_of(q1=["a"])
    empty = pl.DataFrame()
    loaded = LoadedQueries(
        queries=queries,
        provenance=gold_of(documents=[("q1", "d1"), ("q1", "d2")]),
        evidence=empty,
        datasets={},
    )
    diagnostics = Diagnostics()
    resolved = resolve_gold(loaded, corpus_of(**corpus), diagnostics, corpora)
    schemas.conform(resolved.provenance, schemas.PROVENANCE)
    assert resolved.provenance["doc_id"].drop_nulls().to_list() == documents.split()
    assert resolved.provenance["page_id"].drop_nulls().to_list() == pages.split()
    assert resolved.page_sets["page_id"].to_list() == pages.split()
    assert resolved.page_sets["output"].n_unique() == len(pages.split())
    assert diagnostics.warnings == ((note,) if note else ())
    # of many none is one by chance
    gold = gold_of(documents=[("q1", f"e{number}") for number in range(MANY)])
    many = dataclasses.replace(loaded, provenance=gold)
    assert resolve_gold(many, corpus_of(x_c3=""), diagnostics).provenance.is_empty()
    assert diagnostics.warnings[-1].startswith("gold passages, not used: none is in the passages: 10 (e0, e1")


def test_real_runs_of_hotpot500(data_folder: pathlib.Path) -> None:
    folder = data_folder / "hotpot500"
    loaded, diagnostics = diagnosed(load_queries, folder / "queries.jsonl.gz")
    entries = pl.concat(
        load_run(name, folder / "runs" / f"{name}.trec.gz", diagnostics)
        for name in ("bm25", "dense", "rerank")
    )
    corpus = load_passages(
        folder / "corpus.jsonl.gz",
        diagnostics,
        doc_ids=pl.concat([entries["doc_id"], loaded.provenance["doc_id"].drop_nulls()]),
        page_ids=loaded.provenance["page_id"],
    )
    runs = resolve_pages(entries, corpus, diagnostics)
    check_inputs(loaded.queries, runs, corpus, diagnostics, depth=50)
    assert diagnostics.errors == ()
    assert runs.height == 3 * 500 * 50
    assert loaded.queries.height == 500
    assert set(loaded.queries["score"]) == {"exact_match"}
    gold_answers = gold_lists(loaded.queries, loaded.provenance, corpus)
    assert gold_answers["query_id"].n_unique() == 500
    assert gold_answers.height / 500 == pytest.approx(2.41, abs=0.005)  # as the data's own description counts
    for table, schema in ((runs, schemas.RUNS), (corpus, schemas.CORPUS), (loaded.queries, schemas.QUERIES)):
        schemas.conform(table, schema)


def test_real_questions_and_passages_of_kilt_mini_and_klue(data_folder: pathlib.Path) -> None:
    folder = data_folder / "kilt_mini"
    loaded, diagnostics = diagnosed(load_queries, sorted(folder.glob("queries.*.jsonl.gz")))
    corpus = load_passages(folder / "corpus.jsonl.gz", diagnostics)
    assert diagnostics.errors == ()
    assert corpus.height == 41_173
    counts = dict(loaded.queries.group_by("dataset", "score").len().select("dataset", "len").iter_rows())
    assert counts == {"nq": 2655, "hotpotqa": 500, "fever_fm2": 2549, "wow_topical": 1359, "squad": 3094}
    assert loaded.datasets["fever_fm2"].score == "accuracy"
    assert loaded.datasets["wow_topical"].max_new_tokens == 150
    assert gold_lists(loaded.queries, loaded.provenance, corpus)["query_id"].n_unique() == 10_157
    assert "nq-1451" in "".join(diagnostics.warnings)  # one of its answers is "*"
    loaded, diagnostics = diagnosed(load_queries, data_folder / "klue_mrc_sample" / "queries.jsonl")
    assert loaded.queries.height == 3
    assert diagnostics.errors == ()
    assert diagnostics.warnings == ("impossible questions, left out: 1 (klue-mrc-v1_dev_03566)",)
