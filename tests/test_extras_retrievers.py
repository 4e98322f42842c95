"""Retrievers of LangChain, LlamaIndex, Haystack and LanceDB themselves, over the tiny comparison's passages.

Needs the extra ``retrievers`` (``make test-extras``).
"""

import importlib.metadata
import pathlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from tiny import PASSAGES, QUESTIONS, Tiny, compare, table

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.data.files.documents import text_id
from erag_ray.retrieve.outside.adapters import as_search
from erag_ray.retrieve.outside.searching import Searching
from erag_ray.retrieve.stage import make_runs
from erag_ray.store.schemas import RETRIEVAL_SECONDS, RUNS, UTILITY

pytestmark = [
    pytest.mark.extras,
    # warnings of these libraries, and of what they load, are theirs
    pytest.mark.filterwarnings("default"),
]
WORDS = sorted(
    {word for _, title, text in PASSAGES.values() for word in re.findall(r"\w+", f"{title} {text}".lower())}
)
QUERIES = pl.DataFrame(
    {"query_id": list(QUESTIONS), "question": [question for question, _, _ in QUESTIONS.values()]}
)
LLAMA_INDEX = ("llama-index-core", "llama-index-retrievers-bm25")
LIBRARIES = ("langchain-core", *LLAMA_INDEX, "haystack-ai", "lancedb")
DEPTH = 3
FOUND_BY_BM25 = 17
"""Documents that share a word with their question: two of one question, at least three of the others."""


def vector(text: str) -> list[float]:
    """Return a unit vector of the words of a text: a fake embedding under which shared words make texts near."""
    words = set(re.findall(r"\w+", text.lower()))
    found = [float(word in words) for word in WORDS]
    # never all zeros
    found.append(0.1)
    length = sum(value * value for value in found) ** 0.5
    return [value / length for value in found]


def searched(retriever: Any, depth: int = DEPTH) -> pl.DataFrame:
    return Searching(name="mine", search=as_search(retriever), depth=depth).lists(QUERIES, show=False)


def lists_of(retriever: Any, depth: int = DEPTH) -> dict[str, list[str]]:
    found = searched(retriever, depth)
    assert found["seconds"].min() > 0  # type: ignore[operator]
    for doc_id, title, text in found.select("doc_id", "title", "text").iter_rows():
        assert (title, text) == PASSAGES[doc_id][1:]
    return dict(found.group_by("query_id", maintain_order=True).agg("doc_id").iter_rows())


def assert_nearest(lists: dict[str, list[str]], depth: int = DEPTH) -> None:
    """Check that the lists have the documents whose vectors are nearest; where scores tie, their order is free."""
    for query_id, (question, _, _) in QUESTIONS.items():
        asked = vector(question)
        score = {
            doc_id: round(sum(a * b for a, b in zip(asked, vector(PASSAGES[doc_id][2]), strict=True)), 5)
            for doc_id in PASSAGES
        }
        found = lists[query_id]
        assert [score[doc_id] for doc_id in found] == sorted(score.values(), reverse=True)[:depth]
        assert len(set(found)) == depth


@pytest.fixture(scope="module", autouse=True)
def versions() -> Iterator[None]:
    """Print which versions run (shown with ``pytest -s``); Haystack sends no telemetry."""
    installed = {
        one.name.lower().replace("_", "-"): one.version
        for one in importlib.metadata.distributions()
        if one.name
    }
    print("\n" + ", ".join(f"{name} {installed.get(name, 'missing')}" for name in LIBRARIES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
        yield


# --- LangChain ---


def langchain_store(*, with_ids: bool = True) -> Any:
    pytest.importorskip("langchain_core.vectorstores")
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    class Words(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [vector(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return vector(text)

    store = InMemoryVectorStore(Words())
    store.add_documents(
        [
            Document(page_content=text, metadata={"title": title}, id=doc_id if with_ids else None)
            for doc_id, (_, title, text) in PASSAGES.items()
        ]
    )
    return store


def test_a_vector_store_of_langchain_gives_as_many_as_are_wanted() -> None:
    retriever = langchain_store().as_retriever(search_kwargs={"k": 1})
    assert_nearest(lists_of(retriever))
    assert retriever.search_kwargs == {"k": 1}
    assert_nearest(lists_of(langchain_store()))
    assert_nearest(lists_of(retriever, 12), 12)


def test_a_retriever_of_langchain_with_a_number_of_its_own_and_a_chain() -> None:
    pytest.importorskip("langchain_core.retrievers")
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableLambda

    class First(BaseRetriever):
        k: int = 2

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [
                Document(page_content=text, metadata={"doc_id": doc_id, "title": title})
                for doc_id, (_, title, text) in list(PASSAGES.items())[: self.k]
            ]

    retriever = First()
    assert lists_of(retriever, 5)["q1"] == ["d1", "d2", "d3", "d4", "d5"]
    assert retriever.k == 2
    # a chain after the retriever takes what the retriever gives
    chain = retriever | RunnableLambda(lambda documents: documents[::-1])
    assert lists_of(chain, 5)["q1"] == ["d2", "d1"]


# --- LlamaIndex ---


def llama_nodes(*, with_ids: bool = True) -> list[Any]:
    pytest.importorskip("llama_index.core")
    from llama_index.core.schema import TextNode

    ids = {doc_id: {"id_": doc_id} if with_ids else {} for doc_id in PASSAGES}
    return [
        TextNode(text=text, metadata={"title": title}, **ids[doc_id])
        for doc_id, (_, title, text) in PASSAGES.items()
    ]


def llama_index(*, with_ids: bool = True) -> Any:
    nodes = llama_nodes(with_ids=with_ids)
    from llama_index.core import VectorStoreIndex
    from llama_index.core.embeddings import BaseEmbedding

    class Words(BaseEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return vector(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return vector(query)

        def _get_text_embedding(self, text: str) -> list[float]:
            return vector(text)

    for node in nodes:
        node.excluded_embed_metadata_keys = ["title"]
    return VectorStoreIndex(nodes, embed_model=Words())


def test_an_index_of_llama_index_gives_as_many_as_are_wanted() -> None:
    retriever = llama_index().as_retriever(similarity_top_k=1)
    assert_nearest(lists_of(retriever))
    assert retriever.similarity_top_k == 1
    assert_nearest(lists_of(llama_index()))
    (first, *_) = as_search(retriever)(QUESTIONS["q1"][0], DEPTH)
    assert first.score is not None
    assert 0 < first.score <= 1


@pytest.mark.parametrize("make", [langchain_store, llama_index])
def test_documents_without_ids_are_called_by_their_texts(make: Any) -> None:
    found = searched(make(with_ids=False))
    expected = [text_id(title, text) for title, text in found.select("title", "text").iter_rows()]
    assert found["doc_id"].to_list() == expected


def test_bm25_of_llama_index_gives_at_most_what_it_has() -> None:
    pytest.importorskip("llama_index.retrievers.bm25")
    from llama_index.retrievers.bm25 import BM25Retriever

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        retriever = BM25Retriever.from_defaults(nodes=llama_nodes(), similarity_top_k=2)
    assert lists_of(retriever)["q4"][0] == "d7"
    assert len(lists_of(retriever, 50)["q4"]) == len(PASSAGES)


# --- Haystack ---


def haystack_store() -> Any:
    pytest.importorskip("haystack")
    from haystack import Document
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(
        [
            Document(id=doc_id, content=text, meta={"title": title}, embedding=vector(text))
            for doc_id, (_, title, text) in PASSAGES.items()
        ]
    )
    return store


def haystack_retriever() -> Any:
    store = haystack_store()
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever

    return InMemoryBM25Retriever(store, top_k=1)


def test_bm25_of_haystack_as_a_component_and_as_a_pipeline() -> None:
    retriever = haystack_retriever()
    from haystack import Pipeline

    lists = lists_of(retriever)
    assert lists["q4"][0] == "d7"
    assert sum(map(len, lists.values())) == FOUND_BY_BM25
    pipeline = Pipeline()
    pipeline.add_component("bm25", haystack_retriever())
    assert lists_of(pipeline) == lists
    assert retriever.top_k == 1


def test_a_pipeline_of_haystack_with_an_embedder() -> None:
    store = haystack_store()
    from haystack import Pipeline, component
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever

    @component
    class Words:
        @component.output_types(embedding=list[float])
        def run(self, text: str) -> dict[str, list[float]]:
            return {"embedding": vector(text)}

    pipeline = Pipeline()
    pipeline.add_component("embedder", Words())
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    assert_nearest(lists_of(pipeline))


# --- a vector database in this process ---


def test_lancedb_in_a_folder_behind_a_function(tmp_path: pathlib.Path) -> None:
    lancedb = pytest.importorskip("lancedb")
    rows = [
        {"doc_id": doc_id, "title": title, "text": text, "vector": vector(text)}
        for doc_id, (_, title, text) in PASSAGES.items()
    ]
    passages = lancedb.connect(str(tmp_path)).create_table("passages", rows)

    def search(question: str, count: int) -> list[dict[str, Any]]:
        # its rows are mappings with the keys of a document
        found: list[dict[str, Any]] = (
            passages.search(vector(question)).metric("cosine").limit(count).to_list()
        )
        return found

    assert_nearest(lists_of(search))


# --- a whole job ---


def langchain_retriever() -> Any:
    return langchain_store().as_retriever()


def test_a_comparison_of_three_libraries_needs_no_passages(tiny: Tiny, reads_here: list[int]) -> None:
    for name in ("langchain_core", "llama_index.core", "haystack"):
        pytest.importorskip(name)
    names = {"langchain": langchain_retriever, "llama_index": llama_index, "haystack": haystack_retriever}
    retrievers = {
        kind: RetrieverConfig(kind=kind, object=f"{__name__}:{function.__name__}", revision="1")
        for kind, function in names.items()
    }
    job = tiny.with_config(runs={}, passages=[], retrievers=retrievers, annotators=["erag"])
    make_runs(job.config)
    compare(job)
    runs, seconds = table(job, RUNS), table(job, RETRIEVAL_SECONDS)
    utility = table(job, UTILITY, depth=DEPTH).filter(pl.col("run_id").is_in(list(names)))
    for frame in (runs, seconds, utility):
        assert frame.group_by("run_id").agg(pl.col("query_id").n_unique())["query_id"].to_list() == [6, 6, 6]
    lengths = runs.group_by("run_id").len().sort("run_id").rows()
    assert lengths == [("haystack", FOUND_BY_BM25), ("langchain", 6 * DEPTH), ("llama_index", 6 * DEPTH)]
