"""The reader in training: one model with a form for each dataset, and its saved folder."""

import copy
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import torch

from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.extras.train.checkpoints import written_whole
from erag_ray.models import make_model
from erag_ray.models.t5.model import T5Model
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Case
from erag_ray.prompts.request import Form
from erag_ray.support.errors import JobError


class TrainedReader(NamedTuple):
    """The model on this process's device, and the form of its requests for each dataset, as in evaluation."""

    model: T5Model
    forms: Mapping[str, Form]


def load_reader(config: ReaderConfig, datasets: Mapping[str, Dataset]) -> TrainedReader:
    """Load the reader to be trained; raise InputError if its model cannot be read."""
    model = t5_model(config)
    # the engine fuses weights, which training has to change separately
    model.uses_engine = False
    model.load()
    return TrainedReader(model, {name: form_for(config, dataset) for name, dataset in datasets.items()})


def form_for(config: ReaderConfig, dataset: Dataset) -> Form:
    """Return the form of requests for a dataset's answers."""
    return ANSWER.build(Case(dataset=dataset, reader=config, judge=JudgeConfig(), default_prompt="t5"))


def t5_model(config: ReaderConfig) -> T5Model:
    """Return a reader (kind fid or ipa) without its weights."""
    model = make_model(config)
    assert isinstance(model, T5Model)
    return model


def save_reader(reader: TrainedReader, folder: pathlib.Path, dtype: str) -> None:
    """Write model, tokenizer and generation settings as an ordinary model folder, atomically.

    Raises:
        JobError: it could not be written, or a weight is outside the range of ``dtype``.
    """
    torch_dtype, trained = getattr(torch, dtype), reader.model.model
    model = trained if torch_dtype == trained.dtype else copy.deepcopy(trained).to(torch_dtype)
    if not all(value.isfinite().all() for value in model.parameters()):
        raise JobError(
            f"{folder}: a weight of this model is outside the range of {dtype}. Use bfloat16 or float32"
        )
    settings = reader.model.decoding(next(iter(reader.forms.values())))
    with written_whole(folder) as unfinished:
        model.save_pretrained(unfinished)
        settings.save_pretrained(unfinished)
        reader.model.tokenizer.save_pretrained(unfinished)
