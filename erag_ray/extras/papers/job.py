"""The job `papers` of the command line."""

from erag_ray.cli.run import Job
from erag_ray.extras.papers.config import PapersConfig
from erag_ray.support.logs import say


def main(config: PapersConfig) -> None:
    """The papers' tables and figures from finished jobs, next to the published numbers.

        erag-ray papers --config jobs/papers/papers.yaml

    Table 1, Figures 1 to 3 (pictures, and their data with intervals), the reproduction's table, and Table 3 of the
    dual-label paper.
    `make papers` runs the jobs before it, on a generated world.
    """
    from erag_ray.analyses.parts.shapes import tables_of
    from erag_ray.extras.papers.stage import papers
    from erag_ray.report.console import open_console, show

    show(tables_of(papers(config)), open_console())
    say(f"report.md, and the figures as SVG and CSV: {config.out}")


JOB = Job(PapersConfig, main)
