"""The outputs of a stage -> what the judge says of them, where a judge gives the score of their questions.

A stage of its own after the readings, since its requests are about outputs. A request's passages are the gold answers
and the output, so it is planned, run, stored and found again as all others are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import polars as pl

from erag_ray.config import JobConfig
from erag_ray.errors import JobError
from erag_ray.inference import INSTEAD_OF_ANSWERS, Finished, run_stage
from erag_ray.inputs import Inputs
from erag_ray.kinds import ANSWER, ANSWER_JUDGE, judgement, shown_to_judge
from erag_ray.logs import say
from erag_ray.output_tables import describe_judgements, judged_queries
from erag_ray.planning import DocIds, StagePlan, plan_lists, preview
from erag_ray.requests import Passage
from erag_ray.schemas import COSTS, JUDGEMENTS, RESPONSES
from erag_ray.scores import needs_judgement
from erag_ray.stages import judge_stage
from erag_ray.store import ResponseStore, TableStore, as_frame

TITLE_ENDS = ": "
KEYS = list(RESPONSES.key)


def judge_outputs(config: JobConfig, inputs: Inputs, done: Finished) -> Finished:
    """Return a stage with what the judge says of its outputs, each distinct one asked about once.

    Args:
        config: the job.
        inputs: its inputs.
        done: the stage that has read them.

    Raises:
        InputError: the judge cannot be found or read.
        JobError: more of its responses are errors than ``max_error_fraction`` allows, or ``max_cost`` is spent.
    """
    if _judged(inputs).is_empty():
        return done
    outputs = _with_passages(_outputs(done, inputs), inputs)
    plan = _plan(config, inputs, done.plan.stage, outputs)
    say(*preview(plan, show=config.progress))
    asked = run_stage(_with_rest_of_cost(config, done.plan, plan), plan)
    texts = asked.requests.join(asked.responses, on=KEYS).select("query_id", "doc_ids", text="output")
    found = outputs.join(texts, on=["query_id", "doc_ids"])
    values = [None if text is None else judgement(text) for text in found["text"]]
    judgements = found.select("query_id", "output", value=pl.Series(values, dtype=pl.String))
    _describe(config, inputs, done, plan, judgements)
    return dataclasses.replace(done, judgements=judgements)


def preview_judgements(config: JobConfig, inputs: Inputs, plan: StagePlan) -> Iterator[str]:
    """What the judge will be asked at most, line by line, before the readings: as if each gave an output of its own.

    Args:
        config: the job.
        inputs: its inputs.
        plan: of the readings.
    """
    if _judged(inputs).is_empty():
        return
    found = [ResponseStore(config.cache_dir, part.id).lookup(part.requests)[0] for part in plan.plans]
    responses = pl.concat([as_frame(RESPONSES.empty()), *found]).filter(pl.col("error").is_null())
    read = Finished(plan=plan, requests=plan.requests, responses=responses)
    outputs = pl.concat([_outputs(read, inputs), _unread_outputs(read)])
    yield (
        "the score judged: the judge is asked about each distinct output; those not read yet are unknown, so the "
        "lines below count one of full length for each request, an upper bound, and no time"
    )
    judging = _plan(config, inputs, plan.stage, _with_passages(outputs, inputs))
    for line in preview(judging, show=config.progress):
        yield f"at most: {line}"


def _judged(inputs: Inputs) -> pl.DataFrame:
    """QUERIES whose outputs a judge scores."""
    return inputs.queries.filter(judged_queries())


def _outputs(done: Finished, inputs: Inputs) -> pl.DataFrame:
    """Columns query_id, output?: what readers wrote, and what stands for it (see `fold`)."""
    answers = done.requests.filter(kind=ANSWER.name).join(done.responses, on=KEYS)
    values = done.values(inputs)
    parts = [values[ANSWER].select("query_id", output="value")] if ANSWER in values else []
    return pl.concat([answers.select("query_id", "output"), *parts])


def _unread_outputs(done: Finished) -> pl.DataFrame:
    """Columns query_id, output: one of its own, as long as it may get, for each request without a response."""
    kinds = [kind.name for kind in (ANSWER, *INSTEAD_OF_ANSWERS)]
    unread = done.requests.filter(pl.col("kind").is_in(kinds)).join(done.responses, on=KEYS, how="anti")
    longest = max((use.form.max_new_tokens for use in done.plan.uses.values()), default=0)
    name = pl.concat_str(KEYS, separator=" ")
    return unread.select("query_id", output=name + pl.lit(" word" * longest))


def _with_passages(outputs: pl.DataFrame, inputs: Inputs) -> pl.DataFrame:
    """Columns query_id, output, doc_ids: the distinct outputs about which the judge is asked, and what it sees."""
    answers = _judged(inputs).select("query_id", "answers")
    rows = outputs.drop_nulls().unique().join(answers, on="query_id").sort("query_id", "output")
    shown = [
        [_doc_id(passage) for passage in shown_to_judge(output, gold_answers)]
        if needs_judgement(output, gold_answers)
        else None
        for output, gold_answers in rows.select("output", "answers").iter_rows()
    ]
    return rows.select("query_id", "output", doc_ids=pl.Series(shown, dtype=DocIds)).drop_nulls()


def _doc_id(passage: Passage) -> str:
    return f"{passage.title}{TITLE_ENDS}{passage.text}"


def _plan(config: JobConfig, inputs: Inputs, stage: str, outputs: pl.DataFrame) -> StagePlan:
    """What the judge is asked about the outputs of a stage."""
    ids = outputs.select(doc_id=pl.col("doc_ids").explode()).unique(maintain_order=True)
    parts = pl.col("doc_id").str.splitn(TITLE_ENDS, 2).struct.rename_fields(["title", "text"])
    corpus = ids.with_columns(parts=parts).unnest("parts")
    lists = outputs.select(pl.lit(ANSWER_JUDGE.name).alias("kind"), "query_id", "doc_ids")
    shown = dataclasses.replace(inputs, corpus=corpus)
    return plan_lists(config, shown, judge_stage(stage), lists, [ANSWER_JUDGE])


def _with_rest_of_cost(config: JobConfig, before: StagePlan, plan: StagePlan) -> JobConfig:
    """The config with what the readings have left of ``max_cost``, where the judge is the reader's own model.

    Raises:
        JobError: they have left nothing, and there is something to ask.
    """
    costs = TableStore("/".join([config.out.rstrip("/"), before.stage])).read(COSTS)
    todo = [part.id for part in plan.plans if part.new.height]
    spent = math.fsum(costs.filter(pl.col("model").is_in(todo))["price"].drop_nulls())
    if config.max_cost is None or not spent:
        return config
    if spent >= config.max_cost:
        text = f"max_cost: {spent:.4f} is spent of {config.max_cost:.4f}, and the judge is still to be asked"
        raise JobError(f"{text}; what was answered is kept; a new job may spend as much again")
    return dataclasses.replace(config, max_cost=config.max_cost - spent)


def _describe(
    config: JobConfig, inputs: Inputs, done: Finished, plan: StagePlan, judgements: pl.DataFrame
) -> None:
    """Seal JUDGEMENTS, where the outputs are those that users would see."""
    if done.plan.answered is None:
        return
    requests = done.requests.filter(kind=ANSWER.name)
    lists = done.plan.answered.lists
    table = describe_judgements(lists, requests, done.responses, inputs.queries, judgements)
    TableStore("/".join([config.out.rstrip("/"), plan.stage])).write(table, JUDGEMENTS)
