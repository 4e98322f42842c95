"""The model that training starts from: created from scratch, or checked without its weights."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

from erag_ray.extras.train.checkpoints import written_whole
from erag_ray.extras.train.config import TrainConfig
from erag_ray.extras.train.data.examples import Examples
from erag_ray.extras.train.reader import form_for, t5_model
from erag_ray.extras.train.scratch.start import make_model
from erag_ray.support.errors import InputError


def prepare_start(config: TrainConfig, examples: Mapping[str, Examples], model: str) -> None:
    """Create the model with ``scratch``, unless it exists, and check it.

    Args:
        config: of the training.
        examples: of training and evaluation.
        model: folder or hub name.

    Raises:
        InputError: it cannot be created, or is not a reader for these datasets.
    """
    if config.scratch and not pathlib.Path(model).exists():
        with written_whole(pathlib.Path(model)) as unfinished:
            make_model(config.scratch, examples["train"], config.seed, unfinished)
    reader = dataclasses.replace(config.reader, model=model)
    problems: list[str] = []
    for dataset in {**examples["dev"].datasets, **examples["train"].datasets}.values():
        try:
            start = t5_model(reader)
            start.check(form_for(reader, dataset))
            if not start.end:
                problems.append(f"reader.model: the tokenizer of {model} has no end token")
        except (InputError, ValueError) as error:
            problems += error.problems if isinstance(error, InputError) else [f"reader.prompt: {error}"]
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
