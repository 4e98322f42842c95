"""The pending requests of one model as work for its readers, and the counts of what they have done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from erag_ray.config.reader import ReaderConfig
from erag_ray.models import Resources
from erag_ray.prompts.request import Form
from erag_ray.store.responses import ResponseStore


@dataclass(frozen=True, kw_only=True)
class Work:
    """The pending requests of one model.

    Attributes:
        requests: folder of Parquet shards of PENDING, visible to all nodes.
        num_requests: their number.
        config: the model.
        model: its id.
        forms: of the requests.
        resources: of one actor with the model.
    """

    requests: str
    num_requests: int
    config: ReaderConfig
    model: str
    forms: Sequence[Form]
    resources: Resources


@dataclass(frozen=True, kw_only=True)
class Done:
    """Counts of finished requests: tokens, the sum of the actors' seconds, peak bytes.

    Seconds, cached tokens and notes of an actor that died in a block are missing.
    """

    num_responses: int = 0
    num_questions: int = 0
    """Sum over blocks: a question that is split over two blocks counts twice."""
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    device_seconds: float = 0.0
    peak_memory_bytes: int = 0
    num_cached_prompt_tokens: int = 0
    notes: Mapping[str, int] = field(default_factory=dict)
    """Note of `Response.notes` -> number of responses with it."""


def sum_counts(counts: pa.Table, store: ResponseStore, job: str) -> Done:
    """Return the sum of the counts that a `ModelActor` returns for each block; responses and tokens by the store.

    An actor that dies returns nothing of its block, but what it wrote is in the store, and was paid.
    """
    columns = {name: counts.column(name).to_pylist() for name in counts.column_names}
    peak = max(columns.pop("peak_memory_bytes"))
    notes = Counter[str]()
    for text in columns.pop("notes"):
        notes.update(json.loads(text))
    sums = {name: sum(values) for name, values in columns.items()}
    return Done(**(sums | store.totals_by(job)), peak_memory_bytes=peak, notes=dict(notes))
