"""Settings of a job: checks before any file is read or overwritten, and what labels and end-to-end scores depend on."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl
import pyarrow as pa

from erag_ray.annotators import annotator_named, kind_of_labels, request_specs, requested_measures, uses
from erag_ray.config.job import KNOWN, JobConfig
from erag_ray.config.reader import KINDS, ReaderConfig, output_settings
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.references import REFERENCE_NAMES, REFERENCES
from erag_ray.measures.agreement import STATISTICS, agree
from erag_ray.measures.lists import canonical_name, check_measures
from erag_ray.measures.scores import JUDGED, score_named, score_sign
from erag_ray.prompts.kinds.answer_judge import ANSWER_JUDGE
from erag_ray.prompts.kinds.base import Case
from erag_ray.store.folder import Folder
from erag_ray.store.model_sources import find_model
from erag_ray.store.schemas import GIVEN
from erag_ray.support.errors import InputError
from erag_ray.support.registry import find

SAME_READER = "auxiliary_reader: is the reader itself; name a cheaper one"
SAMPLE_KEYS = ("reader_queries", "sample_seed")
"""Settings of the sample of questions that the reader answers; absent where it answers all."""


def check_runs(config: JobConfig, diagnostics: Diagnostics) -> None:
    """Check that there are runs, with names that differ from those of the reference runs."""
    if not config.runs and not config.outputs:
        diagnostics.error("no runs", "runs: no run is configured; add at least one file of ranked lists")
    for run_id in config.runs:
        if not run_id.strip():
            diagnostics.error("run names", f"runs: the name {run_id!r} is blank")
        if run_id in REFERENCES or run_id in REFERENCE_NAMES.values():
            text = f"runs: the name {run_id} is reserved for a reference run; choose another"
            diagnostics.error("run names", text)


def check_cache(path: str, diagnostics: Diagnostics) -> None:
    """Check that ``cache_dir`` is writable; that ``out`` is, is known once it is locked."""
    probe = f"probe-{uuid.uuid4().hex}"
    try:
        folder = Folder(path, is_shared=True)
        folder.write_bytes(b"", probe)
        folder.delete(probe)
    except (OSError, ValueError, pa.ArrowException) as error:
        diagnostics.error("config key cache_dir", f"cache_dir: cannot write to {path}: {error}")


def check_evaluation(config: JobConfig, scores: Iterable[str], diagnostics: Diagnostics) -> None:
    """Check that annotators, measures, statistics and scores exist, are compatible and are not repeated."""
    if not config.annotators:
        advice = "add at least one, such as contains_answer_dpr, which asks no model"
        text = f"annotators: no annotator is configured, so no document would get a label; {advice}"
        diagnostics.error("no annotators", text)
    measures = [canonical_name(name) for name in config.measures or []]
    named = {"annotators": config.annotators, "measures": measures, "statistics": config.statistics}
    for key, names in named.items():
        for name in sorted({name for name in names if names.count(name) > 1}):
            diagnostics.error("repeated names", f"{key}: {name} is named more than once")
    for statistic in config.statistics:
        # built-in statistics are valid, and would compile their loops at the first call
        if statistic not in STATISTICS:
            diagnostics.attempt("statistics", agree, [0.0, 1.0], [0.0, 1.0], statistic)
    annotators = [
        name for name in config.annotators if diagnostics.attempt("annotators", annotator_named, name)
    ]
    _check_auxiliary(config, annotators, diagnostics)
    for score in sorted({*scores, *([config.score] if config.score else [])}):
        if diagnostics.attempt("score", score_named, score):
            for annotator in annotators:
                diagnostics.attempt("measures", _check_measures, config, annotator, score)
            names = [
                one.name for one in map(annotator_named, annotators) if one.kind and "score" in one.fills
            ]
            names += [f"slice {KNOWN}"] * (KNOWN in config.slices)
            if names and score_sign(score) < 1:
                text = f"more of {score} is not better, as {', '.join(names)} would have it. Leave it out"
                diagnostics.error("config key score", f"score: {text}")


def _check_auxiliary(config: JobConfig, annotators: Sequence[str], diagnostics: Diagnostics) -> None:
    """Check the auxiliary reader, and that the auxiliary label asks no reader, which answers only a sample."""
    name, reader = config.auxiliary, config.auxiliary_reader
    askers = [one for one in annotators if "auxiliary_reader" in annotator_named(one).roles]
    if reader is not None and not askers:
        text = "auxiliary_reader: no annotator asks it; add erag_auxiliary to annotators, or leave it out"
        diagnostics.error("config key auxiliary_reader", text)
    if askers and reader == config.reader:
        diagnostics.error("config key auxiliary_reader", SAME_READER)
    if name is not None and name in annotators and "reader" in annotator_named(name).roles:
        others = [one for one in annotators if "reader" not in annotator_named(one).roles]
        text = f"auxiliary: {name} asks the reader, which answers only a sample; name one that asks none"
        instead = f", such as {others[0]}" if others else " and add it to annotators"
        diagnostics.error("config key auxiliary", text + instead)
    is_judged = name in annotators and "judge" in annotator_named(str(name)).roles
    if is_judged and config.judge.num_queries is not None:
        text = f"auxiliary: {name} must label all questions; leave judge.num_queries out"
        diagnostics.error("config key auxiliary", text)


def check_reader_names(reader: ReaderConfig) -> Sequence[str]:
    """Return what is wrong with the kind of a reader and with the place of its model, where that is on this machine."""
    try:
        find("reader", reader.kind, dict.fromkeys(KINDS))
        model = reader.model or ""
        is_on_hub = (
            model and not model.startswith((".", "/", "~", "package:")) and not model.endswith(".gguf")
        )
        if reader.kind not in ("served", "echo") and not is_on_hub:
            find_model(model, key="reader.model")
    except InputError as error:
        return error.problems
    except ValueError as error:
        return [f"reader.kind: {error}"]
    return []


def evaluation_notes(config: JobConfig) -> list[str]:
    """Return notes on what is not evaluated: cut-offs beyond the depth of the lists, pooled ideals across corpora."""
    diagnostics = Diagnostics()
    beyond = pl.Series([cutoff for cutoff in config.cutoffs if cutoff > config.depth])
    diagnostics.warn_each(f"cut-offs beyond depth {config.depth}, left out", beyond)
    corpora = config.searched_corpora
    if len(corpora) < 2:
        return list(diagnostics.warnings)
    text = "the runs search several corpora, whose documents differ, so no measure has the pool of all runs as ideal"
    return [*diagnostics.warnings, f"{text} (corpora: {', '.join(corpora)})"]


def check_facts(
    config: JobConfig, queries: pl.DataFrame, facts: pl.DataFrame, diagnostics: Diagnostics
) -> None:
    """Check that there are FACTS, and that the outputs with single documents can be scored for each of them."""
    scores = queries.join(facts, on="query_id", how="semi")["score"].unique().sort()
    key = "config key annotators"
    if facts.is_empty():
        advice = "Give the questions a field answers_all, or leave this annotator out"
        diagnostics.error(key, f"annotators: erag_facts: no question lists several facts. {advice}")
    if judged := ", ".join(score for score in scores if score in JUDGED):
        text = f"score {judged} grades an output as a whole, not by fact. Choose another score, such as match"
        diagnostics.error(key, f"annotators: erag_facts: {text}")


def fact_notes(queries: pl.DataFrame, facts: pl.DataFrame) -> Iterator[str]:
    """Yield notes on questions without facts, or with a single one."""
    sizes = facts.group_by("query_id").len()
    without, single = queries.height - sizes.height, sizes.filter(len=1).height
    if without:
        counts = f"{without:,} of {queries.height:,}"
        yield f"questions without facts (answers_all), which have no Coverage and alpha-nDCG: {counts}"
    if single:
        counts = f"{single:,} of {sizes.height:,} with facts"
        yield f"questions with a single fact, whose Coverage says whether a document gives it: {counts}"


def cluster_notes(
    path: str, queries: pl.DataFrame, clusters: pl.DataFrame, diagnostics: Diagnostics
) -> list[str]:
    """Return what intervals and tests resample in each dataset; one cluster is an error: a test needs several."""
    notes = []
    joined = queries.select("query_id", "dataset").join(clusters, on="query_id", maintain_order="left")
    for (name,), part in joined.sort("dataset").group_by("dataset", maintain_order=True):
        sizes = part.drop_nulls("cluster")["cluster"].value_counts()["count"]
        count, by_itself = part.height, part["cluster"].null_count()
        num_clusters = len(sizes) + by_itself
        if count > 1 and num_clusters < 2:
            text = f"clusters: {path}: all {count:,} questions of {name} are one cluster, and a test needs several"
            diagnostics.error("config key clusters", f"{text}. Name another path, or leave clusters out")
        if num_clusters == count:
            notes.append(f"clusters: {path}: no two questions of {name} share a value: each counts by itself")
            continue
        others = f"; {by_itself:,} have no value and count by themselves" if by_itself else ""
        units = f"{num_clusters:,} clusters of up to {max(sizes):,} questions{others}"
        text = f"intervals and tests of the {count:,} questions of {name} resample {units}"
        notes.append(f"clusters: {path}: {text}")
    return notes


def _check_measures(config: JobConfig, annotator: str, score: str) -> None:
    kind = kind_of_labels(annotator, score)
    measures = requested_measures(annotator, config.measures, kind, config.threshold)
    check_measures(measures, kind, config.threshold)


def scores_of(queries: pl.DataFrame) -> list[str]:
    """Return the scores of the questions."""
    return queries["score"].unique().sort().to_list()


def label_settings(config: JobConfig, datasets: Mapping[str, Dataset]) -> dict[str, object]:
    """Return the config settings that LABELS depend on, for these datasets."""
    roles = {spec.kind.role for spec in request_specs(config.annotators)}
    judge = {"judge": output_settings(config.judge)} if "judge" in roles else {}
    if "auxiliary_reader" in roles:
        judge["auxiliary_reader"] = output_settings(config.auxiliary_reader)
    return {
        "annotators": sorted(config.annotators),
        "reader": output_settings(config.reader) if config.asks_reader else {"kind": GIVEN.name},
        **({"threshold": config.threshold} if uses(config.annotators, "threshold") else {}),
        **_reader_sample(config),
        **judge,
        **_judged_settings(config, datasets),
    }


def end_to_end_settings(config: JobConfig, datasets: Mapping[str, Dataset]) -> dict[str, object]:
    """Return the config settings that UTILITY depends on, for these datasets."""
    return {
        "end_to_end_depths": config.depths,
        **({"repeats": config.repeats} if config.repeats > 1 else {}),
        "reader": output_settings(config.reader) if config.asks_reader else {"kind": GIVEN.name},
        **_reader_sample(config),
        **_judged_settings(config, datasets),
    }


def sample_settings(config: JobConfig) -> dict[str, object]:
    """Return the settings of the samples of questions that reader and judge are asked about; empty without samples."""
    count = config.judge.num_queries
    return {**_reader_sample(config), **({} if count is None else {"judged_queries": [count, config.seed]})}


def _reader_sample(config: JobConfig) -> dict[str, object]:
    """Return the settings of the sample of questions that the reader answers; empty where it answers all."""
    if config.reader_queries is None:
        return {}
    return dict(zip(SAMPLE_KEYS, (config.reader_queries, config.seed), strict=True))


def _judged_settings(config: JobConfig, datasets: Mapping[str, Dataset]) -> dict[str, object]:
    """Return the settings of judged scores: the judge, and the hash of its prompt for each dataset."""
    cases = {
        name: Case(dataset=dataset, reader=config.reader, judge=config.judge)
        for name, dataset in datasets.items()
        if dataset.score in JUDGED
    }
    forms = {name: ANSWER_JUDGE.build(case).fingerprint for name, case in cases.items()}
    return {"judge": output_settings(config.judge), "judged_by": forms} if forms else {}
