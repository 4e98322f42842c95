"""Write the report of a finished job next to its sealed tables, and print the verdict."""

import dataclasses

import rich.console

from erag_ray.analyses.contract import Results
from erag_ray.config.report import ReportConfig
from erag_ray.report.build import build_report
from erag_ray.report.console import print_report
from erag_ray.report.load import load
from erag_ray.report.markdown import markdown
from erag_ray.report.page.questions import QuestionOptions, Questions, load_questions
from erag_ray.report.page.write import FOLDER, write_page
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import UTILITY
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import JobError
from erag_ray.support.progress import stage_progress

REST = (
    "All tables, figures and questions are in report/index.html, and every number is in the sealed tables of this "
    "folder, a folder each."
)


def report(config: ReportConfig, console: rich.console.Console) -> None:
    """Load the sealed tables of ``out``, write the report there, and print its verdict and location.

    Raises:
        InputError: ``out`` has no sealed MEANS, or they were changed after sealing.
        JobError: an analysis could not be shown; the report is written without it.
    """
    with stage_progress("report", show=config.progress):
        results = load(config.out)
        questions = _questions(config, results)
        results = dataclasses.replace(
            results, missing=tuple(dict.fromkeys((*results.missing, *questions.notes)))
        )
        built = build_report(results)
        folder = Folder(config.out)
        folder.write_bytes(markdown(built, location=REST).encode(), "report.md")
        write_page(folder, built, questions, single_file=config.report.single_file)
    print_report(built, console, locations=locations(config.out), verbose=config.verbose)
    if built.failures:
        raise JobError(f"the report lacks what failed: {'; '.join(built.failures)}")


def print_again(config: ReportConfig, console: rich.console.Console) -> None:
    """Print the verdict and the locations of a report that is written already."""
    built = build_report(load(config.out))
    print_report(built, console, locations=locations(config.out), verbose=config.verbose)


def locations(out: str) -> list[str]:
    """Return the lines that name the page and the Markdown report of a job."""
    folder = Folder(out).address.rstrip("/")
    return [f"Page: {folder}/{FOLDER}/index.html", f"Report: {folder}/report.md"]


def _questions(config: ReportConfig, results: Results) -> Questions:
    keys = config.report
    threshold = 0.5 if results.threshold is None else results.threshold
    prompts = {name: one for stage in results.stages for name, one in stage.get("prompts", {}).items()}
    repeats = results.configs[UTILITY.name].get("repeats", 1)
    options = QuestionOptions(
        texts=keys.texts, depth=keys.depth, threshold=threshold, prompts=prompts, num_answers=repeats
    )
    return load_questions(TableStore(config.out), options)
