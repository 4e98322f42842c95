"""Locate models: a folder, a hub name, a GGUF file, or a file or folder in an installed package. Imports no torch.

Code that comes with a model is never run. Used by readers and by retrievers.
"""

import importlib.util
import pathlib
from dataclasses import dataclass
from typing import Any

from erag_ray.store.digests import cached_digest
from erag_ray.support.errors import InputError

MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
# files of hub models that are never read
IGNORED_FILES = ("onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "imgs/*")
PICKLED_WEIGHTS = "pytorch_model*.bin"


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine's disk."""

    folder: str
    gguf_file: str | None = None

    def arguments(self) -> dict[str, Any]:
        return {"gguf_file": self.gguf_file} if self.gguf_file else {}

    def weight_bytes(self) -> int:
        folder = pathlib.Path(self.folder)
        files = [folder / self.gguf_file] if self.gguf_file else folder.glob("*.safetensors")
        return sum(path.stat().st_size for path in files)

    def digests(self, *extra_patterns: str) -> dict[str, str]:
        """Return the SHA-256 of the files with weights, tokenizer and settings, and of those that match the patterns.

        A GGUF file holds all of these: then it is the only one.
        """
        folder = pathlib.Path(self.folder)
        patterns = (self.gguf_file,) if self.gguf_file else (*MODEL_FILES, *extra_patterns)
        files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
        return {path.relative_to(folder).as_posix(): cached_digest(path) for path in files}


def find_model(
    name: str | None, *, key: str, revision: str | None = None, pickled: bool = False
) -> ModelSource:
    """Return the local folder of a model: a folder, a hub name, a .gguf file, or package:NAME/FILE, as ``key`` has it.

    A hub model, of a branch, tag or commit, is downloaded first, or taken from the local cache. With ``pickled``,
    pickled PyTorch weights are accepted too, for loaders that unpickle tensors only. Raise InputError if there is no
    such model, or its weights have another format.
    """
    if not name:
        raise InputError([f"{key}: needs a model: a folder, a hub name or a .gguf file"])
    path = _package_file(name, key) if name.startswith("package:") else pathlib.Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError([f"{key}: there is no file {path}"])
        return ModelSource(str(path.parent), path.name)
    source = ModelSource(str(path) if path.is_dir() else _from_hub(name, key, revision, pickled))
    if pathlib.Path(source.folder, "adapter_config.json").is_file():
        advice = "merge it into its base model (PEFT: merge_and_unload), and save that"
        raise InputError([f"{key}: {name} has an adapter, which would not be used; {advice}"])
    patterns = ("*.safetensors", *([PICKLED_WEIGHTS] if pickled else []))
    if not any(path for pattern in patterns for path in pathlib.Path(source.folder).glob(pattern)):
        advice = "pickled weights (.bin, .pt) can run code and are not read: convert them"
        if gguf_files := sorted(pathlib.Path(source.folder).glob("*.gguf")):
            advice = f"for GGUF name the file itself, such as {gguf_files[0]}"
        raise InputError([f"{key}: {name} has no weights in safetensors form; {advice}"])
    return source


def _package_file(name: str, key: str) -> pathlib.Path:
    package, _, file = name.removeprefix("package:").partition("/")
    # pip shows most packages with hyphens
    module = package.replace("-", "_")
    # find_spec does not run the package, whose code may need packages that are not installed; but it would run the
    # parents of a dotted name
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    folders = [pathlib.Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if not folders:
        raise InputError([f"{key}: {name}: no Python package that is imported as {package!r} is installed"])
    path = next((folder / file for folder in folders if (folder / file).exists()), None)
    if path is None:
        raise InputError([f"{key}: {name}: the Python package {package} holds no {file}"])
    return path


def _from_hub(name: str, key: str, revision: str | None, pickled: bool) -> str:
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError([f"{key}: there is no folder {name}"])
    allowed, ignored = (None, list(IGNORED_FILES)) if pickled else (list(MODEL_FILES), None)
    try:
        import huggingface_hub

        return huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=allowed, ignore_patterns=ignored
        )
    except (OSError, ValueError, RuntimeError) as error:
        text = f"{key}: {name} is neither a folder nor a hub model that can be downloaded"
        raise InputError([f"{text}: {str(error).splitlines()[0]}"]) from error
