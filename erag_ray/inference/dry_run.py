"""Dry run: what the new requests of a job will take, by what the requests of all its attempts took."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.config.job import JobConfig
from erag_ray.inference.planning.plan import ModelPlan, StagePlan, prompt_tokens, sampled_prompts
from erag_ray.store.folder import Folder
from erag_ray.store.stages.stage import read_costs

HOUR = 3600.0


def estimate_cost(config: JobConfig, plan: StagePlan, out: str) -> Iterator[str]:
    """Yield lines for people: reader-hours, price and memory of the requests without a response, by model.

    A reader's time grows with the tokens that it reads, so the seconds of earlier requests are taken by token,
    where the model counts them. ``config`` is from `dry_run_config`, and its folder is deleted at the end; ``out`` is
    the job's own folder.
    """
    costs = read_costs(out)
    for model_plan in plan.plans:
        if model_plan.new.height:
            yield f"{model_plan.id}: {_of_model(config, model_plan, costs)}"
    Folder(config.out).delete_folder()
    yield "a dry run: no requests were run, and no results were written"


def _of_model(config: JobConfig, plan: ModelPlan, costs: pl.DataFrame) -> str:
    rows = costs.filter(pl.col("num_reader_calls") > 0, model=plan.id)
    if rows.is_empty():
        first = "run the job on a sample first (num_queries: 20; its responses are kept), then this again"
        return f"how long this takes is not known: {first}"
    names = ("num_reader_calls", "num_prompt_tokens", "device_seconds")
    calls, tokens, seconds = (float(rows[name].to_numpy().sum()) for name in names)
    count, per_request = plan.new.height, prompt_tokens(sampled_prompts(plan))
    # a model that counts no tokens has none in its costs
    factor = per_request * count / tokens if per_request and tokens else count / calls
    hours = seconds * factor / HOUR
    time = f"{hours:.3g} reader-hours" if hours >= 0.1 else f"{hours * HOUR:.3g} reader-seconds"
    price = config.price_per_hour
    cost = "" if price is None else f", {hours * price:,.2f} at {price:g} an hour"
    memory = int(rows["peak_memory_bytes"].to_numpy().max()) / 2**30
    return (
        f"about {time} for {count:,} requests{cost}, by the {calls:,.0f} requests run here so far, which took "
        f"{seconds:.3g} s; peak memory of a reader {memory:.2f} GiB"
    )
