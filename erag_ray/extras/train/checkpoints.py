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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from safetensors import SafetensorError

from erag_ray.store.fingerprints import file_digest
from erag_ray.store.folder import Folder, sync
from erag_ray.store.tables import read_manifest
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.ownership import UNFINISHED

TENSORS, STATE = "tensors.pt", "state.json"
NUM_KEPT = 2
UNREADABLE = (OSError, ValueError, KeyError, TypeError)


@dataclass(frozen=True, kw_only=True)
class State:
    """Progress of a training: finished steps, and the best evaluation so far."""

    step: int = 0
    best_score: float | None = None
    best_step: int | None = None


class Checkpoints:
    """The last checkpoints of a training, in one folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def save(self, model: Any, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Write a checkpoint, then delete the oldest one.

        Raises:
            JobError: it could not be written; earlier ones are unchanged.
        """
        tensors = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        with written_whole(self.root / f"step-{state.step:08}") as folder:
            torch.save(tensors, folder / TENSORS)
            digest = file_digest(folder / TENSORS)
            (folder / STATE).write_text(json.dumps({**asdict(state), "sha256": digest}))
        for old in self.folders()[:-NUM_KEPT]:
            Folder(str(old)).delete_folder()

    def clean(self) -> None:
        """Remove unfinished checkpoints of killed processes."""
        Folder(str(self.root)).delete_folder(UNFINISHED)

    def folders(self) -> list[pathlib.Path]:
        """Return the checkpoints, oldest first."""
        return sorted(self.root.glob("step-????????"))

    def restore(self, model: Any, optimizer: torch.optim.Optimizer) -> tuple[State, list[str]]:
        """Load the newest undamaged checkpoint, if any, into model and optimiser.

        Returns:
            Its state, and a message for each damaged one that is newer.

        Raises:
            InputError: the shapes of its weights are not the model's.
        """
        lines: list[str] = []
        for folder in reversed(self.folders()):
            try:
                state, tensors = _read(folder)
            except UNREADABLE as error:
                reason = str(error).splitlines()[0]
                lines.append(f"{folder}: this checkpoint is damaged ({reason}); the previous one is used")
                continue
            try:
                model.load_state_dict(tensors["model"])
            except RuntimeError as error:
                reason = str(error).splitlines()[1].strip(" \t.")
                text = f"out: its checkpoints are of a model with other shapes ({reason}). Name another out"
                raise InputError([text]) from error
            optimizer.load_state_dict(tensors["optimizer"])
            return state, lines
        return State(), lines


def _read(folder: pathlib.Path) -> tuple[State, dict[str, Any]]:
    content = read_manifest(Folder(str(folder)), name=STATE, form={"step": int, "sha256": str})
    if file_digest(folder / TENSORS) != content.pop("sha256"):
        raise ValueError(f"{TENSORS} is not what was saved")
    return State(**content), torch.load(folder / TENSORS, map_location="cpu")


@contextlib.contextmanager
def written_whole(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary folder that replaces ``target`` when all is written.

    Raises:
        JobError: something could not be written; an earlier folder is unchanged.
    """
    unfinished = target.parent / UNFINISHED / f"{target.name}-{uuid.uuid4().hex[:8]}"
    try:
        Folder(str(target.parent)).record_tree(UNFINISHED, unfinished.name)
        unfinished.mkdir(parents=True)
        yield unfinished
        _replace(unfinished, target)
    except (OSError, SafetensorError, RuntimeError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise JobError(
            f"{target} could not be written: {error}\nThe last good checkpoint in {target.parent} is kept. Make room "
            "(or repair the folder) and start the same command again to resume from it"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.parent.rmdir()


def _replace(unfinished: pathlib.Path, target: pathlib.Path) -> None:
    """Replace a folder; what others have put into it goes over to the new one.

    Raises:
        InputError: a file of others has the name of a new one.
    """
    parent, previous = Folder(str(target.parent)), previous_of(target)
    names, old = os.listdir(unfinished), os.listdir(target) if target.exists() else []
    for name in names:
        parent.record(target.name, name)
    for name in set(old).difference(names):
        if not parent.is_recorded(target.name, name):
            is_folder = (target / name).is_dir()
            (shutil.copytree if is_folder else shutil.copy2)(target / name, unfinished / name)
    for path in unfinished.iterdir():
        sync(path)
    parent.delete_folder(previous.name)
    for name in old:
        (parent.record_tree if (target / name).is_dir() else parent.record)(previous.name, name)
    if target.exists():
        os.rename(target, previous)
    os.rename(unfinished, target)
    sync(target.parent)
    parent.delete_folder(previous.name)


def previous_of(folder: pathlib.Path) -> pathlib.Path:
    """Return the temporary path of an old folder while a new one replaces it."""
    return folder.with_name(f"{folder.name}.previous")


def recover(folder: pathlib.Path) -> None:
    """Restore a folder if the process was killed while it was being replaced."""
    if not folder.exists() and previous_of(folder).exists():
        os.rename(previous_of(folder), folder)
    Folder(str(folder.parent)).delete_folder(UNFINISHED)
