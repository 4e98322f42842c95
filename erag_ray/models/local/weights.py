"""Load tokenizer, config and weights of a model on disk.

Weights are read from safetensors or GGUF only, and code that comes with a model is never run.
"""

import os
import pathlib
import re
from typing import Any

import transformers

from erag_ray.models.local.devices import device, set_matmul_precision
from erag_ray.store.model_sources import ModelSource
from erag_ray.support.errors import InputError

GENERATION_FILE = "generation_config.json"
TOKENIZER_FILES = ("tokenizer.json", "*.model", "vocab.*")
ENCODER_DECODERS = ("t5", "mt5", "umt5", "longt5")
NO_READERS = re.compile("For(MaskedLM|PreTraining|(Sequence|Token)Classification|QuestionAnswering)$")
"""Architectures that transformers would load as readers, without a word: their heads do not predict the next token."""


def load_tokenizer(source: ModelSource) -> Any:
    """Load the model's tokenizer; raise InputError if it cannot be read."""
    folder = pathlib.Path(source.folder)
    # without files some tokenizer classes would construct an empty vocabulary
    has_files = any(path for pattern in TOKENIZER_FILES for path in folder.glob(pattern))
    if not source.gguf_file and not has_files:
        raise InputError([f"reader.model: no tokenizer in {folder}: none of {', '.join(TOKENIZER_FILES)}"])
    return _read(transformers.AutoTokenizer, source, "tokenizer")


def load_settings(source: ModelSource, *, encoder_decoder: bool) -> Any:
    """Load the config (sizes, token ids) of the model, or of its text model.

    Raises:
        InputError: it cannot be read, or the model has the wrong architecture.
    """
    settings = _read(transformers.AutoConfig, source, "model config")
    kinds = ENCODER_DECODERS if encoder_decoder else ()
    is_usable = settings.model_type in kinds if kinds else not settings.is_encoder_decoder
    others = list(filter(NO_READERS.search, settings.architectures or ()))
    if others or not is_usable:
        noun = others[0] if others else f"{settings.model_type} model"
        needed = (
            f"an encoder-decoder (fid, ipa: {', '.join(kinds)})" if kinds else "a decoder-only model (causal)"
        )
        raise InputError([f"reader.model: {source.folder} has a {noun}, not {needed}"])
    return settings if encoder_decoder else settings.get_text_config()


def _read(auto_class: Any, source: ModelSource, what: str) -> Any:
    try:
        return auto_class.from_pretrained(
            source.folder, trust_remote_code=False, local_files_only=True, **source.arguments()
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise InputError([f"reader.model: no {what} in {source.folder}: {reason}"]) from error


def load_end_tokens(source: ModelSource, settings: Any) -> set[int]:
    """Return the end tokens of config and generation config; chat models often name theirs only in the latter."""
    values = [getattr(settings, "eos_token_id", None)]
    if pathlib.Path(source.folder, GENERATION_FILE).is_file() and not source.gguf_file:
        values.append(transformers.GenerationConfig.from_pretrained(source.folder).eos_token_id)
    lists = [value if isinstance(value, list) else [value] for value in values]
    return {id_ for ids in lists for id_ in ids if id_ is not None}


def load_weights(auto_class: Any, source: ModelSource, dtype: str) -> Any:
    """Load the model in evaluation mode on this process's device (its first GPU, else the CPU).

    Raises:
        InputError: weights are missing in the files.
        JobError: the device does not support the precision.
    """
    model, loading_info = auto_class.from_pretrained(
        source.folder,
        dtype=set_matmul_precision(dtype),
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        **({} if source.gguf_file else {"use_safetensors": True}),
        **source.arguments(),
    )
    # transformers would initialise missing weights randomly
    if loading_info["missing_keys"]:
        raise InputError(
            [f"reader.model: {source.folder} lacks weights: {sorted(loading_info['missing_keys'])[:3]}, ..."]
        )
    # `generate` takes all settings that its caller leaves open from here: beams, penalties, forced tokens
    model.generation_config = transformers.GenerationConfig()
    return model.to(device()).eval()


def quiet() -> None:
    """Turn off progress bars and advice of transformers; jobs log their own progress."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
