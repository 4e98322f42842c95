"""Inputs -> everything a stage asks, minus what was read before; and what the rest will cost.

A stage is one stretch of reading of one job: ``annotate`` asks for lists of one, ``end_to_end`` for top-k lists,
``compare`` for both in one pool.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from erag_ray.annotators import needs_of, unrelated_pairs
from erag_ray.config import JobConfig, ReaderConfig
from erag_ray.datasets import Dataset, sample
from erag_ray.evaluate import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCES, SINGLE_DOCUMENT
from erag_ray.progress import StageProgress, stage_progress
from erag_ray.prompts import VERDICTS
from erag_ray.readers import (
    Reader,
    check_kind,
    encodable,
    identity_of,
    likelihood_of,
    make_reader,
    reader_for,
    reader_id,
    requests_of,
    score_only_of,
)
from erag_ray.requests import (
    DocIds,
    Documents,
    ReaderUse,
    as_lists_of_one,
    build_asks,
    build_requests,
    count_work,
    documents_of,
    pairs,
    ranked_lists,
    to_read,
)
from erag_ray.schemas import InputError
from erag_ray.steps.inputs import Inputs
from erag_ray.steps.judging import evidence_of
from erag_ray.store import ReadingStore

NUM_SAMPLED = 200
Ask = Callable[[Dataset], tuple[Reader, str] | None]
"""A dataset -> the reader that is asked, and its id; None where none is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderPlan:
    """One reader with what it is asked and what of that it still has to read."""

    reader: Reader
    id: str
    asks: pl.DataFrame
    new: pl.DataFrame
    """`to_read`: a row for each reading still to do."""
    make_requests: Callable[[pl.DataFrame], pa.Table]
    """Rows of ``new`` -> REQUESTS."""
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
    plans: Sequence[ReaderPlan]
    instead: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Readers that are asked for a score alone -> the reader whose score it is."""
    answered: Answered | None = None
    """What its outputs answer, where they are whole answers of the reader."""

    @property
    def asks(self) -> pl.DataFrame:
        """ASKS of all readers."""
        return pl.concat(plan.asks for plan in self.plans)

    @property
    def counts(self) -> list[dict[str, Any]]:
        """Asked, distinct, cached and new, for each reader and kind of list."""
        return [
            {"reader": plan.id, **row} for plan in self.plans for row in plan.counts.iter_rows(named=True)
        ]


@functools.lru_cache(maxsize=16)
def _reader(config: ReaderConfig) -> tuple[Reader, str]:
    """A reader without its weights, and its id.

    Kept, since a tokenizer can take seconds to load and is needed by the check and by the plan.
    """
    reader = make_reader(config)
    identity = identity_of(reader)
    return reader, reader_id(reader, identity)


def check_reader(config: JobConfig, datasets: Mapping[str, Dataset]) -> list[str]:
    """What is wrong with the reader, for every dataset it is to read; its weights are not loaded."""
    needs, all_datasets = needs_of(config.annotators), datasets.values() or (Dataset(),)
    problems = [
        problem
        for dataset in all_datasets
        for problem in _problems_with(functools.partial(_own_reader, config, dataset))
    ]
    if config.score_only and not problems:
        for dataset in all_datasets:
            problems += _problems_with(functools.partial(_score_reader, config, dataset))
    if "likelihoods" in needs and not problems:
        problems += _problems_with(functools.partial(likelihood_of, config.reader))
    if "judgements" in needs:
        judge = _problems_with(functools.partial(_reader, config.judge.reader()))
        problems += [problem.replace("reader.", "judge.") for problem in judge]
    return list(dict.fromkeys(problems))


def _own_reader(config: JobConfig, dataset: Dataset) -> tuple[Reader, str]:
    """The reader that the config names, for a dataset, and its id.

    Raises:
        InputError: it cannot be found or read, or is of a kind that only jobs make.
    """
    check_kind(config.reader.kind)
    return _reader(reader_for(config.reader, dataset))


def _score_reader(config: JobConfig, dataset: Dataset) -> tuple[Reader, str] | None:
    """The reader that is asked for the score of documents alone, and its id; None where the reader itself is."""
    how = config.score_only
    own = score_only_of(config.reader, dataset, how) if how else None
    return _reader(own) if own else None


def _problems_with(make: Callable[[], object]) -> Sequence[str]:
    try:
        make()
    except InputError as error:
        return error.problems
    return ()


def end_to_end_lists(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """What the reader gets end to end: columns run_id, query_id, depth, doc_ids.

    Every run at every depth; beside them the reader's own knowledge (`NO_PASSAGES`) and the gold passages
    (`GOLD_PASSAGES`, for queries that have any).
    """
    query_ids = inputs.queries["query_id"]
    own = ranked_lists(inputs.runs, query_ids, config.depths)
    alone = _closed_book(inputs).with_columns(run_id=pl.lit(NO_PASSAGES), depth=pl.lit(0, pl.Int32))
    gold = (
        inputs.gold.filter(pl.col("rank") <= config.depth)
        .sort("query_id", "rank")
        .group_by("query_id", maintain_order=True)
        .agg(doc_ids=pl.col("doc_id"))
    )
    best = gold.with_columns(run_id=pl.lit(GOLD_PASSAGES), depth=pl.lit(config.depth, pl.Int32))
    return pl.concat([own, alone.select(own.columns), best.select(own.columns)])


def _closed_book(inputs: Inputs) -> pl.DataFrame:
    """The list without documents of every query: columns query_id, doc_ids."""
    return inputs.queries.select("query_id", doc_ids=pl.lit([], dtype=DocIds))


def plan_stage(config: JobConfig, inputs: Inputs, stage: str, *, alone: bool, together: bool) -> StagePlan:
    """What a stage will read.

    Args:
        config: the job.
        inputs: its inputs.
        stage: the stage's name.
        alone: ask for every document alone (eRAG).
        together: ask for the end-to-end lists.

    Raises:
        InputError: a reader's model cannot be found or read.
    """
    lists = _lists(config, inputs, alone=alone, together=together)
    plan = plan_lists(config, inputs, stage, lists.select("query_id", "doc_ids"))
    families = {name: dataset.family for name, dataset in inputs.datasets.items()}
    verdicts = {name: VERDICTS[family] for name, family in families.items() if family in VERDICTS}
    answered = Answered(queries=inputs.queries, verdicts=verdicts, lists=lists)
    return dataclasses.replace(plan, answered=answered)


def plan_lists(config: JobConfig, inputs: Inputs, stage: str, lists: pl.DataFrame) -> StagePlan:
    """What a stage will read that asks for these lists: columns query_id, doc_ids.

    Raises:
        InputError: as `plan_stage`.
    """
    plans = _plans(config, functools.partial(_own_reader, config), lists, inputs)
    return StagePlan(stage=stage, plans=plans)


def plan_labels(config: JobConfig, inputs: Inputs, stage: str, lists: pl.DataFrame) -> StagePlan:
    """What a stage will read that asks for these documents alone (columns query_id, doc_ids), for eRAG's labels.

    By the reader for the score alone, if the job asks for that.

    Raises:
        InputError: as `plan_stage`.
    """

    def ask(dataset: Dataset) -> tuple[Reader, str]:
        return _score_reader(config, dataset) or _own_reader(config, dataset)

    return StagePlan(stage=stage, plans=_plans(config, ask, lists, inputs))


def _asking(config: ReaderConfig) -> Ask:
    return lambda dataset: _reader(reader_for(config, dataset))


def _plans(config: JobConfig, ask: Ask, lists: pl.DataFrame, inputs: Inputs) -> list[ReaderPlan]:
    """A plan for each reader that the datasets make of one config; some may have none."""
    with stage_progress("planning what to read", show=config.progress) as at:
        return list(_plan_each(config, ask, lists, inputs, at))


def _plan_each(
    config: JobConfig, ask: Ask, lists: pl.DataFrame, inputs: Inputs, at: StageProgress
) -> Iterator[ReaderPlan]:
    # what a dataset asks for may make no difference to a reader: then it is one reader, read in one go
    by_id: dict[str, tuple[Reader, list[str]]] = {}
    for dataset in inputs.queries["dataset"].unique().sort():
        asked = ask(inputs.datasets[dataset])
        if asked:
            by_id.setdefault(asked[1], (asked[0], []))[1].append(dataset)
    shows_titles = all(reader.config.titles for reader, _ in by_id.values())
    corpus = inputs.corpus if shows_titles else inputs.corpus.with_columns(title=pl.lit(""))
    documents = documents_of(corpus)
    for name, (reader, datasets) in at.each(by_id.items(), "readers"):
        own = inputs.queries.filter(pl.col("dataset").is_in(datasets))
        wanted = lists.join(own, on="query_id", how="semi")
        yield _plan(config, reader, name, own, wanted, inputs, documents)


def plan_others(config: JobConfig, inputs: Inputs) -> list[StagePlan]:
    """What annotators want to know besides what the reader writes: of a judge, how likely golds are, the score alone.

    Raises:
        InputError: a model cannot be found or read, or the reader cannot say how likely an answer is.
    """
    needs = needs_of(config.annotators)
    plans = [_plan_judge(config, inputs)] if "judgements" in needs else []
    if "likelihoods" in needs:
        asked = _alone(config, inputs)
        if "unrelated" in needs:
            asked = pl.concat([asked, as_lists_of_one(unrelated_pairs(evidence_of(inputs)))])
        ask = _asking(likelihood_of(config.reader))
        plans.append(StagePlan(stage="likelihood", plans=_plans(config, ask, asked, inputs)))
    scored = _plan_score_only(config, inputs)
    return [*plans, scored] if scored.plans else plans


def _plan_score_only(config: JobConfig, inputs: Inputs) -> StagePlan:
    plans = _plans(config, functools.partial(_score_reader, config), _alone(config, inputs), inputs)
    found = ((_score_reader(config, dataset), dataset) for dataset in inputs.datasets.values())
    instead = {asked[1]: _own_reader(config, dataset)[1] for asked, dataset in found if asked}
    return StagePlan(stage="score_only", plans=plans, instead=instead)


def _plan_judge(config: JobConfig, inputs: Inputs) -> StagePlan:
    chosen = [
        sample(part, config.judge.num_queries, config.seed)
        for part in inputs.queries.partition_by("dataset", maintain_order=True)
    ]
    runs = inputs.runs.filter(pl.col("rank") <= (config.judge.depth or config.depth))
    asked = as_lists_of_one(pairs(runs.join(pl.concat(chosen), on="query_id", how="semi")))
    return StagePlan(stage="judge", plans=_plans(config, _asking(config.judge.reader()), asked, inputs))


def _lists(config: JobConfig, inputs: Inputs, *, alone: bool, together: bool) -> pl.DataFrame:
    """Columns kind, depth, query_id, doc_ids."""
    length = pl.col("doc_ids").list.len().cast(pl.Int32)
    of_one = pl.when(length == 0).then(pl.lit(NO_PASSAGES)).otherwise(pl.lit(SINGLE_DOCUMENT))
    parts = [_alone_in_whole(config, inputs).with_columns(kind=of_one, depth=length)] if alone else []
    is_reference = pl.col("run_id").is_in(REFERENCES)
    kind = pl.when(is_reference).then("run_id").otherwise(pl.lit(END_TO_END))
    parts += [end_to_end_lists(config, inputs).with_columns(kind=kind)] if together else []
    return pl.concat(part.select("kind", "depth", "query_id", "doc_ids") for part in parts)


def _alone(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """Every document alone, and no document where that is asked too: columns query_id, doc_ids."""
    parts = [as_lists_of_one(pairs(inputs.runs))]
    parts += [_closed_book(inputs)] if "closed_book" in needs_of(config.annotators) else []
    return pl.concat(parts)


def _alone_in_whole(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """Of `_alone` what is not read for its score alone."""
    scored = [name for name, dataset in inputs.datasets.items() if _score_reader(config, dataset)]
    own = inputs.queries.filter(pl.col("dataset").is_in(scored).not_())
    return _alone(config, inputs).join(own, on="query_id", how="semi")


def _plan(
    config: JobConfig,
    reader: Reader,
    name: str,
    queries: pl.DataFrame,
    lists: pl.DataFrame,
    inputs: Inputs,
    documents: Documents,
) -> ReaderPlan:
    store = ReadingStore(config.store, name)
    if not store.is_described():
        store.describe({key: value for key, value in identity_of(reader).items() if key != "probes"})
    repaired = store.repair()
    use = {
        dataset: ReaderUse(reader=name, order_matters=reader.order_matters, sees_golds=reader.sees_golds)
        for dataset in queries["dataset"].unique()
    }
    asks = build_asks(lists, queries, documents, use)
    known = store.keys(without_errors=config.retry_errors)
    return ReaderPlan(
        reader=reader,
        id=name,
        asks=asks,
        new=to_read(asks, known, queries, documents, order_matters=reader.order_matters),
        make_requests=functools.partial(
            build_requests, queries=queries, documents=documents, sees_golds=reader.sees_golds
        ),
        counts=count_work(asks, known),
        repaired=repaired,
    )


def preview(plan: StagePlan, *, show: bool = False) -> Iterator[str]:
    """What the stage will cost, line by line: readings to do and known, tokens, truncation.

    Args:
        plan: of the stage.
        show: name the counting of tokens where it takes long.
    """
    for part in plan.plans:
        yield from part.repaired
        for row in part.counts.iter_rows(named=True):
            yield (
                f"{part.id}: {row['kind']}: {row['asked']:,} asked, {row['distinct']:,} distinct (union), "
                f"{row['cached']:,} cached, {row['new']:,} new"
            )
        if part.new.height:
            with stage_progress("counting prompt tokens", show=show):
                estimate = _estimate(part)
            yield f"{part.id}: {estimate}"


def _estimate(plan: ReaderPlan) -> str:
    """Tokens and truncation of a sample of the new requests, spread over all of them."""
    sampled = plan.make_requests(spread(plan.new, NUM_SAMPLED))
    prompts = encodable(plan.reader, requests_of(sampled))
    if not prompts:
        return (
            f"{plan.new.height:,} readings to do; of {sampled.num_rows} sampled requests none can be encoded"
        )
    tokens = sum(prompt.num_tokens for prompt in prompts) / len(prompts)
    num_lost = sampled.num_rows - len(prompts)
    unencoded = f"; {num_lost} more cannot be encoded" if num_lost else ""
    cut = sum(prompt.num_truncated_passage_tokens > 0 for prompt in prompts) / len(prompts)
    cut_question = sum(prompt.num_truncated_question_tokens > 0 for prompt in prompts) / len(prompts)
    return (
        f"{plan.new.height:,} readings to do, about {tokens * plan.new.height:,.0f} prompt tokens "
        f"({tokens:.0f} a reading), passages cut in {cut:.1%}, question cut in {cut_question:.1%} "
        f"(by {len(prompts)} sampled requests{unencoded})"
    )


def spread(new: pl.DataFrame, count: int) -> pl.DataFrame:
    """So many of the readings to do, evenly over all of them; all, where they are no more."""
    count = min(count, new.height)
    return new[np.arange(count) * new.height // max(count, 1)]
