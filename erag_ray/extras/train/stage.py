"""The training stage: checks that a config may start or resume a training, its preparation, and the run on Ray."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from erag_ray.config.keys.values import paths_of
from erag_ray.config.reader import output_settings
from erag_ray.extras.train.config import MAX_GRAD_NORM, WEIGHT_DECAY, TrainConfig
from erag_ray.extras.train.data.curriculum import Curriculum
from erag_ray.extras.train.data.examples import NAMES, Examples, prepare_examples, reopen_examples
from erag_ray.inputs.settings import check_reader_names
from erag_ray.store.fingerprints import file_stamp
from erag_ray.store.folder import Folder
from erag_ray.store.model_sources import find_model
from erag_ray.store.tables import TableStore, whole_manifest
from erag_ray.support.errors import InputError
from erag_ray.support.logs import say

SETTINGS = "training.json"
# keys that affect only speed, memory and location
FREE_KEYS = (
    "out", "progress", "num_workers", "ray_address", "save_steps", "micro_batch_tokens", "gradient_checkpointing",
)  # fmt: skip


def train(config: TrainConfig) -> None:
    """Check, prepare, train on Ray, and seal; resume from ``out`` if it has the same settings.

    Raises:
        InputError: all errors in config and files.
        JobError: training cannot go on.
    """
    check(config)
    done = whole_manifest(Folder(config.out), form={"step": int})
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
        f"training on {examples['train'].table.num_rows:,} questions, {examples['train'].corpus.num_rows:,} passages, "
        f"{curriculum.num_steps:,} steps; {examples['dev'].table.num_rows:,} dev questions"
    )
    with ray_session(config.ray_address):
        state = dataclasses.asdict(run_workers(config, curriculum.num_steps))
    TableStore(config.out).write_manifest({"training": settings(config), **state})
    say(f"reader: {pathlib.Path(config.out, 'reader')}{_best(state)}")


def _best(done: Mapping[str, object]) -> str:
    return f"; dev score {done['best_score']:.4f} at step {done['best_step']:,}" if done["best_step"] else ""


def settings(config: TrainConfig) -> dict[str, Any]:
    """Return all that the result depends on: the config's keys, file stamps, and digests of weights."""
    # what is constant is among them, since it was a key once
    constants: dict[str, object] = {"weight_decay": WEIGHT_DECAY, "max_grad_norm": MAX_GRAD_NORM}
    constants |= {f"{name}.trec_ties": "trec9" for name in NAMES}
    values = dataclasses.asdict(config) | {"reader": output_settings(config.reader)} | constants
    for key in FREE_KEYS:
        del values[key]
    for name in ("reader", *NAMES):
        values |= {f"{name}.{key}": value for key, value in values.pop(name).items()}
    for name in NAMES:
        values[f"files of {name}"] = {path: file_stamp(path) for _, path in paths_of(getattr(config, name))}
    if not config.scratch:
        model = find_model(config.reader.model, key="reader.model", revision=config.reader.model_revision)
        values["weights of reader.model"] = model.digests()
    # as JSON has it, like the file
    result: dict[str, Any] = json.loads(json.dumps(values))
    return result


def check_same(config: TrainConfig) -> None:
    """Check that the folder has no training with other settings.

    Raises:
        InputError: it has; the message lists the keys that differ. Or ``reader.model`` cannot be found.
    """
    folder, now = Folder(config.out), settings(config)
    if not folder.exists(SETTINGS):
        return
    saved = whole_manifest(folder, name=SETTINGS)
    if saved is None:
        raise InputError([f"{folder.at(SETTINGS)}: damaged. Name another out"])
    keys = sorted(key for key in saved.keys() | now.keys() if saved.get(key) != now.get(key))
    if keys:
        changes = "; ".join(
            f"{key}: {_short(saved.get(key))} there, {_short(now.get(key))} here" for key in keys
        )
        text = f"out: {config.out} holds a training with other settings ({changes})"
        raise InputError([f"{text}. Name another out, or remove it"])


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check(config: TrainConfig) -> None:
    """Check the config before files are read: consistent keys, and an ``out`` that is empty or of this training.

    Raises:
        InputError: a check failed.
    """
    problems = []
    if config.scratch and config.reader.model:
        problems.append("reader.model: must be null with scratch, which creates a new model")
    if config.reader.kind not in ("fid", "ipa"):
        problems.append(f"reader.kind: only fid and ipa readers are trained, not {config.reader.kind}")
    if config.reader.dtype != "float32":
        problems.append(
            f"reader.dtype: training keeps weights in float32, not {config.reader.dtype}; see bf16"
        )
    if problems:
        raise InputError(problems)
    check_same(config)


def prepare(config: TrainConfig) -> dict[str, Examples]:
    """Prepare the examples, unless an earlier start has, and the model to start from; return the examples.

    Raises:
        InputError: all errors in both. Where the examples have errors, only the names of the reader are checked.
    """
    try:
        # that its settings and files are these, `check_same` has checked
        earlier = reopen_examples(config) if Folder(config.out).exists(SETTINGS) else None
        examples = earlier or prepare_examples(config)
        known, stages = examples["train"].datasets, list(enumerate(config.curriculum, 1))
        unknown = {name for _, stage in stages for name in stage.copies} - set(known)
        problems = [
            f"curriculum.copies: no training question is of {name!r}; there are {', '.join(sorted(known))}"
            for name in sorted(unknown)
        ]
        empty = [number for number, stage in stages if all(stage.copies.get(name) == 0 for name in known)]
        problems += [f"curriculum.copies: stage {number} has no questions" for number in empty]
    except InputError as error:
        problems = list(error.problems)
    if problems:
        if config.scratch is None:
            problems += check_reader_names(config.reader)
        raise InputError(list(dict.fromkeys(problems)))

    # torch and transformers take seconds to import: not before all files are right
    from erag_ray.extras.train.scratch.start import prepare_start

    if config.scratch and not Folder(config.out).exists(SETTINGS):
        # of a job that ended before its settings were sealed
        shutil.rmtree(config.start_reader.model or "", ignore_errors=True)
    prepare_start(config, examples)
    TableStore(config.out).write_manifest(settings(config), name=SETTINGS)
    return examples
