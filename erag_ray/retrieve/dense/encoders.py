"""Text -> vectors, by sentence-transformers: encoders used as their authors use them (`PRESETS`).

A new family is one `Preset` and one line in `PRESETS`.
"""

from __future__ import annotations

import pathlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import sentence_transformers
import torch
import transformers
from safetensors import SafetensorError
from sentence_transformers.sentence_transformer import modules

from erag_ray.config import RetrieverConfig
from erag_ray.errors import InputError
from erag_ray.model_sources import MODEL_FILES, PICKLED_WEIGHTS, ModelSource, find_model

Role = Literal["query", "passage"]
OWN_FILES = "sentence-transformers"
# what the packages raise for files that are not what they should be
READ_ERRORS = (OSError, ValueError, KeyError, RuntimeError, SafetensorError)
MODULES = "modules.json"
GPU_BATCH, CPU_BATCH = 128, 16


@dataclass(frozen=True, kw_only=True)
class Preset:
    """How a family of encoders makes one vector of a text.

    Attributes:
        pooling: mean of the last states of all tokens, or the first token's (cls).
        is_normalised: the vector has length 1.
        query, passage: what stands before each text.
        max_tokens: longer texts lose their end.
    """

    pooling: Literal["mean", "cls"]
    is_normalised: bool
    query: str = ""
    passage: str = ""
    max_tokens: int = 512


PRESETS: dict[str, Preset] = {
    # facebookresearch/contriever, src/contriever.py: mean, normalize=False, no prefix; dot product
    "contriever": Preset(pooling="mean", is_normalised=False),
    # the model cards of intfloat/e5-* and intfloat/multilingual-e5-*
    "e5": Preset(pooling="mean", is_normalised=True, query="query: ", passage="passage: "),
    # FlagEmbedding, inference/embedder/encoder_only/m3.py: cls, normalised, 512 tokens
    "bge-m3": Preset(pooling="cls", is_normalised=True),
}
NAMES = (
    (re.compile(r"contriever"), "contriever"),
    (re.compile(r"(^|-)e5-(?!.*(mistral|instruct))"), "e5"),
    (re.compile(r"bge-m3"), "bge-m3"),
)


def preset_named(config: RetrieverConfig) -> str:
    """A key of `PRESETS`, or ``sentence-transformers`` for what the model's own files say.

    Raises:
        ValueError: there is none of that name.
    """
    if config.preset is None:
        name = str(config.model).rstrip("/").rpartition("/")[2].lower()
        return next((preset for pattern, preset in NAMES if pattern.search(name)), OWN_FILES)
    if config.preset not in (*PRESETS, OWN_FILES):
        raise ValueError(
            f"unknown preset {config.preset!r}; known: {', '.join(sorted([*PRESETS, OWN_FILES]))}"
        )
    return config.preset


def find_encoder(config: RetrieverConfig, name: str) -> ModelSource:
    """Where a retriever's model lies.

    Raises:
        InputError: it is not there.
    """
    key = f"retrievers.{name}.model"
    source = find_model(config.model, key=key, revision=config.model_revision, pickled=True)
    says_how = pathlib.Path(source.folder, MODULES).is_file()
    if config.kind == "dense" and preset_named(config) == OWN_FILES and not says_how:
        ways = ", ".join(PRESETS)
        raise InputError(
            [f"{key}: no {MODULES} in {source.folder} says how it is used; set preset to one of {ways}"]
        )
    return source


def encoder_settings(config: RetrieverConfig, source: ModelSource) -> Mapping[str, object]:
    """All that a text's vector depends on."""
    preset = preset_named(config)
    return {
        "preset": preset if preset == OWN_FILES else {preset: PRESETS[preset]},
        "max_tokens": config.max_tokens,
        "dtype": config.dtype,
        "weights": model_digests(source),
    }


def model_digests(source: ModelSource) -> Mapping[str, str]:
    """SHA-256 of every file that a model of sentence-transformers is read from, those of its modules among them."""
    return source.digests(PICKLED_WEIGHTS, *(f"*/{form}" for form in (*MODEL_FILES, "*.bin")))


def quiet() -> None:
    """No progress bars and advice from the model library: a job's own progress is what people watch."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def default_batch_size() -> int:
    """Texts in one batch where nothing is said."""
    return GPU_BATCH if torch.cuda.is_available() else CPU_BATCH


class Encoder:
    """An encoder, ready to be used.

    Args:
        folder: the model.
        preset: a key of `PRESETS`, or ``sentence-transformers``.
        max_tokens: in place of the preset's.
        dtype: of weights and arithmetic.
        batch_size: texts at a time.

    Raises:
        InputError: the folder holds no encoder, or does not say how it is used.
    """

    def __init__(
        self, *, folder: str, preset: str, max_tokens: int | None, dtype: str, batch_size: int | None
    ) -> None:
        quiet()
        self.batch_size = batch_size or default_batch_size()
        self.preset = PRESETS.get(preset)
        self.is_normalised = False
        options = {"torch_dtype": getattr(torch, dtype), "local_files_only": True}
        try:
            self.model = self._own(folder, options) if self.preset is None else self._made(folder, options)
        except READ_ERRORS as error:
            raise InputError([f"{folder}: no encoder: {str(error).splitlines()[0]}"]) from error
        if max_tokens is not None:
            self._check_length(max_tokens, folder)
            self.model.max_seq_length = max_tokens

    def _check_length(self, max_tokens: int, folder: str) -> None:
        """Refuse more tokens than the model has places for (RoBERTa's first two are not for tokens)."""
        settings = self.model[0].auto_model.config
        places = getattr(settings, "max_position_embeddings", None)
        if places and "roberta" in str(settings.model_type):
            places -= settings.pad_token_id + 1
        if places and max_tokens > places:
            raise InputError([f"{folder}: max_tokens: {max_tokens} is more than the model's {places}"])

    def _own(self, folder: str, options: Mapping[str, Any]) -> Any:
        model = sentence_transformers.SentenceTransformer(folder, model_kwargs=dict(options))
        # what is compared by cosine is made to have length 1, where its own modules do not do it
        self.is_normalised = model.similarity_fn_name == "cosine"
        return model

    def _made(self, folder: str, options: Mapping[str, Any]) -> Any:
        assert self.preset is not None
        body = modules.Transformer(folder, max_seq_length=self.preset.max_tokens, model_kwargs=dict(options))
        pooling = modules.Pooling(body.get_embedding_dimension(), pooling_mode=self.preset.pooling)
        last = [modules.Normalize()] if self.preset.is_normalised else []
        return sentence_transformers.SentenceTransformer(modules=[body, pooling, *last])

    def __call__(self, texts: Sequence[str], role: Role) -> npt.NDArray[np.float32]:
        """Vectors, one a row; the texts of a call are worked on by length, so calls alone decide what is padded."""
        options = {
            "batch_size": self.batch_size,
            "show_progress_bar": False,
            "convert_to_numpy": True,
            "normalize_embeddings": self.is_normalised,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.preset is not None:
                prefix = self.preset.query if role == "query" else self.preset.passage
                found = self.model.encode([prefix + text for text in texts], **options)
            elif role == "query":
                found = self.model.encode_query(list(texts), **options)
            else:
                found = self.model.encode_document(list(texts), **options)
        return np.asarray(found, dtype=np.float32)
