"""A training from its config to the reader's folder."""

from __future__ import annotations

import dataclasses
import pathlib
import uuid
from collections.abc import Callable, Mapping

from erag_ray.config import TrainConfig
from erag_ray.datasets import Dataset
from erag_ray.pipeline import ray_session
from erag_ray.pipeline import train as run_workers
from erag_ray.schemas import InputError
from erag_ray.steps import say
from erag_ray.store import Folder
from erag_ray.train.checkpoints import written_whole
from erag_ray.train.curriculum import Curriculum
from erag_ray.train.examples import Examples, prepare_examples
from erag_ray.train.plan import check_same, finished, seal, start_folder, write_settings
from erag_ray.train.reader import check_start
from erag_ray.train.start import make_model


def train(config: TrainConfig) -> None:
    """Check, prepare, train on Ray, seal. What was done before in ``out`` with the same settings is not done again.

    Raises:
        InputError: everything that is wrong with config and files.
        JobError: training cannot go on.
    """
    _check_config(config)
    check_same(config)
    done = finished(config)
    if done:
        say(f"{config.out}: this training is done ({done['step']:,} steps{_best(done)}); nothing to do")
        return
    examples = _prepare(config)
    write_settings(config)
    curriculum = Curriculum(config, examples["train"].num_rows)
    say(*dict.fromkeys([*examples["train"].notes, *examples["dev"].notes]))
    say(
        f"training on {examples['train'].num_rows:,} questions, {examples['train'].corpus.num_rows:,} passages, "
        f"{curriculum.num_steps:,} steps; {examples['dev'].num_rows:,} dev questions"
    )
    with ray_session(config.ray_address):
        state = run_workers(config, start_folder(config), curriculum.num_steps)
    seal(config, state)
    say(f"reader: {pathlib.Path(config.out, 'reader')}{_best(dataclasses.asdict(state))}")


def _best(done: Mapping[str, object]) -> str:
    return f"; dev score {done['best_score']:.4f} at step {done['best_step']:,}" if done["best_step"] else ""


def _check_config(config: TrainConfig) -> None:
    problems = []
    if config.scratch and config.reader.model:
        problems.append("reader.model: must be null with scratch, which makes a model of its own")
    if config.reader.kind not in ("fid", "ipa"):
        problems.append(f"reader.kind: only fid and ipa readers are trained, not {config.reader.kind}")
    if config.reader.dtype != "float32":
        text = (
            f"reader.dtype: training keeps weights in float32, not {config.reader.dtype}; see bf16_autocast"
        )
        problems.append(text)
    try:
        folder, probe = Folder(config.out), f"probe-{uuid.uuid4().hex}"
        folder.write_bytes(b"", probe)
        folder.delete(probe)
    except OSError as error:
        problems.append(f"out: cannot write to {config.out}: {error}")
    if problems:
        raise InputError(problems)


def _prepare(config: TrainConfig) -> dict[str, Examples]:
    """Examples, and the model to start from, or one message with all that is wrong with both."""
    problems: list[str] = []
    examples: dict[str, Examples] = {}

    def attempt(act: Callable[[], None]) -> None:
        try:
            act()
        except InputError as error:
            problems.extend(error.problems)

    attempt(lambda: examples.update(prepare_examples(config)))
    if config.scratch is None:
        problems += check_start(config.reader, _datasets(examples))
    elif examples:
        attempt(lambda: _make_start(config, examples))
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
    return examples


def _datasets(examples: Mapping[str, Examples]) -> dict[str, Dataset]:
    return {name: known for part in examples.values() for name, known in part.datasets.items()} or {
        "": Dataset()
    }


def _make_start(config: TrainConfig, examples: Mapping[str, Examples]) -> None:
    """The model from scratch, unless it is there."""
    place = pathlib.Path(start_folder(config))
    if config.scratch and not place.exists():
        with written_whole(place) as folder:
            make_model(config.scratch, examples["train"], config.seed, folder)
    problems = check_start(dataclasses.replace(config.reader, model=str(place)), _datasets(examples))
    if problems:
        raise InputError(problems)
