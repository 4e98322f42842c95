"""Jobs whose retrievers are objects, functions or a service: their runs, what makes them anew, and what is wrong."""

import base64
import json
import pathlib
import re
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator

import polars as pl
import pytest
import urllib3
import yaml
from encoders import bert_folder
from guides import blocks, text_of
from polars.testing import assert_frame_equal
from search_service import Asked, Reply, serving
from tiny import PASSAGES, QUESTIONS, RUNS, Tiny, config_of, make_tables, table

from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.analyses.retrieval_measures import find_retrieval_measures
from erag_ray.cli.job import run
from erag_ray.config.retrieval import OUTSIDE_KINDS, RetrieveConfig, RetrieverConfig
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.load import load_run
from erag_ray.inputs.stage import prepare
from erag_ray.report.build import build_report
from erag_ray.report.load import load
from erag_ray.retrieve.outside import searching
from erag_ray.retrieve.outside.adapters import HttpSearch
from erag_ray.retrieve.run import MadeRun
from erag_ray.retrieve.stage import make_runs, retrieve
from erag_ray.store.schemas import RETRIEVAL_SECONDS
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.logs import on_stderr

QUERY_OF = {question: query_id for query_id, (question, _, _) in QUESTIONS.items()}
MODULE = '''
"""Search functions over the lists of the tiny comparison."""

import json
import pathlib

DATA = json.loads(pathlib.Path(__file__).with_name("lists.json").read_text())
ASKED = []
BROKEN = set()


def good(question, k):
    ASKED.append(question)
    if question in BROKEN:
        raise OSError(f"no answer to {question}")
    return [(doc_id, *rest) for doc_id, *rest in DATA["good"].get(question, [])][:k]


class Bad:
    def invoke(self, question):
        return [{"id": doc_id, "text": text} for doc_id, text, _ in DATA["bad"].get(question, [])]


def make():
    return Bad()


def broken():
    raise RuntimeError("no index")


NUMBER = 7
'''


@pytest.fixture
def searched(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiny]:
    """The tiny comparison with a module of search functions, and no passage files."""
    lists = {
        name: {
            QUESTIONS[query][0]: [(doc_id, PASSAGES[doc_id][2], 1.0) for doc_id in documents.split()]
            for query, documents in RUNS[name].items()
        }
        for name in RUNS
    }
    (tiny.folder / "lists.json").write_text(json.dumps(lists))
    (tiny.folder / "my_search.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tiny.folder))
    monkeypatch.setattr(searching.time, "sleep", lambda seconds: None)
    yield tiny
    sys.modules.pop("my_search", None)


def python(name: str = "good", **changes: object) -> RetrieverConfig:
    keys = {"kind": "python", "object": f"my_search:{name}", "revision": "1", **changes}
    return RetrieverConfig(**keys)  # type: ignore[arg-type]


def retrieval(tiny: Tiny, **changes: object) -> RetrieveConfig:
    return config_of(tiny, **{"passages": [], "retrievers": {"good": python()}, **changes})


def asked() -> list[str]:
    return sys.modules["my_search"].ASKED


def test_a_run_is_made_again_for_another_revision_and_not_for_other_passages(searched: Tiny) -> None:
    (first,) = retrieve(retrieval(searched))
    assert (first.num_queries, first.num_rows) == (6, 13)
    rows = pl.read_parquet(first.path)
    assert rows.columns == ["run_id", "query_id", "rank", "doc_id", "score", "title", "text", "seconds"]
    num_asked = len(asked())
    assert num_asked == 6
    again = retrieve(retrieval(searched, passages=[str(searched.passages)]))
    assert "already existed" in str(again[0])
    assert len(asked()) == num_asked
    manifest = json.loads(pathlib.Path(first.path).with_suffix(".json").read_text())
    settings = {"kind": "python", "object": "my_search:good", "revision": "1"}
    assert manifest["config"].items() >= settings.items()
    retrieve(retrieval(searched, retrievers={"good": python(revision="2")}))
    assert len(asked()) == 2 * num_asked


def test_questions_that_failed_are_asked_again_by_the_next_job(searched: Tiny) -> None:
    config = retrieval(searched)
    import my_search  # type: ignore[import-not-found]

    my_search.BROKEN.add(QUESTIONS["q3"][0])
    with pytest.raises(
        JobError, match=r"retrievers.good: 1 of 6 questions failed after 4 attempts: query 'q3'"
    ) as error:
        retrieve(config)
    assert "my_search.py:" in str(error.value)
    my_search.BROKEN.clear()
    asked().clear()
    (run,) = retrieve(config)
    assert asked() == [QUESTIONS["q3"][0]]
    assert run.num_rows == 13
    assert not (pathlib.Path(config.out) / "work" / "good").exists()


def test_runs_can_be_fused_and_measured_without_passages(searched: Tiny) -> None:
    retrievers = {
        "good": python(),
        "bad": python("make", kind="langchain"),
        "fused": RetrieverConfig(kind="rrf", of=["good", "bad"]),
    }
    config = retrieval(searched, retrievers=retrievers)
    made = retrieve(config)
    lists = {run.run_id: pl.read_parquet(run.path) for run in made}
    assert "text" not in lists["fused"].columns
    # bad finds nothing for q6, which takes its time too
    empty = load_run("bad", made[1].path, Diagnostics()).filter(rank=0)
    assert empty.select("query_id", "doc_id").rows() == [("q6", None)]
    assert empty["seconds"].item() > 0
    assert (made[1].num_without_list, made[1].num_rows) == (1, lists["bad"].filter(pl.col("rank") > 0).height)
    both = {doc_id for name in ("good", "bad") for doc_id in lists[name].filter(query_id="q1")["doc_id"]}
    assert set(lists["fused"].filter(query_id="q1")["doc_id"]) <= both
    (shown,) = find_retrieval_measures(config, made)
    # the texts of d4, d6 and d8 hold answers: two of bad's first documents, and three that good and bad share
    (first,) = (row for row in shown.rows if row[0].value == "contains answer@1")
    values = {column.name: cell.value for column, cell in zip(shown.columns, first, strict=True)}
    assert {name: values[name] for name in lists} == {"good": 0.0, "bad": 2 / 6, "fused": 3 / 6}


@pytest.mark.parametrize(
    ("retriever", "error"),
    [
        (python("gone"), r"retrievers.good: retriever 'my_search:gone' cannot be loaded"),
        (python("NUMBER"),
         "retrievers.good: my_search:NUMBER is a int, which has no method a call: it is no python"),
        (python("make", kind="haystack"),
         "retrievers.good: my_search:make is a Bad, which has no method run: it is no haystack retriever"),
        (python("broken", kind="langchain"),
         r"retrievers.good: RuntimeError: no index \(.*my_search.py:\d+\)"),
        (RetrieverConfig(kind="http", url="http://localhost:1", revision="1", api_key_env="NO_SUCH_KEY"),
         "retrievers.good: api_key_env: the environment variable NO_SUCH_KEY is not set"),
    ],
)  # fmt: skip
def test_a_wrong_object_ends_the_job_with_its_name(
    searched: Tiny, retriever: RetrieverConfig, error: str
) -> None:
    with pytest.raises(InputError, match=error):
        retrieve(retrieval(searched, retrievers={"good": retriever}))


# --- a service ---


def of_good(request: Asked) -> Reply:
    """The lists of the run ``good``."""
    documents = RUNS["good"].get(QUERY_OF[request.body["query"]], "").split()[: request.body["k"]]
    found = [
        {"id": one, "title": PASSAGES[one][1], "text": PASSAGES[one][2], "score": 1} for one in documents
    ]
    return Reply({"documents": found})


def by_service(url: str, **keys: object) -> dict[str, RetrieverConfig]:
    return {"good": RetrieverConfig(kind="http", url=url, revision="1", **keys)}  # type: ignore[arg-type]


def rows_of(run: MadeRun) -> dict[str, list[str]]:
    grouped = pl.read_parquet(run.path).sort("query_id", "rank").group_by("query_id", maintain_order=True)
    return dict(grouped.agg("doc_id").iter_rows())


EXPECTED = {query: documents.split()[:3] for query, documents in sorted(RUNS["good"].items())}


def flaky(status: int, times: int, **headers: str) -> Callable[[Asked], Reply]:
    """Fail with a status at first, for two of the questions."""

    def answer(request: Asked) -> Reply:
        fails = QUERY_OF[request.body["query"]] in ("q2", "q5") and request.times <= times
        return Reply(b"<html>busy</html>", status, headers) if fails else of_good(request)

    return answer


def test_a_service_is_asked_for_every_question(searched: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "key-of-the-test")
    with serving(of_good) as service:
        config = retrieval(searched, retrievers=by_service(service.url, api_key_env="SEARCH_KEY"))
        (run,) = retrieve(config)
    assert rows_of(run) == EXPECTED
    assert {one.headers["authorization"] for one in service.asked} == {"Bearer key-of-the-test"}
    assert [sorted(one.body) for one in service.asked] == [["k", "query"]] * 6
    assert "key-of-the-test" not in pathlib.Path(run.path).with_suffix(".json").read_text()
    assert pl.read_parquet(run.path)["title"].null_count() == 0


@pytest.mark.parametrize(("status", "times"), [(429, 3), (503, 2), (500, 1), (0, 2)])
def test_a_busy_service_is_asked_again(searched: Tiny, status: int, times: int) -> None:
    with serving(flaky(status, times)) as service:
        (run,) = retrieve(retrieval(searched, retrievers=by_service(service.url)))
    assert rows_of(run) == EXPECTED
    assert len(service.asked) == 6 + 2 * times


def test_the_pause_is_the_one_that_the_service_asks_for(
    searched: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(searching.time, "sleep", pauses.append)
    for header in ("7", "100000", "soon"):
        with serving(flaky(429, 1, **{"Retry-After": header})) as service:
            config = retrieval(
                searched, retrievers=by_service(service.url), out=str(searched.folder / header)
            )
            retrieve(config)
    assert pauses[:4] == [7, 7, 120, 120]
    assert all(pause < 1 for pause in pauses[4:])


@pytest.mark.parametrize(
    ("reply", "message", "num_asked"),
    [
        (Reply({"error": "no such index"}, 404), "HttpError: 404 Not Found: .*no such index", 6),
        (Reply({"detail": "bad key"}, 401), "HttpError: 401 Unauthorized", 6),
        (Reply({}, 302, {"Location": "http://127.0.0.1:1/"}), "HttpError: 302 Found", 6),
        (Reply(b"<html>", 200), "HttpError: the answer is not JSON", 12),
        (Reply([]), 'HttpError: the answer has no list "documents"', 6),
        (Reply({"documents": None}), 'HttpError: the answer has no list "documents"', 6),
        (Reply({"documents": [], "error": "down"}), "HttpError: the answer is an error .*down", 12),
        (Reply({"documents": [], "status": "failed"}), "HttpError: the answer is an error", 12),
        (Reply({"documents": [], "timed_out": True}), "HttpError: the answer is .* not complete", 12),
        (Reply({"documents": [{"id": "d1"}]}), "text is missing; it must be a string", 6),
    ],
)
def test_a_service_that_fails_is_named_with_what_it_says(
    searched: Tiny, reply: Reply, message: str, num_asked: int
) -> None:
    with serving(lambda request: reply) as service, pytest.raises(JobError, match=message):
        retrieve(retrieval(searched, retrievers=by_service(service.url, retries=1)))
    assert len(service.asked) == num_asked


SERVICE_KEY = "sk-search/0123+456="


def repeated(key: str) -> str:
    return f"{key} {base64.b64encode(f'u:{key}'.encode()).decode()} {urllib.parse.quote(key, safe='')}"


@pytest.mark.parametrize(
    "reply",
    [
        Reply({"error": repeated(SERVICE_KEY)}, 403),
        Reply(f"{'x' * 170} Bearer {SERVICE_KEY}".encode(), 401),  # a message cuts it inside the key
        Reply({"documents": [{"id": [repeated(SERVICE_KEY)], "text": "a"}]}),
        Reply({"documents": [[SERVICE_KEY]]}),
    ],
)
def test_the_key_of_a_service_is_in_no_message_and_no_file(
    searched: Tiny, reply: Reply, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEARCH_KEY", SERVICE_KEY)
    with serving(lambda request: reply) as service:
        keys = by_service(service.url, retries=0, api_key_env="SEARCH_KEY")
        with on_stderr(), pytest.raises(SystemExit) as ended:
            run(retrieval(searched, retrievers=keys), lambda ready: retrieve(ready) and None)
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "6 of 6 questions failed" in said
    assert SERVICE_KEY[:9] not in said
    assert base64.b64encode(SERVICE_KEY.encode()).decode()[4:-4] not in said


def test_a_key_that_a_service_hides_in_documents_is_not_kept(
    searched: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_KEY", SERVICE_KEY)

    def answer(request: Asked) -> Reply:
        documents = [
            {"id": f"d {repeated(SERVICE_KEY)}", "text": f"of {repeated(SERVICE_KEY)}", "title": SERVICE_KEY}
        ]
        return Reply({"documents": documents})

    with serving(answer) as service:
        (made,) = retrieve(retrieval(searched, retrievers=by_service(service.url, api_key_env="SEARCH_KEY")))
    rows = pl.read_parquet(made.path)
    assert set(rows["title"]) == {"***"}
    (text,) = set(rows["text"])
    assert re.fullmatch(r"of \*\*\* \S{2,4}\*\*\*\S{,4} \*\*\*", text)
    assert set(rows["doc_id"]) == {text.replace("of", "d")}


def test_a_service_that_is_gone_or_slow_fails(searched: Tiny) -> None:
    with serving(of_good) as service:
        url = service.url
    match = "6 of 6 questions failed after one attempt: query 'q1': NewConnectionError"
    with pytest.raises(JobError, match=match):
        retrieve(retrieval(searched, retrievers=by_service(url, retries=0)))
    release = threading.Event()

    def late(request: Asked) -> Reply:
        release.wait(60)
        return Reply({"documents": []})

    with serving(late) as service:
        with pytest.raises(urllib3.exceptions.ReadTimeoutError):
            HttpSearch(url=service.url, timeout_seconds=0.2)("who", 3)
        release.set()


def test_the_guides_retrievers_are_valid() -> None:
    """The block of YAML with a retriever of each kind."""
    (body,) = [body for body in blocks("yaml", text_of("jobs/RETRIEVERS.md")) if "my_app.rag" in body]
    retrievers = yaml.safe_load(body)["retrievers"]
    kinds = [
        RetrieverConfig(**{**keys, "revision": str(keys["revision"])}).kind for keys in retrievers.values()
    ]
    assert sorted(kinds) == sorted(OUTSIDE_KINDS)


# --- other kinds beside them ---


def test_a_cross_encoder_reads_the_texts_that_the_lists_bring(searched: Tiny) -> None:
    bert_folder(searched.folder / "cross-encoder", num_labels=1)
    rerank = RetrieverConfig(kind="rerank", of=["good"], model=str(searched.folder / "cross-encoder"))
    runs = {
        run.run_id: run
        for run in retrieve(retrieval(searched, retrievers={"good": python(), "again": rerank}))
    }
    lists, reranked = rows_of(runs["good"]), rows_of(runs["again"])
    assert {query: sorted(documents) for query, documents in reranked.items()} == {
        query: sorted(documents) for query, documents in lists.items()
    }
    assert pl.read_parquet(runs["again"].path)["score"].n_unique() > 1
    # as the lists have no titles
    rows = [json.loads(line) for line in searched.passages.read_text().splitlines()]
    searched.passages.write_text("".join(json.dumps({**row, "title": ""}) + "\n" for row in rows))
    with_passages = retrieval(
        searched,
        retrievers={"good": python(), "again": rerank},
        passages=[str(searched.passages)],
        out=str(searched.folder / "with-passages"),
    )
    assert rows_of(retrieve(with_passages)[1]) == reranked


def test_a_fused_list_is_reranked_by_texts_that_other_lists_have_further_down(searched: Tiny) -> None:
    cross_encoder = bert_folder(searched.folder / "cross-encoder", num_labels=1)
    retrievers = {"good": python(), "bad": python("make", kind="langchain")}
    retrievers["fused"] = RetrieverConfig(kind="rrf", of=["good", "bad"])
    retrievers["again"] = RetrieverConfig(kind="rerank", of=["fused"], model=cross_encoder)
    cut = {"depth": 1, "end_to_end_depths": [1], "retrieval_depth": 4}
    job = searched.with_config(runs={}, passages=[], retrievers=retrievers, **cut).config
    make_runs(job)
    made = job.retrievals()[0]
    pairs = [pl.read_parquet(made.run(name))["query_id", "doc_id"] for name in ("fused", "again")]
    assert_frame_equal(*pairs, check_row_order=False)
    inputs = prepare(job)
    first = inputs.runs.filter(run_id="again")
    assert (first.height, first.join(inputs.corpus, on="doc_id").height) == (6, 6)


TIMED = """
import polars as pl


class Timed:
    settings = {"version": 1}

    def index(self, corpus):
        self.first = corpus.head(2).select("doc_id", rank=pl.int_range(1, 3), score=pl.lit(0.5))
        return self

    def search(self, queries, depth):
        times = queries.select("query_id", seconds=0.5 * (1 + pl.int_range(pl.len())))
        return times.join(self.first, how="cross")
"""


def test_a_retriever_in_memory_may_bring_its_latencies(searched: Tiny, reads_here: list[int]) -> None:
    (searched.folder / "my_timed.py").write_text(TIMED)
    job = searched.with_config(
        runs={}, retrievers={"timed": RetrieverConfig(kind="my_timed:Timed")}, annotators=["erag"]
    )
    make_runs(job.config)
    make_tables(job)
    seconds = table(job, RETRIEVAL_SECONDS).sort("query_id")["seconds"]
    assert seconds.to_list() == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    results = load(job.config.out)
    (latencies,) = (one for one in tables_of(build_report(results)) if "latency" in one.name)
    # utility, median, 95th percentile, questions
    assert [cell.value for cell in latencies.rows[0][2:]] == [1750.0, 2875.0, 6]
    sys.modules.pop("my_timed", None)
