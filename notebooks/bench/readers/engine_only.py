"""PENDING requests run by the bare engine, whole or in parts, with a count of what goes through its encoder."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import torch

from bench.timing import Row
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.models import Model, make_model
from erag_ray.models.local.process import keep_freed_memory
from erag_ray.models.t5.encoder_cache import Padded
from erag_ray.prompts.request import Form


def reading(config: ReaderConfig, forms: Sequence[Form], requests: pa.Table, by: str) -> Callable[[], Row]:
    """A model that is loaded and has read one passage, and PENDING requests for it to run.

    Args:
        config: of the model.
        forms: of the requests.
        requests: what it is asked.
        by: whole, as one table; queries, one after the other; ones, every request alone.
    """
    keep_freed_memory()
    model = loaded(config)
    # weights come into memory, and products get ready, when they are first used
    read_all(model, forms, [_small(requests)])
    parts = _parts(requests, by)
    return lambda: read_all(model, forms, parts)


def _small(requests: pa.Table) -> pa.Table:
    """The first request with one passage at most."""
    (row,) = requests.slice(0, 1).to_pylist()
    one = {name: row[name][:1] for name in ("titles", "texts")}
    return pa.Table.from_pylist([{**row, **one}], requests.schema)


def loaded(config: ReaderConfig) -> Model:
    """The model with its weights."""
    model = make_model(config)
    model.load()
    return model


def _parts(requests: pa.Table, by: str) -> list[pa.Table]:
    if by == "whole":
        return [requests]
    if by == "ones":
        return [requests.slice(row, 1) for row in range(requests.num_rows)]
    keys = requests.column("question").to_pylist()
    starts = [row for row in range(len(keys)) if row == 0 or keys[row] != keys[row - 1]]
    ends = [*starts[1:], len(keys)]
    return [requests.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def read_all(model: Model, forms: Sequence[Form], parts: Sequence[pa.Table]) -> Row:
    """Run some tables of PENDING requests one after the other; counts of tokens.

    Raises:
        MemoryError: a request could not be run.
    """
    counting = _Counting(model)
    responses = [one for part in parts for _, one in model.run(PendingRequests(part, forms))]
    counting.end()
    if failed := sum(one.failure is not None for one in responses):
        raise MemoryError(f"{failed} of {len(responses)} requests could not be run")
    counts = {
        "num_output_tokens": sum(one.num_output_tokens for one in responses),
        "num_prompt_tokens": sum(one.num_prompt_tokens for one in responses),
    }
    return {**counts, **counting.counts()}


class _Counting:
    """Counter of the tokens that go through our own encoder."""

    def __init__(self, model: Model) -> None:
        self._engine: Any = getattr(model, "engine", None)
        self.num_tokens = self.num_padded = 0
        if self._engine is not None:
            self._encode = self._engine.encode
            self._engine.encode = self._counted

    def _counted(self, batch: Padded) -> torch.Tensor:
        self.num_tokens += sum(batch.lengths)
        self.num_padded += batch.ids.numel()
        return self._encode(batch)  # type: ignore[no-any-return]

    def end(self) -> None:
        """Restore the encoder."""
        if self._engine is not None:
            self._engine.encode = self._encode

    def counts(self) -> Row:
        """Tokens that were encoded, and those that were padding beside them."""
        if self._engine is None:
            return {"num_encoded_tokens": None, "num_padding_tokens": None}
        padding = self.num_padded - self.num_tokens
        return {"num_encoded_tokens": self.num_tokens, "num_padding_tokens": padding}
