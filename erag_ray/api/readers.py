"""Readers of a comparison in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from erag_ray.config.keys.values import build
from erag_ray.config.prompt import PromptConfig
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.support.errors import InputError

if TYPE_CHECKING:
    from erag_ray.models import Reader

IN_PROCESS = ("served", "function", "echo")
"""Kinds that this process reads itself: they need neither a GPU nor several processes."""


class Served(ReaderConfig):
    """A model behind an OpenAI-compatible server; needs ``base_url``, ``model`` and ``revision``.

    All keys: `erag_ray.config.reader.ReaderConfig`, of which those that say "served" matter most.
    """

    kind: str = "served"


class Causal(ReaderConfig):
    """A decoder-only model that this machine or cluster runs: ``model`` is a folder, a hub name or a .gguf file.

    All other keys, such as ``dtype``, ``prompt`` and ``max_new_tokens``: `erag_ray.config.reader.ReaderConfig`.

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

        config = ReaderConfig(
            kind="function",
            model=self.name,
            revision=self.revision,
            batch_size=self.batch_size,
            prompt=self.prompt,
        )
        register_function(self.function, str(config.model), str(config.revision))
        return config


@dataclasses.dataclass(frozen=True)
class Retriever:
    """A retriever whose runs are kept: not made again while revision and questions stay the same.

    Attributes:
        retriever: a retriever of LangChain, LlamaIndex or Haystack, or a function ``(question, k) -> documents``.
        revision: which index and settings it has, in your own words.
    """

    retriever: object
    revision: str


def reader_config(reader: object, key: str = "reader") -> ReaderConfig:
    """Return the config of a reader: `Served`, `Causal`, `Function`, a `ReaderConfig` or a mapping of its keys.

    Raises:
        InputError: it is something else, or one of its keys is wrong.
    """
    if isinstance(reader, Function):
        return reader.config()
    if isinstance(reader, ReaderConfig):
        fields = {field.name: getattr(reader, field.name) for field in dataclasses.fields(ReaderConfig)}
        return ReaderConfig(**fields)
    if isinstance(reader, Mapping):
        return build(ReaderConfig, reader, key)
    if callable(reader):
        name = getattr(reader, "__name__", type(reader).__name__)
        example = f'erag_ray.Function({name}, name="{name}", revision="1")'
        text = f"a function (prompts to outputs) needs a name and a revision, for its cache: {key}={example}"
        raise InputError([f"{key}: {text}"])
    given, example = f"a {type(reader).__name__}", "erag_ray.Function"
    if isinstance(reader, str):
        given, example = repr(reader), f'{key}={{"kind": "causal", "model": {reader!r}}}'
    text = f"{given}, not a reader. Write {example}, or erag_ray.Served, Causal or Function"
    raise InputError([f"{key}: {text}"])


def judge_config(judge: object, key: str = "judge") -> JudgeConfig:
    """Return the config of a judge: a `JudgeConfig`, a mapping of its keys, or a reader with the keys of its model.

    Raises:
        InputError: it is something else, or has a key of readers that judges do not have.
    """
    if isinstance(judge, JudgeConfig):
        return judge
    if isinstance(judge, Mapping):
        return build(JudgeConfig, judge, key)
    reader = reader_config(judge, key)
    default = ReaderConfig(kind=reader.kind)
    keys = {name: value for name, value in vars(reader).items() if value != getattr(default, name)}
    return build(JudgeConfig, {**keys, "kind": reader.kind}, key)
