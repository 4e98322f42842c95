"""Stage that turns responses to single documents into sealed LABELS and DOCUMENT_OUTPUTS."""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping

import polars as pl

from erag_ray import annotators
from erag_ray.config.job import JobConfig
from erag_ray.inference.output_tables import Values
from erag_ray.inference.stage import Finished
from erag_ray.inputs.evidence import Inputs, evidence_of, reader_evidence
from erag_ray.inputs.settings import label_settings, scores_of
from erag_ray.inputs.stage import EVIDENCE_TABLES
from erag_ray.labels.judgements import check_scores, score_notes, scoring_of
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.answer_judge import ANSWER_JUDGE
from erag_ray.prompts.kinds.base import Kind
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.store.fingerprints import frame_digests
from erag_ray.store.schemas import DOCUMENT_OUTPUTS, FACT_LABELS, FACTS, LABELS
from erag_ray.store.stages.stage import Append, Stage, digests, ensure
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.logs import say
from erag_ray.support.progress import StageProgress, stage_progress


def label(config: JobConfig, inputs: Inputs, finished: Finished) -> None:
    """Compute the labels of every annotator, sealed as LABELS, and the outputs behind them, as DOCUMENT_OUTPUTS.

    Raises:
        InputError: an annotator returns no labels or invalid ones (NaN, a missing pair).
        JobError: a user's annotator raises, or a user's score raises for more outputs than ``max_error_fraction``
            allows. Nothing is sealed then.
    """
    store, values = TableStore(config.out), {**_no_values(config), **finished.values(inputs)}
    tables, sources = [LABELS, DOCUMENT_OUTPUTS], list(EVIDENCE_TABLES)
    if annotators.uses(config.annotators, "facts"):
        tables, sources = [*tables, FACT_LABELS], [*sources, FACTS]
    with stage_progress("labels", show=config.progress) as at:
        stage = Stage(
            name="labels",
            tables=tables,
            settings=label_settings(config, inputs.datasets),
            sources=digests(store, sources) | finished.digests(config.out),
            inputs=frame_digests({kind.name: frame for kind, frame in values.items()}),
            names=[*config.annotators, *scores_of(inputs.queries)],
            make=functools.partial(_make, config, inputs, values, finished.plan.stage, at),
        )
        if not ensure(stage, store):
            say(f"{stage.name}: as sealed before")


def _no_values(config: JobConfig) -> Values:
    """Return each kind of request of the annotators without responses: a sample may have no documents."""
    key = {"query_id": pl.String, "doc_id": pl.String, "reader": pl.String}
    types = {
        spec.kind: pl.String if spec.kind.value is str else pl.Float64
        for spec in annotators.request_specs(config.annotators)
    }
    return {kind: pl.DataFrame(schema={**key, "value": dtype}) for kind, dtype in types.items()}


def _make(
    config: JobConfig, inputs: Inputs, values: Values, source: str, at: StageProgress, append: Append
) -> Mapping[str, object]:
    scoring = scoring_of(values.get(ANSWER_JUDGE))
    evidence = dataclasses.replace(
        evidence_of(inputs, values),
        relevant_from=config.judge.threshold,
        threshold=config.threshold,
        scoring=scoring,
    )
    of_reader = reader_evidence(config, evidence)
    for name in at.each(config.annotators, "annotators"):
        asks_reader = "reader" in annotators.annotator_named(name).roles
        append(LABELS, label_by_reader(name, of_reader if asks_reader else evidence))
    check_scores(scoring, config)
    append(DOCUMENT_OUTPUTS, document_outputs(values, evidence.pairs))
    if annotators.uses(config.annotators, "facts"):
        no_facts = FACT_LABELS.empty()
        append(
            FACT_LABELS, pl.concat([no_facts, *map(annotators.fact_labels, _by_reader(evidence, {ANSWER}))])
        )
    notes = [*_judge_notes(config, evidence), *score_notes(scoring, "outputs of single documents")]
    closed_book = annotators.closed_book_answers(of_reader).to_dicts() if "gain" in config.annotators else []
    return {"notes": notes, "stage": source, "closed_book": closed_book}


def document_outputs(values: Values, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return DOCUMENT_OUTPUTS: the outputs with single documents of the pairs; empty if no answers were requested.

    A list of one gold passage is not a pair, unless a run has the passage too.
    """
    if ANSWER not in values:
        return DOCUMENT_OUTPUTS.empty()
    outputs = values[ANSWER].drop_nulls("doc_id").rename({"value": "output"})
    key = list(DOCUMENT_OUTPUTS.key)
    of_pairs = outputs.join(pairs, on=["query_id", "doc_id"], how="semi")
    return of_pairs.select(DOCUMENT_OUTPUTS.columns.names).unique(key).sort(key)


def _judge_notes(config: JobConfig, evidence: annotators.Evidence) -> Iterator[str]:
    if RELEVANCE not in evidence.values:
        return
    judged = evidence.of(RELEVANCE)
    ungraded, judgements, queries = judged["value"].null_count(), judged.height, judged["query_id"].n_unique()
    judge = f"{config.judge.model}, {config.judge.scale}"
    yield f"relevance was judged ({judge}) for {judgements:,} of {evidence.pairs.height:,} pairs, {queries:,} questions"
    if ungraded:
        yield f"answers of the judge without a grade, labelled null: {ungraded:,} of {judgements:,}"


def label_by_reader(name: str, evidence: annotators.Evidence) -> pl.DataFrame:
    """Return the labels of one annotator; each pair is labelled by the reader of its dataset.

    Raises:
        InputError: it returns no labels or invalid ones (NaN, a missing pair).
    """
    try:
        annotator = annotators.annotator_named(name)
        if "reader" not in annotator.fills:
            return pl.DataFrame(annotators.annotate(name, evidence))
        kinds = [kind for kind in {spec.kind for spec in annotator.requests} if kind in evidence.values]
        parts = (pl.DataFrame(annotators.annotate(name, part)) for part in _by_reader(evidence, kinds))
        return pl.concat([LABELS.empty(), *parts])
    except ValueError as error:
        raise InputError([f"annotators: {name}: {error}"]) from error


def _by_reader(evidence: annotators.Evidence, kinds: Collection[Kind]) -> Iterator[annotators.Evidence]:
    """Yield the evidence of each reader: its pairs, and its responses of these kinds."""
    readers = pl.concat([evidence.of(kind).select("reader", "query_id").unique() for kind in kinds])
    for (reader,), queries in readers.unique().sort("reader").group_by("reader", maintain_order=True):
        pairs = evidence.pairs.join(queries, on="query_id", how="semi")
        values = {
            kind: frame.filter(reader=reader) for kind, frame in evidence.values.items() if kind in kinds
        }
        yield dataclasses.replace(evidence, pairs=pairs, values=values)
