"""Readers of a comparison in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from erag_ray.config import PromptConfig, ReaderConfig, unknown_key
from erag_ray.errors import InputError

if TYPE_CHECKING:
    from erag_ray.models import Reader

IN_PROCESS = ("served", "function", "echo")
"""Kinds that this process reads itself: they need neither a GPU nor several processes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served(ReaderConfig):
    """A model behind an OpenAI-compatible server; needs ``base_url``, ``model`` and ``revision``.

    All keys: `erag_ray.config.ReaderConfig`, of which those that say "served" matter most.
    """

    kind: str = "served"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Causal(ReaderConfig):
    """A decoder-only model that this machine or cluster runs: ``model`` is a folder, a hub name or a .gguf file.

    All other keys, such as ``dtype``, ``prompt`` and ``max_new_tokens``: `erag_ray.config.ReaderConfig`.

    Raises:
        ValueError: a key has a wrong value.
    """

    kind: str = "causal"


@dataclasses.dataclass(frozen=True)
class Function:
    """A function as reader: prompts to outputs, in this process.

    Attributes:
        function: ``list[str] -> list[str]``, one output for each prompt, in their order; may be async.
        name: of the reader.
        revision: which version of it this is, in your own words. Responses are cached by name and revision: change it
            with every change that may change an output.
        batch_size: most prompts in one call.
        prompt: as ``reader.prompt`` of a job.
    """

    function: Reader
    name: str
    revision: str
    batch_size: int = 32
    prompt: str | PromptConfig | None = None

    def config(self) -> ReaderConfig:
        """Make the function known to this process and return the config that names it."""
        from erag_ray.models import register_function

        register_function(self.function, self.name, self.revision)
        return ReaderConfig(
            kind="function",
            model=self.name,
            revision=self.revision,
            batch_size=self.batch_size,
            prompt=self.prompt,
        )


@dataclasses.dataclass(frozen=True)
class Retriever:
    """A retriever whose runs are kept: not made again while revision and questions stay the same.

    Attributes:
        retriever: a retriever of LangChain, LlamaIndex or Haystack, or a function ``(question, k) -> documents``.
        revision: which index and settings it has, in your own words.
    """

    retriever: object
    revision: str


def reader_config(reader: object) -> ReaderConfig:
    """Return the config of a reader: `Served`, `Causal`, `Function`, a `ReaderConfig` or a mapping of its keys.

    Raises:
        InputError: it is something else.
    """
    if isinstance(reader, Function):
        return reader.config()
    if isinstance(reader, ReaderConfig):
        fields = {field.name: getattr(reader, field.name) for field in dataclasses.fields(ReaderConfig)}
        return ReaderConfig(**fields)
    if isinstance(reader, Mapping):
        config: ReaderConfig = config_of(ReaderConfig, reader, "reader")
        return config
    if callable(reader):
        name = getattr(reader, "__name__", type(reader).__name__)
        example = f'erag_ray.Function({name}, name="{name}", revision="1")'
        text = f"a function needs a name and a revision, by which its responses are cached: reader={example}"
        raise InputError([f"reader: {text}"])
    raise InputError(
        [f"reader: a {type(reader).__name__}, not a reader; see erag_ray.Served, Causal and Function"]
    )


def config_of(kind: type[Any], keys: Mapping[str, Any], name: str) -> Any:
    """Return a config of a kind from a mapping of its keys.

    Raises:
        InputError: a key is unknown, or a value is wrong.
    """
    known = {field.name for field in dataclasses.fields(kind)}
    wrong = [unknown_key(key, kind) for key in keys if key not in known]
    if wrong:
        raise InputError([f"{name}: {text}" for text in wrong])
    try:
        return kind(**keys)
    except (TypeError, ValueError) as error:
        raise InputError([f"{name}: {error}"]) from error
