"""Auxiliary labels: a cheap label of every document in the lists, by rules, a judge or a small reader."""

import dataclasses
from collections.abc import Iterator

import polars as pl

from erag_ray.annotators import ANNOTATORS, PAIR, annotator_named
from erag_ray.config.job import JobConfig
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.inference.planning.plan import plan_stage, preview
from erag_ray.inference.planning.uses import check_reader
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.evidence import Inputs, evidence_of
from erag_ray.inputs.settings import SAME_READER
from erag_ray.labels.document_labels import label_by_reader
from erag_ray.labels.judgements import check_scores, judge_outputs, scoring_of
from erag_ray.support.logs import say

STAGE = "settle_auxiliary"


def auxiliary_problems(config: SettleConfig, inputs: Inputs) -> Iterator[str]:
    """Yield what is wrong with ``auxiliary`` and ``auxiliary_reader``; loads no weights."""
    name, reader = config.auxiliary_annotator, config.auxiliary_reader
    if name is None:
        return
    try:
        annotator = annotator_named(name)
    except ValueError as error:
        yield f"auxiliary: {error}"
        return
    if "reader" in annotator.roles:
        free = [one for one, other in ANNOTATORS.items() if not {"reader", "auxiliary_reader"} & other.roles]
        text = f"auxiliary: {name} asks the reader about every document, which is what this job avoids"
        yield f"{text}. Name one of {', '.join(free)}, or erag_auxiliary with a cheaper auxiliary_reader"
    elif reader is not None and "auxiliary_reader" not in annotator.roles:
        yield f"auxiliary_reader: {name} asks no reader; leave out auxiliary or auxiliary_reader"
    elif reader == config.reader:
        yield SAME_READER
    elif config.judge.num_queries is not None and "judge" in annotator.roles:
        yield f"auxiliary: {name} must label all documents; leave judge.num_queries out"
    elif annotator.requests:
        yield from check_reader(_job(config), inputs.datasets)


def auxiliary_labels(
    config: SettleConfig, inputs: Inputs, documents: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return the auxiliary label of each pair (query_id, doc_id, auxiliary; null: no label), and the COSTS, if any.

    ``documents`` (query_id, doc_id) are all that may be read; the job has an auxiliary annotator.

    Raises:
        InputError: the annotator returns no labels or invalid ones.
        JobError: a request to its model ends as an error, more often than ``max_error_fraction`` allows.
    """
    job = _job(config)
    (name,) = job.annotators
    listed = dataclasses.replace(inputs, runs=inputs.runs.join(documents, on=PAIR, how="semi"))
    evidence = dataclasses.replace(
        evidence_of(listed), relevant_from=config.judge.threshold, threshold=config.threshold
    )
    scoring = costs = None
    if annotator_named(name).requests:
        plan = plan_stage(job, listed, STAGE, single_document=True, end_to_end=False)
        say(*preview(plan, show=config.progress))
        done = judge_outputs(job, listed, run_stage(job, plan))
        scoring, costs = scoring_of(done.judgements), done.costs
        evidence = dataclasses.replace(evidence, values=done.values(listed), scoring=scoring)
    labels = label_by_reader(name, evidence)
    if scoring is not None:
        check_scores(scoring, job)
    return documents.select(PAIR).join(labels.select(*PAIR, auxiliary="label"), on=PAIR, how="left"), costs


def _job(config: SettleConfig) -> JobConfig:
    """Return the config of the stage that gets the auxiliary labels; there is an annotator of them."""
    models = (config.judge, *filter(None, [config.auxiliary_reader]))
    has_price = any(model.price_per_million for model in models)
    return dataclasses.replace(
        config, annotators=[str(config.auxiliary_annotator)], max_cost=config.max_cost if has_price else None
    )
