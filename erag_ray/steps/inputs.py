"""Input files -> sealed QUERIES, PROVENANCE, CORPUS, RUNS and GOLD, or one message with all that is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from erag_ray.config import JobConfig
from erag_ray.datasets import (
    Dataset,
    Findings,
    LoadedQueries,
    check_inputs,
    gold_lists,
    load_passages,
    load_queries,
    load_run,
    resolve_pages,
    sample,
)
from erag_ray.schemas import (
    BEST_DEPTHS,
    COMPARISONS,
    CONTRASTS,
    CORPUS,
    CORRELATIONS,
    GOLD,
    LABELS,
    LIST_VALUES,
    LOOKS,
    MEANS,
    POOLING,
    PROVENANCE,
    QUERIES,
    RUNS,
    UTILITY,
    InputError,
    TableSchema,
)
from erag_ray.steps.checks import check_evaluation, check_not_own, check_places, check_runs, scores_of
from erag_ray.store import NOT_LOCAL, TableStore, file_stamp

INPUT_TABLES = (QUERIES, PROVENANCE, CORPUS, RUNS, GOLD)
DERIVED_TABLES = (
    LABELS,
    UTILITY,
    LIST_VALUES,
    MEANS,
    CORRELATIONS,
    COMPARISONS,
    CONTRASTS,
    POOLING,
    BEST_DEPTHS,
)
STAGES = ("annotate", "end_to_end", "compare", "judge", "likelihood", "score_only", "settle")
INPUT_KEYS = (
    "queries",
    "query_format",
    "qrels",
    "triviaqa_questions",
    "dataset",
    "score",
    "where",
    "passages",
    "runs",
    "trec_ties",
    "num_queries",
    "seed",
    "depth",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The input tables of a job, as sealed, with what is known of its datasets and what is worth a note."""

    queries: pl.DataFrame
    provenance: pl.DataFrame
    corpus: pl.DataFrame
    runs: pl.DataFrame
    gold: pl.DataFrame
    datasets: Mapping[str, Dataset]
    notes: Sequence[str]


ReaderCheck = Callable[[JobConfig, Mapping[str, Dataset]], Sequence[str]]


def prepare(config: JobConfig, check_reader: ReaderCheck | None = None) -> Inputs:
    """Load, check and seal the inputs.

    Args:
        config: the job.
        check_reader: what is wrong with the reader, for jobs that go on to read; this step itself loads no model.

    Raises:
        InputError: everything that is wrong with the config, the files or the reader; nothing is sealed or lost then.
    """
    config = config.with_retrieved()
    findings = Findings()
    check_runs(config, findings)
    check_places({"out": config.out, "store": config.store}, findings)
    check_not_own(config, findings)
    loaded, entries = _load(config, findings)
    check_evaluation(config, scores_of(loaded.queries), findings)
    if check_reader is not None:
        findings.problem("the reader", *check_reader(config, loaded.datasets))
    needed = _needed(config, loaded.queries, entries)
    num_before = findings.num_problems
    corpus = load_passages(
        config.passages,
        findings,
        doc_ids=pl.concat([needed["doc_id"], loaded.gold["doc_id"]]).drop_nulls(),
        page_ids=pl.concat([needed["page_id"], loaded.provenance["page_id"]]).drop_nulls(),
    )
    unreadable = findings.num_problems > num_before and not corpus.height
    runs = resolve_pages(needed, corpus, Findings() if unreadable else findings)
    if loaded.queries.height:
        # lists of other questions are only counted: their documents are not looked up
        others = entries.join(loaded.queries, on="query_id", how="anti").select(runs.columns)
        # passages that could not be read are one problem, not one for every document in them
        present = runs if unreadable else corpus
        check_inputs(loaded.queries, pl.concat([runs, others]), present, findings, depth=config.depth)
    findings.raise_problems()
    gold = gold_lists(loaded.queries, loaded.provenance, loaded.gold, corpus, findings=findings)
    inputs = Inputs(
        queries=loaded.queries,
        provenance=loaded.provenance.join(loaded.queries, on="query_id", how="semi"),
        corpus=corpus,
        runs=runs.join(loaded.queries, on="query_id", how="semi").filter(pl.col("rank") <= config.depth),
        gold=gold,
        datasets=loaded.datasets,
        notes=findings.notes,
    )
    _seal(config, inputs)
    return inputs


def check_settings(config: JobConfig, check_reader: ReaderCheck | None = None) -> None:
    """Check what can be checked before runs are made, which may take long.

    Raises:
        InputError: everything that is wrong with the config, the questions or the reader.
    """
    findings = Findings()
    check_runs(config.with_retrieved(), findings)
    check_places({"out": config.out, "store": config.store}, findings)
    loaded = _queries(config, findings)
    check_evaluation(config, scores_of(loaded.queries), findings)
    if check_reader is not None:
        findings.problem("the reader", *check_reader(config, loaded.datasets))
    findings.raise_problems()


def _queries(config: JobConfig, findings: Findings) -> LoadedQueries:
    return load_queries(
        config.queries,
        findings,
        format=config.query_format,
        dataset=config.dataset,
        score=config.score,
        triviaqa_questions=config.triviaqa_questions,
        qrels=config.qrels,
        where=config.where,
    )


def _load(config: JobConfig, findings: Findings) -> tuple[LoadedQueries, pl.DataFrame]:
    loaded = _queries(config, findings)
    entries = [load_run(name, path, findings, ties=config.trec_ties) for name, path in config.runs.items()]
    sampled = dataclasses.replace(loaded, queries=sample(loaded.queries, config.num_queries, config.seed))
    gold = loaded.gold.join(sampled.queries, on="query_id", how="semi")
    provenance = loaded.provenance.join(sampled.queries, on="query_id", how="semi")
    empty = pl.DataFrame(RUNS.empty()).with_columns(
        page_id=pl.lit(None, pl.String), text=pl.lit(None, pl.String)
    )
    return dataclasses.replace(sampled, gold=gold, provenance=provenance), pl.concat(
        entries
    ) if entries else empty


def _needed(config: JobConfig, queries: pl.DataFrame, entries: pl.DataFrame) -> pl.DataFrame:
    """What is used of the runs; lists that name pages stay whole, since their repeats are yet to go."""
    within = (pl.col("rank") <= config.depth) | pl.col("page_id").is_not_null()
    return entries.join(queries, on="query_id", how="semi").filter(within)


def _seal(config: JobConfig, inputs: Inputs) -> None:
    tables = TableStore(config.out)
    settings = {
        "inputs": input_settings(config),
        "datasets": {name: dataclasses.asdict(found) for name, found in inputs.datasets.items()},
        "notes": list(inputs.notes),
    }
    unseal(config, (*INPUT_TABLES, *DERIVED_TABLES, LOOKS))
    for stage in STAGES:
        tables.folder.delete_folder(stage)
    for schema in INPUT_TABLES:
        tables.write(getattr(inputs, schema.name), schema, config=settings, inputs=_files(config))


def input_settings(config: JobConfig) -> dict[str, object]:
    """The part of a config that the input tables depend on."""
    return {key: getattr(config, key) for key in INPUT_KEYS}


def _files(config: JobConfig) -> dict[str, str]:
    """Every input file with its size and time: enough to notice that one has changed."""
    paths = [
        *config.queries,
        *config.qrels,
        *config.triviaqa_questions,
        *config.passages,
        *config.runs.values(),
    ]
    return {path: file_stamp(path) for path in paths}


def prepared(config: JobConfig) -> Inputs:
    """The inputs that `prepare` has sealed for this config.

    Raises:
        InputError: they are not there, or were prepared with other settings.
    """
    config = config.with_retrieved()
    tables = TableStore(config.out)
    missing = [schema.name for schema in INPUT_TABLES if not tables.is_sealed(schema)]
    if missing:
        raise InputError(
            [f"{config.out}: no sealed {', '.join(missing)}; run jobs/prepare.py with this config first"]
        )
    settings = tables.manifest(QUERIES)["config"]
    if not {"inputs", "datasets", "notes"} <= settings.keys():
        raise InputError([f"{config.out}: prepared by another version; run jobs/prepare.py again"])
    wanted = input_settings(config)
    other = [key for key in INPUT_KEYS if settings["inputs"].get(key) != wanted[key]]
    if other:
        raise InputError(
            [f"{config.out}: prepared with another {', '.join(other)}; run jobs/prepare.py again"]
        )
    stamps = tables.manifest(QUERIES)["inputs"]
    changed = [path for path, now in _files(config).items() if now not in (NOT_LOCAL, stamps.get(path))]
    if changed:
        raise InputError(
            [f"{path}: changed since it was prepared; run jobs/prepare.py again" for path in changed]
        )
    frames = {schema.name: tables.read(schema) for schema in INPUT_TABLES}
    datasets = {name: Dataset(**found) for name, found in settings["datasets"].items()}
    return Inputs(**frames, datasets=datasets, notes=settings["notes"])


def unseal(config: JobConfig, schemas: Sequence[TableSchema]) -> None:
    """Take the seal off tables that are about to be made anew, and those made from them; the report goes too."""
    tables = TableStore(config.out)
    for schema in schemas:
        tables.unseal(schema)
    tables.folder.delete("report.md")
