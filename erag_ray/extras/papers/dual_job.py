"""Entry point of ``jobs/dual_labels.py``."""

from __future__ import annotations

from erag_ray.cli.run import Job
from erag_ray.extras.papers.config import DualLabelsConfig
from erag_ray.support.logs import say


def main(config: DualLabelsConfig) -> None:
    from erag_ray.extras.papers.dual_stage import label_twice
    from erag_ray.report.console import open_console, show
    from erag_ray.retrieve.stage import retrieve

    runs = retrieve(config)
    say(*map(str, runs))
    show(label_twice(config, runs), open_console())


JOB = Job(DualLabelsConfig, main)
