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
        InputError: there is no such model.
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
    if path.is_dir():
        return ModelSource(str(path))
    return ModelSource(_from_hub(name, config.model_revision))


def _package_file(name: str) -> pathlib.Path:
    package, _, file = name.removeprefix("package:").partition("/")
    # find_spec does not run the package: one that only carries a model may lack what its code needs
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError([f"reader.model: {name}: the Python package {package} is not installed"])
    return pathlib.Path(spec.submodule_search_locations[0], file)


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
    try:
        return transformers.AutoTokenizer.from_pretrained(
            source.folder, trust_remote_code=False, local_files_only=True, **source.arguments()
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            [f"reader.model: no tokenizer in {source.folder}: {str(error).splitlines()[0]}"]
        ) from error


def load_settings(source: ModelSource) -> Any:
    """The model's config (sizes, token ids).

    Raises:
        InputError: it cannot be read.
    """
    try:
        return transformers.AutoConfig.from_pretrained(
            source.folder, trust_remote_code=False, local_files_only=True, **source.arguments()
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            [f"reader.model: no model config in {source.folder}: {str(error).splitlines()[0]}"]
        ) from error


def load_weights(auto_class: Any, source: ModelSource, dtype: str) -> Any:
    """The model in evaluation mode on this process's device (its first GPU, else the CPU)."""
    safe = {} if source.gguf_file else {"use_safetensors": True}
    model = auto_class.from_pretrained(
        source.folder,
        dtype=getattr(torch, dtype),
        trust_remote_code=False,
        local_files_only=True,
        **safe,
        **source.arguments(),
    )
    return model.to(device()).eval()


def device() -> torch.device:
    """The first GPU that this process sees, else the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def quiet() -> None:
    """No progress bars and advice from the model library: a job's own progress is what people watch."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
