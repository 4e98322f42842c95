"""Command line -> a running job, its messages on standard error, and an exit code.

The jobs of this package are here by name; extras add theirs by entry points ``erag_ray.jobs``.
"""

import contextlib
import dataclasses
import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from erag_ray import __version__
from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.config.report import ReportConfig
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.support.logs import on_stderr, say, warn
from erag_ray.support.masking import masked_traceback
from erag_ray.support.registry import find, plugins
from erag_ray.support.termination import sigterm_interrupts

logger = logging.getLogger(__name__)
Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Job:
    """A job of the command line.

    ``main`` runs it, imports what is heavy itself, and returns an exit code or None; its docstring is the job's help.
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


def run_job(kind: type[Config], main: Callable[[Config], int | None], description: str) -> None:
    """Parse the command line and run a job.

    Nothing heavy is imported before the command line and its config files are right.

    Exit codes: 0; 2 for bad input, with one message; 1 for another reason that the job knows, or a
    disk or network that fails; another that ``main`` returns as its verdict; 130 after Ctrl-C and 143 after SIGTERM,
    where responses and sealed tables are kept.
    """
    # code outside the package, named module:name in a config, may lie in the folder where the job starts
    sys.path.append(os.getcwd())
    sys.excepthook = lambda _, error, __: print(masked_traceback(error), file=sys.stderr)
    config = parse(kind, description)
    with on_stderr(), sigterm_interrupts() as termination:
        try:
            from erag_ray.cli.job import run

            run(config, main)
        except KeyboardInterrupt:
            logger.info("stopped; start the same command again to go on")
            raise SystemExit(termination.exit_code) from None


def run(name: str) -> None:
    """Parse the command line and run the job of a name, as `run_job` does; exit with 2 if it cannot be imported."""
    try:
        job = find("job", name, JOBS)
    except ValueError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    run_job(job.config, job.main, inspect.getdoc(job.main) or "")


def main() -> None:
    """Run the job that is the first word of the command line, or list all."""
    name = sys.argv[1] if sys.argv[1:] else "--help"
    if name in ("-h", "--help", "--version"):
        print(f"erag-ray {__version__}" if name == "--version" else _usage())
        return
    sys.argv[:2] = [f"erag-ray {name}"]
    run(name)


def _usage() -> str:
    """Return the names of all jobs, and the first line of the help of each."""
    lines = ["usage: erag-ray JOB --config FILE.yaml [--KEY VALUE ...], or erag-ray JOB --help", ""]
    for name in {**JOBS, **plugins("job")}:
        with contextlib.suppress(ValueError):
            text = inspect.getdoc(find("job", name, JOBS).main) or ""
            lines.append(f"  {name:12}{text.partition(chr(10))[0]}")
    cluster = (
        "on a cluster, in a clone: ray job submit --working-dir . -- python jobs/JOB.py --config FILE.yaml"
    )
    return "\n".join([*lines, "", cluster])
