"""Dual labels of the first passage: from the right document, and with the answer (Park & Lim, 2025, section 2).

``doc_label`` is 1 if the first passage of a list is from a gold page, ``word_label`` if it contains an answer. The
paper's Table 3 has their marginal, joint and conditional probabilities over questions.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import polars as pl

from erag_ray.analyses.columns import table_of
from erag_ray.analyses.parts.model import Column, Format, Table
from erag_ray.analyses.parts.shapes import crosstab, names, part_name, plain
from erag_ray.annotators import ANNOTATORS, Evidence, applicable_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.texts import load_corpus
from erag_ray.extras.papers.config import DualLabelsConfig
from erag_ray.extras.papers.published import read_published
from erag_ray.inputs.tables import resolve_gold
from erag_ray.measures.agreement import wilson_interval
from erag_ray.retrieve.run import MadeRun, read_run
from erag_ray.retrieve.stage import load_questions, passages_of
from erag_ray.store.schemas import RUNS, table_schema
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.logs import say

DUAL_LABELS = table_schema(
    "dual_labels", "dataset* run_id* probability* value? low? high? num_positive num_queries"
)
PROBABILITIES = {
    "doc": "P(Doc)",
    "word": "P(Word)",
    "doc_and_word": "P(Doc \u2229 Word)",
    "doc_given_word": "P(Doc | Word)",
    "word_given_doc": "P(Word | Doc)",
}
"""DUAL_LABELS.probability -> its head in a table."""
LABEL_COLUMNS = ("dataset", "run_id", "query_id", "doc_label", "word_label")


def dual_labels(
    runs: pl.DataFrame,
    queries: pl.DataFrame,
    page_labels: pl.DataFrame,
    answer_labels: pl.DataFrame,
    run_ids: Sequence[str],
) -> pl.DataFrame:
    """Return the labels (0, 1, or null: not judged) of every question and run, columns `LABEL_COLUMNS`.

    Both are 0 without a list. ``doc_label`` is null for a passage without a page. QUERIES have a gold page. The labels
    (``query_id, doc_id, label``) are 1 if the document is from a gold page, or contains an answer.
    """
    first = runs.filter(pl.col("rank") == 1).select("run_id", "query_id", "doc_id")
    grid = queries.select("dataset", "query_id").join(pl.DataFrame({"run_id": list(run_ids)}), how="cross")
    labelled = grid.join(first, on=["run_id", "query_id"], how="left")
    for name, labels in (("doc_label", page_labels), ("word_label", answer_labels)):
        named = labels.select("query_id", "doc_id", pl.col("label").cast(pl.Int8).alias(name))
        label = pl.when(pl.col("doc_id").is_null()).then(0).otherwise(name)
        labelled = labelled.join(named, on=["query_id", "doc_id"], how="left").with_columns(label.alias(name))
    return labelled.select(LABEL_COLUMNS)


def dual_probabilities(labels: pl.DataFrame, confidence: float) -> pl.DataFrame:
    """Return DUAL_LABELS: each probability with its Wilson interval and number of questions.

    Questions with a null label are left out. A conditional probability is over the questions where its condition holds,
    and null if there are none.
    """
    rows = []
    for (dataset, run_id), part in labels.drop_nulls().group_by("dataset", "run_id", maintain_order=True):
        doc, word = part["doc_label"] == 1, part["word_label"] == 1
        both = int((doc & word).sum())
        counts = {
            "doc": (int(doc.sum()), part.height),
            "word": (int(word.sum()), part.height),
            "doc_and_word": (both, part.height),
            "doc_given_word": (both, int(word.sum())),
            "word_given_doc": (both, int(doc.sum())),
        }
        rows += [
            (dataset, run_id, name, *wilson_interval(*count, confidence), *count)
            for name, count in counts.items()
        ]
    return table_of(rows, DUAL_LABELS)


def dual_tables(table: pl.DataFrame, confidence: float) -> list[Table]:
    """Return a table per dataset of DUAL_LABELS in the layout of Park & Lim's Table 3, then their table."""
    heads = {name: Column(head, Format.NUMBER_4) for name, head in PROBABILITIES.items()}
    counts = pl.col("num_queries").filter(probability="doc").first().over("dataset", "run_id")
    measured = [
        crosstab(
            part.group_by("run_id", "questions", maintain_order=True),
            (*names("model"), Column("questions", Format.COUNT)),
            "probability",
            heads,
            name=part_name("dual_labels", dataset),
            title=f"{dataset}: the best passage, by document and by word",
            caption=f"With {confidence:.0%} Wilson intervals. A conditional probability is over the questions where "
            "its condition holds; a dash where it never does. A question without a list has neither; one whose "
            "passage has no page is left out.",
            is_main=True,
            dataset=str(dataset),
        )
        for (dataset,), part in table.with_columns(questions=counts).group_by("dataset", maintain_order=True)
    ]
    published = read_published("dual_labels_table_3.csv").select("retriever", *PROBABILITIES)
    as_published = Table(
        name="published_table_3",
        title="Table 3 as published: 1,825 questions of KLUE-MRC",
        columns=(*names("model"), *heads.values()),
        rows=tuple(plain(*row) for row in published.iter_rows()),
        caption="Park & Lim, Rethinking Retriever Evaluation in Retrieval-Augmented Generation: Wikipedia's pages in "
        "passages of 300 characters. Other pages than those above.",
    )
    return [*measured, as_published]


def label_twice(config: DualLabelsConfig, runs_made: Sequence[MadeRun]) -> list[Table]:
    """Compute DUAL_LABELS of the runs of a retrieval, seal them in its folder, and return them as report tables.

    Raises:
        InputError: the questions or passages cannot be read, or no question of a dataset has both labels by a run.
    """
    diagnostics = Diagnostics()
    loaded = load_questions(config, diagnostics)
    entries = pl.concat(read_run(run.path, run.run_id) for run in runs_made).filter(pl.col("rank") == 1)
    corpus = load_corpus(passages_of(config), entries, diagnostics, gold=loaded.provenance)
    diagnostics.raise_errors()
    loaded, runs = resolve_gold(loaded, corpus, diagnostics), entries.select(RUNS.columns.names)
    pairs = runs.select("query_id", "doc_id").unique()
    evidence = Evidence(pairs=pairs, queries=loaded.queries, corpus=corpus, provenance=loaded.provenance)
    with_gold = dataclasses.replace(evidence, queries=applicable_queries("provenance", evidence))
    # the word rule applies only to short answers, not to verdicts or replies
    queries = applicable_queries(config.word_rule, with_gold)
    in_corpus = pl.concat(
        loaded.provenance.join(corpus, on=key, how="semi")["query_id"] for key in ("page_id", "doc_id")
    )
    absent = queries.filter(pl.col("query_id").is_in(in_corpus.implode()).not_()).height
    if absent:
        say(f"questions whose gold page has no passage (their doc label is always 0): {absent:,}")
    pairs = pairs.join(queries, on="query_id", how="semi")
    evidence = dataclasses.replace(evidence, pairs=pairs, queries=queries)
    labels = dual_labels(
        runs,
        queries,
        ANNOTATORS["provenance"].function(evidence),
        ANNOTATORS[config.word_rule].function(evidence),
        [run.run_id for run in runs_made],
    )
    judged = labels.drop_nulls()
    wanted = itertools.product(loaded.queries["dataset"].unique().sort(), (run.run_id for run in runs_made))
    if missing := set(wanted) - set(judged.select("dataset", "run_id").iter_rows()):
        names = ", ".join(sorted(map(" by ".join, missing)))
        needs = "gold pages, short answers and passages with a page_id"
        raise InputError([f"queries: no question of {names} has both labels; they need {needs}"])
    if left_out := labels.height - judged.height:
        say(f"first passages without a page_id, left out: {left_out:,} of {labels.height:,}")
    inputs = {run.run_id: run.sha256 for run in runs_made}
    settings = {"word_rule": config.word_rule, "confidence": config.confidence}
    table = dual_probabilities(labels, config.confidence)
    TableStore(config.out).write(table, DUAL_LABELS, config=settings, inputs=inputs)
    return dual_tables(table, config.confidence)
