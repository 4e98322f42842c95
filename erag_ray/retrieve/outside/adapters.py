"""Objects of retrieval libraries as functions of a question, recognised by their methods."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from erag_ray.data.files.documents import Document, document_of, with_text

Search = Callable[[str, int], Sequence[Document]]
"""A question and how many documents are wanted -> the documents, best first; fewer if there are no more."""
QUERY_INPUTS = ("query", "text")
"""What Haystack calls the question: retrievers by the first name, embedders of texts by the second."""


@dataclass(frozen=True, kw_only=True)
class LibrarySearch:
    """The search of one object; ``function(retriever, question, count)`` calls its library."""

    retriever: Any
    function: Callable[[Any, str, int], object]

    def __call__(self, question: str, count: int) -> list[Document]:
        """Return the documents of a question.

        Raises:
            TypeError: the retriever returned no list of documents.
            ValueError: a document has no text, or is not one.
        """
        result: Any = self.function(self.retriever, question, count)
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError("the retriever is asynchronous; give a function that waits for its result")
        # iterated over, a frame of Polars or pandas gives its columns
        if hasattr(result, "iter_rows"):
            result = list(result.iter_rows(named=True))
        elif hasattr(result, "iterrows"):
            result = result.to_dict("records")
        if isinstance(result, str | Mapping) or not isinstance(result, Iterable):
            raise TypeError(f"the retriever returned a {type(result).__name__}, not a list of documents")
        return [with_text(document_of(document)) for document in result]


def as_search(retriever: object) -> LibrarySearch:
    """Return the search of a retriever of LangChain, LlamaIndex or Haystack, or of a function of question and number.

    Stores and indexes with ``as_retriever`` are taken by the retriever that it returns. Where the library allows it,
    the number of documents is the one that is asked for, not that of the retriever's own settings; the object is not
    changed.

    Raises:
        TypeError: the object is not a retriever.
    """
    if isinstance(retriever, LibrarySearch):
        return retriever
    adapter = next((one for one in ADAPTERS.values() if one.fits(retriever)), None)
    if adapter is None and callable(getattr(retriever, "as_retriever", None)):
        return as_search(retriever.as_retriever())  # type: ignore[attr-defined]
    if adapter is None or isinstance(retriever, type):
        needed = ", ".join(f"{one.method} ({name})" for name, one in ADAPTERS.items())
        kind = f"the class {retriever.__name__}" if isinstance(retriever, type) else type(retriever).__name__
        raise TypeError(f"{kind} is no retriever: it needs one of {needed}")
    return adapter.search(retriever)


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """How the retrievers of one library are recognised and called."""

    method: str
    """The method that they have; "a call" for functions."""
    function: Callable[[Any, str, int], object]

    def fits(self, retriever: object) -> bool:
        """Return whether the object has the method."""
        if self.method == CALL:
            return callable(retriever)
        return callable(getattr(retriever, self.method, None))

    def search(self, retriever: object) -> LibrarySearch:
        """Return the search of such a retriever."""
        return LibrarySearch(retriever=retriever, function=self.function)


def _langchain(retriever: Any, question: str, count: int) -> object:
    """Search by a LangChain retriever; one of a vector store takes the number as an argument."""
    if hasattr(retriever, "search_kwargs"):
        return retriever.invoke(question, k=count)
    return _with_limit(retriever, "k", count).invoke(question)


def _llama_index(retriever: Any, question: str, count: int) -> object:
    """Search by a LlamaIndex retriever; its BM25 refuses to return more documents than it has."""
    corpus = getattr(retriever, "corpus", None)
    size = len(corpus) if isinstance(corpus, Sequence) and corpus else count
    return _with_limit(retriever, "similarity_top_k", min(count, size)).retrieve(question)


def _with_limit(retriever: Any, name: str, count: int) -> Any:
    """Return a copy whose attribute ``name`` is the number of documents; the retriever itself if it has none."""
    present = getattr(retriever, name, None)
    if not isinstance(present, int) or isinstance(present, bool) or present == count:
        return retriever
    limited = copy.copy(retriever)
    setattr(limited, name, count)
    return limited


def _haystack(retriever: Any, question: str, count: int) -> object:
    """Search by a Haystack component, or by a pipeline with one output ``documents``."""
    if callable(getattr(retriever, "inputs", None)):
        return _haystack_pipeline(retriever, question, count)
    accepted = inspect.signature(retriever.run).parameters
    limit = {"top_k": count} if "top_k" in accepted else {}
    return _documents_of([retriever.run(query=question, **limit)])


def _haystack_pipeline(pipeline: Any, question: str, count: int) -> object:
    """Give the question to all inputs for one, and the number to those of the same components or of retrievers."""
    data: dict[str, dict[str, object]] = {}
    for component, inputs in pipeline.inputs().items():
        values: dict[str, object] = {name: question for name in QUERY_INPUTS if name in inputs}
        if "top_k" in inputs:
            values["top_k"] = count
        if values:
            data[component] = values
    return _documents_of(pipeline.run(data).values())


def _documents_of(outputs: Iterable[Mapping[str, object]]) -> object:
    """Return the only ``documents`` among the outputs of components."""
    lists = [output["documents"] for output in outputs if "documents" in output]
    if len(lists) != 1:
        raise TypeError(f"{len(lists)} outputs are called documents; there must be one")
    return lists[0]


def _python(function: Any, question: str, count: int) -> object:
    return function(question, count)


CALL = "a call"
ADAPTERS = {
    "langchain": Adapter(method="invoke", function=_langchain),
    "llama_index": Adapter(method="retrieve", function=_llama_index),
    "haystack": Adapter(method="run", function=_haystack),
    "python": Adapter(method=CALL, function=_python),
}
"""Kind -> how its retrievers are recognised and called, in the order in which objects are tried."""
