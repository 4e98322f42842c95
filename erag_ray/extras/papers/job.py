"""Entry point of ``jobs/papers.py``."""

from __future__ import annotations

from erag_ray.cli.run import Job
from erag_ray.extras.papers.config import PapersConfig
from erag_ray.support.logs import say


def main(config: PapersConfig) -> None:
    from erag_ray.analyses.parts.shapes import tables_of
    from erag_ray.extras.papers.stage import papers
    from erag_ray.report.console import open_console, show

    show(tables_of(papers(config)), open_console())
    say(f"report.md, and the figures as SVG and CSV: {config.out}")


JOB = Job(PapersConfig, main)
