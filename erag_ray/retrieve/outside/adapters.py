"""Objects of retrieval libraries, recognised by their methods, and HTTP services as functions of a question.

A service answers POST {"query", "k"} by {"documents": [{"id", "text", "title"?, "score"?}]}.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import urllib3

from erag_ray.data.files.documents import Document, document_of, with_text
from erag_ray.support.masking import Secret, masked
from erag_ray.support.user_code import one_line

Search = Callable[[str, int], Sequence[Document]]
"""A question and how many documents are wanted -> the documents, best first; fewer if there are no more."""
QUERY_INPUTS = ("query", "text")
"""What Haystack calls the question: retrievers by the first name, embedders of texts by the second."""


@dataclass(frozen=True, kw_only=True)
class LibrarySearch:
    """The search of one object, of a kind of `ADAPTERS`."""

    kind: str
    retriever: Any

    def __call__(self, question: str, count: int) -> list[Document]:
        """Return the documents of a question.

        Raises:
            TypeError: the retriever returned no list of documents.
            ValueError: a document has no text, or is not one.
        """
        result: Any = ADAPTERS[self.kind].function(self.retriever, question, count)
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError("the retriever is asynchronous; give a function that waits for its result")
        # iterated over, a frame of Polars or pandas gives its columns
        if hasattr(result, "iter_rows"):
            result = list(result.iter_rows(named=True))
        elif hasattr(result, "iterrows"):
            result = (result.reset_index() if any(result.index.names) else result).to_dict("records")
        if isinstance(result, str | Mapping) or not isinstance(result, Iterable):
            raise TypeError(f"the retriever returned a {type(result).__name__}, not a list of documents")
        return [with_text(document_of(document)) for document in result]


def as_search(retriever: object) -> LibrarySearch:
    """Return the search of a retriever of LangChain, LlamaIndex or Haystack, or of a function of question and number.

    Stores and indexes with ``as_retriever`` are taken by the retriever that it returns. Where the library allows it,
    the number of documents is the one that is asked for, not that of the retriever's own settings; the object is not
    changed. Raise TypeError if the object is not a retriever.
    """
    kind = next((kind for kind in ADAPTERS if fits(kind, retriever)), None)
    if kind is None and callable(getattr(retriever, "as_retriever", None)):
        return as_search(retriever.as_retriever())  # type: ignore[attr-defined]
    if kind is None or isinstance(retriever, type):
        needed = ", ".join(f"{one.method} ({library})" for library, one in ADAPTERS.items())
        name = f"the class {retriever.__name__}" if isinstance(retriever, type) else type(retriever).__name__
        raise TypeError(f"{name} is no retriever: it needs one of {needed}")
    return LibrarySearch(kind=kind, retriever=retriever)


def fits(kind: str, retriever: object) -> bool:
    """Return whether an object has the method of a kind of `ADAPTERS`."""
    method = ADAPTERS[kind].method
    return callable(retriever if method == CALL else getattr(retriever, method, None))


class Adapter(NamedTuple):
    """How the retrievers of one library are recognised and called."""

    method: str
    """The method that they have; "a call" for functions."""
    function: Callable[[Any, str, int], object]
    """Calls a retriever with a question and the number of documents."""


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
    # a pipeline gets the question in all inputs for one; components with these, and retrievers, get the number
    if callable(getattr(retriever, "inputs", None)):
        offered = {**dict.fromkeys(QUERY_INPUTS, question), "top_k": count}
        data = {
            component: {name: value for name, value in offered.items() if name in inputs}
            for component, inputs in retriever.inputs().items()
        }
        outputs = retriever.run({component: values for component, values in data.items() if values}).values()
    else:
        limit = {"top_k": count} if "top_k" in inspect.signature(retriever.run).parameters else {}
        outputs = [retriever.run(query=question, **limit)]
    lists = [output["documents"] for output in outputs if "documents" in output]
    if len(lists) != 1:
        raise TypeError(f"{len(lists)} outputs are called documents; there must be one")
    return lists[0]


CALL = "a call"
ADAPTERS = {
    "langchain": Adapter("invoke", _langchain),
    "llama_index": Adapter("retrieve", _llama_index),
    "haystack": Adapter("run", _haystack),
    "python": Adapter(CALL, lambda function, question, count: function(question, count)),
}
"""Kind -> how its retrievers are recognised and called, in the order in which objects are tried."""


# --- HTTP ---

MAX_PAUSE_SECONDS = 120.0
SHOWN_CHARACTERS = 200
TRANSIENT = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""


class HttpError(Exception):
    """The service answered with an error; ``is_final``: the same request would fail again."""

    def __init__(self, message: str, *, is_final: bool, pause_seconds: float | None = None) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.pause_seconds = pause_seconds
        """What the service asks to wait."""


@dataclass(frozen=True, kw_only=True)
class HttpSearch:
    """A `Search` by a service; connections are reused. Documents that repeat the key have asterisks instead."""

    url: str
    timeout_seconds: float = 60.0
    api_key: Secret | None = None
    _pool: urllib3.PoolManager = field(
        default_factory=urllib3.PoolManager, init=False, repr=False, compare=False
    )

    def __call__(self, question: str, count: int) -> list[Document]:
        """Return the documents of a question.

        Raises:
            HttpError: the service answered with an error, or not in the form above.
            urllib3.exceptions.HTTPError: it cannot be reached.
        """
        response = self._pool.request(
            "POST",
            self.url,
            json={"query": question, "k": count},
            headers={"Authorization": f"Bearer {self.api_key.value}"} if self.api_key else {},
            timeout=self.timeout_seconds,
            retries=False,
            redirect=False,
        )
        if response.status != 200:
            raise _error_of(response)
        try:
            content = masked(response.json())
        except ValueError as error:
            raise HttpError(f"the answer is not JSON: {error}", is_final=False) from error
        fields = content if isinstance(content, dict) else {}
        is_failed = fields.get("status") in ("error", "failed")
        if is_failed or any(map(fields.get, ("error", "errors", "timed_out"))):
            text = f"the answer is an error or not complete: {one_line(str(fields), SHOWN_CHARACTERS)}"
            raise HttpError(text, is_final=False)
        documents = fields.get("documents")
        if not isinstance(documents, list):
            raise HttpError('the answer has no list "documents"', is_final=True)
        return [with_text(document_of(document)) for document in documents]


def _error_of(response: urllib3.BaseHTTPResponse) -> HttpError:
    status = response.status
    body = one_line(response.data.decode(errors="replace"), SHOWN_CHARACTERS)
    message = f"{status} {response.reason or ''}".strip() + (f": {body}" if body else "")
    try:
        pause = urllib3.Retry().get_retry_after(response)
    except urllib3.exceptions.InvalidHeader:
        pause = None
    return HttpError(
        message,
        is_final=status < 500 and status not in TRANSIENT,
        pause_seconds=None if pause is None else min(pause, MAX_PAUSE_SECONDS),
    )
