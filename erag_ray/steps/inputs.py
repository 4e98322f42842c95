"""Input files -> sealed QUERIES, PROVENANCE, CORPUS, RUNS, GOLD and SLICES, or one message with all that is wrong."""

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
    sample_loaded,
)
from erag_ray.evaluate import KNOWN
from erag_ray.progress import stage_progress
from erag_ray.report.load import JOB_STAGES
from erag_ray.schemas import (
    BEST_DEPTHS,
    CELL_COMPARISONS,
    CELL_SHARES,
    CELLS,
    COMPARISONS,
    COMPLEMENTS,
    CONTRASTS,
    CORPUS,
    CORRELATIONS,
    DOCUMENT_OUTPUTS,
    GOLD,
    LABELS,
    LIST_OUTPUTS,
    LIST_VALUES,
    LOOKS,
    MEANS,
    POOLING,
    PROVENANCE,
    QUERIES,
    RUNS,
    SLICE_COMPARISONS,
    SLICE_MEANS,
    SLICES,
    UTILITY,
    InputError,
    TableSchema,
)
from erag_ray.steps import say
from erag_ray.steps.checks import (
    check_evaluation,
    check_not_own,
    check_places,
    check_reader_names,
    check_runs,
    cutoff_notes,
    scores_of,
)
from erag_ray.steps.stages import Stage
from erag_ray.store import NOT_LOCAL, TableStore, file_stamp, fingerprint

ASIDE = "rehearsal"
"""The folder of a dry run inside ``out``."""
INPUT_TABLES = (QUERIES, PROVENANCE, CORPUS, RUNS, GOLD)
RESULTS = (
    LIST_VALUES,
    MEANS,
    CORRELATIONS,
    COMPARISONS,
    CONTRASTS,
    POOLING,
    BEST_DEPTHS,
    CELLS,
    CELL_SHARES,
    CELL_COMPARISONS,
    COMPLEMENTS,
    SLICE_MEANS,
    SLICE_COMPARISONS,
)
"""Tables that evaluation makes of labels and utility."""
DERIVED_TABLES = (LABELS, UTILITY, DOCUMENT_OUTPUTS, LIST_OUTPUTS, *RESULTS)
OF_SLICES = (CELL_SHARES, SLICE_MEANS, SLICE_COMPARISONS)
"""Tables made from SLICES."""
INPUT_KEYS = (
    "queries",
    "query_format",
    "qrels",
    "triviaqa_questions",
    "dataset",
    "score",
    "language",
    "default_score",
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
    slices: pl.DataFrame
    datasets: Mapping[str, Dataset]
    notes: Sequence[str]


ReaderCheck = Callable[[JobConfig, Mapping[str, Dataset]], Sequence[str]]


def aside(config: JobConfig) -> JobConfig:
    """The config with a folder of its own inside ``out``, so that nothing there is touched."""
    return dataclasses.replace(config.with_retrieved(), out="/".join([config.out.rstrip("/"), ASIDE]))


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
    made_from = _made_from(config)
    # a folder that cannot be used is a problem already
    inputs = None if findings.num_problems else _as_sealed(config, made_from)
    if inputs is None:
        inputs = _loaded(config, check_reader, findings)
        _seal(config, inputs, made_from)
    else:
        _check_job(config, inputs.queries, inputs.datasets, check_reader, findings)
        inputs = _with_slices(config, inputs, findings)
        findings.raise_problems()
        say("inputs: as sealed before")
    return _with_notes(config, inputs)


def _loaded(config: JobConfig, check_reader: ReaderCheck | None, findings: Findings) -> Inputs:
    """The inputs as their files have them.

    Raises:
        InputError: everything that is wrong, what was found before included.
    """
    loaded, entries = _load(config, findings)
    _check_job(config, loaded.queries, loaded.datasets, check_reader, findings)
    needed = _needed(config, loaded.queries, entries)
    num_before = findings.num_problems
    with stage_progress("loading passages", show=config.progress):
        corpus = load_passages(
            config.passages,
            findings,
            doc_ids=pl.concat([needed["doc_id"], loaded.gold["doc_id"]]).drop_nulls(),
            page_ids=pl.concat([needed["page_id"], loaded.provenance["page_id"]]).drop_nulls(),
        )
    unreadable = findings.num_problems > num_before and not corpus.height
    with stage_progress("checking the inputs", show=config.progress):
        runs = resolve_pages(needed, corpus, Findings() if unreadable else findings)
        if loaded.queries.height:
            # lists of other questions are only counted: their documents are not looked up
            others = entries.join(loaded.queries, on="query_id", how="anti").select(runs.columns)
            # passages that could not be read are one problem, not one for every document in them
            present = runs if unreadable else corpus
            check_inputs(loaded.queries, pl.concat([runs, others]), present, findings, depth=config.depth)
        findings.raise_problems()
        gold = gold_lists(loaded.queries, loaded.provenance, loaded.gold, corpus, findings=findings)
    return Inputs(
        queries=loaded.queries,
        provenance=loaded.provenance.join(loaded.queries, on="query_id", how="semi"),
        corpus=corpus,
        runs=runs.join(loaded.queries, on="query_id", how="semi").filter(pl.col("rank") <= config.depth),
        gold=gold,
        slices=loaded.slices,
        datasets=loaded.datasets,
        notes=findings.notes,
    )


def _check_job(
    config: JobConfig,
    queries: pl.DataFrame,
    datasets: Mapping[str, Dataset],
    check_reader: ReaderCheck | None,
    findings: Findings,
) -> None:
    """What is wrong with the rest of a config, for these questions."""
    check_evaluation(config, scores_of(queries), findings)
    if check_reader is None:
        return
    # the packages of models take seconds to import: not where the job ends anyhow
    is_quick = (findings.num_problems or not datasets) and ":" not in config.reader.kind
    with stage_progress("checking the reader", show=config.progress):
        problems = check_reader_names(config.reader) if is_quick else check_reader(config, datasets)
    findings.problem("the reader", *problems)


def check_settings(config: JobConfig, check_reader: ReaderCheck | None = None) -> None:
    """Check what can be checked before runs are made, which may take long.

    Raises:
        InputError: everything that is wrong with the config, the questions or the reader.
    """
    findings = Findings()
    check_runs(config.with_retrieved(), findings)
    check_places({"out": config.out, "store": config.store}, findings)
    loaded = _queries(config, findings)
    _check_job(config, loaded.queries, loaded.datasets, check_reader, findings)
    findings.raise_problems()


def _queries(config: JobConfig, findings: Findings) -> LoadedQueries:
    with stage_progress("loading questions", show=config.progress):
        return load_queries(
            config.queries,
            findings,
            format=config.query_format,
            dataset=config.dataset,
            score=config.score,
            language=config.language,
            is_chat=config.reader.is_chat,
            triviaqa_questions=config.triviaqa_questions,
            qrels=config.qrels,
            where=config.where,
            slices=_paths(config),
        )


def _load(config: JobConfig, findings: Findings) -> tuple[LoadedQueries, pl.DataFrame]:
    loaded = _queries(config, findings)
    with stage_progress("loading runs", show=config.progress) as at:
        entries = [
            load_run(name, path, findings, ties=config.trec_ties)
            for name, path in at.each(config.runs.items(), "runs")
        ]
    sampled = sample_loaded(loaded, config.num_queries, config.seed)
    empty = pl.DataFrame(RUNS.empty()).with_columns(
        page_id=pl.lit(None, pl.String), text=pl.lit(None, pl.String)
    )
    return sampled, pl.concat(entries) if entries else empty


def _needed(config: JobConfig, queries: pl.DataFrame, entries: pl.DataFrame) -> pl.DataFrame:
    """What is used of the runs; lists that name pages stay whole, since their repeats are yet to go."""
    within = (pl.col("rank") <= config.depth) | pl.col("page_id").is_not_null()
    return entries.join(queries, on="query_id", how="semi").filter(within)


def _made_from(config: JobConfig) -> Stage:
    return Stage(name="inputs", tables=INPUT_TABLES, settings=input_settings(config), inputs=_files(config))


def _seal(config: JobConfig, inputs: Inputs, made_from: Stage) -> None:
    tables = TableStore(config.out)
    settings = {
        "inputs": made_from.settings,
        "datasets": {name: dataclasses.asdict(found) for name, found in inputs.datasets.items()},
        "notes": list(inputs.notes),
    }
    unseal(config, (*INPUT_TABLES, SLICES, *DERIVED_TABLES, LOOKS))
    for name in JOB_STAGES:
        tables.folder.delete_folder(name)
    with stage_progress("sealing the inputs", show=config.progress) as at:
        for schema in at.each(INPUT_TABLES, "tables"):
            tables.write(
                getattr(inputs, schema.name),
                schema,
                config=settings,
                inputs=made_from.inputs,
                made_from=made_from.fingerprint,
            )
    _seal_slices(config, inputs.slices)


def _paths(config: JobConfig) -> list[str]:
    """The slices that are paths in the records of questions, without repeats."""
    return [name for name in dict.fromkeys(config.slices) if name != KNOWN]


def _slices_fingerprint(config: JobConfig) -> str:
    return fingerprint([_paths(config), TableStore(config.out).digest(QUERIES)])


def _seal_slices(config: JobConfig, slices: pl.DataFrame) -> None:
    """Seal SLICES apart from the other inputs, which stay as they are where other slices are asked for."""
    unseal(config, (SLICES, *OF_SLICES))
    settings, made_from = {"slices": _paths(config)}, _slices_fingerprint(config)
    TableStore(config.out).write(slices, SLICES, config=settings, made_from=made_from)


def _with_slices(config: JobConfig, inputs: Inputs, findings: Findings) -> Inputs:
    """The inputs with the slices that the config names; question files are read again where others are sealed."""
    tables = TableStore(config.out)
    if tables.is_made_from(SLICES, _slices_fingerprint(config)):
        return dataclasses.replace(inputs, slices=tables.read(SLICES))
    slices = inputs.slices
    if _paths(config):
        slices = _queries(config, findings).slices.join(inputs.queries, on="query_id", how="semi")
    findings.raise_problems()
    _seal_slices(config, slices)
    return dataclasses.replace(inputs, slices=slices)


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
    with stage_progress("loading sealed inputs", show=config.progress):
        inputs = _with_notes(config, _sealed(tables))
    return _with_slices(config, inputs, Findings())


def _as_sealed(config: JobConfig, made_from: Stage) -> Inputs | None:
    """The inputs that stand sealed there, where they were made from exactly this."""
    tables = TableStore(config.out)
    with stage_progress("loading sealed inputs", show=config.progress):
        return _sealed(tables) if made_from.is_made(tables) else None


def _sealed(tables: TableStore) -> Inputs:
    """The inputs that stand sealed there."""
    settings = tables.manifest(QUERIES)["config"]
    frames = {schema.name: tables.read(schema) for schema in INPUT_TABLES}
    datasets = {name: Dataset(**found) for name, found in settings["datasets"].items()}
    slices = pl.DataFrame(SLICES.empty())
    return Inputs(**frames, slices=slices, datasets=datasets, notes=settings["notes"])


def _with_notes(config: JobConfig, inputs: Inputs) -> Inputs:
    """The inputs with what is worth a note of the rest of the config, which is not sealed with them."""
    return dataclasses.replace(inputs, notes=[*inputs.notes, *cutoff_notes(config)])


def unseal(config: JobConfig, schemas: Sequence[TableSchema]) -> None:
    """Take the seal off tables that are about to be made anew, and those made from them; the report goes too."""
    tables = TableStore(config.out)
    for schema in schemas:
        tables.unseal(schema)
    tables.folder.delete("report.md")
    tables.folder.delete_folder("report")
