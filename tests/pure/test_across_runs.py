"""Agreement over retrievers with twelve and more runs: copies of one run that are shuffled, cut short or noised."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from evaluated import correlations, everywhere, queries, settings

from erag_ray.analyses.lists.values import per_query
from erag_ray.store.schemas import LABELS, RUNS, UTILITY, conform

NUM_QUERIES, NUM_DOCUMENTS, DEPTH = 400, 30, 10
# the worse, the later in its family
NOISED = {f"noised{number}": spread for number, spread in enumerate((0.3, 0.8, 1.5, 3.0, 8.0))}
SHUFFLED = {f"shuffled{number}": share for number, share in enumerate((0.25, 0.5, 0.75, 1.0))}
TRUNCATED = {f"truncated{number}": length for number, length in enumerate((7, 5, 3, 1))}
ASKED = queries(*((f"q{number}", "d", "exact_match") for number in range(NUM_QUERIES)))
RANDOM = np.random.default_rng(7)
USEFUL = RANDOM.random((NUM_QUERIES, NUM_DOCUMENTS)) < 0.15
LUCK = RANDOM.random(NUM_QUERIES)


def rankings() -> dict[str, np.ndarray]:
    """Run -> documents [num_queries, length], best first; the first run finds the useful ones mostly."""
    scores = USEFUL + RANDOM.normal(0, 0.2, USEFUL.shape)
    best = np.argsort(-scores, axis=1)
    found = {"original": best[:, :DEPTH]}
    for name, spread in NOISED.items():
        found[name] = np.argsort(-(scores + RANDOM.normal(0, spread, scores.shape)), axis=1)[:, :DEPTH]
    for name, share in SHUFFLED.items():
        # some of the queries get their documents in any order
        mixed = np.where(RANDOM.random((NUM_QUERIES, 1)) < share, RANDOM.permuted(best, axis=1), best)
        found[name] = mixed[:, :DEPTH]
    for name, length in TRUNCATED.items():
        found[name] = best[:, :length]
    return found


def tables() -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """RUNS, the labels by erag, and UTILITY: the more useful documents, the likelier is a right output."""
    runs, used = [], []
    for run, documents in rankings().items():
        for query, row in enumerate(documents):
            runs += [(run, f"q{query}", rank, f"d{doc}", None) for rank, doc in enumerate(row, 1)]
            is_right = LUCK[query] < 1 - 0.7 ** USEFUL[query, row].sum()
            used.append(("r", "exact_match", run, f"q{query}", DEPTH, float(is_right)))
    labels = [
        ("r", "exact_match", "erag", f"q{query}", f"d{doc}", float(USEFUL[query, doc]))
        for query, doc in np.ndindex(USEFUL.shape)
    ]
    made = [
        pl.DataFrame(conform(pl.DataFrame(rows, schema=schema.columns.names, orient="row"), schema))
        for rows, schema in ((runs, RUNS), (labels, LABELS), (used, UTILITY))
    ]
    return made[0], made[1], made[2]


def test_labels_order_fourteen_runs_as_the_end_does() -> None:
    runs, labels, used = tables()
    chosen = settings(depths=[DEPTH], num_permutations=2000)
    values = per_query(labels, runs, everywhere(labels, ASKED), ASKED, chosen)
    over_runs = correlations(values, used, ASKED, chosen).filter(over="runs", cutoff=DEPTH)
    comparable = over_runs.filter(pl.col("ideal") != "list")
    assert set(comparable["measure"]) == {"P", "R", "AP", "RR", "nDCG", "Success"}
    assert set(over_runs["num_runs"]) == {14}
    assert over_runs["p_value"].null_count() == 0
    assert over_runs["low"].null_count() == over_runs.height
    good = comparable.filter(pl.col("measure").is_in(["P", "R", "AP", "nDCG"]))
    # the end counts useful documents and not their places, so P and R are nearest to it
    assert (good["value"] > 0.75).all()
    assert (good.filter(pl.col("measure").is_in(["P", "R"]))["value"] > 0.9).all()
    # of 2,000 permutations none comes as near
    assert good["p_value"].to_list() == pytest.approx([1 / 2001] * good.height)
