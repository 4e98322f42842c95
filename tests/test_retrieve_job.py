"""The job that makes runs: its files and seals, what is made again and what is not, what can be wrong."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from typing import Any, ClassVar

import polars as pl
import pytest
from encoders import bert_folder
from pages import page_line
from polars.testing import assert_frame_equal
from tiny import BM25, BOTH, PASSAGES, QUESTIONS, Tiny, config_of, kilt_line, passage_line

from erag_ray.analyses import retrieval_measures as sanity
from erag_ray.analyses.retrieval_measures import RETRIEVAL_MEASURES, find_retrieval_measures
from erag_ray.config.job import JobConfig
from erag_ray.config.retrieval import RetrieverConfig, SearchConfig
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.load import load_run
from erag_ray.inference.planning.uses import check_reader
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.retrieve import bm25
from erag_ray.retrieve import stage as retrieving
from erag_ray.retrieve.dense import index as dense
from erag_ray.retrieve.lists import LIST_COLUMNS
from erag_ray.retrieve.run import MadeRun
from erag_ray.retrieve.stage import make_runs, retrieve
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError


def by_name(made: list[MadeRun]) -> dict[str, MadeRun]:
    return {run.run_id: run for run in made}


def test_runs_are_written_sealed_and_taken_by_the_comparison(tiny: Tiny) -> None:
    with tiny.queries.open("a") as file:
        file.write(kilt_line("q7", "zyx wvu", "nothing", None))
    made = by_name(retrieve(config_of(tiny)))
    assert set(made) == {"bm25", "bm25_lead"}
    run = made["bm25"]
    assert (run.num_queries, run.num_without_list) == (7, 1)
    entries = load_run("bm25", run.path, Diagnostics())
    assert entries.height == run.num_rows
    assert set(entries["query_id"]) == set(QUESTIONS)
    # the passage that repeats the question's words comes first: d2 for q1, d12 holds no word but "who"
    assert entries.filter(query_id="q1")["doc_id"].to_list()[:2] == ["d2", "d1"]
    assert entries["score"].null_count() == 0
    manifest = json.loads(pathlib.Path(run.path).with_suffix(".json").read_text())
    assert [manifest["config"][name] for name in ("method", "k1", "b")] == ["lucene", 0.9, 0.4]
    assert (manifest["num_queries"], manifest["num_without_list"], manifest["config"]["depth"]) == (7, 1, 3)
    inputs = prepare(tiny.with_config(runs={name: one.path for name, one in made.items()}).config)
    assert inputs.runs.filter(run_id="bm25").height == run.num_rows
    assert any("queries without a list: 1 (q7)" in note for note in inputs.notes)


def test_the_same_again_makes_nothing_and_a_change_makes_what_it_touches(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrieve(config_of(tiny, retrievers=BM25))
    with monkeypatch.context() as patch:
        patch.setattr(retrieving, "load_passages", lambda *arguments: pytest.fail("passages were loaded"))
        (again,) = retrieve(config_of(tiny, retrievers=BM25))
    assert "already existed" in str(again)
    made = by_name(retrieve(config_of(tiny)))
    assert "already existed" in str(made["bm25"])
    assert "questions/s" in str(made["bm25_lead"])
    assert "questions/s" in str(retrieve(config_of(tiny, depth=2, retrievers=BM25))[0])
    tiny.passages.write_text(tiny.passages.read_text().replace("nothing to see", "little to see here"))
    assert all("questions/s" in str(run) for run in retrieve(config_of(tiny, depth=2)))


SEALS = ["runs/bm25.json", "made_from.json"]


@pytest.mark.parametrize("damage", [None, b"", b"[]", b"null", b'{"run_id": "bm25"', b"{}", b"\xff"])
@pytest.mark.parametrize("damaged", [SEALS, ["runs/bm25.parquet"]], ids=["seals", "run"])
def test_a_run_that_is_not_what_was_sealed_is_made_again(
    tiny: Tiny, damaged: list[str], damage: bytes | None
) -> None:
    (run,) = retrieve(config_of(tiny, retrievers=BM25))
    whole = pl.read_parquet(run.path)
    for name in damaged:
        (path,) = pathlib.Path(run.path).parents[1].rglob(name)
        path.unlink() if damage is None else path.write_bytes(damage)
    (again,) = retrieve(config_of(tiny, retrievers=BM25))
    assert "questions/s" in str(again)
    assert pl.read_parquet(run.path).equals(whole)


def test_pages_become_passages_and_then_runs(tiny: Tiny) -> None:
    source = tiny.folder / "source.json"
    lines = [page_line(page, title, [title, text]) for page, title, text in PASSAGES.values() if page != "p1"]
    titles = {}
    for line in lines:
        titles.setdefault(json.loads(line)["wikipedia_id"], line)
    source.write_text("".join(titles.values()))
    config = config_of(tiny, passages=[], knowledge_source=[str(source)], retrievers=BM25)
    (run,) = retrieve(config)
    assert pl.read_parquet(run.path).filter(query_id="q6")["doc_id"].to_list()[0] == "p6#1"
    (again,) = retrieve(config)
    assert "already existed" in str(again)
    # and the comparison takes both
    job = tiny.with_config(passages=[f"{config.out}/corpus"], runs={"bm25": run.path}).config
    assert prepare(job).corpus.filter(doc_id="p6#1")["title"].to_list() == ["Varn"]


def test_everything_that_is_wrong_comes_in_one_message(tiny: Tiny) -> None:
    tiny.queries.write_text("{\n")
    tiny.passages.write_text("{\n")
    wrong = config_of(tiny, retrievers={"x": RetrieverConfig(kind="nosuch")}, splitter="none")
    with pytest.raises(InputError) as raised:
        retrieve(wrong)
    text = str(raised.value)
    for named in (
        "unknown retriever 'nosuch'",
        "unknown splitter 'none'",
        "queries.jsonl:1",
        "passages.jsonl:1",
    ):
        assert named in text
    assert not (pathlib.Path(wrong.out) / "runs").exists()


def test_a_model_that_is_missing_is_named_also_where_another_run_reranks_by_it(tiny: Tiny) -> None:
    retrieve(config_of(tiny, retrievers=BM25))
    dense = RetrieverConfig(kind="dense", model=str(tiny.folder / "nowhere"))
    again = RetrieverConfig(kind="rerank", of=["bm25"], by="dense")
    with pytest.raises(InputError, match=r"retrievers\.dense\.model: there is no folder"):
        retrieve(config_of(tiny, retrievers={**BM25, "dense": dense, "again": again}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"knowledge_source": ["x"]}, "either passages or a knowledge_source"),
        ({"retrievers": {}}, "retrievers: name at least one"),
        ({"retrievers": {**BM25, "again": RetrieverConfig(kind="rerank", of=["bm25"], by="bm25")}},
         r"retrievers\.again: by: bm25 is not dense"),
        ({"retrievers": {**BOTH, "f": RetrieverConfig(kind="rrf", of=[*BOTH], candidates=9)}},
         r"retrievers\.f: candidates: 9 is more than depth 3"),
        *[
            ({"retrievers": {name: RetrieverConfig(kind="bm25")}}, "cannot be a file name")
            for name in ("a/b", "..", ".", "", " a", "a\n", "x" * 200)
        ],
    ],
)  # fmt: skip
def test_a_config_that_cannot_be(tiny: Tiny, changes: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        config_of(tiny, **changes)


# --- every kind of retriever ---


def every_kind(encoder: str) -> dict[str, RetrieverConfig]:
    return {
        **BOTH,
        "random": RetrieverConfig(kind="random"),
        "dense": RetrieverConfig(kind="dense", model=encoder, preset="e5"),
        "fused": RetrieverConfig(kind="rrf", of=["bm25", "dense"]),
        "again": RetrieverConfig(kind="rerank", of=["bm25"], by="dense", candidates=2),
    }


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bert_folder(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def repeated(tiny: Tiny) -> Tiny:
    """The tiny comparison, each passage three times, so that every list is full of ties."""
    lines = [
        passage_line(f"{name}{copy}", *rest)
        for name, rest in PASSAGES.items()
        for copy in ("", "x", "\u00e9")
    ]
    tiny.passages.write_text("".join(lines))
    return tiny


def lists_by(tiny: Tiny, name: str, encoder: str, **search: Any) -> dict[str, pl.DataFrame]:
    out = str(tiny.folder / name)
    made = retrieve(
        config_of(tiny, out=out, retrievers=every_kind(encoder), depth=7, search=SearchConfig(**search))
    )
    return {run.run_id: pl.read_parquet(run.path) for run in made}


@pytest.mark.cluster
@pytest.mark.usefixtures("local_ray")
def test_runs_are_the_same_by_actors(repeated: Tiny, encoder: str) -> None:
    whole = lists_by(repeated, "whole", encoder)
    assert [run.height for run in whole.values()] == [40, 40, 42, 42, 42, 12]
    pooled = lists_by(repeated, "pooled", encoder, num_actors=2)
    assert all(pooled[name].equals(run) for name, run in whole.items())


def test_dense_shards_of_several_parts_give_the_same_lists(
    repeated: Tiny, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "TEXTS_PER_PART", 4)
    whole = lists_by(repeated, "whole", encoder)
    for number, per_shard in enumerate((8, 4)):
        cut = lists_by(repeated, f"cut{number}", encoder, passages_per_shard=per_shard)
        assert all(cut[name].equals(run) for name, run in whole.items())


def stop_once(monkeypatch: pytest.MonkeyPatch, worker: Any, at: int) -> list[int]:
    """Stop a job at this call of a worker, counted from 1, but not the next job; return the tasks of all calls."""
    work, calls = worker.__call__, []

    def stops(self: Any, number: int) -> None:
        calls.append(number)
        if len(calls) == at:
            raise KeyboardInterrupt
        work(self, number)

    monkeypatch.setattr(worker, "__call__", stops)
    return calls


def test_another_shard_size_keeps_the_vectors(
    tiny: Tiny, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny, retrievers={"dense": every_kind(encoder)["dense"]})
    retrieve(config)
    monkeypatch.setattr(retrieving, "load_passages", lambda *arguments: pytest.fail("passages were loaded"))
    (made,) = retrieve(dataclasses.replace(config, depth=2, search=SearchConfig(passages_per_shard=5)))
    assert "questions/s" in str(made)


def test_reranking_by_vectors_gives_the_scores_of_a_dense_run(tiny: Tiny, encoder: str, caplog: Any) -> None:
    with tiny.passages.open("a") as file:
        file.write(passage_line("blank", "p1", "", " "))
    kinds = {name: one for name, one in every_kind(encoder).items() if name in ("random", "dense")}
    kinds["again"] = RetrieverConfig(kind="rerank", of=["random"], by="dense")
    for depth in (13, 3):
        runs = retrieve(config_of(tiny, retrievers=kinds, depth=depth))
        drawn, dense, again = (pl.read_parquet(run.path).drop("run_id") for run in runs)
        # all passages, of which the blank one has no vector, or three of them
        if depth == 13:
            assert again.equals(dense)
            assert "again: 6 of 78 documents of random have no vector" in caplog.text
            every = dense.drop("rank")
        expected = every.join(drawn, on=["query_id", "doc_id"], how="semi", maintain_order="left")
        assert again.drop("rank").equals(expected)


WRONG = {
    2: (
        ("q1", 3, "nosuch", 0.1),
        "returns documents that are not in the passages, such as 'nosuch' at rank 3",
    ),
    3: (("q1", 0, "d3", 2.0), "ranks must be 1, 2, ... in each list, such as 'd1' at rank 1 for query 'q1'"),
    4: (("q1", 4, "d3", 0.1), "ranks must be 1, 2, ... in each list, such as 'd3' at rank 4 for query 'q1'"),
    5: (("q1", 3, "d1", 0.1), "returns a document more than once, such as 'd1' at rank 1 for query 'q1'"),
    6: (
        ("nosuch", 1, "d1", 1.0),
        "returns lists of other questions, such as 'd1' at rank 1 for query 'nosuch'",
    ),
}
"""Number -> a row, and what it is an error for."""


class Strange:
    """A retriever from outside; with another number its first list has one more row, which is wrong."""

    settings: ClassVar = {"mine": 1}

    def index(self, corpus: pl.DataFrame) -> Strange:
        return self

    def search(self, queries: pl.DataFrame, depth: int) -> pl.DataFrame:
        rows = [(query, rank, f"d{rank}", 1.0 / rank) for query in queries["query_id"] for rank in (1, 2)]
        rows += [WRONG[self.settings["mine"]][0]] if self.settings["mine"] in WRONG else []
        return pl.DataFrame(rows, schema=LIST_COLUMNS, orient="row")


mine = Strange()


def test_a_retriever_from_outside(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"mine": RetrieverConfig(kind="test_retrieve_job:mine")}
    (made,) = retrieve(config_of(tiny, retrievers=kinds, depth=1))
    assert pl.read_parquet(made.path)["doc_id"].to_list() == ["d1"] * 6
    for number, (_, fault) in WRONG.items():
        monkeypatch.setitem(Strange.settings, "mine", number)
        with pytest.raises(InputError, match=re.escape(f"retrievers.mine: {fault}")):
            retrieve(config_of(tiny, retrievers=kinds))
    with pytest.raises(InputError, match=r"retrievers\.x: os:path is not a retriever: it needs settings and"):
        retrieve(config_of(tiny, retrievers={"x": RetrieverConfig(kind="os:path")}))


def test_what_was_stopped_goes_on_with_the_parts_that_are_there(
    tiny: Tiny, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny, retrievers={"dense": every_kind(encoder)["dense"]}, depth=7)
    monkeypatch.setattr(dense, "TEXTS_PER_PART", 4)
    (expected,) = retrieve(dataclasses.replace(config, out=str(tiny.folder / "other")))
    calls = stop_once(monkeypatch, dense.EncodeTexts, 3)
    with pytest.raises(KeyboardInterrupt):
        retrieve(config)
    (made,) = retrieve(config)
    # three parts of passages and two of questions: the two that were done are not done again
    assert calls == [0, 1, 2, 2, 0, 1]
    assert pl.read_parquet(made.path).equals(pl.read_parquet(expected.path))


def test_other_questions_use_the_index_and_other_passages_do_not(
    tiny: Tiny, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(
        tiny, retrievers=every_kind(encoder) | {"random": RetrieverConfig(kind="bm25", k1=2.0)}
    )
    retrieve(config)
    tiny.queries.write_text(kilt_line("z1", "where is the oldest mill", "Varn", None))
    with monkeypatch.context() as patch:
        patch.setattr(retrieving, "load_passages", lambda *arguments: pytest.fail("passages were loaded"))
        made = by_name(retrieve(config))
    assert {run.num_queries for run in made.values()} == {1}
    tiny.passages.write_text(tiny.passages.read_text().replace("the oldest mill is here", "nothing"))
    made = by_name(retrieve(config))
    first = pl.read_parquet(made["bm25"].path)["doc_id"][0]
    assert first != "d10"


def test_an_index_that_is_not_kept_is_gone(tiny: Tiny) -> None:
    config = config_of(tiny, search=SearchConfig(keep_index=False))
    retrieve(config)
    names = {path.name for path in pathlib.Path(config.out).iterdir() if path.name[0] != "_"}
    assert names == {"runs", "work"}


def test_a_damaged_index_is_named(tiny: Tiny) -> None:
    config = config_of(tiny, retrievers=BM25)
    retrieve(config)
    damaged = pathlib.Path(config.out, "indexes", "bm25", "data.npy")
    damaged.write_bytes(damaged.read_bytes()[:40])
    with pytest.raises(InputError, match=r"data.npy: damaged .*Delete the folder .*/indexes/"):
        retrieve(dataclasses.replace(config, depth=2))


def test_a_comparison_makes_its_own_runs(tiny: Tiny) -> None:
    source = tiny.folder / "source.json"
    pages = {page: page_line(page, title, [title, text]) for page, title, text in PASSAGES.values()}
    source.write_text("".join(pages.values()))
    job = tiny.with_config(
        passages=[], knowledge_source=[str(source)], runs={}, retrievers=BOTH, retrieval_depth=5
    ).config
    make_runs(job)
    inputs = prepare(job)
    assert set(inputs.runs["run_id"]) == {"bm25", "bm25_lead"}
    assert inputs.runs["rank"].max() == 3
    assert inputs.corpus.filter(doc_id="p6#1")["title"].to_list() == ["Varn"]
    # the single steps find them too
    assert prepared(job).runs.equals(inputs.runs)


def test_a_comparison_checks_the_rest_before_it_makes_runs(tiny: Tiny) -> None:
    job = tiny.with_config(retrievers=BM25, runs={}, annotators=["nosuch"], score="nosuch").config
    with pytest.raises(InputError, match="unknown annotator 'nosuch'"):
        make_runs(job, check_reader)
    assert not (tiny.folder / "out" / "retrieval").exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"retrievers": {"good": BM25["bm25"]}}, "runs and retrievers: both name good"),
        ({"retrievers": BM25, "retrieval_depth": 1}, "retrieval_depth: 1 is less than depth 3"),
        ({"knowledge_source": ["x"], "passages": []}, "knowledge_source: only with retrievers"),
        ({"knowledge_source": ["x"]}, "give either passages or a knowledge_source"),
        (
            {"retrievers": {"f": RetrieverConfig(kind="rrf", of=["a", "b"])}},
            "retrievers.f: a does not stand before it",
        ),
    ],
)
def test_a_comparison_that_cannot_make_its_runs(tiny: Tiny, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        tiny.with_config(**changes)


OUTSIDE = {"object": "my:retriever", "revision": "1"}
HTTP = {"kind": "http", "revision": "1", "url": "http://c"}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "rrf", "of": ["bm25"]}, "of: rrf needs at least two runs"),
        ({"kind": "rerank", "of": ["bm25"]}, "model: rerank needs a model or by, one of the two"),
        ({"kind": "rerank", "of": ["bm25"], "by": "x", "model": "y"},
         "model: rerank needs a model or by, one of the two"),
        ({"kind": "rerank", "of": [], "by": "x"}, "of: rerank needs the one run to score again"),
        ({"kind": "dense"}, "model: dense needs one"),
        ({"kind": " "}, "kind is blank"),
        ({"kind": "bm25", "k1": float("inf")}, "k1: expected a number, got inf"),
        ({"kind": "bm25", "model": "x"}, "model is given, but bm25 does not look at it"),
        ({"kind": "random", "of": ["x"]}, "of is given, but random does not look at it"),
        ({"kind": "a:b", "k1": 2.0}, "k1 is given, but a:b does not look at it"),
        ({"kind": "rrf", "of": ["x", "x"]}, "a run comes twice"),
        ({"kind": "langchain", "object": "my:retriever"}, "revision: langchain needs one"),
        ({**OUTSIDE, "kind": "python", "revision": " "}, "revision: python needs one"),
        ({"kind": "haystack", "revision": "1"}, "object must be package.module:name, got None"),
        ({**OUTSIDE, "kind": "llama_index", "object": "retriever"}, "package.module:name, got retriever"),
        ({**OUTSIDE, "kind": "python", "url": "http://c"}, "url is given, but python does not look at it"),
        ({"kind": "bm25", "revision": "1"}, "revision is given, but bm25 does not look at it"),
        ({**HTTP, "url": None}, "url: http needs one"),
        ({**HTTP, "url": "localhost:80"}, "url: localhost:80 is no http:// or https://"),
        ({**HTTP, "url": "http://a:b@c/"}, "url must be an address without a name, a password"),
        ({**HTTP, "url": "http://c/?key=1"}, "url must be an address without a name, a"),
        ({**HTTP, "api_key_env": "sk-1"}, "be the name of a variable"),
    ],
)  # fmt: skip
def test_a_retriever_that_cannot_be(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RetrieverConfig(**settings)


def test_gold_that_is_not_among_the_passages_is_said_and_not_counted(
    tiny: Tiny, caplog: pytest.LogCaptureFixture
) -> None:
    first, *rest = [json.loads(kilt_line(name, *values)) for name, values in QUESTIONS.items()]
    lines = [first | {"gold_doc_ids": ["D1"]}, *rest]
    tiny.queries.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = config_of(tiny, retrievers=BOTH, depth=5)
    find_retrieval_measures(config, retrieve(config))
    assert "gold passages that are not in the passages: 1 (D1)" in caplog.text
    assert "gold_passage" not in TableStore(config.out).read(RETRIEVAL_MEASURES)["measure"]


def test_what_the_runs_find_is_counted_over_all_questions(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [kilt_line(name, *rest) for name, rest in QUESTIONS.items()]
    first = json.loads(lines[0])
    first["gold_doc_ids"] = ["d1", "d2"]
    tiny.queries.write_text("".join([json.dumps(first) + "\n", *lines[1:]]))
    config = config_of(tiny, retrievers=BOTH, depth=5)
    shown = find_retrieval_measures(config, retrieve(config))
    table = TableStore(config.out).read(RETRIEVAL_MEASURES).filter(run_id="bm25")
    found = {
        (row["measure"], row["cutoff"]): (row["value"], row["num_queries"])
        for row in table.iter_rows(named=True)
    }
    # the gold passages of one question, the gold pages of five
    assert found["gold_passage", 1] == (1.0, 1)
    assert found["gold_page", 1][1] == found["kilt_r_precision", 0][1] == 5
    assert found["gold_page", 5] == (1.0, 5)
    # one page a question: KILT's recall at the last cutoff finds it too
    assert found["kilt_recall", 5] == (1.0, 5)
    assert found["kilt_r_precision", 0] == found["kilt_recall", 1] != (0.0, 5)
    assert found["contains_answer", 5][1] == 6
    assert [one.title for one in shown] == ["tiny: retrieval measures"]
    # sealed: the same again reads no passages
    with monkeypatch.context() as patch:
        patch.setattr(sanity, "load_corpus", lambda *arguments, **named: pytest.fail("passages were loaded"))
        assert find_retrieval_measures(config, retrieve(config)) == shown
    # other answers are seen, though the runs are the same
    tiny.queries.write_text(tiny.queries.read_text().replace("1874", "nothing"))
    find_retrieval_measures(config, retrieve(config))
    again = (
        TableStore(config.out)
        .read(RETRIEVAL_MEASURES)
        .filter(run_id="bm25", measure="contains_answer", cutoff=5)
    )
    assert again["value"].item() < found["contains_answer", 5][0]


# --- a sample of the questions ---


def retrieved(job: JobConfig) -> dict[str, pl.DataFrame]:
    """The runs that a comparison makes for itself."""
    make_runs(job)
    return {name: pl.read_parquet(path) for name, path in job.with_retrieved().runs.items()}


def test_a_comparison_of_a_sample_searches_the_very_questions_of_the_sample(tiny: Tiny, encoder: str) -> None:
    job = tiny.with_config(retrievers=every_kind(encoder), runs={}, num_queries=3, seed=5).config
    runs = retrieved(job)
    inputs = prepare(job)
    for name, run in runs.items():
        assert set(run["query_id"]) == set(inputs.queries["query_id"]), name
    assert not any("outside the sample" in note for note in inputs.notes)
    # each list is the one that a search of all questions finds
    everything = retrieved(dataclasses.replace(job, num_queries=None, out=str(tiny.folder / "all")))
    for name, run in everything.items():
        assert run["query_id"].n_unique() == len(QUESTIONS)
        # how many questions are encoded together may change the last digits of a score
        expected = run.join(inputs.queries, on="query_id", how="semi")
        assert_frame_equal(runs[name], expected, abs_tol=1e-5)


def test_another_sample_is_searched_in_the_same_index(
    tiny: Tiny, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {name: one for name, one in every_kind(encoder).items() if name != "random"}
    job = tiny.with_config(retrievers=kinds, runs={}, num_queries=3).config
    retrieved(job)
    monkeypatch.setattr(retrieving, "load_passages", lambda *arguments: pytest.fail("passages were loaded"))
    for changes in ({"num_queries": 4}, {"num_queries": 4, "seed": 9}, {"num_queries": None}):
        other = dataclasses.replace(job, **changes)
        runs = retrieved(other)
        asked = other.num_queries or len(QUESTIONS)
        assert {name: run["query_id"].n_unique() for name, run in runs.items()} == dict.fromkeys(kinds, asked)


def test_a_run_that_covers_the_sample_is_not_made_again(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tiny.with_config(retrievers=BM25, runs={}, num_queries=4).config
    before = retrieved(job)["bm25"]
    # a smaller sample by the same seed is part of it, all questions are not
    assert retrieved(dataclasses.replace(job, num_queries=2))["bm25"].equals(before)
    assert "already existed" in capsys.readouterr().err
    whole = retrieved(dataclasses.replace(job, num_queries=None))["bm25"]
    assert "questions/s" in capsys.readouterr().err
    assert retrieved(job)["bm25"].equals(whole)
    inputs = prepare(job)
    assert set(inputs.runs["query_id"]) <= set(inputs.queries["query_id"])


def test_what_is_fused_of_longer_runs_has_the_sample_alone(tiny: Tiny) -> None:
    fused = {"fused": RetrieverConfig(kind="rrf", of=["bm25", "bm25_lead"])}
    retrieve(config_of(tiny))
    (*_, run) = retrieve(config_of(tiny, retrievers={**BOTH, **fused}, num_queries=2))
    assert (run.num_queries, run.num_without_list) == (2, 0)
    assert pl.read_parquet(run.path)["query_id"].n_unique() == 2


def test_a_search_of_a_sample_that_was_stopped_does_not_go_on_with_another(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny, retrievers=BM25, num_queries=2, depth=5)
    monkeypatch.setattr(bm25, "QUERIES_PER_TASK", 1)
    stop_once(monkeypatch, bm25.SearchWords, 2)
    with pytest.raises(KeyboardInterrupt):
        retrieve(config)
    other = dataclasses.replace(config, seed=8)
    (made,) = retrieve(other)
    (expected,) = retrieve(dataclasses.replace(other, out=str(tiny.folder / "other")))
    assert pl.read_parquet(made.path).equals(pl.read_parquet(expected.path))


def test_what_the_runs_of_a_sample_find_is_counted_over_the_sample(tiny: Tiny) -> None:
    retrieve(config_of(tiny))
    config = config_of(tiny, num_queries=3)
    find_retrieval_measures(config, retrieve(config))
    table = TableStore(config.out).read(RETRIEVAL_MEASURES).filter(measure="contains_answer", cutoff=1)
    assert table["num_queries"].to_list() == [3, 3]
