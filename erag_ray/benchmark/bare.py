"""REQUESTS read by the bare engine, whole or in parts, with a count of what goes through its encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import torch

from erag_ray.benchmark.timing import Row
from erag_ray.config import ReaderConfig
from erag_ray.readers import Reader, keep_freed_memory, make_reader, reader_id


def reading(config: ReaderConfig, requests: pa.Table, by: str) -> Callable[[], Row]:
    """A reader that is loaded and has read one passage, and REQUESTS for it to read.

    Args:
        config: of the reader.
        requests: what it is asked.
        by: whole, as one table; queries, one after the other; ones, every request alone.
    """
    keep_freed_memory()
    reader, name = loaded(config)
    # weights come into memory, and products get ready, when they are first used
    read_all(reader, name, [_small(requests)])
    parts = _parts(requests, by)
    return lambda: read_all(reader, name, parts)


def _small(requests: pa.Table) -> pa.Table:
    """The first request with one passage at most."""
    (row,) = requests.slice(0, 1).to_pylist()
    one = {name: row[name][:1] for name in ("titles", "texts")}
    return pa.Table.from_pylist([{**row, **one}], requests.schema)


def loaded(config: ReaderConfig) -> tuple[Reader, str]:
    """The reader with its weights, and its id."""
    reader = make_reader(config)
    reader.load()
    return reader, reader_id(reader)


def _parts(requests: pa.Table, by: str) -> list[pa.Table]:
    if by == "whole":
        return [requests]
    if by == "ones":
        return [requests.slice(row, 1) for row in range(requests.num_rows)]
    keys = requests.column("question_key").to_pylist()
    starts = [row for row in range(len(keys)) if row == 0 or keys[row] != keys[row - 1]]
    ends = [*starts[1:], len(keys)]
    return [requests.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def read_all(reader: Reader, name: str, parts: Sequence[pa.Table]) -> Row:
    """Read some tables of REQUESTS one after the other; counts of tokens.

    Raises:
        MemoryError: a request could not be read.
    """
    counting = _Counting(reader)
    readings = pa.concat_tables(batch for part in parts for batch in reader.read(part, name))
    counting.end()
    if failed := readings.num_rows - readings.column("error").null_count:
        raise MemoryError(f"{failed} of {readings.num_rows} requests could not be read")
    outputs, prompts = (
        sum(readings.column(f"num_{kind}_tokens").to_pylist()) for kind in ("output", "prompt")
    )
    return {"num_output_tokens": outputs, "num_prompt_tokens": prompts, **counting.counts()}


class _Counting:
    """What goes through a reader's encoder, where it is ours."""

    def __init__(self, reader: Reader) -> None:
        self._engine: Any = getattr(reader, "engine", None)
        self.num_tokens = self.num_padded = 0
        if self._engine is not None:
            self._encode = self._engine.encode
            self._engine.encode = self._counted

    def _counted(self, segments: Sequence[Sequence[int]]) -> torch.Tensor:
        lengths = [len(segment) for segment in segments]
        self.num_tokens += sum(lengths)
        self.num_padded += max(lengths) * len(lengths)
        return self._encode(segments)  # type: ignore[no-any-return]

    def end(self) -> None:
        """As before."""
        if self._engine is not None:
            self._engine.encode = self._encode

    def counts(self) -> Row:
        """Tokens that were encoded, and those that were padding beside them."""
        if self._engine is None:
            return {"num_encoded_tokens": None, "num_padding_tokens": None}
        padding = self.num_padded - self.num_tokens
        return {"num_encoded_tokens": self.num_tokens, "num_padding_tokens": padding}
