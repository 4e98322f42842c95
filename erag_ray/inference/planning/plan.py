"""Plan a stage: all of its requests, minus the cached responses, and a preview of the cost.

A stage runs the requests of one job: ``annotate`` those with single documents, ``end_to_end`` those with top-k lists,
``compare`` both. All requests of a stage to one model form one `ModelPlan`, for one pool of actors.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from erag_ray.annotators import request_specs
from erag_ray.config.job import JobConfig
from erag_ray.data.runs.entries import pairs
from erag_ray.data.runs.references import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCES
from erag_ray.inference.output_tables import NO_ANSWERS, SINGLE_DOCUMENT
from erag_ray.inference.planning import pending
from erag_ray.inference.planning.given import given_answers, given_lists, given_notes
from erag_ray.inference.planning.uses import score_kinds, use_of
from erag_ray.inputs.evidence import Inputs, evidence_of, judged_queries, reader_evidence, reader_queries
from erag_ray.models import (
    Model,
    Rendered,
    Resources,
    check_facts,
    fingerprint_fields_of,
    render_isolated,
    resources_of,
)
from erag_ray.prompts.kinds.answer import ANSWER, repeated_answer
from erag_ray.prompts.kinds.base import Kind
from erag_ray.prompts.prompt import VERDICTS
from erag_ray.prompts.request import Form, Request
from erag_ray.store.folder import Folder
from erag_ray.store.responses import ResponseStore
from erag_ray.store.schemas import REQUESTS, frame_schema
from erag_ray.store.stages.stage import read_costs
from erag_ray.support.progress import stage_progress

NUM_SAMPLED, HOUR = 200, 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """Requests of a stage to one model, and those without a response."""

    model: Model
    id: str
    resources: Resources
    """Resources of an actor with the model."""
    forms: Sequence[Form]
    requests: pl.DataFrame
    """REQUESTS."""
    new: pl.DataFrame
    """Rows of `pending`: one per request without a response."""
    make_requests: Callable[[pl.DataFrame], pa.Table]
    """Convert rows of ``new`` to PENDING."""
    counts: pl.DataFrame
    repaired: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """A stage before it runs."""

    stage: str
    plans: Sequence[ModelPlan]
    uses: pending.Uses
    queries: pl.DataFrame
    """QUERIES."""
    answered: pl.DataFrame | None = None
    """Lists with complete answers of the reader: columns kind, depth, query_id, doc_ids; see `describe_outputs`."""
    verdicts: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """Dataset -> the closed set of answers of its questions, for datasets that have one."""
    given: pl.DataFrame = dataclasses.field(default_factory=NO_ANSWERS.clone)
    """`output_tables.ANSWERS` that need no request."""

    @property
    def requests(self) -> pl.DataFrame:
        return pl.concat([REQUESTS.empty(), *(plan.requests for plan in self.plans)])

    @property
    def counts(self) -> list[dict[str, Any]]:
        """Numbers of requests (asked, distinct, cached, new) by model, kind of request and kind of list."""
        return [{"model": plan.id, **row} for plan in self.plans for row in plan.counts.iter_rows(named=True)]


def answers_of_lists(config: JobConfig) -> list[Kind]:
    """Return the kinds of request for the answers to a list: the answer, and its repeats."""
    return list(map(repeated_answer, range(config.repeats)))


def end_to_end_lists(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """Return the lists of end-to-end evaluation: columns run_id, query_id, depth, doc_ids.

    They are every run at every depth, and the reference runs: no passages (`NO_PASSAGES`) and the gold passages
    (`GOLD_PASSAGES`, for queries that have any), for the questions that the reader answers.
    """
    queries = reader_queries(config, inputs.queries)
    run_lists = pending.ranked_lists(inputs.runs, queries["query_id"], config.depths)
    no_passages = queries.select("query_id", doc_ids=pl.lit([], dtype=pending.DocIds))
    closed_book = no_passages.with_columns(run_id=pl.lit(NO_PASSAGES), depth=pl.lit(0, pl.Int32))
    gold = (
        inputs.gold.filter(pl.col("rank") <= config.depth)
        .join(queries, on="query_id", how="semi")
        .sort("query_id", "rank")
        .group_by("query_id", maintain_order=True)
        .agg(doc_ids=pl.col("doc_id"))
    )
    gold_lists = gold.with_columns(run_id=pl.lit(GOLD_PASSAGES), depth=pl.lit(config.depth, pl.Int32))
    references = pl.concat([closed_book.select(run_lists.columns), gold_lists.select(run_lists.columns)])
    if not config.asks_reader:
        references = references.join(inputs.given, on=["run_id", "query_id"], how="semi")
    lists = pl.concat([run_lists, references])
    return pl.concat([lists, given_lists(inputs, queries["query_id"], lists)])


def judged_pairs(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """Return the pairs for the judge: those of a sample of the queries, down to its depth."""
    queries = judged_queries(config, inputs.queries)
    runs = inputs.runs.filter(pl.col("rank") <= (config.judge.depth or config.depth))
    return pairs(runs.join(queries, on="query_id", how="semi"))


def plan_stage(
    config: JobConfig,
    inputs: Inputs,
    stage: str,
    *,
    single_document: bool,
    end_to_end: bool,
    more: Mapping[str, pl.DataFrame] | None = None,
) -> StagePlan:
    """Plan a stage: requests of the annotators with ``single_document``, of end-to-end lists with ``end_to_end``.

    ``more`` are further lists to be answered (query_id, doc_ids), by their purpose: the preview counts them so. Raise
    InputError if a model cannot be found or loaded, or does not support a kind of request.
    """
    of_documents = _annotators_lists(config, inputs) if single_document else _NO_LISTS
    of_lists = end_to_end_lists(config, inputs) if end_to_end else _NO_LISTS_OF_RUNS
    given = given_answers(config, inputs, of_documents.filter(kind=ANSWER.name), of_lists)
    if config.outputs:
        of_documents, of_lists = _to_ask(of_documents, of_lists, given)
    names = (pl.lit(kind.name).alias("kind") for kind in answers_of_lists(config))
    parts = [of_documents, *(of_lists.select(name, "query_id", "doc_ids") for name in names)]
    further = [
        part.select(pl.lit(ANSWER.name).alias("kind"), "query_id", "doc_ids", purpose=pl.lit(purpose))
        for purpose, part in (more or {}).items()
    ]
    lists = pl.concat([*parts, *further], how="diagonal")
    annotators = (spec.kind for spec in request_specs(config.annotators))
    plan = plan_lists(config, inputs, stage, lists, [*answers_of_lists(config), *annotators])
    families = {name: config.reader.family or dataset.family for name, dataset in inputs.datasets.items()}
    verdicts = {name: VERDICTS[family] for name, family in families.items() if family in VERDICTS}
    answered = _shown_lists(of_documents, of_lists)
    return dataclasses.replace(plan, answered=answered, verdicts=verdicts, given=given)


def _to_ask(
    of_documents: pl.DataFrame, of_lists: pl.DataFrame, given: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the lists of annotators and of end-to-end evaluation without those whose answers are given."""
    is_answer, list_key = pl.col("kind") == ANSWER.name, ["run_id", "query_id", "depth"]
    of_one = given.filter(pl.col("run_id").is_in(["", NO_PASSAGES])).select("query_id", "doc_ids")
    answers = of_documents.filter(is_answer)
    requested = answers.join(of_one, on=["query_id", "doc_ids"], how="anti", maintain_order="left")
    of_documents = pl.concat([of_documents.filter(~is_answer), requested])
    return of_documents, of_lists.join(given, on=list_key, how="anti", maintain_order="left")


_NO_LISTS = frame_schema("kind query_id doc_ids").to_frame()
_NO_LISTS_OF_RUNS = frame_schema("run_id query_id depth doc_ids").to_frame()


def _annotators_lists(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """Return the lists of the annotators' requests: columns kind, query_id, doc_ids."""
    evidence = evidence_of(inputs, judged=judged_pairs(config, inputs))
    of_reader = reader_evidence(config, evidence)
    parts = [_NO_LISTS]
    no_document = pl.when(pl.col("doc_id").is_null()).then(pl.lit([], dtype=pending.DocIds))
    doc_ids = no_document.otherwise(pl.concat_list("doc_id"))
    for spec in dict.fromkeys(request_specs(config.annotators)):
        if spec.kind.role == "reader":
            # a list of documents may come from any table of the evidence
            queries = of_reader.queries
            lists = spec.lists(of_reader).join(queries, on="query_id", how="semi", maintain_order="left")
        else:
            lists = spec.lists(evidence)
        parts.append(lists.select(pl.lit(spec.kind.name).alias("kind"), "query_id", doc_ids=doc_ids))
    return pl.concat(parts)


def _shown_lists(of_documents: pl.DataFrame, of_lists: pl.DataFrame) -> pl.DataFrame:
    """Return the lists with complete answers: columns kind, depth, query_id, doc_ids."""
    length = pl.col("doc_ids").list.len().cast(pl.Int32)
    of_one = pl.when(length == 0).then(pl.lit(NO_PASSAGES)).otherwise(pl.lit(SINGLE_DOCUMENT))
    is_reference = pl.col("run_id").is_in(REFERENCES)
    of_run = pl.when(is_reference).then("run_id").otherwise(pl.lit(END_TO_END))
    singles = of_documents.filter(kind=ANSWER.name).with_columns(kind=of_one, depth=length)
    parts = [singles, of_lists.with_columns(kind=of_run)]
    return pl.concat(part.select("kind", "depth", "query_id", "doc_ids") for part in parts)


def plan_lists(
    config: JobConfig, inputs: Inputs, stage: str, lists: pl.DataFrame, kinds: Iterable[Kind] = (ANSWER,)
) -> StagePlan:
    """Plan a stage with one request for each list: which models get which requests, and which responses are cached.

    Runs no request. The stage is also the name of its folder in ``out``. Lists have the columns kind (name of one of
    the ``kinds`` of request), query_id, and doc_ids (list of strings, in the order of the prompt; empty for no
    document). Rows of queries that are not in ``inputs`` are left out. Lists that have a purpose in every row, if there
    is this column, are counted under it. Raises as `plan_stage`.
    """
    for dataset in inputs.datasets.values():
        for kind in score_kinds(dataset):
            # report problems of the judge before inference
            use_of(kind, config, dataset)
    by_name = {kind.name: kind for kind in kinds}
    lists_with_dataset = lists.join(inputs.queries.select("query_id", "dataset"), on="query_id")
    named = lists_with_dataset.select("kind", "dataset").unique().sort("kind", "dataset").rows()
    uses_and_models = {pair: use_of(by_name[pair[0]], config, inputs.datasets[pair[1]]) for pair in named}
    uses = {pair: use for pair, (use, _) in uses_and_models.items()}
    # if judge and reader are the same model, the reader's config sets the batch size
    by_role = sorted(uses_and_models.values(), key=lambda pair: pair[0].kind.role)
    models = {use.model: model for use, model in by_role}
    with stage_progress("planning requests", show=config.progress) as progress:
        documents = pending.documents_of(inputs.corpus)
        plans = [
            _plan(
                config,
                model,
                lists_with_dataset,
                inputs,
                documents,
                {k: u for k, u in uses.items() if u.model == name},
            )
            for name, model in progress.each(models.items(), "models")
        ]
    return StagePlan(stage=stage, plans=plans, uses=uses, queries=inputs.queries)


def _plan(
    config: JobConfig,
    model: Model,
    lists: pl.DataFrame,
    inputs: Inputs,
    documents: pending.Documents,
    uses: pending.Uses,
) -> ModelPlan:
    name = next(iter(uses.values())).model
    store = ResponseStore(config.cache_dir, name)
    forms = list(dict.fromkeys(use.form for use in uses.values()))
    store.describe(lambda: {k: v for k, v in fingerprint_fields_of(model).items() if k != "probes"})
    check_facts(model, store)
    repaired = store.repair()
    kinds_and_datasets = pl.DataFrame(list(uses), schema=["kind", "dataset"], orient="row")
    selected = lists.join(kinds_and_datasets, on=["kind", "dataset"], how="semi")
    requests = pending.build_requests(selected, inputs.queries, documents, uses)
    cached = store.keys(without_errors=config.retry_failed)
    return ModelPlan(
        model=model,
        id=name,
        resources=resources_of(model),
        forms=forms,
        requests=requests,
        new=pending.pending(requests, cached, inputs.queries, documents, uses),
        make_requests=functools.partial(
            pending.with_texts, queries=inputs.queries, documents=documents, uses=uses, forms=forms
        ),
        counts=pending.count_requests(requests, cached, _purposes(selected)),
        repaired=repaired,
    )


def _purposes(lists: pl.DataFrame) -> pl.DataFrame | None:
    """Return the purpose of each list that has one in every row: columns kind, query_id, doc_ids, purpose."""
    if "purpose" not in lists.columns:
        return None
    purpose = pl.col("purpose")
    by_list = lists.group_by("kind", "query_id", "doc_ids").agg(
        purpose=pl.when(purpose.is_not_null().all()).then(purpose.min())
    )
    return by_list.drop_nulls("purpose")


def preview(plan: StagePlan, *, show: bool = False) -> Iterator[str]:
    """Yield the cost preview of a stage, as lines: requests pending and cached, tokens, truncation."""
    yield from given_notes(plan.given)
    for model_plan in plan.plans:
        yield from model_plan.model.notes()
        yield from model_plan.repaired
        reader = model_plan.model.config
        temperature = reader.temperature or reader.extra_body.get("temperature")
        is_greedy = reader.kind != "function" and not temperature
        if is_greedy and any(form.repeat for form in model_plan.forms):
            yield f"{model_plan.id}: repeated answers of a greedy reader (temperature 0) differ by rounding alone"
        for row in model_plan.counts.iter_rows(named=True):
            yield (
                f"{model_plan.id}: {row['kind']}, {row['lists']}: {row['asked']:,} in total, "
                f"{row['distinct']:,} unique (union), {row['cached']:,} cached, {row['new']:,} new"
            )
        if model_plan.new.height:
            with stage_progress("counting prompt tokens", show=show):
                requests = sampled_requests(model_plan)
                prompts = render_isolated(model_plan.model, requests)
            yield f"{model_plan.id}: {_estimate(model_plan, prompts)}"
            if reader.price_per_million and prompts:
                yield f"{model_plan.id}: {_price(model_plan, requests, prompts)}"


def _estimate(plan: ModelPlan, prompts: Sequence[Rendered]) -> str:
    """Estimate tokens and truncation from evenly spaced pending requests."""
    num_sampled = min(NUM_SAMPLED, plan.new.height)
    to_run, num_unrendered = f"{plan.new.height:,} requests to run", num_sampled - len(prompts)
    if not prompts:
        return f"{to_run}; of {num_sampled} sampled requests none can be rendered"
    tokens = prompt_tokens(prompts)
    if tokens is None:
        return f"{to_run}; the model does not count its tokens"
    unrendered = f"; {num_unrendered} more cannot be rendered" if num_unrendered else ""
    cut = sum(prompt.num_truncated_passage_tokens > 0 for prompt in prompts) / len(prompts)
    cut_question = sum(prompt.num_truncated_question_tokens > 0 for prompt in prompts) / len(prompts)
    return (
        f"{to_run}, about {tokens * plan.new.height:,.0f} prompt tokens "
        f"({tokens:.0f} a request), passages cut in {cut:.1%}, question cut in {cut_question:.1%} "
        f"(by {len(prompts)} sampled requests{unrendered})"
    )


def sampled_requests(plan: ModelPlan) -> list[Request]:
    """Return evenly spaced pending requests."""
    return pending.PendingRequests(plan.make_requests(spread(plan.new, NUM_SAMPLED)), plan.forms)[:]


def prompt_tokens(prompts: Sequence[Rendered]) -> float | None:
    """Return the mean length of prompts in tokens; None if the model counts none."""
    counts = [prompt.num_tokens for prompt in prompts if prompt.num_tokens is not None]
    return sum(counts) / len(counts) if counts else None


def _price(plan: ModelPlan, requests: Sequence[Request], prompts: Sequence[Rendered]) -> str:
    """Estimate the most that the pending requests can cost: whole outputs, and no prompt from a server's cache."""
    count = plan.new.height
    num_in = count * (prompt_tokens(prompts) or 0)
    num_out = count * sum(request.form.max_new_tokens for request in requests) / len(requests)
    price = plan.model.config.price_of(round(num_in), 0, round(num_out))
    return (
        f"about {count:,} requests, {num_in:,.0f} tokens in, at most {num_out:,.0f} out, price at most {price:.4f} "
        "(prompts that the server has cached cost less)"
    )


def spread(new: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return at most ``count`` evenly spaced rows of the pending requests."""
    count = min(count, new.height)
    return new[np.arange(count) * new.height // max(count, 1)]


def estimate_cost(config: JobConfig, plan: StagePlan, out: str) -> Iterator[str]:
    """Yield lines for a dry run: reader-hours, price and memory of the requests without a response, by model.

    A reader's time grows with the tokens that it reads, so the seconds of earlier requests are taken by token,
    where the model counts them. ``config`` is from `dry_run_config`, and its folder is deleted at the end; ``out`` is
    the job's own folder.
    """
    costs = read_costs(out)
    for model_plan in plan.plans:
        if model_plan.new.height:
            yield f"{model_plan.id}: {_spent_by(config, model_plan, costs)}"
    Folder(config.out).delete_folder()
    yield "a dry run: no requests were run, and no results were written"


def _spent_by(config: JobConfig, plan: ModelPlan, costs: pl.DataFrame) -> str:
    rows = costs.filter(pl.col("num_reader_calls") > 0, model=plan.id)
    if rows.is_empty():
        first = "run the job on a sample first (num_queries: 20; its responses are kept), then this again"
        return f"how long this takes is not known: {first}"
    names = ("num_reader_calls", "num_prompt_tokens", "device_seconds")
    calls, tokens, seconds = (float(rows[name].to_numpy().sum()) for name in names)
    count, prompts = plan.new.height, render_isolated(plan.model, sampled_requests(plan))
    per_request = prompt_tokens(prompts)
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
