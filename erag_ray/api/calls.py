"""`compare` and `label`: objects in memory to the files and config of a job, which runs in the same rooms."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.api.documents import passage_table, run_table
from erag_ray.api.files import Given
from erag_ray.api.questions import question_records
from erag_ray.api.readers import IN_PROCESS, Retriever, config_of, reader_config
from erag_ray.api.result import Result, text_console
from erag_ray.cli.job import job_folder
from erag_ray.comparison import compare as run_comparison
from erag_ray.comparison import label_documents
from erag_ray.config import CorpusConfig, JobConfig, JudgeConfig, RetrieverConfig, SearchConfig, expand
from erag_ray.errors import InputError
from erag_ray.logs import on_stderr
from erag_ray.retrieve.outside.runs import register_retriever
from erag_ray.schemas import DOCUMENT_OUTPUTS, LABELS
from erag_ray.store import TableStore

CONFIGS: Mapping[str, type] = {"judge": JudgeConfig, "search": SearchConfig}
"""Keys of a job that are configs of their own: a mapping is enough."""


def compare(
    *,
    questions: object,
    reader: object,
    runs: Mapping[str, object] | None = None,
    retrievers: Mapping[str, Any] | None = None,
    passages: object = None,
    out: str = "results/comparison",
    **keys: Any,
) -> Result:
    """Compare retrievers by the reader that uses them; what jobs/compare.py does, for data in memory.

    Responses are cached in ``cache_dir``: a second call runs only requests that are new. The inputs are written to
    ``<out>/given``, with the config of the job that does the same.

    Args:
        questions: with ``question``, ``answers`` and ``id``: a list of mappings, a Polars or pandas frame, a Hugging
            Face dataset, or paths of question files. Other fields can be used by ``slices`` and ``filters``.
        reader: `Served`, `Causal`, `Function`, a config or a mapping of its keys.
        runs: name -> ranked lists: ``{query_id: [document, ...]}``, a frame, or the path of a run file. A document is
            an id, ``(id, text)``, ``(id, text, score)``, or a mapping with ``id``, ``text``, ``title``, ``score``. Or
            an object that retrieves: of LangChain, LlamaIndex or Haystack, or a function ``(question, k) ->
            documents``; in a `Retriever` its lists are kept for the next process.
        retrievers: name -> runs to make first, as in a job: ``{"bm25": {"kind": "bm25"}}``; needs ``passages``.
        passages: ``{doc_id: text}``, rows with ``doc_id``, ``text`` and ``title``, or paths of passage files.
        out: folder or URI of the results.
        **keys: all other keys of jobs/compare.py, such as ``score``, ``depth``, ``annotators``, ``cache_dir``,
            ``num_queries``, ``slices``, ``max_cost``, ``progress``.

    Returns:
        The results: ``result.verdict``, ``result.means``, ``result.labels``, ``result.report()``.

    Raises:
        InputError: everything that is wrong with the arguments and the data, in one message.
        JobError: the reader or the disk cannot go on; the responses so far are kept.
    """
    config, given = _job(questions, reader, runs, retrievers, passages, out, keys)
    with _messages(config), job_folder(config) as ready:
        given.write(config)
        run_comparison(ready, text_console(io.StringIO()))
    return Result(config.out)


def label(
    *,
    questions: object,
    reader: object,
    runs: Mapping[str, object] | None = None,
    retrievers: Mapping[str, Any] | None = None,
    passages: object = None,
    out: str = "results/labels",
    **keys: Any,
) -> pl.DataFrame:
    """Label documents by their usefulness to the reader, without end-to-end evaluation.

    Args:
        questions: as in `compare`.
        reader: likewise.
        runs: likewise.
        retrievers: likewise.
        passages: likewise.
        out: likewise.
        **keys: likewise.

    Returns:
        LABELS, with the reader's ``output`` to each document; columns query_id, doc_id, annotator, label, output,
        reader, score.

    Raises:
        InputError, JobError: as `compare`.
    """
    config, given = _job(questions, reader, runs, retrievers, passages, out, keys)
    with _messages(config), job_folder(config) as ready:
        given.write(config)
        label_documents(ready)
    tables = TableStore(config.out)
    outputs = tables.read(DOCUMENT_OUTPUTS).select("reader", "query_id", "doc_id", "output")
    on = ["reader", "query_id", "doc_id"]
    labels = tables.read(LABELS).join(outputs, on=on, how="left", maintain_order="left")
    first = ["query_id", "doc_id", "annotator", "label", "output"]
    return labels.select(*first, pl.exclude(first))


def _messages(config: JobConfig) -> contextlib.AbstractContextManager[None]:
    return on_stderr() if config.progress else contextlib.nullcontext()


def _job(
    questions: object,
    reader: object,
    runs: Mapping[str, object] | None,
    retrievers: Mapping[str, Any] | None,
    passages: object,
    out: str,
    keys: Mapping[str, Any],
) -> tuple[JobConfig, Given]:
    """Return the config of the job, and the files that it reads."""
    given = Given(out)
    inputs: dict[str, Any] = {
        "queries": _paths(questions) or [given.add_lines(question_records(questions), "questions.jsonl")],
        **_run_keys(given, runs or {}, retrievers or {}),
    }
    if passages is not None:
        inputs["passages"] = _paths(passages) or [
            given.add_table(passage_table(passages), "passages.parquet")
        ]
    reader_keys = reader_config(reader)
    if reader_keys.kind in IN_PROCESS:
        inputs["num_readers"] = 0
    configs: dict[str, Any] = {
        name: config_of(CONFIGS[name], value, name)
        for name, value in keys.items()
        if name in CONFIGS and isinstance(value, Mapping)
    }
    if "corpora" in keys:
        configs["corpora"] = {name: _corpus(name, corpus) for name, corpus in keys["corpora"].items()}
    config = config_of(JobConfig, {**inputs, **keys, **configs, "reader": reader_keys, "out": out}, "compare")
    return _expanded(config), given


def _corpus(name: str, corpus: object) -> CorpusConfig:
    if isinstance(corpus, CorpusConfig):
        return corpus
    if not isinstance(corpus, Mapping):
        raise InputError(
            [f"corpora.{name}: must be a mapping of passages, or of knowledge_source and splitter"]
        )
    config: CorpusConfig = config_of(CorpusConfig, corpus, f"corpora.{name}")
    return config


def _expanded(config: JobConfig) -> JobConfig:
    try:
        return expand(config)
    except ValueError as error:
        raise InputError([str(error)]) from error


def _paths(value: object) -> list[str]:
    """Return the paths that a value names; [] if it is data."""
    values = [value] if isinstance(value, str | os.PathLike) else value
    if not isinstance(values, list | tuple) or not all(isinstance(one, str | os.PathLike) for one in values):
        return []
    return [os.fspath(path) for path in values]


def _run_keys(given: Given, runs: Mapping[str, object], retrievers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys ``runs`` and ``retrievers`` of the job: objects that retrieve are retrievers too."""
    paths: dict[str, str] = {}
    settings: dict[str, RetrieverConfig] = {}
    for name, run in {**runs, **retrievers}.items():
        if isinstance(run, str | os.PathLike):
            paths[name] = os.fspath(run)
        elif name in retrievers and isinstance(run, Mapping):
            settings[name] = config_of(RetrieverConfig, run, name)
        elif isinstance(run, RetrieverConfig):
            settings[name] = run
        elif (retriever := _retriever(name, run)) is not None:
            settings[name] = retriever
        else:
            paths[name] = given.add_table(run_table(run, name), "runs", f"{name}.parquet")
    return {"runs": paths, "retrievers": settings}


def _retriever(name: str, run: object) -> RetrieverConfig | None:
    """Return the config of an object that retrieves; None if it is none."""
    if isinstance(run, Retriever):
        return register_retriever(name, run.retriever, run.revision)
    if isinstance(run, Mapping | list | tuple):
        return None
    try:
        return register_retriever(name, run)
    except TypeError:
        return None
