"""What a killed training goes on from: folders of weights, optimiser state and step, each whole or not there at all.

Learning rate and everything that is drawn depend on the step's number alone, so neither a scheduler nor a random
number generator has a state to keep.
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
    """How far a training is: steps done, and the best evaluation so far."""

    step: int = 0
    best_score: float | None = None
    best_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint, read but not yet put to use."""

    state: State
    weights: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, torch.Tensor]


class Checkpoints:
    """The last checkpoints of a training, in one folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def save(self, model: Any, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Write a checkpoint; only then the oldest one goes.

        Raises:
            JobError: it could not be written; those before it are untouched.
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
        """Remove what killed processes have left half written."""
        shutil.rmtree(self.root / UNFINISHED, ignore_errors=True)

    def folders(self) -> list[pathlib.Path]:
        """The checkpoints, oldest first."""
        return sorted(self.root.glob("step-????????"))

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, if there is one, and a line for each that is not."""
        lines: list[str] = []
        for folder in reversed(self.folders()):
            try:
                return _read(folder), lines
            except UNREADABLE as error:
                reason = str(error).splitlines()[0]
                lines.append(f"{folder}: this checkpoint is not whole ({reason}); the one before it is used")
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
    """Put a checkpoint's weights and optimiser state in place.

    Raises:
        InputError: it is of a model of another form.
    """
    own = {name: tuple(value.shape) for name, value in model.named_parameters()}
    found = {name: tuple(value.shape) for name, value in checkpoint.weights.items()}
    if own != found:
        other = sorted(name for name in own.keys() | found.keys() if own.get(name) != found.get(name))
        raise InputError(
            [
                f"out: its checkpoints are of a model of another form ({len(other)} weights differ, such as "
                f"{other[0]}: {found.get(other[0])} there, {own.get(other[0])} here); name another out"
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
    """The parameters of an optimiser, by the model's names for them."""
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
def written_whole(place: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder to write into that takes its place, and that of what stood there, when all is written.

    Raises:
        JobError: something could not be written; what stood in the place is untouched.
    """
    unfinished = place.parent / UNFINISHED / f"{place.name}-{uuid.uuid4().hex[:8]}"
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        _sync(list(unfinished.iterdir()))
        previous = previous_of(place)
        shutil.rmtree(previous, ignore_errors=True)
        if place.exists():
            os.rename(place, previous)
        os.rename(unfinished, place)
        shutil.rmtree(previous, ignore_errors=True)
    except (OSError, SafetensorError, RuntimeError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise JobError(
            f"{place} could not be written: {error}\nThe last good checkpoint in {place.parent} is kept; make room "
            "(or see to the folder) and start the same command again to go on from it"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.parent.rmdir()


def previous_of(place: pathlib.Path) -> pathlib.Path:
    """Where the folder that stood in a place waits while the new one takes it."""
    return place.with_name(f"{place.name}.previous")


def recover(place: pathlib.Path) -> None:
    """Bring back a folder whose successor was about to take its place when the process was killed."""
    if not place.exists() and previous_of(place).exists():
        os.rename(previous_of(place), place)
    shutil.rmtree(place.parent / UNFINISHED, ignore_errors=True)


def _sync(files: Sequence[pathlib.Path]) -> None:
    """A machine that goes down must not leave a moved folder with empty files."""
    for file in files:
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
