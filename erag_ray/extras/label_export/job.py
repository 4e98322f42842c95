"""Entry point of ``jobs/export.py``."""

from __future__ import annotations

from erag_ray.cli.run import Job
from erag_ray.extras.label_export.config import ExportConfig


def main(config: ExportConfig) -> None:
    from erag_ray.extras.label_export.stage import export

    export(config)


JOB = Job(ExportConfig, main)
