"""Entry point of ``jobs/train.py``."""

from __future__ import annotations

from erag_ray.cli.run import Job
from erag_ray.extras.train.config import TrainConfig


def main(config: TrainConfig) -> None:
    from erag_ray.extras.train.stage import train

    train(config)


JOB = Job(TrainConfig, main)
