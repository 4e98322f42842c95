"""Where models come from: a folder, a hub name, a GGUF file, a file or folder in an installed package. No torch here.

Code inside a model is never run. Used by readers and by retrievers.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import re
from dataclasses import dataclass
from typing import Any

import huggingface_hub

from erag_ray.errors import InputError
from erag_ray.store import cached_digest

MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
# what a hub model may hold besides, and what is then never read
IGNORED_FILES = ("onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "imgs/*")
PICKLED_WEIGHTS = "pytorch_model*.bin"


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine's disk."""

    folder: str
    gguf_file: str | None = None

    def arguments(self) -> dict[str, Any]:
        """For ``from_pretrained``."""
        return {"gguf_file": self.gguf_file} if self.gguf_file else {}

    def weight_bytes(self) -> int:
        """Return the size of the files that weights are read from."""
        folder = pathlib.Path(self.folder)
        files = [folder / self.gguf_file] if self.gguf_file else folder.glob("*.safetensors")
        return sum(path.stat().st_size for path in files)

    def digests(self, *more: str) -> dict[str, str]:
        """SHA-256 of every file that weights, tokenizer and settings are read from; of those ``more`` names too."""
        folder = pathlib.Path(self.folder)
        names = (self.gguf_file,) if self.gguf_file else (*MODEL_FILES, *more)
        files = sorted({path for name in names for path in folder.glob(name) if path.is_file()})
        return {path.relative_to(folder).as_posix(): cached_digest(path) for path in files}


def find_model(
    name: str | None, *, key: str, revision: str | None = None, pickled: bool = False
) -> ModelSource:
    """Where a model lies; a hub model is downloaded first, or taken from the local cache.

    Args:
        name: a folder, a hub name, a .gguf file, or package:NAME/FILE.
        key: the config key that names it, for messages.
        revision: branch, tag or commit of a hub model.
        pickled: also take weights in PyTorch's pickled form, for loaders that read tensors alone from it.

    Raises:
        InputError: there is no such model, or its weights have another form.
    """
    if not name:
        raise InputError([f"{key}: needs a model: a folder, a hub name or a .gguf file"])
    path = _package_file(name, key) if name.startswith("package:") else pathlib.Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError([f"{key}: there is no file {path}"])
        return ModelSource(str(path.parent), path.name)
    source = ModelSource(str(path) if path.is_dir() else _from_hub(name, key, revision, pickled))
    forms = ("*.safetensors", *([PICKLED_WEIGHTS] if pickled else []))
    if not any(found for form in forms for found in pathlib.Path(source.folder).glob(form)):
        raise InputError([f"{key}: {name} has no weights in safetensors form; {_other_weights(source)}"])
    return source


def _other_weights(source: ModelSource) -> str:
    """What to do about a folder without safetensors."""
    found = sorted(path.name for path in pathlib.Path(source.folder).glob("*.gguf"))
    if found:
        return f"for GGUF name the file itself, such as {pathlib.Path(source.folder, found[0])}"
    return "pickled weights (.bin, .pt) can run code and are not read: convert them"


def _package_file(name: str, key: str) -> pathlib.Path:
    package, _, file = name.removeprefix("package:").partition("/")
    folders = _folders_of(package) or [
        folder for module in _modules_of(package) for folder in _folders_of(module)
    ]
    if not folders:
        raise InputError([f"{key}: {name}: the Python package {package!r} is not installed"])
    path = next((folder / file for folder in folders if (folder / file).exists()), None)
    if path is None:
        raise InputError([f"{key}: {name}: the Python package {package} holds no {file}"])
    return path


def _folders_of(module: str) -> list[pathlib.Path]:
    """Where an importable package lies; none where there is no such package."""
    # find_spec does not run the package (one that only carries a model may lack what its code needs), but it would
    # run the parents of a dotted name
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    return [pathlib.Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _modules_of(distribution: str) -> list[str]:
    """The packages that a distribution installs, by the name that pip shows, however it is written (PEP 503)."""

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    installed = importlib.metadata.packages_distributions()
    return [module for module, names in installed.items() if normal(distribution) in map(normal, names)]


def _from_hub(name: str, key: str, revision: str | None, pickled: bool) -> str:
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError([f"{key}: there is no folder {name}"])
    only, but = (None, list(IGNORED_FILES)) if pickled else (list(MODEL_FILES), None)
    try:
        return huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=only, ignore_patterns=but
        )
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            [f"{key}: {name} is neither a folder here nor a hub model at hand: {reason}"]
        ) from error
