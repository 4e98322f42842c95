"""Get a judge's verdicts on the outputs of a stage, for questions whose score is given by a judge; inputs of scores.

Judging is a separate stage, since its requests contain outputs. The passages of a request are the gold answers and the
output, so it is planned, run and cached like all other requests.
"""

import dataclasses
from collections.abc import Iterator

import polars as pl

from erag_ray.config.job import JobConfig
from erag_ray.inference.output_tables import describe_judgements, outputs_of
from erag_ray.inference.planning.pending import DocIds
from erag_ray.inference.planning.plan import StagePlan, answers_of_lists, plan_lists, preview
from erag_ray.inference.stage import Finished, check_share, run_stage
from erag_ray.inputs.evidence import Inputs
from erag_ray.measures.scores import JUDGED, Scoring, needs_judgement
from erag_ray.prompts.kinds.answer import ANSWER, AUXILIARY_ANSWER
from erag_ray.prompts.kinds.answer_judge import ANSWER_JUDGE, judge_passages, judgement
from erag_ray.store.responses import ResponseStore
from erag_ray.store.schemas import JUDGEMENTS, RESPONSES
from erag_ray.store.stages.stage import judge_stage
from erag_ray.store.tables import TableStore
from erag_ray.support.logs import say

TITLE_ENDS = ": "
KEYS = list(RESPONSES.key)


def judge_outputs(config: JobConfig, inputs: Inputs, done: Finished) -> Finished:
    """Add the judge's verdicts on the outputs of a stage, with one request per distinct output.

    Raises:
        InputError: the judge cannot be found or loaded.
        JobError: more of its responses are errors than ``max_error_fraction`` allows, or ``max_cost`` is spent.
    """
    if _judged(inputs).is_empty():
        return done
    outputs = _with_passages(_outputs(config, done), inputs)
    plan = _plan(config, inputs, done.plan.stage, outputs)
    say(*preview(plan, show=config.progress))
    judge = run_stage(config, plan, done.costs)
    texts = judge.requests.join(judge.responses, on=KEYS).select("query_id", "doc_ids", text="output")
    judged = outputs.join(texts, on=["query_id", "doc_ids"])
    values = [None if text is None else judgement(text) for text in judged["text"]]
    judgements = judged.select("query_id", "output", value=pl.Series(values, dtype=pl.String))
    # only of outputs that are complete answers of the reader
    if done.plan.answered is not None:
        requests, lists = done.requests.filter(kind=ANSWER.name), done.plan.answered
        complete = outputs_of(lists, requests, done.responses, _judged(inputs), done.plan.given)
        table = describe_judgements(complete, judgements)
        TableStore("/".join([config.out.rstrip("/"), plan.stage])).write(table, JUDGEMENTS)
    return dataclasses.replace(done, judgements=judgements, costs=judge.costs)


def preview_judgements(config: JobConfig, inputs: Inputs, plan: StagePlan) -> Iterator[str]:
    """Yield an upper bound of the judge's requests before inference, as lines: one output per request."""
    if _judged(inputs).is_empty():
        return
    parts = [ResponseStore(config.cache_dir, one.id).lookup(one.requests) for one in plan.plans]
    responses = pl.concat([RESPONSES.empty(), *parts]).filter(pl.col("error").is_null())
    cached = Finished(plan=plan, requests=plan.requests, responses=responses)
    outputs = pl.concat([_outputs(config, cached), _pending_outputs(config, cached)])
    yield (
        "the score judged: one request to the judge for each distinct output; outputs of pending requests are unknown, "
        "so the lines below count one of full length for each: an upper bound, without time"
    )
    judge_plan = _plan(config, inputs, plan.stage, _with_passages(outputs, inputs))
    for line in preview(judge_plan, show=config.progress):
        yield f"at most: {line}"


def _judged(inputs: Inputs) -> pl.DataFrame:
    """Return the QUERIES whose outputs a judge scores."""
    return inputs.queries.filter(pl.col("score").is_in(JUDGED))


def _outputs(config: JobConfig, done: Finished) -> pl.DataFrame:
    """Return the outputs of readers: columns query_id, output?."""
    answers = _answer_requests(config, done).join(done.responses, on=KEYS)
    return pl.concat(frame.select("query_id", "output") for frame in (answers, done.plan.given))


def _pending_outputs(config: JobConfig, done: Finished) -> pl.DataFrame:
    """Return a distinct output of maximum length per request without a response: columns query_id, output."""
    pending = _answer_requests(config, done).join(done.responses, on=KEYS, how="anti")
    longest = max((use.form.max_new_tokens for use in done.plan.uses.values()), default=0)
    return pending.select("query_id", output=pl.concat_str(KEYS, separator=" ") + pl.lit(" word" * longest))


def _answer_requests(config: JobConfig, done: Finished) -> pl.DataFrame:
    kinds = [kind.name for kind in (*answers_of_lists(config), AUXILIARY_ANSWER)]
    return done.requests.filter(pl.col("kind").is_in(kinds))


def _with_passages(outputs: pl.DataFrame, inputs: Inputs) -> pl.DataFrame:
    """Return the distinct outputs for the judge, and what it sees: columns query_id, output, doc_ids."""
    answers = _judged(inputs).select("query_id", "answers")
    rows = outputs.drop_nulls().unique().join(answers, on="query_id").sort("query_id", "output")
    shown = [
        [f"{passage.title}{TITLE_ENDS}{passage.text}" for passage in judge_passages(output, gold_answers)]
        if needs_judgement(output, gold_answers)
        else None
        for output, gold_answers in rows.select("output", "answers").iter_rows()
    ]
    return rows.select("query_id", "output", doc_ids=pl.Series(shown, dtype=DocIds)).drop_nulls()


def _plan(config: JobConfig, inputs: Inputs, stage: str, outputs: pl.DataFrame) -> StagePlan:
    """Return the plan of the judge's requests about the outputs of a stage."""
    ids = outputs.select(doc_id=pl.col("doc_ids").explode()).unique(maintain_order=True)
    parts = pl.col("doc_id").str.splitn(TITLE_ENDS, 2).struct.rename_fields(["title", "text"])
    corpus = ids.with_columns(parts=parts).unnest("parts")
    lists = outputs.select(pl.lit(ANSWER_JUDGE.name).alias("kind"), "query_id", "doc_ids")
    shown = dataclasses.replace(inputs, corpus=corpus)
    return plan_lists(config, shown, judge_stage(stage), lists, [ANSWER_JUDGE])


# --- scores ---


def scoring_of(judgements: pl.DataFrame | None) -> Scoring:
    """Return the `Scoring` of a job, with its judgements of outputs (None: no judgements)."""
    rows = () if judgements is None else judgements.select("query_id", "output", "value").iter_rows()
    return Scoring(judgements={(query_id, output): value for query_id, output, value in rows})


def check_scores(scoring: Scoring, config: JobConfig) -> None:
    """Apply `check_share` to the outputs for which a user's score raised."""
    check_share("scores", scoring.num_errors, scoring.num_outputs, scoring.lines, config)


def score_notes(scoring: Scoring, what: str) -> Iterator[str]:
    """Yield a note for the report on outputs without a score, if there are any."""
    if scoring.num_errors:
        counts = f"{scoring.num_errors:,} of {scoring.num_outputs:,}"
        yield f"{what} without a score, not judged: {counts} ({'; '.join(scoring.lines)})"
