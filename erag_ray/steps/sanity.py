"""What the runs of a retrieval find, before any reader: sealed as SANITY, and a table for people."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from erag_ray.annotators import Evidence, annotate, applicable_queries
from erag_ray.config import RetrieveConfig
from erag_ray.datasets import Findings, LoadedQueries, load_passages
from erag_ray.evaluate import hit_values, page_values, sanity
from erag_ray.report import Grid, sanity_grids
from erag_ray.schemas import SANITY
from erag_ray.steps.retrieving import load_asked, passages_of
from erag_ray.steps.runs import MadeRun
from erag_ray.store import TableStore, as_frame

CUTOFFS = (1, 5, 20, 100)
HITS = {"provenance": "gold_page", "contains_answer_dpr": "contains_answer"}


def find_sanity(config: RetrieveConfig, made: Sequence[MadeRun]) -> list[Grid]:
    """SANITY of a retrieval's runs, sealed in its folder and made anew where they have changed; as tables.

    Args:
        config: the retrieval.
        made: its runs.
    """
    tables = TableStore(config.out)
    made_from = {run.run_id: run.sha256 for run in made}
    if not tables.is_sealed(SANITY) or tables.manifest(SANITY)["inputs"] != made_from:
        findings = Findings()
        loaded = load_asked(config, findings)
        runs = pl.concat(pl.read_parquet(run.path) for run in made)
        corpus = load_passages(passages_of(config), findings, doc_ids=runs["doc_id"].unique())
        findings.raise_problems()
        names = [run.run_id for run in made]
        tables.write(_sanity(runs, names, loaded, corpus, config.depth), SANITY, inputs=made_from)
    return sanity_grids(tables.read(SANITY))


def _sanity(
    runs: pl.DataFrame, names: Sequence[str], loaded: LoadedQueries, corpus: pl.DataFrame, depth: int
) -> pl.DataFrame:
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= depth]
    asked = loaded.queries.select("dataset", "query_id")
    with_pages = asked.join(loaded.page_sets, on="query_id", how="semi")
    values = [page_values(runs, corpus, loaded.page_sets, cutoffs)]
    counted = [
        with_pages.select("dataset", "query_id", measure=pl.lit(measure))
        for measure in ("kilt_r_precision", "kilt_recall")
    ]
    named = loaded.gold.select("query_id", "doc_id", label=pl.lit(1.0))
    hits = hit_values(named, runs, cutoffs).with_columns(measure=pl.lit("gold_passage"))
    values.append(hits.select(values[0].columns))
    with_gold = asked.join(named, on="query_id", how="semi")
    counted.append(with_gold.select("dataset", "query_id", measure=pl.lit("gold_passage")))
    evidence = Evidence(
        pairs=runs.select("query_id", "doc_id").unique(),
        queries=loaded.queries,
        corpus=corpus,
        provenance=loaded.provenance,
    )
    for annotator, measure in HITS.items():
        labels = as_frame(annotate(annotator, evidence))
        hits = hit_values(labels, runs, cutoffs).with_columns(measure=pl.lit(measure))
        values.append(hits.select(values[0].columns))
        applies = applicable_queries(annotator, evidence)
        counted.append(applies.select("dataset", "query_id", measure=pl.lit(measure)))
    return sanity(pl.concat(values), pl.concat(counted), names)
