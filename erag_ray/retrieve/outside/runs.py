"""Runs of a retrieval job by retrievers outside this package: their lists, with texts and latencies."""

import inspect
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve.outside.adapters import ADAPTERS, HttpSearch, LibrarySearch, Search, as_search, fits
from erag_ray.retrieve.outside.searching import Searching
from erag_ray.retrieve.run import Retriever, Run, Sources
from erag_ray.store.sharded_tasks import Do
from erag_ray.support.errors import InputError
from erag_ray.support.masking import Secret
from erag_ray.support.registry import find
from erag_ray.support.user_code import checking

SETTINGS = ("object", "url", "revision")
_OBJECTS: dict[str, object] = {}
"""Name in a config -> an object of this process."""
_REVISIONS: dict[int, tuple[object, str]] = {}
"""By their `id`, objects that were registered without a revision, and one that no other object has."""


def register_retriever(name: str, retriever: object, revision: str | None = None) -> RetrieverConfig:
    """Make an object that `as_search` takes a retriever of jobs in this process, and return the config of its run.

    ``revision`` says which index and settings it has; without it a run is reused only for the same object here. Raise
    TypeError if the object is not a retriever.
    """
    search = as_search(retriever)
    location = f"in_memory:{name}"
    _OBJECTS[location] = search.retriever
    if not revision:
        _, revision = _REVISIONS.setdefault(id(retriever), (retriever, uuid.uuid4().hex))
    return RetrieverConfig(kind=search.kind, object=location, revision=revision)


@dataclass(frozen=True, kw_only=True)
class OutsideRetriever(Retriever):
    """An object that a config names, or an HTTP service; raises ValueError if it, or its key, cannot be had."""

    brings_texts: ClassVar = True

    def __post_init__(self) -> None:
        if self.config.kind == "http":
            self.open()
        else:
            self._object()

    @property
    def settings(self) -> Mapping[str, object]:
        """All that the lists depend on: the object or the service, and its revision."""
        return {key: value for key in SETTINGS if (value := getattr(self.config, key)) is not None}

    def lists(self, run: Run, sources: Sources, do: Do) -> pl.DataFrame:
        """Ask the retriever all questions that an interrupted job has not asked."""
        searching = Searching(
            name=f"retrievers.{self.name}",
            search=self.open(),
            depth=run.job.depth,
            retries=self.config.retries,
            work=run.work,
        )
        return searching.lists(sources.queries, show=run.job.progress)

    def open(self) -> Search:
        """Return the search; an object that a function makes is made now.

        Raises:
            InputError: the function raised, or the object is not a retriever of its kind.
            ValueError: the environment has no key.
        """
        config = self.config
        if config.kind == "http":
            key = Secret("api_key_env", config.api_key_env) if config.api_key_env else None
            return HttpSearch(url=str(config.url), timeout_seconds=config.timeout_seconds, api_key=key)
        retriever = self._object()
        with checking(f"retrievers.{self.name}", retriever):
            if _makes(retriever, config.kind):
                retriever = retriever()
            if not fits(config.kind, retriever) and hasattr(retriever, "as_retriever"):
                retriever = retriever.as_retriever()
        if not fits(config.kind, retriever):
            method = ADAPTERS[config.kind].method
            fault = f"{config.object} is a {type(retriever).__name__}, which has no method {method}"
            raise InputError([f"retrievers.{self.name}: {fault}: it is no {config.kind} retriever"])
        return LibrarySearch(kind=config.kind, retriever=retriever)

    def _object(self) -> Any:
        return find("retriever", str(self.config.object), _OBJECTS)


def _makes(retriever: Any, kind: str) -> bool:
    """Return whether this is a class, or a function that makes a retriever and is not one."""
    if isinstance(retriever, type) or not inspect.isroutine(retriever):
        return isinstance(retriever, type)
    return not fits(kind, retriever) or not inspect.signature(retriever).parameters
