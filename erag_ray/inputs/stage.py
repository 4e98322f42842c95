"""Stage that loads, checks and seals the inputs: QUERIES, PROVENANCE, CORPUS, RUNS, GOLD, RETRIEVAL_SECONDS, SLICES."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.annotators import uses
from erag_ray.config.job import KNOWN, PAGE, JobConfig
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.data.datasets.paths import NO_VALUE
from erag_ray.data.datasets.queries import LoadedQueries, load_queries, sample_loaded
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.entries import ENTRY_COLUMNS
from erag_ray.data.runs.load import load_run
from erag_ray.data.runs.outputs import load_outputs
from erag_ray.data.runs.texts import seconds_of
from erag_ray.inputs.documents import load_documents
from erag_ray.inputs.evidence import Inputs, applicability_notes, sample_notes
from erag_ray.inputs.settings import (
    check_cache,
    check_evaluation,
    check_facts,
    check_reader_names,
    check_runs,
    cluster_notes,
    evaluation_notes,
    fact_notes,
    scores_of,
)
from erag_ray.inputs.tables import (
    check_datasets,
    check_inputs,
    check_numbering,
    gold_lists,
    note_empty_cells,
    resolve_gold,
    used_outputs,
)
from erag_ray.store.fingerprints import file_stamp
from erag_ray.store.schemas import (
    CLUSTERS,
    CORPUS,
    FACTS,
    GIVEN,
    GOLD,
    PROVENANCE,
    QUERIES,
    RETRIEVAL_SECONDS,
    RUNS,
    SLICES,
    TableSchema,
)
from erag_ray.store.stages.stage import JOB_STAGES, Append, Stage, digests, ensure
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.logs import say
from erag_ray.support.progress import stage_progress

DRY_RUN = "rehearsal"
"""The folder of a dry run inside ``out``."""
EVIDENCE_TABLES = (QUERIES, PROVENANCE, CORPUS, RUNS, GOLD, GIVEN)
"""The input tables that labels and end-to-end scores depend on."""
INPUT_TABLES = (*EVIDENCE_TABLES, RETRIEVAL_SECONDS)
RECORD_KEYS = ("query_format", "question_fields", "dataset", "filters")
"""What is read from the records of questions depends on these."""
INPUT_KEYS = (
    *RECORD_KEYS, "queries", "qrels", "triviaqa_questions", "score", "language", "default_score", "passages", "corpora",
    "run_corpora", "runs", "outputs", "trec_ties", "num_queries", "seed", "depth",
)  # fmt: skip
ReaderCheck = Callable[[JobConfig, Mapping[str, Dataset]], Sequence[str]]
"""Returns the problems of the reader."""


def dry_run_config(config: JobConfig) -> JobConfig:
    """The config with a folder of its own inside ``out``, so that nothing there is touched."""
    return dataclasses.replace(config.with_retrieved(), out="/".join([config.out.rstrip("/"), DRY_RUN]))


def prepare(config: JobConfig, check_reader: ReaderCheck | None = None) -> Inputs:
    """Load, check and seal the inputs; ``check_reader`` is for jobs that run models, of which this loads none.

    Raises:
        InputError: all problems of the config, the files and the reader, before anything is sealed; or of clusters.
    """
    config = config.with_retrieved()
    diagnostics = Diagnostics()
    check_runs(config, diagnostics)
    check_cache(config.cache_dir, diagnostics)
    if diagnostics.num_errors:
        # continue to report all problems: an unusable cache is only one of them
        _loaded(config, check_reader, diagnostics)
    loaded: Inputs | None = None

    def make(append: Append) -> Mapping[str, object]:
        nonlocal loaded
        loaded = _loaded(config, check_reader, diagnostics)
        return _write(config, loaded, append)

    ensure(_stage(config, make), TableStore(config.out))
    if loaded is not None:
        return _completed(config, loaded, diagnostics, is_loaded=True)
    inputs = _sealed(config)
    _check_job(config, inputs.queries, inputs.datasets, check_reader, diagnostics)
    inputs = _completed(config, inputs, diagnostics, is_loaded=False)
    say("inputs: as sealed before")
    return inputs


def _loaded(config: JobConfig, check_reader: ReaderCheck | None, diagnostics: Diagnostics) -> Inputs:
    """Load the inputs from their files; raise an `InputError` with all problems, also those in ``diagnostics``."""
    loaded, entries, given = _load(config, diagnostics)
    _check_job(config, loaded.queries, loaded.datasets, check_reader, diagnostics)
    # lists of pages stay complete, since repeats are removed later
    within = (pl.col("rank") <= config.depth) | pl.col("page_id").is_not_null()
    of_queries = entries.join(loaded.queries, on="query_id", how="semi", maintain_order="left")
    # documents of fused or reranked lists have their texts in other lists, maybe further down
    bare = of_queries.filter(within & pl.col("text").is_null())["doc_id"].unique().implode()
    needed = of_queries.filter(within | (pl.col("text").is_not_null() & pl.col("doc_id").is_in(bare)))
    with stage_progress("loading passages", show=config.progress):
        documents = load_documents(config, needed, diagnostics, gold=loaded.provenance)
    ranked, corpus = documents.runs, documents.corpus
    with stage_progress("checking the inputs", show=config.progress):
        if loaded.queries.height:
            # lists of other questions are counted only: their documents are not checked
            others = entries.filter(pl.col("rank") > 0).join(loaded.queries, on="query_id", how="anti")
            both = pl.concat([ranked, others.select(ranked.columns)])
            check_inputs(loaded.queries, both, documents.present, diagnostics, depth=config.depth)
            note_empty_cells(loaded.queries, corpus, diagnostics)
        diagnostics.raise_errors()
        corpora = config.searched_corpora
        loaded = resolve_gold(loaded, corpus, diagnostics, corpora)
        # of several corpora, the passages of gold pages are those of the first
        is_first = pl.col("doc_id").str.starts_with(f"{corpora[0]}/") if len(corpora) > 1 else pl.lit(True)
        gold = gold_lists(loaded.queries, loaded.provenance, corpus.filter(is_first))
    return Inputs(
        queries=loaded.queries,
        provenance=loaded.provenance.join(loaded.queries, on="query_id", how="semi"),
        corpus=corpus,
        runs=ranked.join(loaded.queries, on="query_id", how="semi").filter(pl.col("rank") <= config.depth),
        gold=gold,
        given=given,
        retrieval_seconds=seconds_of(needed),
        slices=loaded.slices,
        facts=loaded.facts,
        clusters=CLUSTERS.empty(),
        datasets=loaded.datasets,
        notes=diagnostics.warnings,
    )


def _check_job(
    config: JobConfig,
    queries: pl.DataFrame,
    datasets: Mapping[str, Dataset],
    check_reader: ReaderCheck | None,
    diagnostics: Diagnostics,
) -> None:
    check_evaluation(config, scores_of(queries), diagnostics)
    if check_reader is None:
        return
    # the packages of models take seconds to import: not where the job ends anyhow
    is_quick = (
        (diagnostics.num_errors or not datasets) and ":" not in config.reader.kind and config.asks_reader
    )
    with stage_progress("checking the reader", show=config.progress):
        problems = check_reader_names(config.reader) if is_quick else check_reader(config, datasets)
    diagnostics.error("the reader", *problems)


def check_settings(config: JobConfig, check_reader: ReaderCheck | None = None) -> None:
    """Raise InputError, before retrieval, which can take long, with all problems of config, questions and reader."""
    diagnostics = Diagnostics()
    check_runs(config.with_retrieved(), diagnostics)
    check_cache(config.cache_dir, diagnostics)
    loaded = _queries(config, diagnostics)
    _check_job(config, loaded.queries, loaded.datasets, check_reader, diagnostics)
    if uses(config.annotators, "facts"):
        check_facts(config, loaded.queries, loaded.facts, diagnostics)
    diagnostics.raise_errors()


def load_all_questions(
    config: JobConfig | RetrieveConfig, diagnostics: Diagnostics, **more: Any
) -> LoadedQueries:
    """Load the questions of a job, not only its sample, with more arguments of `load_queries`."""
    with stage_progress("loading questions", show=config.progress):
        return load_queries(
            config.queries,
            diagnostics,
            format=config.query_format,
            fields=config.question_fields,
            dataset=config.dataset,
            triviaqa_questions=config.triviaqa_questions,
            qrels=config.qrels,
            filters=config.filters,
            **more,
        )


def _queries(config: JobConfig, diagnostics: Diagnostics) -> LoadedQueries:
    rule = {"score": config.score, "language": config.language, "is_chat": config.is_chat}
    clusters = None if config.clusters == PAGE else config.clusters
    return load_all_questions(config, diagnostics, slices=_paths(config), clusters=clusters, **rule)


def _load(config: JobConfig, diagnostics: Diagnostics) -> tuple[LoadedQueries, pl.DataFrame, pl.DataFrame]:
    """Return the questions, the entries of all runs, and GIVEN."""
    loaded = _queries(config, diagnostics)
    with stage_progress("loading runs", show=config.progress) as progress:
        entries = [
            load_run(name, path, diagnostics, ties=config.trec_ties)
            for name, path in progress.each(config.runs.items(), "runs")
        ]
    with stage_progress("loading outputs", show=config.progress and bool(config.outputs)):
        given, brought = load_outputs(config.outputs, config.runs, config.depths, config.depth, diagnostics)
    lists = pl.concat([pl.DataFrame(schema=ENTRY_COLUMNS), *entries, brought])
    check_numbering(loaded.queries, lists, given, diagnostics)
    loaded = sample_loaded(loaded, config.num_queries, config.seed, diagnostics)
    check_datasets(loaded.queries, lists, given, diagnostics)
    return loaded, lists, used_outputs(given, config.outputs, loaded.queries, lists, diagnostics)


def _stage(config: JobConfig, make: Callable[[Append], Mapping[str, object]]) -> Stage:
    corpora = {name: dataclasses.asdict(corpus) for name, corpus in config.corpora.items()}
    settings = {**{key: getattr(config, key) for key in INPUT_KEYS}, "corpora": corpora}
    # the depth of an output without one
    settings |= {"depths": config.depths} if config.outputs else {}
    files, names = input_files(config), [config.query_format]
    return Stage(name="inputs", tables=INPUT_TABLES, settings=settings, inputs=files, names=names, make=make)


def _write(config: JobConfig, inputs: Inputs, append: Append) -> Mapping[str, object]:
    """Write the input tables, and delete the inference stages of earlier inputs."""
    folder = TableStore(config.out).folder
    for name in JOB_STAGES:
        folder.delete_folder(name)
    with stage_progress("sealing the inputs", show=config.progress) as progress:
        for schema in progress.each(INPUT_TABLES, "tables"):
            append(schema, getattr(inputs, schema.name))
    datasets = {name: dataclasses.asdict(dataset) for name, dataset in inputs.datasets.items()}
    return {"datasets": datasets, "notes": list(inputs.notes)}


def _paths(config: JobConfig) -> list[str]:
    """Return the slices that are paths in the records of questions, without repeats."""
    return [name for name in dict.fromkeys(config.slices) if name != KNOWN]


def input_files(config: JobConfig) -> dict[str, str]:
    """Return every input file with its size and time, to detect changes."""
    paths = [
        *config.queries,
        *config.qrels,
        *config.triviaqa_questions,
        *config.passages,
        *(path for corpus in config.corpora.values() for path in corpus.passages),
        *config.runs.values(),
        *config.outputs,
    ]
    return {path: file_stamp(path) for path in paths}


def prepared(config: JobConfig) -> Inputs:
    """Load the inputs that `prepare` sealed for this config; raise InputError unless they are there and unchanged."""
    config = config.with_retrieved()
    if problems := _stage(config, lambda append: {}).differences(TableStore(config.out)):
        advice = "run erag-ray prepare with this config"
        raise InputError([f"{config.out}: {problem}; {advice}" for problem in problems])
    return _completed(config, _sealed(config), Diagnostics(), is_loaded=False)


def _sealed(config: JobConfig) -> Inputs:
    store = TableStore(config.out)
    with stage_progress("loading sealed inputs", show=config.progress):
        settings = store.manifest(QUERIES)["config"]
        frames = {schema.name: store.read(schema) for schema in INPUT_TABLES}
    empty = {schema.name: schema.empty() for schema in (SLICES, FACTS, CLUSTERS)}
    datasets = {name: Dataset(**fields) for name, fields in settings["datasets"].items()}
    return Inputs(**frames, **empty, datasets=datasets, notes=settings["notes"])


def _clusters(config: JobConfig, inputs: Inputs, slices: pl.DataFrame) -> pl.DataFrame:
    """Return CLUSTERS of all questions; ``slices`` has the values at their path."""
    if config.clusters == PAGE:
        pages = inputs.corpus.select("doc_id", page="page_id")
        gold = inputs.provenance.join(pages, on="doc_id", how="left", maintain_order="left")
        page = pl.coalesce("page_id", "page").drop_nulls().first()
        named = gold.group_by("query_id", maintain_order=True).agg(cluster=page)
    else:
        value = pl.when(pl.col("value") != NO_VALUE).then("value")
        named = slices.filter(slice=config.clusters).select("query_id", cluster=value)
    return inputs.queries.select("query_id").join(named, on="query_id", how="left", maintain_order="left")


def _completed(config: JobConfig, inputs: Inputs, diagnostics: Diagnostics, *, is_loaded: bool) -> Inputs:
    """Add what is not sealed with the inputs: slices, clusters, facts if an annotator uses them, and notes on this job.

    They are sealed separately, so that new ones leave the other inputs unchanged; question files are read again then,
    and where they have changed.
    """
    store, queries = TableStore(config.out), inputs.queries
    stamps = {path: store.manifest(QUERIES)["inputs"][path] for path in config.queries}
    read_by = {key: getattr(config, key) for key in RECORD_KEYS}

    def sealed(schema: TableSchema, settings: Mapping[str, object], *, of_records: bool) -> pl.DataFrame:
        def make(append: Append) -> Mapping[str, object]:
            is_needed = of_records and not is_loaded and (schema is not SLICES or _paths(config))
            tables = _queries(config, diagnostics) if is_needed else inputs
            frames = {
                FACTS: tables.facts,
                SLICES: tables.slices.filter(pl.col("slice").is_in(_paths(config))),
            }
            if schema is CLUSTERS:
                frames[schema] = _clusters(config, inputs, tables.slices)
                cluster_notes(str(config.clusters), queries, frames[schema], diagnostics)
            diagnostics.raise_errors()
            append(schema, frames[schema].join(queries, on="query_id", how="semi"))
            return {}

        sources = digests(store, [QUERIES] if of_records else [QUERIES, PROVENANCE, CORPUS])
        stage = Stage(
            name=schema.name,
            tables=[schema],
            settings={**settings, **(read_by if of_records else {})},
            sources=sources,
            inputs=stamps if of_records else {},
            names=[config.query_format],
            make=make,
        )
        ensure(stage, store)
        return store.read(schema)

    slices, facts = sealed(SLICES, {"slices": _paths(config)}, of_records=True), FACTS.empty()
    clusters, notes = CLUSTERS.empty(), [*inputs.notes]
    if config.clusters is None:
        store.folder.delete_folder(CLUSTERS.name)
    else:
        clusters = sealed(CLUSTERS, {"clusters": config.clusters}, of_records=config.clusters != PAGE)
        notes += cluster_notes(config.clusters, queries, clusters, diagnostics)
    if uses(config.annotators, "facts"):
        facts = sealed(FACTS, {}, of_records=True)
        check_facts(config, queries, facts, diagnostics)
        notes += fact_notes(queries, facts)
    diagnostics.raise_errors()
    inputs = dataclasses.replace(inputs, slices=slices, facts=facts, clusters=clusters)
    notes += evaluation_notes(config)
    notes += applicability_notes(config, inputs)
    notes += sample_notes(config, queries, inputs.runs)
    return dataclasses.replace(inputs, notes=notes)
