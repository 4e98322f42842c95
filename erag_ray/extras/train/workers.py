"""The training loop on data-parallel workers of Ray Train; messages and logs are files in ``out``."""

import dataclasses
import logging
import os
import pathlib
import signal
from typing import Any, cast

import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from erag_ray.extras.train.checkpoints import State
from erag_ray.extras.train.config import TrainConfig
from erag_ray.extras.train.log import watch
from erag_ray.extras.train.loop import Trainer
from erag_ray.inference.cluster.gpus import check_gpus, process_environment
from erag_ray.inference.cluster.nodes import described, nodes_alive
from erag_ray.inference.pool import largest_share
from erag_ray.store.fingerprints import new_job_id
from erag_ray.store.folder import Folder
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.progress import beside
from erag_ray.support.termination import keep_handler

NUM_RETRIES = 3
NUM_STARTS = 30
"""How often workers that wait for CPUs or GPUs are started again, a minute each time; then the job fails."""


def train(config: TrainConfig, num_steps: int) -> State:
    """Train to the end, from the newest checkpoint in ``out`` if there is one.

    After the loss of a worker or node, training resumes from the last checkpoint, `NUM_RETRIES` times at most.

    Raises:
        InputError: the model or a checkpoint does not fit.
        JobError: training cannot go on; the message has the reason and what to do.
        ray.train.TrainingFailedError: workers were lost too often.
    """
    workers = plan_workers(config)
    # workers have another working directory
    reader = dataclasses.replace(config.reader, model=full_path(config.reader.model or ""))
    config = dataclasses.replace(config, out=os.path.abspath(config.out), reader=reader)
    out, name = Folder(config.out), f"ray-{new_job_id()}"
    out.record_tree(name)
    logging.getLogger("ray.train").setLevel(logging.CRITICAL)
    trainer = TorchTrainer(
        cast(Any, run_worker),
        train_loop_config={"config": config},
        scaling_config=workers,
        run_config=cast(Any, RunConfig)(
            name="run",
            storage_path=out.at(name),
            failure_config=cast(Any, FailureConfig)(
                max_failures=NUM_RETRIES, controller_failure_limit=NUM_STARTS
            ),
            worker_runtime_env={"env_vars": process_environment(bool(workers.use_gpu))},
        ),
    )
    # Ray Train's handler of Ctrl-C ends the process with code 0
    with beside(watch, pathlib.Path(config.out), num_steps, config.progress), keep_handler(signal.SIGINT):
        try:
            result = trainer.fit()
        except ray.train.ControllerError as error:
            text = f"{workers.num_workers} workers with {workers.resources_per_worker} each do not start"
            raise JobError(f"{text}; the nodes have {described(nodes_alive())}: {error}") from error
    out.remove_tree(name)
    outcome: State | Exception = cast(Any, result).return_value
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def full_path(model: str) -> str:
    """Return the absolute path of a model folder, as workers have another working directory; a hub name unchanged."""
    return os.path.abspath(model) if os.path.exists(model) else model


def run_worker(arguments: dict[str, Any]) -> State | InputError | JobError:
    """Run one worker. Permanent errors are returned, not raised, since Ray would retry."""
    cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    torch.set_num_threads(max(1, int(cpus)))
    try:
        check_gpus()
        return Trainer(arguments["config"]).run()
    except (InputError, JobError) as error:
        return error


def plan_workers(config: TrainConfig) -> ScalingConfig:
    """Plan one worker for each GPU, else one; each with the same number of CPUs, and some CPUs left free.

    Raises:
        InputError: ``num_workers`` is more than the cluster's GPUs.
    """
    nodes = nodes_alive()
    gpus = [int(node.get("GPU", 0)) for node in nodes]
    size = config.num_workers or max(sum(gpus), 1)
    if sum(gpus) and size > sum(gpus):
        raise InputError([f"num_workers: {size} workers need a GPU each, and the cluster has {sum(gpus)}"])
    capacities = gpus if sum(gpus) else [size] * len(nodes)
    cpus = largest_share([int(node.get("CPU", 0)) for node in nodes], capacities, size)
    return ScalingConfig(
        num_workers=size,
        use_gpu=sum(gpus) > 0,
        resources_per_worker={"CPU": cpus, **({"GPU": 1} if sum(gpus) else {})},
    )
