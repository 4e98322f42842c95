"""Make the table of every analysis from sealed tables, a stage each; what is current stays."""

import functools
import logging
from collections.abc import Mapping

import polars as pl

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.contract import Analysis, Evaluation
from erag_ray.analyses.every import every_analysis
from erag_ray.config.job import JobConfig
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.inputs.evidence import Inputs
from erag_ray.inputs.settings import (
    SAMPLE_KEYS,
    check_evaluation,
    end_to_end_settings,
    label_settings,
    scores_of,
)
from erag_ray.store.schemas import CLUSTERS, LABELS, UTILITY, TableSchema
from erag_ray.store.stages.stage import Append, Stage, digests, ensure, stale
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.logs import say, warn
from erag_ray.support.progress import StageProgress, stage_progress

logger = logging.getLogger(__name__)


def evaluate(config: JobConfig, inputs: Inputs) -> list[str]:
    """Make the table of every analysis that the job has, delete others; return which analyses raised an error.

    Raises:
        InputError: LABELS or UTILITY is not sealed, or was made with other settings or from other inputs, or the
            config asks for what cannot be.
    """
    diagnostics = Diagnostics()
    check_evaluation(config, scores_of(inputs.queries), diagnostics)
    diagnostics.raise_errors()
    tables = TableStore(config.out)
    check_made(tables, LABELS, "annotate", label_settings(config, inputs.datasets))
    check_made(tables, UTILITY, "end_to_end", end_to_end_settings(config, inputs.datasets))
    evaluation = Evaluation(config, inputs, tables)
    _check_readers(evaluation)
    same, failures = list[str](), dict[TableSchema, str]()
    for analysis in every_analysis():
        if analysis.schema is None:
            continue
        if not analysis.is_wanted(config):
            tables.folder.delete_folder(analysis.schema.name)
            continue
        analysis.check(config, inputs, tables)
        if analysis.make is None:
            continue
        if lacking := [one.name for one in analysis.sources if one in failures]:
            failures[analysis.schema] = f"it needs {', '.join(lacking)}"
            continue
        try:
            with stage_progress(analysis.schema.name, show=config.progress) as at:
                is_new = ensure(_stage(analysis, evaluation, at), tables)
            same += [] if is_new else [analysis.schema.name]
        except (InputError, JobError):
            raise
        # one that fails, maybe from outside the package, must not take the others with it
        except Exception as error:
            logger.debug("an analysis failed", exc_info=True)
            failures[analysis.schema] = repr(error)
    if same:
        say(f"{', '.join(same)}: as sealed before")
    lines = [f"the table {schema.name} was not made: {why}" for schema, why in failures.items()]
    warn(*lines)
    return lines


def _check_readers(evaluation: Evaluation) -> None:
    """Raise an `InputError` if LABELS and UTILITY are of two readers: a model can change under the same settings."""
    of_labels = evaluation.labels.filter(pl.col("reader") != "").select("query_id", other="reader").unique()
    readers = evaluation.utility.select("query_id", "reader").unique().join(of_labels, on="query_id")
    for _, name, other in readers.filter(pl.col("reader") != pl.col("other")).iter_rows():
        text = f"labels are of the reader {other}, utility of {name}; run erag-ray annotate and end_to_end"
        raise InputError([f"{evaluation.config.out}: {text} again (cached responses are used again)"])


def _stage(analysis: Analysis, evaluation: Evaluation, at: StageProgress) -> Stage:
    config, settings = evaluation.config, evaluation.settings
    assert analysis.schema is not None
    lists = {
        "annotators": config.annotators,
        "scores": scores_of(evaluation.inputs.queries),
        "measures": settings.measures or (),
    }
    names = list(settings.statistics) if "statistics" in analysis.settings else []
    more = dict(analysis.more_settings(config))
    resampled = [CLUSTERS] if config.clusters and "confidence" in analysis.settings else []
    return Stage(
        name=analysis.schema.name,
        tables=[analysis.schema],
        settings={key: getattr(settings, key) for key in analysis.settings} | more,
        sources=digests(evaluation.tables, [*analysis.sources, *analysis.more_sources(config), *resampled]),
        names=[*names, *(name for key in analysis.code for name in lists[key])],
        make=functools.partial(_make, analysis, evaluation, at),
    )


def _make(
    analysis: Analysis, evaluation: Evaluation, at: StageProgress, append: Append
) -> Mapping[str, object]:
    assert analysis.make is not None
    assert analysis.schema is not None
    parts = analysis.make(evaluation, at)
    if analysis.schema != PER_QUERY:
        # values of lists are many; other tables are sealed as one part
        parts = [pl.concat([analysis.schema.empty(), *parts])]
    for number, part in enumerate(parts):
        at.text = f"{number:,} parts, " if number else at.text
        append(analysis.schema, part)
    notes = list(analysis.notes(evaluation))
    return {"notes": notes} if notes else {}


def check_made(tables: TableStore, schema: TableSchema, job: str, wanted: Mapping[str, object]) -> None:
    """Check that a table is sealed, made with the settings ``wanted`` and from tables that have not changed.

    Raises:
        InputError: it is not; ``job`` is the one that makes it.
    """
    folder = tables.folder.root
    if not tables.is_sealed(schema):
        raise InputError([f"{folder}: no sealed {schema.name}; run erag-ray {job} or erag-ray compare first"])
    manifest = tables.manifest(schema)
    # a table may be of a sample of the questions where this config names none
    keys = dict.fromkeys([*wanted, *SAMPLE_KEYS])
    other = [key for key in keys if manifest["config"].get(key) != wanted.get(key)]
    other += stale(manifest, tables)
    if other:
        text = f"{folder}: {schema.name} were made with another {', '.join(other)}; run erag-ray {job} again"
        raise InputError([f"{text} (cached responses are used again)"])
