"""A model on this machine's disk -> its tokenizer, settings and weights.

Weights are read from safetensors or GGUF only, and code inside a model is never run.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

import transformers

from erag_ray.errors import InputError
from erag_ray.model_sources import ModelSource
from erag_ray.models.local.devices import device, set_matmul_precision

GENERATION_FILE = "generation_config.json"
TOKENIZER_FILES = ("tokenizer.json", "*.model", "vocab.*")


def load_tokenizer(source: ModelSource) -> Any:
    """The model's tokenizer.

    Raises:
        InputError: it cannot be read.
    """
    folder = pathlib.Path(source.folder)
    # without its files some classes would make an empty vocabulary
    if not source.gguf_file and not any(path for form in TOKENIZER_FILES for path in folder.glob(form)):
        raise InputError([f"reader.model: no tokenizer in {folder}: none of {', '.join(TOKENIZER_FILES)}"])
    try:
        return transformers.AutoTokenizer.from_pretrained(
            source.folder, trust_remote_code=False, local_files_only=True, **source.arguments()
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            [f"reader.model: no tokenizer in {source.folder}: {str(error).splitlines()[0]}"]
        ) from error


def load_settings(source: ModelSource, *, encoder_decoder: bool) -> Any:
    """The model's config (sizes, token ids).

    Raises:
        InputError: it cannot be read, or it is not the kind of model that the reader needs.
    """
    try:
        settings = transformers.AutoConfig.from_pretrained(
            source.folder, trust_remote_code=False, local_files_only=True, **source.arguments()
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            [f"reader.model: no model config in {source.folder}: {str(error).splitlines()[0]}"]
        ) from error
    if bool(settings.is_encoder_decoder) != encoder_decoder:
        needed = "an encoder-decoder (fid, ipa)" if encoder_decoder else "a decoder-only model (causal)"
        raise InputError([f"reader.model: {source.folder} holds a {settings.model_type} model, not {needed}"])
    return settings


def load_end_tokens(source: ModelSource, settings: Any) -> set[int]:
    """The ids that the model's settings name as ends of an output; chat models often do so only for generation."""
    named = [getattr(settings, "eos_token_id", None)]
    if pathlib.Path(source.folder, GENERATION_FILE).is_file() and not source.gguf_file:
        named.append(transformers.GenerationConfig.from_pretrained(source.folder).eos_token_id)
    lists = [value if isinstance(value, list) else [value] for value in named]
    return {id_ for ids in lists for id_ in ids if id_ is not None}


def load_weights(auto_class: Any, source: ModelSource, dtype: str) -> Any:
    """The model in evaluation mode on this process's device (its first GPU, else the CPU).

    Raises:
        InputError: the files lack some of the model's weights.
        JobError: the device does not compute in this precision.
    """
    safe = {} if source.gguf_file else {"use_safetensors": True}
    model, found = auto_class.from_pretrained(
        source.folder,
        dtype=set_matmul_precision(dtype),
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        **safe,
        **source.arguments(),
    )
    # the library would go on with random numbers in their place
    if found["missing_keys"]:
        raise InputError(
            [f"reader.model: {source.folder} lacks weights: {sorted(found['missing_keys'])[:3]}, ..."]
        )
    # `generate` fills every setting that its caller leaves open from here: beams, penalties, forced tokens
    model.generation_config = transformers.GenerationConfig()
    return model.to(device()).eval()


def quiet() -> None:
    """No progress bars and advice from the model library: a job's own progress is what people watch."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
