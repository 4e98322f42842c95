"""A finished job's sealed tables -> the verdict on the console, and the report beside the tables."""

from __future__ import annotations

import rich.console

from erag_ray.config import JobConfig, ReportConfig
from erag_ray.progress import stage_progress
from erag_ray.report import Results, build_report, load, markdown, print_report, verdict
from erag_ray.report.model import Report
from erag_ray.store import Folder

SEALED = "Every number is in the sealed tables of this folder, a folder each."


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
    folder.write_bytes(markdown(made, where=SEALED).encode(), "report.md")
    return [f"Report: {folder.address.rstrip('/')}/report.md"]
