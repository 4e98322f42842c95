"""A finished job's sealed tables -> the verdict on the console, and the report beside the tables."""

from __future__ import annotations

import dataclasses

import rich.console

from erag_ray.config import JobConfig, ReportConfig
from erag_ray.progress import stage_progress
from erag_ray.report import Results, build_report, load, markdown, print_report, verdict
from erag_ray.report.charts import javascript_bundle, vega
from erag_ray.report.model import Report
from erag_ray.report.page import Charts, PageOptions, write_page
from erag_ray.report.questions import QuestionOptions, load_questions
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
        made = build_report(results, verdict(results))
        places = _write(config, results, made)
    print_report(made, console, places=places, verbose=config.verbose)


def _write(config: JobConfig | ReportConfig, results: Results, made: Report) -> list[str]:
    """Write the report in all its forms; a line on where each is."""
    folder = Folder(config.out)
    folder.write_bytes(markdown(made, where=REST).encode(), "report.md")
    page = _write_page(config, results, made)
    return [f"Page: {page}", f"Report: {folder.address.rstrip('/')}/report.md"]


def _write_page(config: JobConfig | ReportConfig, results: Results, made: Report) -> str:
    """Write the page with every table, figure and question; return its path."""
    keys, store = config.report, TableStore(config.out)
    threshold = 0.5 if results.threshold is None else results.threshold
    options = QuestionOptions(texts=keys.texts, depth=keys.depth, threshold=threshold)
    questions = load_questions(store, options)
    noted = dataclasses.replace(made, notes=tuple(dict.fromkeys([*made.notes, *questions.notes])))
    form = PageOptions(single_file=keys.single_file)
    return write_page(
        store.folder, noted, questions, form, Charts(vega=vega, javascript_bundle=javascript_bundle)
    )
