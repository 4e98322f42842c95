"""Entry point of ``jobs/settle.py``."""

from __future__ import annotations

from erag_ray.cli.run import Job
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.support.logs import say, warn


def main(config: SettleConfig) -> None:
    from erag_ray.inputs.stage import prepared

    inputs = prepared(config)
    warn(*inputs.notes)

    # Ray and torch, which take seconds to import, come after the inputs are known to be there
    from erag_ray.extras.sequential_test.stage import settle

    settle(config, inputs)
    say(f"interim analyses sealed in {config.out}")


JOB = Job(SettleConfig, main)
