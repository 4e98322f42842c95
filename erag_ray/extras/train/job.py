"""The job `train` of the command line."""

from erag_ray.cli.run import Job
from erag_ray.extras.train.config import TrainConfig


def main(config: TrainConfig) -> None:
    """Fine-tune a FiD or IPA reader on questions with given or retrieved passages.

        erag-ray train --config jobs/reader/train.yaml

    The result is an ordinary model folder, <out>/reader, the best by dev score. Started again, a killed training
    continues from its last checkpoint and a finished one does nothing. Keys with several values are given in the
    YAML file.
    """
    from erag_ray.extras.train.stage import train

    train(config)


JOB = Job(TrainConfig, main)
