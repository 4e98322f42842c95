"""Pages -> passages; questions and passages -> sealed runs. What is sealed with the same settings is not made again."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from erag_ray.config import JobConfig, RetrieveConfig
from erag_ray.corpus import make_corpus, splitter_named
from erag_ray.datasets import QUERY_FORMATS, Findings, LoadedQueries, load_passages, load_queries
from erag_ray.names import find
from erag_ray.progress import counted
from erag_ray.retrieve import Do, Tasks, make_retriever
from erag_ray.retrieve.work import do_tasks
from erag_ray.schemas import InputError
from erag_ray.steps import say
from erag_ray.steps.checks import attempt, check_places
from erag_ray.steps.inputs import ReaderCheck, check_settings
from erag_ray.steps.runs import MadeRun, Run, Sources, run_class
from erag_ray.store import Folder, file_stamp


def retrieve(config: RetrieveConfig) -> list[MadeRun]:
    """Every retriever's run over all questions: ``<out>/runs/NAME.parquet``, sealed by ``NAME.json`` beside it.

    Raises:
        InputError: everything that is wrong with the config, the questions, the pages or the passages.
    """
    findings = Findings()
    retrievers = _checked(config, findings)
    loaded = load_asked(config, findings)
    if config.knowledge_source:
        # splitting pages may take long
        findings.raise_problems()
    passages = _make_passages(config)
    stamps = {
        "queries": {
            path: file_stamp(path) for path in [*config.queries, *config.qrels, *config.triviaqa_questions]
        },
        "passages": {path: file_stamp(path) for path in passages},
    }
    runs: dict[str, Run] = {}
    for name, retriever in retrievers.items():
        settings = config.retrievers[name]
        others = {other: runs[other] for other in settings.others if other in runs}
        runs[name] = run_class(settings.kind)(config, name, retriever, others, stamps)
    # where nothing needs the passages they are not loaded
    found = {name: run.sealed() for name, run in runs.items()}
    missing = [run for name, run in runs.items() if found[name] is None]
    needed = not runs or any(run.needs_passages() for run in missing)
    corpus = load_passages(passages, findings) if needed else pl.DataFrame()
    findings.raise_problems()
    say(*findings.notes)
    sources = Sources(queries=loaded.queries.sort("query_id"), corpus=corpus)
    with _doer(config, missing) as do:
        made = [found[name] or run.make(sources, do) for name, run in runs.items()]
    if not config.search.keep_index:
        Folder(config.out).delete_folder("indexes")
    return made


def make_runs(config: JobConfig, check_reader: ReaderCheck | None = None) -> None:
    """Make the runs that a job's ``retrievers`` name; without any nothing is done.

    Raises:
        InputError: everything that is wrong with the questions, passages, retrievers, or settings of the job.
    """
    if config.retrievers:
        check_settings(config, check_reader)
        say(*map(str, retrieve(config.retrieval())))


def _checked(config: RetrieveConfig, findings: Findings) -> dict[str, Any]:
    """The name of each run and its retriever; those that cannot be are problems."""
    check_places({"out": config.out}, findings)
    known = {"auto": None, **QUERY_FORMATS}
    attempt(findings, "query_format", functools.partial(find, "query format", config.query_format, known))
    findings.raise_problems()
    attempt(findings, "splitter", functools.partial(splitter_named, config.splitter))
    found = {}
    for name, settings in config.retrievers.items():
        try:
            found[name] = make_retriever(name, settings)
        except InputError as error:
            findings.problem(f"retriever {name}", *error.problems)
        except ValueError as error:
            findings.problem(f"retriever {name}", f"retrievers.{name}: {error}")
    return found


def load_asked(config: RetrieveConfig, findings: Findings) -> LoadedQueries:
    """The questions of a retrieval."""
    return load_queries(
        config.queries,
        findings,
        format=config.query_format,
        dataset=config.dataset,
        qrels=config.qrels,
        triviaqa_questions=config.triviaqa_questions,
        where=config.where,
    )


def passages_of(config: RetrieveConfig) -> list[str]:
    """Where a retrieval's passages are, once they are made."""
    return [config.corpus] if config.knowledge_source else config.passages


def _make_passages(config: RetrieveConfig) -> list[str]:
    if not config.knowledge_source:
        return passages_of(config)
    tell = say if config.progress else None
    made = make_corpus(config.knowledge_source, config.out, splitter=config.splitter, tell=tell)
    state = "sealed" if made.is_new else "was there already"
    say(*made.notes, f"{made.num_pages:,} pages, {made.num_passages:,} passages: {state}: {made.place}")
    return passages_of(config)


@contextlib.contextmanager
def _doer(config: RetrieveConfig, missing: Sequence[Run]) -> Iterator[Do]:
    """Who does the tasks of indexes: a pool of Ray actors, or this process."""
    if not config.search.num_actors or not missing:
        yield functools.partial(do_here, show=config.progress)
        return
    # brings Ray and torch, which a search in this process does not need
    from erag_ray.pipeline import task_pool

    with task_pool(config.search, show=config.progress) as do:
        yield do


def do_here(tasks: Tasks, *, show: bool = False) -> None:
    """Do tasks one after the other in this process."""
    with counted(tasks.noun, len(tasks.numbers), show=show and bool(tasks.numbers)) as told:
        do_tasks(tasks, told)
