"""The training stage: from the config to the reader's folder."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

from erag_ray.extras.train.config import TrainConfig
from erag_ray.extras.train.data.curriculum import Curriculum
from erag_ray.extras.train.plan import check, finished, prepare, seal, start_folder
from erag_ray.support.logs import say


def train(config: TrainConfig) -> None:
    """Check, prepare, train on Ray, and seal; resume from ``out`` if it has the same settings.

    Raises:
        InputError: all errors in config and files.
        JobError: training cannot go on.
    """
    check(config)
    done = finished(config)
    if done:
        say(f"{config.out}: this training is done ({done['step']:,} steps{_best(done)}); nothing to do")
        return
    examples = prepare(config)

    # Ray and torch, which take seconds to import, come after the inputs are known to be right
    from erag_ray.extras.train.workers import train as run_workers
    from erag_ray.inference.cluster.session import ray_session

    curriculum = Curriculum(config, examples["train"].dataset_names)
    say(*dict.fromkeys([*examples["train"].notes, *examples["dev"].notes]))
    say(
        f"training on {examples['train'].num_rows:,} questions, {examples['train'].corpus.num_rows:,} passages, "
        f"{curriculum.num_steps:,} steps; {examples['dev'].num_rows:,} dev questions"
    )
    with ray_session(config.ray_address):
        state = dataclasses.asdict(run_workers(config, start_folder(config), curriculum.num_steps))
    seal(config, state)
    say(f"reader: {pathlib.Path(config.out, 'reader')}{_best(state)}")


def _best(done: Mapping[str, object]) -> str:
    return f"; dev score {done['best_score']:.4f} at step {done['best_step']:,}" if done["best_step"] else ""
