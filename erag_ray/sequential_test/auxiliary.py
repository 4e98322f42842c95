"""Auxiliary labels: a cheap label of every document in the lists, by rules, a judge or a small reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import polars as pl

from erag_ray.annotators import ANNOTATORS, PAIR, annotator_named
from erag_ray.config import JobConfig
from erag_ray.errors import InputError
from erag_ray.inference import run_stage
from erag_ray.inputs import Inputs, evidence_of
from erag_ray.labels import check_scores, judge_outputs, label_by_reader, scoring_of
from erag_ray.logs import say
from erag_ray.planning import check_reader, plan_stage, preview
from erag_ray.sequential_test.config import SettleConfig

STAGE = "settle_auxiliary"


def auxiliary_problems(config: SettleConfig, inputs: Inputs) -> Iterator[str]:
    """Yield what is wrong with ``auxiliary`` and ``auxiliary_reader``; loads no weights."""
    name, reader = config.auxiliary_annotator, config.auxiliary_reader
    if name is None:
        return
    try:
        needs_reader = annotator_named(name).asks_reader
    except ValueError as error:
        yield f"auxiliary: {error}"
        return
    if needs_reader and reader is None:
        others = ", ".join(one for one, annotator in ANNOTATORS.items() if not annotator.asks_reader)
        yield (
            f"auxiliary: {name} asks the reader about every document, which is what this job avoids. Set "
            f"auxiliary_reader to a cheaper reader, or name one of {others}"
        )
    elif reader is not None and not needs_reader:
        yield f"auxiliary_reader: {name} asks no reader; leave out auxiliary or auxiliary_reader"
    elif reader == config.reader:
        yield "auxiliary_reader: is the reader itself; name a cheaper one"
    elif name in ANNOTATORS and (reader is not None or ANNOTATORS[name].requests):
        problems = check_reader(_job(config), inputs.datasets)
        yield from (problem.replace("reader.", "auxiliary_reader.", 1) for problem in problems)


def auxiliary_labels(config: SettleConfig, inputs: Inputs, documents: pl.DataFrame) -> pl.DataFrame:
    """Return the auxiliary label of each pair: query_id, doc_id, auxiliary (null: no label).

    Args:
        config: the job; it has an auxiliary annotator.
        inputs: its inputs.
        documents: query_id, doc_id, all that may be read.

    Raises:
        InputError: the annotator returns no labels or invalid ones.
        JobError: a request to its model ends as an error, more often than ``max_error_fraction`` allows.
    """
    job, name = _job(config), job_annotator(config)
    listed = dataclasses.replace(inputs, runs=inputs.runs.join(documents, on=PAIR, how="semi"))
    evidence, scoring = dataclasses.replace(evidence_of(listed), relevant_from=config.judge.threshold), None
    if annotator_named(name).requests:
        plan = plan_stage(job, listed, STAGE, single_document=True, end_to_end=False)
        say(*preview(plan, show=config.progress))
        done = judge_outputs(job, listed, run_stage(job, plan))
        scoring = scoring_of(done.judgements)
        evidence = dataclasses.replace(evidence, values=done.values(listed), scoring=scoring)
    labels = label_by_reader(name, evidence)
    if scoring is not None:
        check_scores(scoring, job)
    return documents.select(PAIR).join(labels.select(*PAIR, auxiliary="label"), on=PAIR, how="left")


def job_annotator(config: SettleConfig) -> str:
    """Return the annotator of the auxiliary labels.

    Raises:
        InputError: there is none.
    """
    if config.auxiliary_annotator is None:
        raise InputError(["auxiliary: no annotator is named"])
    return config.auxiliary_annotator


def _job(config: SettleConfig) -> JobConfig:
    """Return the config of the stage that gets the auxiliary labels."""
    reader = config.auxiliary_reader or config.reader
    has_price = bool(reader.price_per_million or config.judge.price_per_million)
    return dataclasses.replace(
        config,
        reader=reader,
        annotators=[job_annotator(config)],
        max_cost=config.max_cost if has_price else None,
    )
