"""Fine-tune a FiD or IPA reader on questions with given or retrieved passages.

    python jobs/train.py --config jobs/reader/train.yaml
    ray job submit --working-dir . -- python jobs/train.py --config train.yaml --out /shared/reader

The result is an ordinary model folder, <out>/reader, the best by dev score. Started again, a killed training goes on
from its last checkpoint and a finished one does nothing. Keys that hold several values are given in the YAML file.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.train.config import TrainConfig


def main(config: TrainConfig) -> None:
    from erag_ray.train.stage import train

    train(config)


if __name__ == "__main__":
    run_job(TrainConfig, main, __doc__ or "")
