"""The pending requests of one model as work for its readers, the counts of what they have done, and what they cost.

COSTS have all attempts of a job: its starts with one ``out``, killed or not. A run records its rows in ``out`` before
its first request, still without counts, and again at its end. Files of responses have the id of their run (job) in
their names: what a killed run has written is counted in the store, each response once, and nothing is counted while it
runs. What other jobs have put into a shared cache has other ids.
"""

import contextlib
import datetime
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.planning.plan import StagePlan
from erag_ray.models import Resources
from erag_ray.prompts.request import Form
from erag_ray.store.folder import Folder
from erag_ray.store.responses import UNREADABLE, ResponseStore
from erag_ray.store.schemas import COSTS

ATTEMPTS = "attempts"
"""Folder in ``out`` of the records of runs."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The pending requests of one model."""

    requests: str
    """Folder of Parquet shards of PENDING, visible to all nodes."""
    num_requests: int
    config: ReaderConfig
    model: str
    """Its id."""
    forms: Sequence[Form]
    resources: Resources
    """Of one actor with the model."""
    may_all_fail: bool = False
    """Whether the job goes on if all of them become errors (``max_error_fraction``)."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """Counts of finished requests: tokens, elapsed seconds, the sum of the actors' seconds, peak bytes.

    Notes of an actor that died in a block are missing.
    """

    num_responses: int = 0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    seconds: float = 0.0
    device_seconds: float = 0.0
    peak_memory_bytes: int = 0
    num_cached_prompt_tokens: int = 0
    notes: Mapping[str, int] = field(default_factory=dict)
    """Note of `Response.notes` -> number of responses with it."""


def sum_counts(counts: pa.Table, store: ResponseStore, job: str) -> Done:
    """Return the sum of what a `ModelActor` returns for each block, and the counts of responses in the store.

    An actor that dies returns nothing of its block, but what it wrote is in the store, and was paid.
    """
    notes = Counter[str]()
    for text in counts["notes"].to_pylist():
        notes.update(json.loads(text))
    peak = pc.max(counts["peak_memory_bytes"]).as_py()
    return Done(**store.totals_by(job), peak_memory_bytes=peak, notes=dict(notes))


def cost_row(
    key: Mapping[str, Any], config: ReaderConfig, num_requests: int, counts: Done
) -> dict[str, object]:
    """Return a row of COSTS; ``key`` has its stage, job and model."""
    tokens = counts.num_prompt_tokens, counts.num_cached_prompt_tokens, counts.num_output_tokens
    return {
        **key,
        **{name: getattr(counts, name) for name in COSTS.columns.names if hasattr(counts, name)},
        "num_requests": num_requests,
        "num_reader_calls": counts.num_responses,
        "price": config.price_of(*tokens),
    }


def cost_frame(rows: Iterable[Mapping[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=COSTS.empty().schema)


def record_run(config: JobConfig, plan: StagePlan, costs: pl.DataFrame) -> pl.DataFrame:
    """Record the rows of a run; return COSTS of all runs of its stage: first these, then those of earlier ones."""
    earlier = runs_before(config, plan, costs).filter(stage=plan.stage)
    if costs.height:
        Folder(config.out).write_parquet(costs.to_arrow(), ATTEMPTS, f"{costs['job'][0]}.parquet")
    return pl.concat([costs, earlier.with_columns(num_requests=pl.lit(0, pl.Int64))])


def runs_before(config: JobConfig, plan: StagePlan, costs: pl.DataFrame) -> pl.DataFrame:
    """Return COSTS of all recorded runs but those in ``costs``; with prices for the models of ``plan``."""
    folder, rows = Folder(config.out), list[dict[str, Any]]()
    for info in folder.infos(ATTEMPTS):
        # a record that cannot be read is left out
        with contextlib.suppress(*UNREADABLE):
            for row in folder.read_parquet(ATTEMPTS, info.base_name).to_pylist():
                if row["job"] not in costs["job"]:
                    rows.append(row if row["num_reader_calls"] else _by_store(row, info.mtime, config, plan))
    return cost_frame(rows)


def _by_store(
    row: Mapping[str, Any], start: datetime.datetime, config: JobConfig, plan: StagePlan
) -> dict[str, Any]:
    """Return the row of a run that did not end, with the counts of what it has written, and its seconds until then."""
    store, key = ResponseStore(config.cache_dir, row["model"]), {name: row[name] for name in COSTS.key}
    ends = [info.mtime for info in store.folder.infos() if info.base_name.startswith(f"{row['job']}-")]
    seconds = (max([start, *ends]) - start).total_seconds()
    # without prices if the job has another model now
    configs = [model_plan.model.config for model_plan in plan.plans if model_plan.id == row["model"]]
    done = Done(**store.totals_by(row["job"]), seconds=seconds)
    return cost_row(key, [*configs, ReaderConfig()][0], 0, done)
