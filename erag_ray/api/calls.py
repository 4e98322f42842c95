"""`compare` and `label`: objects in memory to the files and config of a job, which runs in the same rooms."""

import contextlib
import dataclasses
import io
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
import yaml

from erag_ray.api.documents import passage_table, run_table
from erag_ray.api.questions import question_records
from erag_ray.api.readers import IN_PROCESS, Retriever, judge_config, reader_config
from erag_ray.api.result import Result, text_console
from erag_ray.api.rows import plain, rows_of
from erag_ray.cli.job import job_folder
from erag_ray.cli.run import JOBS
from erag_ray.comparison import compare as run_comparison
from erag_ray.comparison import label_documents
from erag_ray.config.job import JobConfig
from erag_ray.config.keys.values import build
from erag_ray.config.reader import ReaderConfig
from erag_ray.config.retrieval import RetrieverConfig, is_file_name
from erag_ray.data.files.ids import shown
from erag_ray.retrieve.outside.runs import register_retriever
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import DOCUMENT_OUTPUTS, LABELS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.logs import on_stderr
from erag_ray.support.registry import find

GIVEN = "given"
"""Folder inside ``out`` with the inputs as files. Its ``config.yaml`` is that of a job with the same inputs."""
READERS: Mapping[str, Any] = {"judge": judge_config, "auxiliary_reader": reader_config}
"""Keys of a job that take what `reader` takes."""


class InputFiles:
    """The files of a call's inputs: in memory until `write`, so that nothing is written before ``out`` is locked."""

    def __init__(self, out: str) -> None:
        self.out = out
        self._files: dict[tuple[str, ...], bytes] = {}

    def _add(self, data: bytes, *names: str) -> str:
        self._files[GIVEN, *names] = data
        return "/".join([self.out.rstrip("/"), GIVEN, *names])

    def add_lines(self, records: Iterable[Mapping[str, Any]], *names: str) -> str:
        """Add a file of JSON Lines; return its path."""
        lines = (json.dumps(record, ensure_ascii=False, default=_refuse) + "\n" for record in records)
        return self._add("".join(lines).encode(errors="surrogatepass"), *names)

    def add_table(self, table: pl.DataFrame, *names: str) -> str:
        """Add a Parquet file; return its path."""
        data = io.BytesIO()
        table.write_parquet(data)
        return self._add(data.getvalue(), *names)

    def write(self, config: JobConfig) -> None:
        """Write the files and the config; a file that is there already with the same content is left unchanged."""
        settings = json.loads(json.dumps(dataclasses.asdict(config)))
        self._add(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).encode(), "config.yaml")
        folder = Folder(self.out)
        for names, data in self._files.items():
            if not (folder.exists(*names) and folder.read_bytes(*names) == data):
                folder.write_bytes(data, *names)


def _refuse(value: object) -> str:
    """Raise an `InputError` for a value that JSON cannot hold."""
    raise InputError([f"a value is {shown(value)}; it must be text, a number, a list or a mapping"])


def compare(
    *,
    questions: object,
    reader: object = None,
    runs: Mapping[str, object] | None = None,
    retrievers: Mapping[str, Any] | None = None,
    passages: object = None,
    outputs: object = None,
    out: str | os.PathLike[str] = "results/comparison",
    **keys: Any,
) -> Result:
    """Compare retrievers by the reader that uses them; what erag-ray compare does, for data in memory.

    Responses are cached in ``cache_dir``: a second call runs only requests that are new. The inputs are written to
    ``<out>/given``, with the config of the job that does the same.

    Args:
        questions: with ``question``, ``answers`` and ``id``: a list of mappings, a Polars or pandas frame, a Hugging
            Face dataset, or paths of question files. Other fields can be used by ``slices`` and ``filters``.
        reader: `Served`, `Causal`, `Function`, a config or a mapping of its keys; None only with outputs.
        runs: name -> ranked lists: ``{query_id: [document, ...]}``, a frame, or the path of a run file. A document is
            an id, ``(id, text)``, ``(id, text, score)``, or a mapping with ``id``, ``text``, ``title``, ``score``. Or
            an object that retrieves: of LangChain, LlamaIndex or Haystack, or a function ``(question, k) ->
            documents``; in a `Retriever` its lists are kept for the next process.
        retrievers: name -> runs to make first, as in a job: ``{"bm25": {"kind": "bm25"}}``; needs ``passages``.
        passages: ``{doc_id: text}``, rows with ``doc_id``, ``text`` and ``title``, or paths of passage files.
        outputs: outputs that exist, which the reader is not asked for: rows with ``query_id``, ``run`` and ``output``,
            and ``depth`` and ``documents`` where known, or with ``doc_id`` in place of ``run``; or paths of such files.
        out: folder or URI of the results.
        **keys: all other keys of erag-ray compare, such as ``score``, ``depth``, ``annotators``, ``cache_dir``,
            ``num_queries``, ``slices``, ``max_cost``, ``progress``.

    Returns:
        The results: ``result.verdict``, ``result.means``, ``result.labels``, ``result.report()``.

    Raises:
        InputError: everything that is wrong with the arguments and the data, in one message.
        JobError: the reader or the disk cannot go on; the responses so far are kept.
    """
    config, given = _job(questions, reader, runs, retrievers, passages, out, keys, outputs)
    with _messages(config), job_folder(config):
        given.write(config)
        run_comparison(config, text_console(io.StringIO()))
    return Result(config.out)


def score(
    *, questions: object, outputs: object, out: str | os.PathLike[str] = "results/scores", **keys: Any
) -> pl.DataFrame:
    """Score outputs that exist against the gold answers; no reader is asked.

    The arguments are those of `compare`, such as ``score`` and ``judge``; the report in ``out`` compares the systems.

    Returns:
        A row for each output of a run; columns query_id, run_id, depth, output, value (its score; null: missing or not
        judged), reader, score.

    Raises:
        InputError, JobError: as `compare`.
    """
    result = compare(questions=questions, outputs=outputs, out=out, **keys)
    on = ["reader", "run_id", "query_id", "depth"]
    scored = result.utility.join(result.list_outputs, on=on, how="left", maintain_order="left")
    first = ["query_id", "run_id", "depth", "output", "value"]
    return scored.select(*first, pl.exclude(first))


def label(
    *,
    questions: object,
    reader: object,
    runs: Mapping[str, object] | None = None,
    retrievers: Mapping[str, Any] | None = None,
    passages: object = None,
    out: str | os.PathLike[str] = "results/labels",
    **keys: Any,
) -> pl.DataFrame:
    """Label documents by their usefulness to the reader, without end-to-end evaluation.

    The arguments are those of `compare`.

    Returns:
        LABELS, with the reader's ``output`` to each document; columns query_id, doc_id, annotator, label, output,
        reader, score.

    Raises:
        InputError, JobError: as `compare`.
    """
    config, given = _job(questions, reader, runs, retrievers, passages, out, keys)
    with _messages(config), job_folder(config):
        given.write(config)
        label_documents(config)
    tables = TableStore(config.out)
    outputs = tables.read(DOCUMENT_OUTPUTS).select("reader", "query_id", "doc_id", "output")
    on = ["reader", "query_id", "doc_id"]
    labels = tables.read(LABELS).join(outputs, on=on, how="left", maintain_order="left")
    first = ["query_id", "doc_id", "annotator", "label", "output"]
    return labels.select(*first, pl.exclude(first))


def job(name: str, **keys: Any) -> int:
    """Run any job of the command line, such as gate, export, settle or report.

    Args:
        name: of the job; ``erag-ray`` lists them.
        **keys: its keys, those of ``erag-ray NAME --help``; a group of keys is a mapping.

    Returns:
        Its exit code, 0 or a verdict of its own: of gate, 3 is failed and 4 not settled.

    Raises:
        InputError: there is no such job, or everything that is wrong with its keys and files.
        JobError: the job cannot go on.
    """
    try:
        entry = find("job", name, JOBS)
    except ValueError as error:
        raise InputError([str(error)]) from error
    config = build(entry.config, keys)
    with _messages(config), job_folder(config):
        return entry.main(config) or 0


def _messages(config: Any) -> contextlib.AbstractContextManager[None]:
    return on_stderr() if getattr(config, "progress", True) else contextlib.nullcontext()


def _job(
    questions: object,
    reader: object,
    runs: Mapping[str, object] | None,
    retrievers: Mapping[str, Any] | None,
    passages: object,
    out: str | os.PathLike[str],
    keys: Mapping[str, Any],
    outputs: object = None,
) -> tuple[JobConfig, InputFiles]:
    """Return the config of the job, and the files that it reads."""
    if "queries" in keys:
        raise InputError(["queries: give questions instead, which may be paths of files"])
    if not isinstance(out, str | os.PathLike):
        raise InputError([f"out: expected a path, got {out!r}"])
    out = os.fspath(out)
    given, queries, are_numbered = InputFiles(out), _paths(questions), False
    if not queries:
        records, are_numbered = question_records(questions)
        queries = [given.add_lines(records, "questions.jsonl")]
    run_keys = _run_keys(given, runs, retrievers, are_numbered=are_numbered)
    inputs: dict[str, Any] = {"queries": queries, **run_keys}
    if passages is not None:
        paths = _paths(passages)
        inputs["passages"] = paths or [given.add_table(passage_table(passages), "passages.parquet")]
    if outputs is not None:
        rows = [] if (paths := _paths(outputs)) else map(plain, rows_of(outputs, "outputs"))
        inputs["outputs"] = paths or [given.add_lines(rows, "outputs.jsonl")]
    reader_keys = ReaderConfig() if reader is None and outputs is not None else reader_config(reader)
    models = {
        name: READERS[name](keys[name], name) for name in keys if name in READERS and keys[name] is not None
    }
    # a function is known in this process alone
    if reader_keys.kind in IN_PROCESS or any(one.kind == "function" for one in models.values()):
        inputs["num_readers"] = 0
    config = build(JobConfig, {**inputs, **keys, **models, "reader": reader_keys, "out": out})
    if config.dry_run:
        text = "dry_run: erag_ray.job('compare', dry_run=True, ...) has one; this returns results"
        raise InputError([text])
    return config, given


def _paths(value: object) -> list[str]:
    """Return the paths that a value names; [] if it is data."""
    values = [value] if isinstance(value, str | os.PathLike) else value
    if not isinstance(values, list | tuple) or not all(isinstance(one, str | os.PathLike) for one in values):
        return []
    return [os.fspath(path) for path in values]


def _run_keys(given: InputFiles, runs: object, retrievers: object, *, are_numbered: bool) -> dict[str, Any]:
    """Return the keys ``runs`` and ``retrievers`` of the job: objects that retrieve are retrievers too."""
    paths: dict[str, str] = {}
    settings: dict[str, RetrieverConfig] = {}
    named = {"runs": _named_runs(runs, "runs"), "retrievers": _named_runs(retrievers, "retrievers")}
    for key, name, run in [(key, *item) for key, items in named.items() for item in items]:
        if name in paths or name in settings:
            raise InputError([f"runs and retrievers: both name {name}. Give each run a name of its own"])
        if isinstance(run, str | os.PathLike):
            paths[name] = os.fspath(run)
        elif key == "retrievers" and isinstance(run, Mapping):
            settings[name] = build(RetrieverConfig, run, f"retrievers.{name}")
        elif (retriever := _retriever(name, run)) is not None:
            settings[name] = retriever
        elif not is_file_name(name):
            text = f"{name!r} cannot be a file name, and its lists are kept in a file of this name"
            raise InputError([f"runs: {text}. Choose another, without / and .."])
        else:
            table = run_table(run, name)
            if are_numbered and "0" in table["query_id"]:
                text = "a list of the question '0', but the questions have no ids and are numbered from '1'"
                text = f"{text}. Number the lists from 1, or give the questions ids"
                raise InputError([f"runs[{name!r}]: {text}"])
            paths[name] = given.add_table(table, "runs", f"{name}.parquet")
    return {"runs": paths, "retrievers": settings}


def _named_runs(runs: object, key: str) -> Iterable[tuple[str, Any]]:
    """Return names and runs of an argument; raise an `InputError` if it is not a mapping of names."""
    runs = {} if runs is None else runs
    if not isinstance(runs, Mapping) or not all(isinstance(name, str) for name in runs):
        is_mapping = isinstance(runs, Mapping)
        kind = "a mapping whose keys are not all strings" if is_mapping else f"a {type(runs).__name__}"
        raise InputError([f"{key}: {kind}; it must be a mapping of names, such as {{'bm25': ...}}"])
    return runs.items()


def _retriever(name: str, run: object) -> RetrieverConfig | None:
    """Return the config of an object that retrieves; None for other objects."""
    if isinstance(run, RetrieverConfig):
        return run
    if isinstance(run, Retriever):
        return register_retriever(name, run.retriever, run.revision)
    if isinstance(run, Mapping | list | tuple):
        return None
    try:
        return register_retriever(name, run)
    except TypeError:
        return None
