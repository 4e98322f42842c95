"""Inputs -> everything a stage asks of models, minus what was answered before; and what the rest will cost.

A stage is one stretch of requests of one job: ``annotate`` asks about documents alone, ``end_to_end`` about top-k
lists, ``compare`` about both. Whatever its annotators and lists ask of one model is one plan, for one pool.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from erag_ray.annotators import asks_of
from erag_ray.config import JobConfig
from erag_ray.datasets import sample
from erag_ray.inputs import Inputs, evidence_of
from erag_ray.kinds import ANSWER, EARLY_STOPPED, VERDICT, Kind
from erag_ray.models import (
    Model,
    Rendered,
    Resources,
    check_facts,
    fingerprint_fields_of,
    render_isolated,
    resources_of,
)
from erag_ray.output_tables import SINGLE_DOCUMENT
from erag_ray.planning.pending import (
    DocIds,
    Documents,
    PendingRequests,
    Uses,
    build_requests,
    count_work,
    documents_of,
    forms_of,
    pending,
    ranked_lists,
    with_texts,
)
from erag_ray.planning.uses import label_kind, score_kinds, use_of
from erag_ray.progress import stage_progress
from erag_ray.requests import VERDICTS, Form
from erag_ray.runs import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCES, pairs
from erag_ray.schemas import REQUESTS
from erag_ray.store import ResponseStore, as_frame, old_store_notes

NUM_SAMPLED = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """One model with what it is asked, and what of that lacks a response."""

    model: Model
    id: str
    resources: Resources
    """That an actor with the model needs."""
    forms: Sequence[Form]
    requests: pl.DataFrame
    """REQUESTS."""
    new: pl.DataFrame
    """`pending`: a row for each request still to run."""
    make_requests: Callable[[pl.DataFrame], pa.Table]
    """Rows of ``new`` -> PENDING."""
    counts: pl.DataFrame
    repaired: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answered:
    """Questions and lists that a reader answers as a user would read it."""

    queries: pl.DataFrame
    """QUERIES."""
    verdicts: Mapping[str, Sequence[str]]
    """Dataset -> all answers that its questions can have, where they are but a few."""
    lists: pl.DataFrame
    """Columns kind, depth, query_id, doc_ids: see `evaluate.describe_outputs`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """A stage before it runs."""

    stage: str
    plans: Sequence[ModelPlan]
    uses: Uses
    queries: pl.DataFrame
    """QUERIES."""
    answered: Answered | None = None
    """What its outputs answer, where they are whole answers of the reader."""
    notes: Sequence[str] = ()
    """For people, before anything is asked."""
    unasked: pl.DataFrame | None = None
    """REQUESTS for the answers in place of which verdicts are asked: the store may know some."""

    @property
    def requests(self) -> pl.DataFrame:
        """REQUESTS of all models."""
        return pl.concat([as_frame(REQUESTS.empty()), *(plan.requests for plan in self.plans)])

    @property
    def kinds(self) -> list[Kind]:
        """Everything that is asked."""
        return list(dict.fromkeys(use.kind for use in self.uses.values()))

    @property
    def counts(self) -> list[dict[str, Any]]:
        """Asked, distinct, cached and new, for each model, kind of question and kind of list."""
        return [{"model": plan.id, **row} for plan in self.plans for row in plan.counts.iter_rows(named=True)]


def end_to_end_lists(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """What the reader gets end to end: columns run_id, query_id, depth, doc_ids.

    Every run at every depth; beside them the reader's own knowledge (`NO_PASSAGES`) and the gold passages
    (`GOLD_PASSAGES`, for queries that have any).
    """
    query_ids = inputs.queries["query_id"]
    own = ranked_lists(inputs.runs, query_ids, config.depths)
    none = inputs.queries.select("query_id", doc_ids=pl.lit([], dtype=DocIds))
    closed_book = none.with_columns(run_id=pl.lit(NO_PASSAGES), depth=pl.lit(0, pl.Int32))
    gold = (
        inputs.gold.filter(pl.col("rank") <= config.depth)
        .sort("query_id", "rank")
        .group_by("query_id", maintain_order=True)
        .agg(doc_ids=pl.col("doc_id"))
    )
    best = gold.with_columns(run_id=pl.lit(GOLD_PASSAGES), depth=pl.lit(config.depth, pl.Int32))
    return pl.concat([own, closed_book.select(own.columns), best.select(own.columns)])


def judged_pairs(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """The pairs that the judge is asked about: of a sample of the queries, down to its depth."""
    chosen = [
        sample(part, config.judge.num_queries, config.seed)
        for part in inputs.queries.partition_by("dataset", maintain_order=True)
    ]
    runs = inputs.runs.filter(pl.col("rank") <= (config.judge.depth or config.depth))
    return pairs(runs.join(pl.concat(chosen), on="query_id", how="semi"))


def plan_stage(
    config: JobConfig, inputs: Inputs, stage: str, *, single_document: bool, end_to_end: bool
) -> StagePlan:
    """What a stage asks.

    Args:
        config: the job.
        inputs: its inputs.
        stage: the stage's name.
        single_document: ask what the annotators need: most of it is about single documents.
        end_to_end: ask for answers from the end-to-end lists.

    Raises:
        InputError: a model cannot be found or read, or cannot answer what is asked of it.
    """
    parts = [_by_label_kind(config, inputs, _annotators_lists(config, inputs))] if single_document else []
    of_lists = end_to_end_lists(config, inputs) if end_to_end else None
    if of_lists is not None:
        parts.append(of_lists.select(pl.lit(ANSWER.name).alias("kind"), "query_id", "doc_ids"))
    lists = pl.concat([_NO_LISTS, *parts])
    kinds = [ANSWER, EARLY_STOPPED, VERDICT, *(ask.kind for ask in asks_of(config.annotators))]
    plan = plan_lists(config, inputs, stage, lists, kinds)
    families = {name: dataset.family for name, dataset in inputs.datasets.items()}
    verdicts = {name: VERDICTS[family] for name, family in families.items() if family in VERDICTS}
    answered = Answered(
        queries=inputs.queries,
        verdicts=verdicts,
        lists=_shown_lists(parts[:1] if single_document else [], of_lists),
    )
    return dataclasses.replace(plan, answered=answered)


_NO_LISTS = pl.DataFrame(schema={"kind": pl.String, "query_id": pl.String, "doc_ids": DocIds})


def _annotators_lists(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """Columns kind, query_id, doc_ids: what the annotators need to know."""
    evidence = evidence_of(inputs, judged=judged_pairs(config, inputs))
    asks = dict.fromkeys(asks_of(config.annotators))
    parts = [
        ask.lists(evidence).select(
            pl.lit(ask.kind.name).alias("kind"), "query_id", doc_ids=_list_of("doc_id")
        )
        for ask in asks
    ]
    return pl.concat([_NO_LISTS, *parts])


def _list_of(column: str) -> pl.Expr:
    """A list of one; an empty one where there is none."""
    one = pl.concat_list(column)
    return pl.when(pl.col(column).is_null()).then(pl.lit([], dtype=DocIds)).otherwise(one)


def _by_label_kind(config: JobConfig, inputs: Inputs, lists: pl.DataFrame) -> pl.DataFrame:
    """Lists with the kind that gives eRAG's labels in place of the answer, dataset by dataset."""
    names = {name: label_kind(config, dataset).name for name, dataset in inputs.datasets.items()}
    datasets = inputs.queries.select("query_id", label_kind=pl.col("dataset").replace(names))
    joined = lists.join(datasets, on="query_id", how="left", maintain_order="left")
    kind = pl.when(pl.col("kind") == ANSWER.name).then("label_kind").otherwise("kind")
    return joined.select(kind.alias("kind"), "query_id", "doc_ids")


def _shown_lists(of_documents: Sequence[pl.DataFrame], of_lists: pl.DataFrame | None) -> pl.DataFrame:
    """Columns kind, depth, query_id, doc_ids: what the reader answers in whole."""
    length = pl.col("doc_ids").list.len().cast(pl.Int32)
    of_one = pl.when(length == 0).then(pl.lit(NO_PASSAGES)).otherwise(pl.lit(SINGLE_DOCUMENT))
    parts = [part.filter(kind=ANSWER.name).with_columns(kind=of_one, depth=length) for part in of_documents]
    if of_lists is not None:
        is_reference = pl.col("run_id").is_in(REFERENCES)
        kind = pl.when(is_reference).then("run_id").otherwise(pl.lit(END_TO_END))
        parts.append(of_lists.with_columns(kind=kind))
    return pl.concat(part.select("kind", "depth", "query_id", "doc_ids") for part in parts)


def plan_labels(config: JobConfig, inputs: Inputs, stage: str, asked: pl.DataFrame) -> StagePlan:
    """What a stage asks that wants eRAG's labels of these pairs: columns query_id, doc_id.

    Raises:
        InputError: as `plan_stage`.
    """
    answers = asked.select(pl.lit(ANSWER.name).alias("kind"), "query_id", doc_ids=_list_of("doc_id"))
    lists = _by_label_kind(config, inputs, answers)
    return plan_lists(config, inputs, stage, lists, [ANSWER, EARLY_STOPPED, VERDICT])


def plan_lists(
    config: JobConfig, inputs: Inputs, stage: str, lists: pl.DataFrame, kinds: Iterable[Kind] = (ANSWER,)
) -> StagePlan:
    """What a stage asks: columns kind, query_id, doc_ids.

    Args:
        config: the job.
        inputs: its inputs.
        stage: the stage's name.
        lists: what is asked.
        kinds: those that the lists name, among others.

    Raises:
        InputError: as `plan_stage`.
    """
    for dataset in inputs.datasets.values():
        for kind in score_kinds(dataset):
            # what comes later is refused before anything is asked
            use_of(kind, config, dataset)
    by_name = {kind.name: kind for kind in kinds}
    asked = lists.join(inputs.queries.select("query_id", "dataset"), on="query_id")
    named = asked.select("kind", "dataset").unique().sort("kind", "dataset").rows()
    found = {pair: use_of(by_name[pair[0]], config, inputs.datasets[pair[1]]) for pair in named}
    uses = {pair: use for pair, (use, _) in found.items()}
    # where the judge is the reader's own model, the reader's config says how large its batches are
    by_role = sorted(found.values(), key=lambda pair: pair[0].kind.role)
    models = {use.model: model for use, model in by_role}
    with stage_progress("planning requests", show=config.progress) as at:
        documents = documents_of(inputs.corpus)
        plans = [
            _plan(config, model, asked, inputs, documents, {k: u for k, u in uses.items() if u.model == name})
            for name, model in at.each(models.items(), "models")
        ]
        unasked = _unasked(config, inputs, asked, documents)
    notes = list(old_store_notes(config.cache_dir))
    return StagePlan(
        stage=stage, plans=plans, uses=uses, queries=inputs.queries, notes=notes, unasked=unasked
    )


def _unasked(
    config: JobConfig, inputs: Inputs, lists: pl.DataFrame, documents: Documents
) -> pl.DataFrame | None:
    verdicts = lists.filter(kind=VERDICT.name).with_columns(kind=pl.lit(ANSWER.name))
    if verdicts.is_empty():
        return None
    names = verdicts["dataset"].unique().sort()
    uses = {(ANSWER.name, name): use_of(ANSWER, config, inputs.datasets[name])[0] for name in names}
    return build_requests(verdicts, inputs.queries, documents, uses)


def _plan(
    config: JobConfig, model: Model, lists: pl.DataFrame, inputs: Inputs, documents: Documents, uses: Uses
) -> ModelPlan:
    name = next(iter(uses.values())).model
    store, forms = ResponseStore(config.cache_dir, name), forms_of(uses, name)
    if not store.is_described():
        store.describe({key: value for key, value in fingerprint_fields_of(model).items() if key != "probes"})
    check_facts(model, store)
    repaired = store.repair()
    own = pl.DataFrame(list(uses), schema=["kind", "dataset"], orient="row")
    wanted = lists.join(own, on=["kind", "dataset"], how="semi")
    requests = build_requests(wanted, inputs.queries, documents, uses)
    known = store.keys(without_errors=config.retry_failed)
    return ModelPlan(
        model=model,
        id=name,
        resources=resources_of(model),
        forms=forms,
        requests=requests,
        new=pending(requests, known, inputs.queries, documents, uses),
        make_requests=functools.partial(
            with_texts, queries=inputs.queries, documents=documents, uses=uses, forms=forms
        ),
        counts=count_work(requests, known),
        repaired=repaired,
    )


def preview(plan: StagePlan, *, show: bool = False) -> Iterator[str]:
    """What the stage will cost, line by line: requests pending and cached, tokens, truncation.

    Args:
        plan: of the stage.
        show: name the counting of tokens where it takes long.
    """
    yield from plan.notes
    for part in plan.plans:
        yield from part.model.notes()
        yield from part.repaired
        for row in part.counts.iter_rows(named=True):
            yield (
                f"{part.id}: {row['kind']}, {row['lists']}: {row['asked']:,} asked, {row['distinct']:,} distinct "
                f"(union), {row['cached']:,} cached, {row['new']:,} new"
            )
        if part.new.height:
            with stage_progress("counting prompt tokens", show=show):
                estimate = _estimate(part)
            yield f"{part.id}: {estimate}"
            if part.model.config.price_per_million:
                yield f"{part.id}: {_price(part)}"


def _estimate(plan: ModelPlan) -> str:
    """Tokens and truncation of a sample of the new requests, spread over all of them."""
    sampled = PendingRequests(plan.make_requests(spread(plan.new, NUM_SAMPLED)), plan.forms)
    prompts = render_isolated(plan.model, sampled[:])
    todo, num_lost = f"{plan.new.height:,} requests to run", len(sampled) - len(prompts)
    if not prompts:
        return f"{todo}; of {len(sampled)} sampled requests none can be rendered"
    counts = [prompt.num_tokens for prompt in prompts if prompt.num_tokens is not None]
    if not counts:
        return f"{todo}; the model does not count its tokens"
    tokens = sum(counts) / len(counts)
    lost = f"; {num_lost} more cannot be rendered" if num_lost else ""
    cut = sum(prompt.num_truncated_passage_tokens > 0 for prompt in prompts) / len(prompts)
    cut_question = sum(prompt.num_truncated_question_tokens > 0 for prompt in prompts) / len(prompts)
    return (
        f"{todo}, about {tokens * plan.new.height:,.0f} prompt tokens "
        f"({tokens:.0f} a request), passages cut in {cut:.1%}, question cut in {cut_question:.1%} "
        f"(by {len(prompts)} sampled requests{lost})"
    )


def _price(plan: ModelPlan) -> str:
    """What the new requests will cost, by samples of them, each with the one after it."""
    count = plan.new.height
    places = np.arange(min(NUM_SAMPLED, count)) * count // min(NUM_SAMPLED, count)
    samples = [
        PendingRequests(plan.make_requests(plan.new[np.minimum(places + step, count - 1)]), plan.forms)[:]
        for step in (0, 1)
    ]
    firsts, seconds = (plan.model.render(requests) for requests in samples)
    scale = count / len(places)
    num_in = scale * sum(one.num_tokens or 0 for one in firsts)
    num_cached = scale * sum(map(num_shared, firsts, seconds)) if count > 1 else 0.0
    num_out = scale * sum(request.form.max_new_tokens for request in samples[0])
    price = plan.model.config.price_of(round(num_in), round(num_cached), round(num_out))
    return (
        f"about {count:,} requests, {num_in:,.0f} tokens in ({num_cached:,.0f} of them likely cached: the start that "
        f"prompts of one question share), at most {num_out:,.0f} out, price {price:.4f}"
    )


def num_shared(first: Rendered, second: Rendered) -> float:
    """Tokens at the start of a prompt that the one before it has too, by its characters."""
    texts = [
        "".join([one.text, *(message["content"] for message in one.messages)]) for one in (first, second)
    ]
    pairs_of_letters = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
    length = sum(1 for _ in pairs_of_letters)
    return (second.num_tokens or 0) * length / max(len(texts[1]), 1)


def spread(new: pl.DataFrame, count: int) -> pl.DataFrame:
    """So many of the pending requests, evenly over all of them; all, where they are no more."""
    count = min(count, new.height)
    return new[np.arange(count) * new.height // max(count, 1)]
