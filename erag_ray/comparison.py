"""The whole walk of a comparison, from questions, passages and runs to the report; of erag-ray compare and of Python.

Ray and torch, which take seconds to import, come after the inputs are known to be right.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import rich.console

from erag_ray.config.job import JobConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.extensions import further_lists, requested
from erag_ray.inputs.evidence import Inputs
from erag_ray.inputs.stage import dry_run_config, input_files, prepare
from erag_ray.models import MODELS
from erag_ray.retrieve.stage import make_runs
from erag_ray.store.fingerprints import file_stamp
from erag_ray.store.folder import Folder
from erag_ray.store.stages.stage import Stage
from erag_ray.support.errors import JobError
from erag_ray.support.logs import say, warn
from erag_ray.support.ownership import MARKER

FINISHED = "finished.json"
OF_CONSOLE = ("progress", "verbose")
"""Keys that change no file."""


def compare(config: JobConfig, console: rich.console.Console | None = None) -> None:
    """Run a comparison: seal its tables in ``out``, write the report there and print the verdict (to standard output).

    Of a finished job, whose config, files, models and code are the same, only the verdict is printed again (not with
    extensions, retrievers, or retry_failed).

    Raises:
        InputError: all problems of the config, the files and the reader, before any request; or wrong labels.
        JobError: the job cannot go on; the responses so far are kept.
    """
    extensions = requested(config)
    for extension in extensions:
        extension.check(config)
    if not (extensions or config.dry_run or config.retry_failed) and is_finished(config):
        from erag_ray.report.console import open_console
        from erag_ray.report.stage import print_again

        say("nothing to do: finished before, with the same config, files and code")
        return print_again(config, console or open_console())
    make_runs(config, check_reader)
    out = config.out
    if config.dry_run:
        config = dry_run_config(config)
    inputs = prepare(config, check_reader)
    from erag_ray.inference.planning.plan import estimate_cost, plan_stage, preview
    from erag_ray.inference.stage import run_stage
    from erag_ray.labels.document_labels import label
    from erag_ray.labels.end_to_end import score_end_to_end
    from erag_ray.labels.judgements import judge_outputs, preview_judgements

    more = further_lists(config, inputs)
    plan = plan_stage(config, inputs, "compare", single_document=True, end_to_end=True, more=more)
    warn(*inputs.notes)
    say(*preview(plan, show=config.progress))
    if config.dry_run:
        say(*preview_judgements(config, inputs, plan))
        for line in estimate_cost(config, plan, out):
            say(line)
        return
    finished = judge_outputs(config, inputs, run_stage(config, plan))
    label(config, inputs, finished)
    score_end_to_end(config, inputs, finished)
    for extension in extensions:
        extension.score(config, inputs, finished)
    finish_job(config, inputs, console)
    # the next start runs requests again that are an error
    if finished.has_all_values:
        mark_finished(config)


def mark_finished(config: JobConfig) -> None:
    """Note in ``out`` what the tables and the report there were made from."""
    if made_from := _made_from(config):
        Folder(config.out).write_bytes(made_from.encode(), FINISHED)


def is_finished(config: JobConfig) -> bool:
    """Return whether ``out`` is as `mark_finished` saw it, and config, input files, models and code are the same."""
    folder = Folder(config.out)
    noted = folder.read_bytes(FINISHED).decode(errors="replace") if folder.exists(FINISHED) else ""
    return bool(noted) and noted == _made_from(config)


def _made_from(config: JobConfig) -> str | None:
    """Return the fingerprint of a job and of what it has made; None where not all that it depends on is known."""
    # not known are changes of runs that the job makes itself, of a hub's models, and of code outside the package
    models = [model for model in (config.reader, config.judge, config.auxiliary_reader) if model is not None]
    if config.retrievers or any(model.kind not in MODELS for model in models):
        return None
    local = [model.model for model in models if model.model and model.kind != "served"]
    out = config.out.rstrip("/")
    entries = Folder(out).entries()
    results = [name for name in entries if name not in (FINISHED, MARKER) and not name.startswith("_")]
    code = [*config.annotators, *(config.measures or ()), *config.statistics, config.score or ""]
    return Stage(
        name="comparison",
        tables=[],
        settings={key: value for key, value in dataclasses.asdict(config).items() if key not in OF_CONSOLE},
        inputs={**input_files(config), **{path: file_stamp(path) for path in local}},
        sources={name: file_stamp(f"{out}/{name}") for name in results},
        names=[config.query_format, *code],
        make=lambda append: {},
    ).fingerprint


def finish_job(config: JobConfig, inputs: Inputs, console: rich.console.Console | None = None) -> None:
    """Make all results of sealed LABELS and UTILITY, their TREC files and the report; needs neither Ray nor torch.

    Raises:
        InputError, JobError: as `evaluate` and `report`; or a result could not be made, and the others are.
    """
    from erag_ray.analyses.evaluation import evaluate
    from erag_ray.analyses.export import export
    from erag_ray.report.console import open_console
    from erag_ray.report.stage import report

    failures = evaluate(config, inputs)
    export(config, inputs)
    report(config, console or open_console())
    for extension in requested(config):
        extension.finish(config)
    if failures:
        raise JobError("; ".join(failures))


def label_documents(config: JobConfig) -> None:
    """Run only the annotators, without end-to-end evaluation: seal LABELS in ``out``; raises as `compare`."""
    make_runs(config, check_reader)
    inputs = prepare(config, check_reader)
    warn(*inputs.notes)
    annotate(config, inputs)


def annotate(config: JobConfig, inputs: Inputs) -> None:
    """Run the requests of the annotators, and seal their labels; raises as `compare`."""
    from erag_ray.inference.planning.plan import plan_stage, preview
    from erag_ray.inference.stage import run_stage
    from erag_ray.labels.document_labels import label
    from erag_ray.labels.judgements import judge_outputs

    plan = plan_stage(config, inputs, "annotate", single_document=True, end_to_end=False)
    say(*preview(plan, show=config.progress))
    label(config, inputs, judge_outputs(config, inputs, run_stage(config, plan)))


def check_reader(config: JobConfig, datasets: Mapping[str, Dataset]) -> Sequence[str]:
    """Return what is wrong with the reader of a job (`planning.uses.check_reader`, imported late)."""
    from erag_ray.inference.planning import uses

    return uses.check_reader(config, datasets)
