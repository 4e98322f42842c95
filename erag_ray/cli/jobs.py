"""The jobs of this package, by name; extras add theirs by entry points ``erag_ray.jobs``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from erag_ray.config.job import JobConfig
from erag_ray.config.report import ReportConfig
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.support.logs import say, warn


@dataclasses.dataclass(frozen=True)
class Job:
    """A job of the command line.

    Attributes:
        config: its config.
        main: runs it; imports what is heavy itself, and returns an exit code or None. Its docstring is the job's help.
    """

    config: type[Any]
    main: Callable[[Any], int | None]


def compare(config: JobConfig) -> None:
    """The main job: from questions, passages and runs to the verdict: which run serves the reader best.

        erag-ray compare --config jobs/demo/compare.yaml
        ray job submit --working-dir . -- python jobs/compare.py --config nq.yaml --out s3://b/nq --cache_dir s3://b/store

    Makes the runs that `retrievers` name, then reads every distinct (question, document) by itself, and every list
    end to end, in one pool; requests with a stored response are not run again. Seals its tables in --out and writes
    the report.
    """
    from erag_ray.comparison import compare

    compare(config)


def prepare(config: JobConfig) -> None:
    """First step: load, check and seal the inputs.

        erag-ray prepare --config jobs/demo/compare.yaml

    Ends with code 2 and one message that names everything that is wrong with them.
    """
    from erag_ray.inputs.stage import prepare
    from erag_ray.retrieve.stage import make_runs

    make_runs(config)
    inputs = prepare(config)
    warn(*inputs.notes)
    lists = inputs.runs.select("run_id", "query_id").n_unique()
    counts = f"{inputs.queries.height:,} questions, {inputs.corpus.height:,} passages in use, {lists:,} lists"
    say(f"sealed in {config.out}: {counts} of {inputs.runs['run_id'].n_unique()} runs")


def annotate(config: JobConfig) -> None:
    """Second step: read every retrieved document by itself (eRAG) and seal every annotator's labels.

        erag-ray annotate --config jobs/demo/compare.yaml

    Works on what `erag-ray prepare` has sealed; requests with a stored response are not run again.
    """
    from erag_ray.comparison import annotate
    from erag_ray.inputs.stage import prepared

    annotate(config, prepared(config))
    say(f"labels of {', '.join(config.annotators)} sealed in {config.out}")


def end_to_end(config: JobConfig) -> None:
    """Third step: read every run's lists end to end, at every depth, and seal their utility.

        erag-ray end_to_end --config jobs/demo/compare.yaml

    Works on what `erag-ray prepare` has sealed; requests with a stored response are not run again.
    """
    from erag_ray.inputs.stage import prepared

    inputs = prepared(config)

    # Ray and torch, which take seconds to import, come after the inputs are known to be there
    from erag_ray.extensions import further_lists, requested
    from erag_ray.inference.planning.plan import plan_stage, preview
    from erag_ray.inference.stage import run_stage
    from erag_ray.labels.end_to_end import score_end_to_end
    from erag_ray.labels.judgements import judge_outputs

    more = further_lists(config, inputs)
    plan = plan_stage(config, inputs, "end_to_end", single_document=False, end_to_end=True, more=more)
    say(*preview(plan, show=config.progress))
    finished = judge_outputs(config, inputs, run_stage(config, plan))
    score_end_to_end(config, inputs, finished)
    for extension in requested(config):
        extension.score(config, inputs, finished)
    say(f"utility at {', '.join(map(str, config.depths))} documents sealed in {config.out}")


def evaluate(config: JobConfig) -> None:
    """Last step: labels and utility -> measures, correlations, report. Needs neither Ray nor torch nor a GPU.

        erag-ray evaluate --config jobs/demo/compare.yaml

    Works on what the other jobs have sealed: another measure, cut-off, statistic or confidence costs no reading.
    """
    from erag_ray.comparison import finish_job
    from erag_ray.extensions import requested
    from erag_ray.inputs.stage import prepared

    for extension in requested(config):
        extension.check(config)
    finish_job(config, prepared(config))


def report(config: ReportConfig) -> None:
    """The report again, from any finished job's folder: the verdict, report.md and the page. Reads only sealed tables.

        erag-ray report --out results/nq
        erag-ray report --out results/nq --verbose true

    Needs neither Ray nor torch, nor the job's inputs. Tables that are not there, or were changed since they were
    sealed, are left out and named.
    """
    from erag_ray.report.console import open_console
    from erag_ray.report.stage import report

    report(config, open_console())


def retrieve(config: RetrieveConfig) -> None:
    """Make runs: questions and passages (or the pages to make them from) to ranked lists.

        erag-ray retrieve --config jobs/demo/runs.yaml

    The files under runs/ and the folder corpus/ of --out go into the config of `erag-ray compare`, which can also
    make runs itself. Ends with what the runs find: gold pages, answers, KILT's R-precision and recall.
    """
    from erag_ray.analyses.retrieval_measures import find_retrieval_measures
    from erag_ray.report.console import open_console, show
    from erag_ray.retrieve.stage import retrieve

    runs = retrieve(config)
    say(*map(str, runs))
    show(find_retrieval_measures(config, runs), open_console())


JOBS = {
    "compare": Job(JobConfig, compare),
    "prepare": Job(JobConfig, prepare),
    "annotate": Job(JobConfig, annotate),
    "end_to_end": Job(JobConfig, end_to_end),
    "evaluate": Job(JobConfig, evaluate),
    "report": Job(ReportConfig, report),
    "retrieve": Job(RetrieveConfig, retrieve),
}
