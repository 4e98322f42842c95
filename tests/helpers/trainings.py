"""Tiny trainings: a made-up file of questions with passages, and a T5 of 30,000 weights that learns from it."""

import dataclasses
import json
import multiprocessing
import os
import pathlib
import random
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.train.checkpoints import State
from erag_ray.extras.train.config import ExamplesConfig, ScratchConfig, StageConfig, TrainConfig
from erag_ray.extras.train.log import read_log
from erag_ray.extras.train.loop import Trainer
from erag_ray.extras.train.stage import prepare
from erag_ray.support.errors import JobError

ROOT = pathlib.Path(__file__).parents[2]
NAMES = ("Ada", "Ida", "Orla", "Varn", "Tessel", "Marn", "Graz", "Skerry")
# of 8 questions each of two workers has four; of 1 question one of them has none
WORKER_BATCHES = (8, 1)
TINY = ScratchConfig(
    vocab_size=300, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=1, num_heads=4
)


def given_lines(num: int, seed: int = 0) -> list[dict[str, Any]]:
    """Questions with two answers, and passages of 8 to 40 words that hold them."""
    rng = random.Random(seed)
    lines = []
    for number in range(num):
        name, town = rng.choice(NAMES), rng.choice(NAMES)
        rest = " ".join(rng.choices(NAMES, k=rng.randint(1, 33)))
        context = f"{name} built mill {number} in {town}. {rest}"
        question = f"who built mill {number}"
        lines.append(
            {"question": question, "title": town, "context": context, "answers": [name, f"{name} in {town}"]}
        )
    return lines


def write_given(path: pathlib.Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def tiny_training(folder: pathlib.Path, *, dropout: float = 0.0, **changes: Any) -> TrainConfig:
    """A config of 10 steps of 8 questions in two stages, with its files; the model is from scratch."""
    given = ("train", given_lines(20)), ("dev", given_lines(6, seed=1))
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in given:
        # a file that is written again is another file
        if not (folder / f"{name}.jsonl").exists():
            write_given(folder / f"{name}.jsonl", lines)
    config = TrainConfig(
        reader=ReaderConfig(kind="fid", max_prompt_tokens=64, max_new_tokens=6),
        scratch=dataclasses.replace(TINY, dropout_rate=dropout),
        train=ExamplesConfig(given=[str(folder / "train.jsonl")]),
        dev=ExamplesConfig(given=[str(folder / "dev.jsonl")]),
        curriculum=[
            StageConfig(steps=4, num_passages=[1], crop_words=[6]),
            StageConfig(epochs=2, num_passages=[1]),
        ],
        learning_rate=3e-3,
        batch_size=8,
        micro_batch_tokens=200,
        eval_steps=5,
        save_steps=3,
        out=str(folder / "out"),
        progress=False,
    )
    return dataclasses.replace(config, **changes)


def trainer(config: TrainConfig) -> Trainer:
    torch.set_num_threads(1)
    prepare(config)
    return Trainer(config)


def run(config: TrainConfig) -> State:
    return trainer(config).run()


def result(config: TrainConfig) -> dict[str, torch.Tensor]:
    newest = max(pathlib.Path(config.out, "checkpoints").glob("step-*"))
    weights: dict[str, torch.Tensor] = torch.load(newest / "tensors.pt")["model"]
    return weights


def curve(config: TrainConfig) -> list[tuple[str, ...]]:
    """The log without its times."""
    rows = read_log(pathlib.Path(config.out, "log.csv"))
    return [tuple(value for name, value in row.items() if name != "seconds") for row in rows]


def in_process(call: Callable[..., None], *arguments: object) -> BaseProcess:
    """Start one of the functions below in a process of its own, forked from one that has imported this module."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "accelerate", "transformers.models.t5.modeling_t5"])
    process = context.Process(target=call, args=tuple(map(str, arguments)))
    paths = os.pathsep.join(
        [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "helpers"), os.environ.get("PYTHONPATH", "")]
    )
    with mock.patch.dict(os.environ, PYTHONPATH=paths):
        process.start()
    return process


def code_of(process: BaseProcess) -> int | None:
    """The exit code of a process, which has two minutes to end."""
    process.join(120)
    return process.exitcode


def run_killed(folder: str, step: str, dropout: str) -> None:
    """Train, and be killed in the middle of a step."""
    tiny = trainer(tiny_training(pathlib.Path(folder), dropout=float(dropout)))
    go_on = tiny._step

    def step_or_die(number: int, samples: Any) -> dict[str, object]:
        if number == int(step):
            os.kill(os.getpid(), signal.SIGKILL)
        return go_on(number, samples)

    tiny._step = step_or_die  # type: ignore[method-assign]
    tiny.run()


def meet(folder: str, rank: str, num_workers: str) -> None:
    """Begin as one of several workers, which meet at a file in the folder."""
    torch.set_num_threads(1)
    file = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=file, rank=int(rank), world_size=int(num_workers))


def run_worker(folder: str, rank: str, num_workers: str) -> None:
    """One of several workers; the examples are there already."""
    meet(folder, rank, num_workers)
    for size in WORKER_BATCHES:
        config = tiny_training(pathlib.Path(folder, str(size)), batch_size=size)
        Trainer(config).run()
    dist.destroy_process_group()


def run_worker_without_memory(folder: str, rank: str, num_workers: str) -> None:
    """One of several workers, the last of which has no memory for its second step; why it ended is left in a file."""
    meet(folder, rank, num_workers)
    config = tiny_training(pathlib.Path(folder))
    own = Trainer(config)
    if int(rank) == int(num_workers) - 1:
        run_out_of_memory(own, step=1)
    try:
        own.run()
    except JobError as error:
        pathlib.Path(folder, f"why-{rank}").write_text(str(error))
    dist.destroy_process_group()


def run_out_of_memory(own: Trainer, step: int) -> None:
    """Let memory run out in the forward pass of a step."""
    model, one_step = own.model, own._step

    def refuse(*arguments: object, **named: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def without_memory(number: int, samples: Any) -> dict[str, object]:
        if number == step:
            model.forward = refuse
        return one_step(number, samples)

    own._step = without_memory  # type: ignore[method-assign]
