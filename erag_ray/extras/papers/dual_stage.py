"""Compute and seal the probabilities of dual labels of the runs of a retrieval."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl

from erag_ray.analyses.parts.model import Table
from erag_ray.annotators import ANNOTATORS, Evidence, applicable_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.texts import load_corpus
from erag_ray.extras.papers.config import DualLabelsConfig
from erag_ray.extras.papers.dual_labels import DUAL_LABELS, dual_labels, dual_probabilities, dual_tables
from erag_ray.inputs.tables import resolve_gold
from erag_ray.retrieve.run import MadeRun, read_run
from erag_ray.retrieve.stage import load_questions, passages_of
from erag_ray.store.schemas import RUNS
from erag_ray.store.tables import TableStore
from erag_ray.support.logs import say


def label_twice(config: DualLabelsConfig, runs_made: Sequence[MadeRun]) -> list[Table]:
    """Compute DUAL_LABELS of the runs of a retrieval, seal them in its folder, and return them as report tables.

    Raises:
        InputError: the questions or passages cannot be read.
    """
    diagnostics = Diagnostics()
    loaded = load_questions(config, diagnostics)
    entries = pl.concat(read_run(run) for run in runs_made).filter(pl.col("rank") == 1)
    corpus = load_corpus(passages_of(config), entries, diagnostics, gold=loaded.provenance)
    diagnostics.raise_errors()
    loaded, runs = resolve_gold(loaded, corpus, diagnostics), entries.select(RUNS.columns.names)
    no_pairs = pl.DataFrame(schema={"query_id": pl.String, "doc_id": pl.String})
    evidence_of_inputs = Evidence(
        pairs=no_pairs, queries=loaded.queries, corpus=corpus, provenance=loaded.provenance
    )
    with_gold = dataclasses.replace(
        evidence_of_inputs, queries=applicable_queries("provenance", evidence_of_inputs)
    )
    # the word rule applies only to short answers, not to verdicts or replies
    queries = applicable_queries(config.word_rule, with_gold)
    in_corpus = pl.concat(
        [
            loaded.provenance.join(corpus, on="page_id", how="semi")["query_id"],
            loaded.provenance.join(corpus, on="doc_id", how="semi")["query_id"],
        ]
    )
    absent = queries.filter(pl.col("query_id").is_in(in_corpus.implode()).not_()).height
    if absent:
        say(f"questions whose gold page has no passage (their doc label is always 0): {absent:,}")
    pairs = runs.join(queries, on="query_id", how="semi").select("query_id", "doc_id").unique()
    evidence = dataclasses.replace(evidence_of_inputs, pairs=pairs, queries=queries)
    labels = dual_labels(
        runs,
        queries,
        ANNOTATORS["provenance"].function(evidence),
        ANNOTATORS[config.word_rule].function(evidence),
        [run.run_id for run in runs_made],
    )
    inputs = {run.run_id: run.sha256 for run in runs_made}
    settings = {"word_rule": config.word_rule, "confidence": config.confidence}
    table = dual_probabilities(labels, config.confidence)
    TableStore(config.out).write(table, DUAL_LABELS, config=settings, inputs=inputs)
    return dual_tables(table, config.confidence)
