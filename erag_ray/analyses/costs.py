"""Costs of retrieval and of the reader: requests and what they took, prompt tokens by list, and latency."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from erag_ray.analyses.contract import READER, Analysis, Results, View
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.formats import utility_name
from erag_ray.analyses.parts.model import Finding, Format, Part, Table
from erag_ray.analyses.parts.shapes import estimate, field, listing, name_field, part_name, rows_of
from erag_ray.data.runs.references import END_TO_END, REFERENCE_NAMES
from erag_ray.store.schemas import COSTS, GIVEN, LIST_TOKENS, QUERIES, RETRIEVAL_SECONDS
from erag_ray.support.progress import duration

IS_LAST = pl.col("num_requests") > 0
"""Whether a row of COSTS is of its stage's last run; those before have none (`inference.work.record_run`)."""


def show_all(results: Results) -> Iterator[Part]:
    """Yield the requests of each stage, and the costs of all."""
    yield from (work_table(stage) for stage in results.stages if stage["counts"])
    if results[COSTS].height:
        yield cost_table(results[COSTS])
        yield Finding(topic="cost", text=f"cost: {cost_text(results[COSTS])}")


def work_table(stage: Mapping[str, Any]) -> Table:
    """Return the numbers of requests, by kind of request and of list."""
    counts = {"asked": "asked", "distinct": "distinct (union)", "cached": "cached", "new": "new"}
    return listing(
        stage["counts"],
        (
            *(name_field(name, name) for name in ("model", "kind", "lists")),
            *(field(head, name, Format.COUNT) for name, head in counts.items()),
        ),
        name=part_name("requests", stage["stage"]),
        title=f"Requests of the stage {stage['stage']}",
        caption="pairs: one document (eRAG). lists: several documents (end to end). outputs: outputs of the reader, "
        f"for the judge. Equal questions with equal texts are one request. {stage['summary']}",
        is_main=True,
    )


def cost_table(costs: pl.DataFrame) -> Table:
    """Return COSTS of the stages of a job: of the last run, and of all runs of those that had several."""
    hits, price = pl.col("num_cached_prompt_tokens"), pl.col("price")
    no_price = pl.when(price.is_null()).then(pl.lit("no price is given"))
    earlier = costs.filter(~IS_LAST.all().over("stage", "model")).with_columns(pl.col("stage") + ", all runs")
    rows = sum_costs(pl.concat([costs.filter(IS_LAST), earlier]), "stage", "model")
    cached = pl.when(hits > 0).then(hits / pl.col("num_prompt_tokens"))
    return listing(
        rows_of(rows.with_columns(cached=cached, reason=no_price)),
        (
            name_field("stage", "stage"),
            name_field("model", "model"),
            field("requests", "num_requests", Format.COUNT),
            field("reader calls", "num_reader_calls", Format.COUNT),
            field("tokens in", "num_prompt_tokens", Format.COUNT),
            field("cached", "cached", Format.SHARE_0, "Share of the prompt tokens in the server's cache"),
            field("tokens out", "num_output_tokens", Format.COUNT),
            field("price", "price", Format.NUMBER_4),
            field("seconds", "seconds", Format.TENTHS),
            field("reader seconds", "device_seconds", Format.TENTHS),
            field(
                "peak GiB a reader", lambda row: (row["peak_memory_bytes"] / 2**30) or None, Format.NUMBER_2
            ),
        ),
        name="costs",
        title="Costs",
        caption="Costs of the last run of each stage; cached responses cost nothing again."
        + " All runs: with those before, killed ones included." * bool(earlier.height),
        is_main=True,
    )


def sum_costs(costs: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Sum up COSTS by columns; no price is null, and memory is the largest; ``priced`` reader calls have a price."""
    price = pl.col("price")
    sums = [
        pl.col("^(num_.*|.*seconds)$").sum(),
        pl.when(price.count() > 0).then(price.sum()),
        pl.col("peak_memory_bytes").max(),
        pl.col("num_reader_calls").filter(price.is_not_null()).sum().alias("priced"),
    ]
    return costs.group_by(by, maintain_order=True).agg(sums) if by else costs.select(sums)


def cost_text(costs: pl.DataFrame) -> str:
    """Return COSTS in a line: requests, new ones in the last run and in those before, and what these took."""
    last, total = (sum_costs(rows).row(0, named=True) for rows in (costs.filter(IS_LAST), costs))
    new = last["num_reader_calls"]
    text = f"{total['num_requests']:,} requests, {new:,} of them new in the last run"
    num_before = total["num_reader_calls"] - new
    if not num_before:
        return ", ".join([text, *_amounts(last)])
    num_runs = max(costs.filter(~IS_LAST).group_by("stage").agg(pl.col("job").n_unique())["job"])
    text = f"{text}, {num_before:,} in {num_runs} run{'s' * (num_runs > 1)} before"
    sums = {"last run": last, "all runs": total} if new else {"all runs": total}
    return "; ".join([text, *(f"{name}: {', '.join(_amounts(row))}" for name, row in sums.items())])


def _amounts(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tokens, if the model counts them, seconds and price of requests."""
    if row["num_reader_calls"]:
        if count := row["num_prompt_tokens"]:
            yield f"{f'{count / 1e6:,.1f} million' if count >= 1e6 else f'{count:,}'} prompt tokens"
        yield f"{duration(row['device_seconds'])} of reader time"
    if row["price"] is not None:
        num_calls, priced = row["num_reader_calls"], row["priced"]
        part = f" of {priced:,} of {num_calls:,} requests (the others have none)" * (priced < num_calls)
        yield f"price {row['price']:.4f}{part}"


ANALYSIS = Analysis(shows=(COSTS,), show_all=show_all, section="costs")


def show_tokens(view: View) -> Iterator[Table]:
    """Yield utility and mean prompt tokens of every run and depth, the reference runs last."""
    # those that nobody counted are 0
    count = pl.col("num_prompt_tokens")
    lengths = view.rows(LIST_TOKENS).group_by("run_id", "depth").agg(count.filter(count > 0).mean())
    utility = view.rows(MEANS).filter(annotator=END_TO_END).select("run_id", "depth", "mean", "low", "high")
    order = [*view.runs, *REFERENCE_NAMES]
    lists = lengths.filter(pl.col("run_id").is_in(order)).join(utility, on=["run_id", "depth"], how="left")
    if view.results[LIST_TOKENS]["num_prompt_tokens"].sum():
        yield listing(
            rows_of(in_run_order(lists, order).sort("run_number", "depth")),
            (
                name_field("run", lambda row: REFERENCE_NAMES.get(row["run_id"], row["run_id"])),
                field("documents", "depth", Format.COUNT),
                field("utility", functools.partial(estimate, name="mean")),
                field("prompt tokens", "num_prompt_tokens", Format.TENTHS),
            ),
            caption="Prompt tokens: mean length of what the reader gets end to end, with question and instructions, "
            "by its own tokens (served models: as the server counts; functions: estimated). Of two runs with equal "
            "utility the one with fewer tokens costs less. Utility: mean score of the reader's output.",
            **view.about("tokens", "utility and prompt tokens"),
        )


OF_TOKENS = Analysis(shows=(LIST_TOKENS, MEANS, QUERIES), is_optional=True, show=show_tokens, group=READER)


MILLISECONDS = 1000
HIGH_QUANTILE = 0.95


def show_latency(view: View) -> Iterator[Table]:
    """Yield utility at the largest depth, and median and 95th percentile of the latency, for every run.

    Of retrieval if the lists of any run bring seconds, and of answers if outputs do.
    """
    yield from _latency(
        view,
        view.rows(RETRIEVAL_SECONDS),
        "the lists bring no seconds",
        "Latency of retrieval: milliseconds from the question to its list, as the run brings them; median "
        "and 95th percentile over questions. utility@k: mean score of the reader's output with the first k "
        "documents. Latencies of runs that were made on different machines, or under different load, do not "
        "compare.",
        ("latency", "how long retrieval takes"),
    )
    deepest = pl.col("depth") == pl.col("depth").max().over("run_id")
    yield from _latency(
        view,
        view.rows(GIVEN).filter(pl.col("run_id") != "").filter(deepest).drop_nulls("seconds"),
        "the outputs bring no seconds",
        "Latency of answers: milliseconds that an output took, as its record says, at the largest depth.",
        ("answer_latency", "how long answers take"),
    )


def _latency(
    view: View, seconds: pl.DataFrame, unknown: str, caption: str, name: tuple[str, str]
) -> Iterator[Table]:
    milliseconds = pl.col("seconds") * MILLISECONDS
    latencies = seconds.group_by("run_id").agg(
        median=milliseconds.median(),
        high_quantile=milliseconds.quantile(HIGH_QUANTILE, interpolation="linear"),
        count=pl.len(),
    )
    utility = view.rows(MEANS).filter(annotator=END_TO_END)
    depth = max(utility["depth"], default=0)
    deepest = utility.filter(depth=depth).select("run_id", "mean", "low", "high")
    runs = pl.DataFrame({"run_id": view.runs}, schema={"run_id": pl.String})
    rows = runs.join(deepest, on="run_id", how="left").join(latencies, on="run_id", how="left")
    reason = pl.when(pl.col("count").is_null()).then(pl.lit(unknown))
    if seconds.height:
        yield listing(
            rows_of(in_run_order(rows.with_columns(reason=reason), view.runs)),
            (
                name_field("run", "run_id"),
                field(utility_name(depth), lambda row: estimate({**row, "reason": None}, "mean")),
                field("median (ms)", "median", Format.TENTHS),
                field("p95 (ms)", "high_quantile", Format.TENTHS),
                field("questions", "count", Format.COUNT, "Questions whose latency is known"),
            ),
            caption=caption,
            is_main=view.is_only,
            **view.about(*name),
        )


OF_LATENCY = Analysis(
    shows=(RETRIEVAL_SECONDS, GIVEN, MEANS, QUERIES), is_optional=True, show=show_latency, group=READER
)
