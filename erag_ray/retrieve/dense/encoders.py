"""Encoders of sentence-transformers, texts to vectors, with the settings of their authors (`PRESETS`).

A new family is one `Preset` and one line in `PRESETS`.
"""

import contextlib
import json
import pathlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import numpy as np
import numpy.typing as npt
import sentence_transformers
import torch
import transformers
from safetensors import SafetensorError
from sentence_transformers.sentence_transformer import modules

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.store.folder import Folder
from erag_ray.store.model_sources import MODEL_FILES, PICKLED_WEIGHTS, ModelSource, find_model
from erag_ray.store.sharded_tasks import open_array, part, write_array
from erag_ray.support.errors import InputError
from erag_ray.support.logs import warn

Role = Literal["query", "passage"]
MODEL_SETTINGS = "sentence-transformers"
# exceptions of the packages for damaged or foreign files
READ_ERRORS = (OSError, ValueError, KeyError, RuntimeError, SafetensorError)
MODULES = "modules.json"
GPU_BATCH, CPU_BATCH = 128, 16
LENGTHS, LOOKED_AT = "lengths", 256


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Settings of a family of encoders; ``query`` and ``passage`` are prefixes of each text."""

    pooling: Literal["mean", "cls"]
    """The mean of all tokens' last states, or the first token's (cls)."""
    is_normalised: bool
    """Whether vectors are scaled to length 1."""
    query: str = ""
    passage: str = ""
    max_tokens: int = 512
    """Longer texts are truncated at the end."""


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
    """Return a key of `PRESETS`, or ``sentence-transformers`` for the settings in the model's files.

    Raises:
        ValueError: the preset is unknown.
    """
    if config.preset is None:
        name = str(config.model).rstrip("/").rpartition("/")[2].lower()
        return next((preset for pattern, preset in NAMES if pattern.search(name)), MODEL_SETTINGS)
    if config.preset not in (*PRESETS, MODEL_SETTINGS):
        known = ", ".join(sorted([*PRESETS, MODEL_SETTINGS]))
        raise ValueError(f"unknown preset {config.preset!r}; known: {known}")
    return config.preset


def find_encoder(config: RetrieverConfig, name: str) -> ModelSource:
    """Find a retriever's model; raise InputError if it is missing, or has no settings."""
    key = f"retrievers.{name}.model"
    source = find_model(config.model, key=key, revision=config.model_revision, pickled=True)
    has_settings = pathlib.Path(source.folder, MODULES).is_file()
    if config.kind == "dense" and preset_named(config) == MODEL_SETTINGS and not has_settings:
        text = f"{key}: {source.folder} has no {MODULES} with its settings"
        raise InputError([f"{text}. Set preset to one of {', '.join(PRESETS)}"])
    return source


def unused_prompts(folder: str) -> list[str]:
    """Return the names of a model's prompts, if neither questions nor all texts get one of them."""
    path = pathlib.Path(folder, "config_sentence_transformers.json")
    settings = json.loads(path.read_text()) if path.is_file() else {}
    prompts = settings.get("prompts") or {}
    is_used = not {"query", settings.get("default_prompt_name")}.isdisjoint(prompts)
    return [] if is_used else [name for name, text in prompts.items() if text]


def model_digests(source: ModelSource) -> Mapping[str, str]:
    """Return the SHA-256 of every file of a sentence-transformers model, including those of its modules."""
    return source.digests(PICKLED_WEIGHTS, *(f"*/{form}" for form in (*MODEL_FILES, "*.bin")))


@contextlib.contextmanager
def loading(folder: str, noun: str) -> Iterator[None]:
    """While open, a model is loaded, without progress bars and advice that would mix with the job's progress.

    Raises:
        InputError: the folder is not such a model, or lacks weights.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    load = transformers.PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    def load_all(model_class: Any, *args: Any, **kwargs: Any) -> Any:
        """Refuse missing weights, which would be random; no vector depends on those of a pooler."""
        model, info = load(model_class, *args, **kwargs, output_loading_info=True)
        if missing := sorted(key for key in info["missing_keys"] if not key.startswith("pooler.")):
            raise ValueError(f"it lacks weights: {missing[:3]}, ...")
        return model

    try:
        with mock.patch.object(transformers.PreTrainedModel, "from_pretrained", classmethod(load_all)):
            yield
    except READ_ERRORS as error:
        raise InputError([f"{folder}: not {noun}: {str(error).splitlines()[0]}"]) from error


def default_batch_size() -> int:
    """Return the default number of texts in a batch on this machine."""
    return GPU_BATCH if torch.cuda.is_available() else CPU_BATCH


def limit_tokens(model: Any, max_tokens: int | None, folder: str) -> None:
    """Truncate the inputs of a model of sentence-transformers at ``max_tokens`` (None: its own), or its positions.

    Raises:
        InputError: ``max_tokens`` exceeds the positions.
    """
    settings = getattr(getattr(model[0], "auto_model", None), "config", None)
    positions = getattr(settings, "max_position_embeddings", None)
    for name, module in model[0].named_modules() if positions else ():
        # RoBERTa, MPNet and others reserve those up to that of padding
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            positions -= module.padding_idx + 1
    if positions and max_tokens and max_tokens > positions:
        raise InputError([f"{folder}: max_tokens: {max_tokens} is more than the model's {positions}"])
    if lengths := [length for length in (max_tokens or model.max_seq_length, positions) if length]:
        model.max_seq_length = min(lengths)


def write_lengths(model: Any, columns: Sequence[Sequence[str]], folder: Folder, number: int) -> None:
    """Write for `warn_of_cut` how many inputs of a part were looked at, how many are cut, and at which length.

    ``columns`` are the texts, or questions and passages. Every n-th one is looked at: all would cost a GPU's time.
    """
    looked_at = [list(column[:: max(1, len(column) // LOOKED_AT)]) for column in columns]
    tokens = model.tokenizer(*looked_at)["input_ids"] if looked_at[0] else []
    most = model.max_seq_length or 0
    num_cut = sum(len(ids) > most for ids in tokens) if most else 0
    write_array(np.array([len(tokens), num_cut, most]), folder, LENGTHS, f"{part(number)}.npy")


def warn_of_cut(name: str, noun: str, folder: Folder) -> None:
    """Warn if a retriever's model reads only the start of many texts, by what `write_lengths` has written."""
    files = sorted(folder.names(LENGTHS, suffix=".npy"))
    lengths = np.array([open_array(folder, LENGTHS, file) for file in files]).reshape(-1, 3)
    num_all, num_cut, most = lengths[:, 0].sum(), lengths[:, 1].sum(), lengths[:, 2].max(initial=0)
    if num_cut:
        share = f"about {num_cut / num_all:.1%} of the {noun} have more than {most} tokens"
        warn(
            f"retrievers.{name}: {share}; only their start is read. Raise max_tokens, or cut passages shorter"
        )


class Encoder:
    """A loaded encoder of a `preset_named`, whose ``max_tokens`` are overridden; ``dtype`` is of its arithmetic too.

    Raises:
        InputError: the folder is not an encoder, or ``max_tokens`` exceeds the model's limit.
    """

    def __init__(
        self, *, folder: str, preset: str, max_tokens: int | None, dtype: str, batch_size: int | None
    ) -> None:
        self.batch_size = batch_size or default_batch_size()
        self.is_normalised = False
        options = {"torch_dtype": getattr(torch, dtype), "local_files_only": True}
        with loading(folder, "an encoder"):
            if settings := PRESETS.get(preset):
                layers = modules.Transformer(folder, max_seq_length=settings.max_tokens, model_kwargs=options)
                pooling = modules.Pooling(layers.get_embedding_dimension(), pooling_mode=settings.pooling)
                last = [modules.Normalize()] if settings.is_normalised else []
                prompts = {"query": settings.query, "document": settings.passage}
                self.model: Any = sentence_transformers.SentenceTransformer(
                    modules=[layers, pooling, *last], prompts=prompts
                )
            else:
                self.model = sentence_transformers.SentenceTransformer(folder, model_kwargs=options)
                # cosine similarity: normalise, in case the model's modules do not
                similarity = self.model.similarity_fn_name
                if similarity not in ("cosine", "dot"):
                    raise ValueError(f"it compares by {similarity}, not by cosine or dot product")
                self.is_normalised = similarity == "cosine"
        limit_tokens(self.model, max_tokens, folder)

    def __call__(self, texts: Sequence[str], role: Role) -> npt.NDArray[np.float32]:
        """Encode texts: shape [texts, width], float32. A call sorts its texts by length before it forms batches."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            vectors = encode(
                list(texts),
                batch_size=self.batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=self.is_normalised,
            )
        return np.asarray(vectors, dtype=np.float32)
