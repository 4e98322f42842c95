"""The retrieval stage: pages to passages, questions and passages to sealed runs. Reuses what has the same settings."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import polars as pl

from erag_ray.config.job import JobConfig
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.data.datasets.queries import LoadedQueries, sample_loaded
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.corpus import make_corpus
from erag_ray.data.passages.load import CORPUS_COLUMNS, load_passages
from erag_ray.data.passages.splitters import splitter_named
from erag_ray.inputs.stage import ReaderCheck, check_settings, load_all_questions
from erag_ray.retrieve import make_retriever
from erag_ray.retrieve.run import MadeRun, Run, Sources
from erag_ray.store.fingerprints import file_stamp
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import Do, do_tasks
from erag_ray.support.errors import InputError
from erag_ray.support.logs import say
from erag_ray.support.progress import stage_progress


def retrieve(config: RetrieveConfig) -> list[MadeRun]:
    """Make the run of each retriever: ``<out>/runs/NAME.parquet``, sealed by ``NAME.json``.

    Raises:
        InputError: all errors in the config, the questions, the pages or the passages.
    """
    diagnostics = Diagnostics()
    retrievers = _checked(config, diagnostics)
    loaded = load_questions(config, diagnostics)
    if config.knowledge_source:
        # splitting pages may take long
        diagnostics.raise_errors()
    with _task_runner(config) as do:
        if config.knowledge_source:
            sealed = make_corpus(config.knowledge_source, config.out, splitter=config.splitter, do=do)
            state = "sealed" if sealed.is_new else "already existed"
            counts = f"{sealed.num_pages:,} pages, {sealed.num_passages:,} passages"
            say(*sealed.notes, f"{counts}: {state}: {sealed.folder}")
        files = [*config.queries, *config.qrels, *config.triviaqa_questions]
        passages = passages_of(config)
        stamps = {
            "queries": {path: file_stamp(path) for path in files},
            "passages": {path: file_stamp(path) for path in passages},
        }
        runs: dict[str, Run] = {}
        for name, retriever in retrievers.items():
            others = {other: runs[other] for other in retriever.config.others if other in runs}
            runs[name] = Run(config, retriever, others, stamps)
        # load the passages only if a run needs them, or to name their problems next to others
        existing = {name: run.sealed() for name, run in runs.items()}
        missing = [run for name, run in runs.items() if existing[name] is None]
        needed = bool(diagnostics.errors) or any(run.retriever.needs_passages(run) for run in missing)
        with stage_progress("loading passages", show=config.progress):
            corpus = load_passages(passages, diagnostics) if needed else pl.DataFrame(schema=CORPUS_COLUMNS)
        diagnostics.raise_errors()
        say(*diagnostics.warnings)
        sources = Sources(queries=loaded.queries, corpus=corpus)
        results = [existing[name] or run.make(sources, do) for name, run in runs.items()]
    if not config.search.keep_index:
        Folder(config.out).delete_folder("indexes")
    return results


def make_runs(config: JobConfig, check_reader: ReaderCheck | None = None) -> None:
    """Make the runs of a job's ``retrievers``, if any; raise InputError with all errors in its inputs and settings."""
    if config.retrievers:
        check_settings(config, check_reader)
        for job in config.retrievals():
            say(*map(str, retrieve(job)))


def _checked(config: RetrieveConfig, diagnostics: Diagnostics) -> dict[str, Any]:
    """Return run name -> retriever; record an error for each that cannot be created."""
    diagnostics.attempt("splitter", splitter_named, config.splitter)
    retrievers = {}
    for name, settings in config.retrievers.items():
        try:
            retrievers[name] = make_retriever(name, settings)
        except InputError as error:
            diagnostics.error(f"retriever {name}", *error.problems)
        except ValueError as error:
            diagnostics.error(f"retriever {name}", f"retrievers.{name}: {error}")
    return retrievers


def load_questions(config: RetrieveConfig, diagnostics: Diagnostics) -> LoadedQueries:
    """Load the questions of a retrieval job: all, or a sample."""
    loaded = load_all_questions(config, diagnostics, is_scored=False)
    return sample_loaded(loaded, config.num_queries, config.seed, diagnostics)


def passages_of(config: RetrieveConfig) -> list[str]:
    """Return the passage files of a retrieval job; those of its corpus exist once its pages are split."""
    return [config.corpus] if config.knowledge_source else config.passages


@contextlib.contextmanager
def _task_runner(config: RetrieveConfig) -> Iterator[Do]:
    """Yield a function that runs tasks: in this process, or on Ray actors, which start with the first tasks."""
    if not config.search.num_actors:
        yield functools.partial(do_tasks, show=config.progress)
        return
    with contextlib.ExitStack() as stack:

        @functools.cache
        def pool() -> Do:
            # imports Ray and torch, which a search in this process does not need
            from erag_ray.inference.cluster.tasks import task_pool

            return stack.enter_context(task_pool(config.search, show=config.progress))

        yield lambda tasks: pool()(tasks) if tasks.numbers else None
