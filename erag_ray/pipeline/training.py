"""The training loop on data-parallel workers, by Ray Train; what it says and logs reaches the user through ``out``."""

from __future__ import annotations

import logging
import os
import pathlib
import shutil
from typing import Any, cast

import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from erag_ray.config import TrainConfig
from erag_ray.pipeline.session import FREE_CPUS
from erag_ray.progress import training_progress
from erag_ray.schemas import InputError, JobError
from erag_ray.train.checkpoints import State
from erag_ray.train.loop import Trainer

NUM_RETRIES = 3


def train(config: TrainConfig, model_folder: str, num_steps: int) -> State:
    """Train to the end, from the newest checkpoint in ``out`` if there is one.

    A lost worker or node is made up for, a few times, from the last checkpoint.

    Raises:
        InputError: the model or a checkpoint does not fit.
        JobError: training cannot go on; the message says why and what to do.
        ray.train.TrainingFailedError: workers were lost too often.
    """
    workers = plan_workers(config)
    place = os.path.abspath(os.path.join(config.out, "ray"))
    logging.getLogger("ray.train").setLevel(logging.CRITICAL)
    trainer = TorchTrainer(
        cast(Any, run_worker),
        train_loop_config={"config": config, "model_folder": os.path.abspath(model_folder)},
        scaling_config=workers,
        run_config=RunConfig(
            name="run", storage_path=place, failure_config=FailureConfig(max_failures=NUM_RETRIES)
        ),
    )
    with training_progress(pathlib.Path(config.out), num_steps, show=config.progress):
        result = trainer.fit()
    shutil.rmtree(place, ignore_errors=True)
    outcome: State | Exception = cast(Any, result).return_value
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def run_worker(arguments: dict[str, Any]) -> State | InputError | JobError:
    """One worker. An error that would come again is returned, not raised: Ray would try it again."""
    cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    torch.set_num_threads(max(1, int(cpus)))
    try:
        return Trainer(arguments["config"], arguments["model_folder"]).run()
    except (InputError, JobError) as error:
        return error


def plan_workers(config: TrainConfig) -> ScalingConfig:
    """One worker for each GPU, else one; an even share of the CPUs each, with some left over."""
    totals = ray.cluster_resources()
    num_gpus = int(totals.get("GPU", 0))
    size = config.num_workers or max(num_gpus, 1)
    share = max(1, (int(totals.get("CPU", 1)) - FREE_CPUS) // size)
    return ScalingConfig(
        num_workers=size,
        use_gpu=num_gpus > 0,
        resources_per_worker={"CPU": config.cpus_per_worker or share, **({"GPU": 1} if num_gpus else {})},
    )
