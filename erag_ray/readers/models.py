"""Where models come from: a folder, a hub name, a GGUF file, a file in an installed package -> tokenizer, weights.

Weights are read from safetensors or GGUF only, and code inside a model is never run.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
from dataclasses import dataclass
from typing import Any

import huggingface_hub
import torch
import transformers

from erag_ray.config import ReaderConfig
from erag_ray.schemas import InputError
from erag_ray.store import file_digest

MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
GENERATION_FILE = "generation_config.json"
TOKENIZER_FILES = ("tokenizer.json", "*.model", "vocab.*")


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine's disk."""

    folder: str
    gguf_file: str | None = None

    def arguments(self) -> dict[str, Any]:
        """For ``from_pretrained``."""
        return {"gguf_file": self.gguf_file} if self.gguf_file else {}

    def digests(self) -> dict[str, str]:
        """SHA-256 of every file that weights, tokenizer and settings are read from."""
        folder = pathlib.Path(self.folder)
        patterns = (self.gguf_file,) if self.gguf_file else MODEL_FILES
        files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
        return {path.name: file_digest(path) for path in files}


def find_model(config: ReaderConfig) -> ModelSource:
    """Where the model lies; a hub model is downloaded first, or taken from the local cache.

    Raises:
        InputError: there is no such model, or its weights are neither safetensors nor GGUF.
    """
    name = config.model
    if not name:
        raise InputError(
            [f"reader.model: a {config.kind} reader needs a model: a folder, a hub name or a .gguf file"]
        )
    path = _package_file(name) if name.startswith("package:") else pathlib.Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError([f"reader.model: there is no file {path}"])
        return ModelSource(str(path.parent), path.name)
    source = ModelSource(str(path) if path.is_dir() else _from_hub(name, config.model_revision))
    if not any(pathlib.Path(source.folder).glob("*.safetensors")):
        raise InputError(
            [f"reader.model: {name} has no weights in safetensors form; {_other_weights(source)}"]
        )
    return source


def _other_weights(source: ModelSource) -> str:
    """What to do about a folder without safetensors."""
    found = sorted(path.name for path in pathlib.Path(source.folder).glob("*.gguf"))
    if found:
        return f"for GGUF name the file itself, such as {pathlib.Path(source.folder, found[0])}"
    return "pickled weights (.bin, .pt) can run code and are not read: convert them"


def _package_file(name: str) -> pathlib.Path:
    package, _, file = name.removeprefix("package:").partition("/")
    # find_spec does not run the package (one that only carries a model may lack what its code needs), but it would
    # run the parents of a dotted name
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise InputError([f"reader.model: {name}: the Python package {package!r} is not installed"])
    path = pathlib.Path(spec.submodule_search_locations[0], file)
    if not path.exists():
        raise InputError([f"reader.model: {name}: the Python package {package} holds no {file}"])
    return path


def _from_hub(name: str, revision: str | None) -> str:
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError([f"reader.model: there is no folder {name}"])
    try:
        return huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(MODEL_FILES))
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            [f"reader.model: {name} is neither a folder here nor a hub model at hand: {reason}"]
        ) from error


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
    """
    safe = {} if source.gguf_file else {"use_safetensors": True}
    model, found = auto_class.from_pretrained(
        source.folder,
        dtype=getattr(torch, dtype),
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


def device() -> torch.device:
    """The GPU that this process has chosen (the first one, unless it was told otherwise), else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def quiet() -> None:
    """No progress bars and advice from the model library: a job's own progress is what people watch."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
