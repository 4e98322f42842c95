"""The model that training starts from: created from scratch, or checked without its weights."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

from erag_ray.datasets import Dataset
from erag_ray.errors import InputError
from erag_ray.train.checkpoints import written_whole
from erag_ray.train.config import ScratchConfig, TrainConfig
from erag_ray.train.data.examples import Examples
from erag_ray.train.reader import check_start
from erag_ray.train.scratch.start import make_model


def prepare_start(config: TrainConfig, examples: Mapping[str, Examples], model: str) -> None:
    """Create the model with ``scratch``, unless it exists, and check it.

    Args:
        config: of the training.
        examples: of training and evaluation.
        model: folder or hub name.

    Raises:
        InputError: it cannot be created, or is not a reader for these datasets.
    """
    if config.scratch:
        _create(config.scratch, examples["train"], config.seed, pathlib.Path(model))
    datasets = {name: dataset for part in examples.values() for name, dataset in part.datasets.items()}
    problems = check_start(dataclasses.replace(config.reader, model=model), datasets or {"": Dataset()})
    if problems:
        raise InputError(problems)


def _create(config: ScratchConfig, train: Examples, seed: int, folder: pathlib.Path) -> None:
    if not folder.exists():
        with written_whole(folder) as unfinished:
            make_model(config, train, seed, unfinished)
