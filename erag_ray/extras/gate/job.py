"""Entry point of ``jobs/gate.py``."""

from __future__ import annotations

from erag_ray.cli.run import Job
from erag_ray.extras.gate.config import GateConfig


def main(config: GateConfig) -> int:
    from erag_ray.extras.gate.stage import gate
    from erag_ray.report.console import open_console

    return gate(config, open_console())


JOB = Job(GateConfig, main)
