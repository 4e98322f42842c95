"""Checkpoints of a training: folders of weights, optimiser state and step, written atomically.

The learning rate and all random choices are functions of the step's number, so schedulers and random number generators
have no state to save.
"""

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


@dataclass(frozen=True)
class Checkpoints:
    """The last checkpoints of a training, in one folder."""

    root: pathlib.Path

    def save(self, model: Any, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Write a checkpoint, then delete the oldest; raise JobError, and keep the oldest, if that fails."""
        tensors = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        with written_whole(self.root / f"step-{state.step:08}") as folder:
            torch.save(tensors, folder / TENSORS)
            digest = file_digest(folder / TENSORS)
            (folder / STATE).write_text(json.dumps({**asdict(state), "sha256": digest}))
        for old in self.folders()[:-NUM_KEPT]:
            Folder(str(old)).delete_folder()

    def folders(self) -> list[pathlib.Path]:
        """Return the checkpoints, oldest first."""
        return sorted(self.root.glob("step-????????"))

    def restore(self, model: Any, optimizer: torch.optim.Optimizer) -> tuple[State, list[str]]:
        """Load the newest undamaged checkpoint, if any; return its state, and a message for each damaged, newer one.

        Raises:
            InputError: the shapes of its weights are not the model's.
        """
        lines: list[str] = []
        for folder in reversed(self.folders()):
            try:
                content = read_manifest(Folder(str(folder)), name=STATE, form={"step": int, "sha256": str})
                if file_digest(folder / TENSORS) != content.pop("sha256"):
                    raise ValueError(f"{TENSORS} is not what was saved")
                state, tensors = State(**content), torch.load(folder / TENSORS, map_location="cpu")
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


@contextlib.contextmanager
def written_whole(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary folder for the files of ``target``, which appear there when all are written.

    A new folder appears at once. Files of an earlier one are replaced one by one; after a kill in between, the training
    that is resumed writes them again.

    Raises:
        JobError: something could not be written; earlier files are unchanged.
        InputError: a file of others has the name of a new one.
    """
    parent = Folder(str(target.parent))
    unfinished = target.parent / UNFINISHED / f"{target.name}-{uuid.uuid4().hex[:8]}"
    try:
        parent.record_tree(UNFINISHED, unfinished.name)
        unfinished.mkdir(parents=True)
        yield unfinished
        files = list(unfinished.iterdir())
        for file in files:
            parent.record(target.name, file.name)
            sync(file)
        if target.exists():
            for file in files:
                os.replace(file, target / file.name)
        else:
            os.rename(unfinished, target)
        sync(target)
        sync(target.parent)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise JobError(
            f"{target} could not be written: {error}\nThe last good checkpoint in {target.parent} is kept. Make room "
            "(or repair the folder) and start the same command again to resume from it"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        with contextlib.suppress(OSError):
            unfinished.parent.rmdir()
