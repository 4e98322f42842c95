"""The reader in training: one model behind a reader for each dataset; and the folder that comes out."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
from collections.abc import Mapping

import torch

from erag_ray.config import ReaderConfig
from erag_ray.datasets import Dataset
from erag_ray.readers import make_reader, reader_for
from erag_ray.readers.t5 import T5Reader
from erag_ray.schemas import InputError, JobError
from erag_ray.train.checkpoints import written_whole


def load_readers(config: ReaderConfig, folder: str, datasets: Mapping[str, Dataset]) -> dict[str, T5Reader]:
    """A reader for each dataset, as evaluation would make it; all of them share one model, on this process's device.

    Raises:
        InputError: it is not a T5-style reader, or its model cannot be read.
    """
    own = dataclasses.replace(config, model=folder)
    made: dict[ReaderConfig, T5Reader] = {}
    for dataset in datasets.values():
        wanted = reader_for(own, dataset)
        made[wanted] = made.get(wanted) or _t5_reader(wanted)
    readers = list(made.values())
    readers[0].load()
    for reader in readers:
        # the engine holds weights as they were when it was made, and these are going to change
        reader.model, reader.engine = readers[0].model, None
    return {name: made[reader_for(own, dataset)] for name, dataset in datasets.items()}


def _t5_reader(config: ReaderConfig) -> T5Reader:
    reader = make_reader(config)
    if not isinstance(reader, T5Reader):
        raise InputError([f"reader.kind: only fid and ipa readers are trained, not {config.kind}"])
    return reader


def save_reader(reader: T5Reader, folder: pathlib.Path, dtype: str) -> None:
    """Write model, tokenizer and generation settings as an ordinary model folder, in one move.

    Raises:
        JobError: it could not be written, or ``dtype`` cannot hold a weight.
    """
    kind = getattr(torch, dtype)
    model = reader.model if kind == reader.model.dtype else copy.deepcopy(reader.model).to(kind)
    if not all(value.isfinite().all() for value in model.parameters()):
        raise JobError(f"{folder}: {dtype} cannot hold all weights of this model; use bfloat16 or float32")
    settings = reader.decoding()
    with written_whole(folder) as unfinished:
        model.save_pretrained(unfinished)
        settings.save_pretrained(unfinished)
        reader.tokenizer.save_pretrained(unfinished)


def check_start(config: ReaderConfig, datasets: Mapping[str, Dataset]) -> list[str]:
    """What is wrong with the reader that training starts from; its weights are not loaded."""
    problems: list[str] = []
    for dataset in datasets.values():
        try:
            reader = _t5_reader(reader_for(config, dataset))
            if not reader.end:
                problems.append(f"reader.model: the tokenizer of {config.model} names no end token")
        except InputError as error:
            problems += error.problems
    return list(dict.fromkeys(problems))
