"""Steps that extras, or other installed packages, add to a comparison: entry points ``erag_ray.extensions``.

An entry point has the name of the key of `JobConfig` that asks for it (field metadata `NEEDS_EXTENSION`), and names an
`Extension`. One that only has analyses needs no key: analyses of all extensions are shown where their tables are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from erag_ray.config.job import NEEDS_EXTENSION, JobConfig
from erag_ray.store.schemas import TableSchema
from erag_ray.support.errors import InputError
from erag_ray.support.logs import say
from erag_ray.support.registry import find_instance, plugins

if TYPE_CHECKING:
    from erag_ray.inference.stage import Finished
    from erag_ray.inputs.evidence import Inputs

KIND = "extension"


def _nothing(*_: object) -> None:
    return


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extension:
    """Steps of a comparison; each runs after the core's own of that name."""

    name: str
    """For messages."""
    tables: Sequence[TableSchema] = ()
    """What it seals in ``out`` besides the tables of its analyses."""
    check: Callable[[JobConfig], None] = _nothing
    """Runs before anything else; raises InputError."""
    lists: Callable[[JobConfig, Inputs], Mapping[str, pl.DataFrame]] = lambda config, inputs: {}
    """Job and inputs -> purpose -> lists of documents (query_id, doc_ids) to be answered."""
    score: Callable[[JobConfig, Inputs, Finished], None] = _nothing
    """Job, inputs and finished requests -> sealed tables; runs where its key asks for it."""
    analyses: Sequence[Any] = ()
    """Its results (`analyses.contract.Analysis`), after those of the core."""
    list_values: tuple[TableSchema, str] | None = None
    """A table of values of documents in a list, shown on the page, and its column with their names."""
    estimates: Callable[[Any], list[Any]] | None = None
    """`analyses.contract.Evaluation` -> its columns, with estimates for questions that the reader did not answer; means
    and comparisons take these."""
    finish: Callable[[JobConfig], None] = _nothing
    """Runs after the report."""


def requested(config: JobConfig) -> list[Extension]:
    """Return the extensions that a job's keys ask for; raise InputError if one of them cannot be imported."""
    keys = [field.name for field in dataclasses.fields(config) if field.metadata.get(NEEDS_EXTENSION)]
    extensions, problems = _load(filter(functools.partial(getattr, config), keys))
    if problems:
        raise InputError([f"{key}: {problem}" for key, problem in problems.items()])
    return extensions


def installed() -> list[Extension]:
    """Return all extensions that can be imported; name the others in a message."""
    extensions, problems = _load(plugins(KIND))
    say(*(f"left out: {problem}" for problem in problems.values()))
    return extensions


def further_lists(config: JobConfig, inputs: Inputs) -> dict[str, pl.DataFrame]:
    """Return the lists that a job's extensions need answers to: purpose -> lists; raises as `requested`."""
    parts = (extension.lists(config, inputs) for extension in requested(config))
    return {purpose: lists for part in parts for purpose, lists in part.items()}


def _load(keys: Iterable[str]) -> tuple[list[Extension], dict[str, str]]:
    """Return the extensions of these keys, each once, and a problem for each key that has none."""
    extensions, problems = dict[int, Extension](), dict[str, str]()
    for key in keys:
        try:
            if key not in plugins(KIND):
                raise ValueError("belongs to an extra of erag_ray that is not installed")
            extension = find_instance(KIND, key, {}, Extension, "...")
        except ValueError as error:
            problems[key] = str(error)
        else:
            extensions[id(extension)] = extension
    return list(extensions.values()), problems
