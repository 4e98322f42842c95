"""A finished job's sealed tables -> the verdict on the console, and the report beside the tables."""

from __future__ import annotations

import dataclasses

import rich.console

from erag_ray.config import JobConfig, ReportConfig
from erag_ray.progress import stage_progress
from erag_ray.report.build import build_report
from erag_ray.report.console import print_report
from erag_ray.report.figures.charts import javascript_bundle, vega
from erag_ray.report.load import Results, load
from erag_ray.report.markdown import markdown
from erag_ray.report.model import Report
from erag_ray.report.page.questions import QuestionOptions, Questions, load_questions
from erag_ray.report.page.write import Charts, PageOptions, write_page
from erag_ray.report.verdict import verdict
from erag_ray.store import Folder, TableStore

REST = (
    "All tables, figures and questions are in report/index.html, and every number is in the sealed tables of this "
    "folder, a folder each."
)


def report(config: JobConfig | ReportConfig, console: rich.console.Console) -> None:
    """Load what is sealed in ``out``, write the report there, and print its verdict and where it is.

    Raises:
        InputError: ``out`` has no sealed MEANS, or others than were sealed.
    """
    with stage_progress("report", show=config.progress):
        results = load(config.out)
        questions = _questions(config, results)
        results = dataclasses.replace(results, missing=(*results.missing, *questions.notes))
        made = build_report(results, verdict(results))
        places = _write(config, made, questions)
    print_report(made, console, places=places, verbose=config.verbose)


def _questions(config: JobConfig | ReportConfig, results: Results) -> Questions:
    keys = config.report
    threshold = 0.5 if results.threshold is None else results.threshold
    options = QuestionOptions(texts=keys.texts, depth=keys.depth, threshold=threshold)
    return load_questions(TableStore(config.out), options)


def _write(config: JobConfig | ReportConfig, made: Report, questions: Questions) -> list[str]:
    """Write the report in all its forms; a line on where each is."""
    folder = Folder(config.out)
    folder.write_bytes(markdown(made, where=REST).encode(), "report.md")
    form = PageOptions(single_file=config.report.single_file)
    charts = Charts(vega=vega, javascript_bundle=javascript_bundle)
    page = write_page(folder, made, questions, form, charts)
    return [f"Page: {page}", f"Report: {folder.address.rstrip('/')}/report.md"]
