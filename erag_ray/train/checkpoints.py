"""Checkpoints of a training: folders of weights, optimiser state and step, written atomically.

The learning rate and all random choices are functions of the step's number, so schedulers and random number generators
have no state to save.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from erag_ray.errors import InputError, JobError
from erag_ray.store import file_digest

WEIGHTS, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
UNFINISHED = "_unfinished"
NUM_KEPT = 2
UNREADABLE = (OSError, ValueError, KeyError, TypeError, SafetensorError)


@dataclass(frozen=True, kw_only=True)
class State:
    """Progress of a training: finished steps, and the best evaluation so far."""

    step: int = 0
    best_score: float | None = None
    best_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint in memory."""

    state: State
    weights: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, torch.Tensor]


class Checkpoints:
    """The last checkpoints of a training, in one folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def save(self, model: Any, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Write a checkpoint, then delete the oldest one.

        Raises:
            JobError: it could not be written; earlier ones are unchanged.
        """
        names = parameter_names(model, optimizer)
        with written_whole(self.root / f"step-{state.step:08}") as folder:
            save_file({name: value.detach() for name, value in model.named_parameters()}, folder / WEIGHTS)
            save_file(_optimizer_tensors(optimizer, names), folder / OPTIMIZER)
            digests = {name: file_digest(folder / name) for name in (WEIGHTS, OPTIMIZER)}
            (folder / STATE).write_text(json.dumps({**asdict(state), "sha256": digests}))
        for old in self.folders()[:-NUM_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def clean(self) -> None:
        """Remove unfinished checkpoints of killed processes."""
        shutil.rmtree(self.root / UNFINISHED, ignore_errors=True)

    def folders(self) -> list[pathlib.Path]:
        """Return the checkpoints, oldest first."""
        return sorted(self.root.glob("step-????????"))

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest undamaged checkpoint, if any, and a message for each damaged one that is newer."""
        lines: list[str] = []
        for folder in reversed(self.folders()):
            try:
                return _read(folder), lines
            except UNREADABLE as error:
                reason = str(error).splitlines()[0]
                lines.append(f"{folder}: this checkpoint is damaged ({reason}); the previous one is used")
        return None, lines


def _read(folder: pathlib.Path) -> Checkpoint:
    content = json.loads((folder / STATE).read_text())
    for name, digest in content.pop("sha256").items():
        if file_digest(folder / name) != digest:
            raise ValueError(f"{name} is not what was saved")
    return Checkpoint(
        state=State(**content), weights=load_file(folder / WEIGHTS), optimizer=load_file(folder / OPTIMIZER)
    )


def restore(checkpoint: Checkpoint, model: Any, optimizer: torch.optim.Optimizer) -> State:
    """Load a checkpoint's weights and optimiser state into model and optimiser.

    Raises:
        InputError: the shapes of its weights are not the model's.
    """
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    saved = {name: tuple(value.shape) for name, value in checkpoint.weights.items()}
    if shapes != saved:
        names = sorted(name for name in shapes.keys() | saved.keys() if shapes.get(name) != saved.get(name))
        raise InputError(
            [
                f"out: its checkpoints are of a model with other shapes ({len(names)} weights differ, such as "
                f"{names[0]}: {saved.get(names[0])} there, {shapes.get(names[0])} here). Name another out"
            ]
        )
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(checkpoint.weights[name])
    for parameter, name in parameter_names(model, optimizer).items():
        optimizer.state[parameter] = {
            key: checkpoint.optimizer[f"{name}/{key}"].to("cpu" if key == "step" else parameter.device)
            for key in ("step", "exp_avg", "exp_avg_sq")
        }
    return checkpoint.state


def parameter_names(model: Any, optimizer: torch.optim.Optimizer) -> dict[torch.nn.Parameter, str]:
    """Return the parameters of an optimiser -> their names in the model."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {parameter: names[parameter] for group in optimizer.param_groups for parameter in group["params"]}


def _optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[torch.nn.Parameter, str]
) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{key}": value.contiguous()
        for parameter, name in names.items()
        for key, value in optimizer.state[parameter].items()
    }


@contextlib.contextmanager
def written_whole(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary folder that replaces ``target`` when all is written.

    Raises:
        JobError: something could not be written; an earlier folder is unchanged.
    """
    unfinished = target.parent / UNFINISHED / f"{target.name}-{uuid.uuid4().hex[:8]}"
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        _sync(list(unfinished.iterdir()))
        previous = previous_of(target)
        shutil.rmtree(previous, ignore_errors=True)
        if target.exists():
            os.rename(target, previous)
        os.rename(unfinished, target)
        shutil.rmtree(previous, ignore_errors=True)
    except (OSError, SafetensorError, RuntimeError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise JobError(
            f"{target} could not be written: {error}\nThe last good checkpoint in {target.parent} is kept. Make room "
            "(or repair the folder) and start the same command again to resume from it"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.parent.rmdir()


def previous_of(folder: pathlib.Path) -> pathlib.Path:
    """Return the temporary path of an old folder while a new one replaces it."""
    return folder.with_name(f"{folder.name}.previous")


def recover(folder: pathlib.Path) -> None:
    """Restore a folder if the process was killed while it was being replaced."""
    if not folder.exists() and previous_of(folder).exists():
        os.rename(previous_of(folder), folder)
    shutil.rmtree(folder.parent / UNFINISHED, ignore_errors=True)


def _sync(files: Sequence[pathlib.Path]) -> None:
    """Flush files to disk, so that a crash of the machine cannot leave empty files in a moved folder."""
    for file in files:
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
