"""Retrievers as they are, by objects that have the methods of the libraries: documents, ids, retries, what is kept."""

import pathlib
import types
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from erag_ray.data.files.documents import Document, document_of, text_id, with_text
from erag_ray.retrieve.outside import searching
from erag_ray.retrieve.outside.adapters import as_search
from erag_ray.retrieve.outside.searching import LIST_TEXT_COLUMNS, Searching
from erag_ray.store.folder import Folder
from erag_ray.support.errors import JobError

QUERIES = pl.DataFrame({"query_id": ["q2", "q1", "q3"], "question": ["two", "one", "three"], "dataset": "nq"})


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """No test waits; the pauses that would have been made."""
    made: list[float] = []
    monkeypatch.setattr(searching.time, "sleep", made.append)
    return made


def page(content: object, metadata: dict[str, Any], id: object = None) -> Any:
    """Looks like a LangChain document."""
    return types.SimpleNamespace(page_content=content, metadata=metadata, id=id)


def node(node_id: str, text: str, metadata: dict[str, Any]) -> Any:
    """Looks like a LlamaIndex node."""
    return types.SimpleNamespace(node_id=node_id, text=text, metadata=metadata, get_content=lambda: text)


def scored(node: Any, score: float) -> Any:
    """Looks like a LlamaIndex node with its score."""
    return types.SimpleNamespace(node=node, score=score)


def content(id: str, text: str | None, meta: dict[str, Any], score: float | None = None) -> Any:
    """Looks like a Haystack document."""
    return types.SimpleNamespace(id=id, content=text, meta=meta, score=score)


RANDOM = str(uuid.UUID(int=7, version=4))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("a text", Document(None, "a text")),
        (("d1", "a text"), Document("d1", "a text")),
        ((7, "a text"), Document("7", "a text")),
        (["d1", "a text", 2], Document("d1", "a text", None, 2.0)),
        ({"text": "a"}, Document(None, "a")),
        ({"id": "d1", "text": "a", "title": "T", "score": np.float32(0.5)}, Document("d1", "a", "T", 0.5)),
        ({"doc_id": 1, "content": "a", "meta": {"title": "T"}}, Document("1", "a", "T")),
        ({"page_content": "a", "metadata": {"id": "m"}, "score": "high"}, Document("m", "a")),
        (page("a", {"title": "T", "source": "file.pdf"}), Document(None, "a", "T")),
        (page("a", {"doc_id": "m", "id": "n"}), Document("m", "a")),
        (page("a", {"doc_id": "m"}, id="own"), Document("own", "a")),
        (page("a", {"doc_id": "m"}, id=RANDOM), Document("m", "a")),
        ((page("a", {}, id=RANDOM), 0.25), Document(None, "a", None, 0.25)),
        (scored(node("n1", "a", {"title": " "}), 0.5), Document("n1", "a", None, 0.5)),
        (scored(node(RANDOM, "a", {}), float("nan")), Document(None, "a")),
        (node("n1", "a", {}), Document("n1", "a")),
        (content("h1", "a", {"title": "T"}, 3), Document("h1", "a", "T", 3.0)),
        # a random id of one's own is an id: only libraries make them up
        ({"id": RANDOM, "text": "a"}, Document(RANDOM, "a")),
    ],
)
def test_a_document_is_recognised_by_its_fields(document: object, expected: Document) -> None:
    assert with_text(document_of(document)) == expected


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "a document is None, a NoneType; it must be a text, an object of LangChain, LlamaIndex or"),
        (7, "a document is 7, a int"),
        (("d1",), r"a document is \('d1',\); it must be"),
        (("d1", 0.5), r"a document is \('d1', 0.5\): its second entry is not the text"),
        (("Ann built it in 1874.", "d1"), r"a pair is \(id, text\), in this order"),
        (b"ab", "a document is b'ab'"),
        ({"id": "d1", "body": "a"}, "text is missing; it must be a string, under one of text, cont"),
        ({"id": 1.5, "text": "a"}, "id is 1.5; it must be a string or a whole number"),
        (content("h1", None, {}), "text is missing; it must be a string"),
        (("d1", " \n"), "text is ' .n'; it must be a string that is not blank"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_what_is_no_document_is_named(document: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        with_text(document_of(document))


class WithInvoke:
    """Looks like a LangChain retriever with a field for the number."""

    k = 4

    def invoke(self, question: str) -> list[Any]:
        return [page(f"{question} {number}", {}) for number in range(self.k)]


class OfStore(WithInvoke):
    """Looks like a LangChain retriever of a vector store."""

    search_kwargs: dict[str, Any] = {"k": 4}  # noqa: RUF012

    def invoke(self, question: str, **options: Any) -> list[Any]:  # type: ignore[override]
        return [page(f"{question} {number}", {}) for number in range({**self.search_kwargs, **options}["k"])]


class WithRetrieve:
    """Looks like a LlamaIndex retriever."""

    similarity_top_k = 2

    def retrieve(self, question: str) -> list[Any]:
        return [node(f"{question}-{number}", f"text {number}", {}) for number in range(self.similarity_top_k)]


class Small(WithRetrieve):
    """Looks like LlamaIndex's BM25, which refuses to return more than it has."""

    corpus = ("one", "two", "three")

    def retrieve(self, question: str) -> list[Any]:
        if self.similarity_top_k > len(self.corpus):
            raise ValueError("k is larger than the corpus")
        return super().retrieve(question)


def component(query: str, top_k: int | None = None) -> dict[str, Any]:
    """What a Haystack component does."""
    return {"documents": [content(f"{query}-{number}", "text", {}) for number in range(top_k or 3)]}


class Pipeline:
    """Looks like a Haystack pipeline: an embedder of texts, a retriever that takes its output, a BM25."""

    def __init__(self, outputs: Sequence[str]) -> None:
        self.outputs = outputs

    def inputs(self) -> dict[str, dict[str, Any]]:
        return {
            "embedder": {"text": {}},
            "by_vector": {"top_k": {}, "filters": {}},
            "joiner": {"weights": {}},
        }

    def run(self, data: dict[str, Any]) -> dict[str, Any]:
        assert data == {"embedder": {"text": "q"}, "by_vector": {"top_k": 2}}
        found = [content(f"d{number}", "text", {}) for number in range(data["by_vector"]["top_k"])]
        return {name: {"documents": found} for name in self.outputs} | {"other": {"meta": {}}}


@pytest.mark.parametrize(
    ("retriever", "count"),
    [
        (WithInvoke(), 7),
        (OfStore(), 7),
        (WithRetrieve(), 7),
        (Small(), 3),
        (types.SimpleNamespace(run=component), 7),
        # a component that takes no number
        (types.SimpleNamespace(run=lambda query: component(query)), 3),
        # an index or a store that makes a retriever
        (types.SimpleNamespace(as_retriever=WithInvoke), 7),
        (lambda question, k: [f"{question} {number}" for number in range(k)], 7),
    ],
)
def test_a_retriever_is_recognised_by_its_methods_and_left_as_it_is(retriever: Any, count: int) -> None:
    before = dict(vars(retriever)) if hasattr(retriever, "__dict__") else {}
    found = as_search(retriever)("q", 7)
    assert len(found) == count
    assert all(isinstance(one, Document) for one in found)
    assert vars(retriever) == before


def test_a_pipeline_gets_the_question_where_it_takes_one() -> None:
    assert [one.doc_id for one in as_search(Pipeline(["joiner"]))("q", 2)] == ["d0", "d1"]
    for outputs in ([], ["joiner", "by_vector"]):
        with pytest.raises(
            TypeError, match=f"{len(outputs)} outputs are called documents; there must be one"
        ):
            as_search(Pipeline(outputs))("q", 2)


def test_a_frame_may_have_the_ids_as_its_index() -> None:
    frame = pd.DataFrame({"text": ["a", "b"]}, index=pd.Index(["d1", "d2"], name="doc_id"))
    assert [one.doc_id for one in as_search(lambda question, k: frame)("q", 2)] == ["d1", "d2"]


def test_what_is_no_retriever_is_refused() -> None:
    methods = (
        r"it needs one of invoke \(langchain\), retrieve \(llama_index\), run \(haystack\), a call \(python\)"
    )
    with pytest.raises(TypeError, match=f"dict is no retriever: {methods}"):
        as_search({})
    with pytest.raises(TypeError, match=f"the class WithInvoke is no retriever: {methods}"):
        as_search(WithInvoke)


async def asynchronous(question: str, count: int) -> list[str]:
    return [question]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda question, count: None, "TypeError: the retriever returned a NoneType, not a list"),
        (lambda question, count: "d1", "TypeError: the retriever returned a str, not a list of documents"),
        (lambda question, count: {"d1": 1}, "TypeError: the retriever returned a dict, not a list"),
        (lambda question, count: [None], "ValueError: a document is None, a NoneType"),
        (asynchronous, "TypeError: the retriever is asynchronous; give a function that waits for its result"),
        (lambda question: [], "TypeError: <lambda>() takes 1 positional argument but 2 were given"),
        (
            lambda question, count: [("d", "a"), ("d", "b")],
            "ValueError: document 'd' is in the list more than",
        ),
    ],
)
def test_a_wrong_call_or_answer_is_named_with_its_question_and_final(
    function: Any, message: str, pauses: list[float]
) -> None:
    with pytest.raises(JobError) as error:
        search(function, 3, QUERIES.head(1), retries=3)
    assert pauses == []
    assert str(error.value).startswith(
        f"mine: 1 of 1 questions failed after one attempt: query 'q2': {message}"
    )


def search(retriever: Any, depth: int, queries: pl.DataFrame = QUERIES, **more: Any) -> pl.DataFrame:
    searching = Searching(name="mine", search=as_search(retriever), depth=depth, **more)
    return searching.lists(queries, show=False)


def lists_of(found: pl.DataFrame) -> dict[str, list[str | None]]:
    """Return the documents of each list: [None] is the row of rank 0 of a list that found nothing."""
    grouped = found.group_by("query_id", maintain_order=True).agg("doc_id")
    return dict(grouped.iter_rows())


def test_lists_are_cut_numbered_and_counted_where_short(capsys: pytest.CaptureFixture[str]) -> None:
    # what repeats beyond the depth is not looked at
    documents = {"one": ["a", "b", "a", ("d1", "c"), ("d1", "d")], "two": [("d1", "a")], "three": []}
    found = search(lambda question, k: documents[question], 3)
    assert found.schema == LIST_TEXT_COLUMNS
    assert lists_of(found) == {
        "q2": ["d1"],
        "q1": [text_id(None, "a"), text_id(None, "b"), f"{text_id(None, 'a')}-2"],
        "q3": [None],
    }
    assert found["rank"].to_list() == [1, 1, 2, 3, 0]
    assert found["text"].to_list() == ["a", "a", "b", "a", None]
    assert found.group_by("query_id").agg(pl.col("seconds").n_unique())["seconds"].to_list() == [1, 1, 1]
    assert found["seconds"].min() > 0  # type: ignore[operator]
    assert capsys.readouterr().err == "mine: 2 of 3 questions have fewer than 3 documents, 1 of them none\n"


class Flaky:
    """Fails for each question as often as it is told."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.asked: list[str] = []

    def __call__(self, question: str, count: int) -> list[tuple[str, str]]:
        self.asked.append(question)
        if self.asked.count(question) <= self.failures.get(question, 0):
            raise OSError(f"no answer to {question}")
        return [(f"{question}-{number}", f"text {number} of {question}") for number in range(count)]


def test_a_question_that_fails_is_tried_again_with_growing_pauses(pauses: list[float]) -> None:
    flaky = Flaky(one=3)
    found = search(flaky, 1)
    assert lists_of(found) == {"q2": ["two-0"], "q1": ["one-0"], "q3": ["three-0"]}
    assert flaky.asked == ["two", *["one"] * 4, "three"]
    for pause, expected in zip(pauses, (0.25, 0.5, 1), strict=True):
        assert 0.75 * expected <= pause <= 1.25 * expected


def test_what_fails_is_named_and_only_that_is_asked_again(tmp_path: pathlib.Path) -> None:
    work, flaky = Folder(str(tmp_path)), Flaky(one=5)
    with pytest.raises(JobError) as error:
        search(flaky, 2, work=work)
    assert str(error.value).startswith(
        "mine: 1 of 3 questions failed after 4 attempts: query 'q1': OSError: no answer to one "
        "(tests/pure/test_outside_retrievers.py:"
    )
    assert str(error.value).endswith("; what was retrieved is kept: start the same command again")
    flaky.asked.clear()
    flaky.failures.clear()
    found = search(flaky, 2, work=work)
    assert flaky.asked == ["one"]
    words = {"q2": "two", "q1": "one", "q3": "three"}
    assert lists_of(found) == {query: [f"{word}-0", f"{word}-1"] for query, word in words.items()}
    # other questions under the same ids, and another depth, are others
    search(flaky, 2, QUERIES.with_columns(question=pl.lit("new")), work=work)
    assert flaky.asked == ["one", "new", "new", "new"]
    search(flaky, 3, work=work)
    assert len(flaky.asked) == 7


def test_a_stop_keeps_what_was_retrieved(tmp_path: pathlib.Path) -> None:
    work = Folder(str(tmp_path))

    def stopping(question: str, count: int) -> list[str]:
        if question == "three":
            raise KeyboardInterrupt
        return []

    with pytest.raises(KeyboardInterrupt):
        search(stopping, 2, work=work)
    flaky = Flaky()
    found = search(flaky, 2, work=work)
    # an empty list is an answer too
    assert flaky.asked == ["three"]
    assert lists_of(found) == {"q1": [None], "q2": [None], "q3": ["three-0", "three-1"]}


def test_a_damaged_file_is_set_aside_and_only_its_questions_are_asked_again(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    work, flaky = Folder(str(tmp_path)), Flaky()
    for query in QUERIES.iter_slices(1):
        search(flaky, 2, query, work=work)
    files = sorted((tmp_path / "searched").iterdir())
    files[0].write_bytes(files[0].read_bytes()[:50])
    pl.DataFrame({"else": [1]}).write_parquet(files[1])
    found, calls = search(flaky, 2, work=work), flaky.asked[:]
    assert lists_of(found).keys() == set(QUERIES["query_id"])
    assert [text.count("set aside in") for text in caplog.messages if "searched" in text] == [1, 1]
    assert (len(calls), len({*calls[3:]})) == (5, 2)
    search(flaky, 2, work=work)
    assert flaky.asked == calls


def test_many_failures_end_the_search_and_five_are_named(pauses: list[float]) -> None:
    queries = pl.DataFrame({"query_id": [f"q{number}" for number in range(30)], "question": "gone"})
    flaky = Flaky(gone=1000)
    with pytest.raises(JobError) as error:
        search(flaky, 2, queries, retries=1)
    text = str(error.value)
    assert text.startswith(
        "mine: 10 of 30 questions failed after 2 attempts; 20 more were not asked: query 'q0'"
    )
    assert text.endswith("; ... and 5 more")
    assert text.count("query 'q") == 5
    assert len(flaky.asked) == 20
