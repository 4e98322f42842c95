"""The order of our lists against trec_eval's own, ties and single precision included (through pytrec_eval)."""

import pathlib
import tempfile

import polars as pl
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.entries import RUN_COLUMNS
from erag_ray.data.runs.load import load_run
from erag_ray.data.runs.trec import trec_run

pytestmark = pytest.mark.parity

# few different values, so that many tie: exactly, by the sign of zero, and only in single precision
SCORES = [0.0, -0.0, 1.0, -1.0, 16777216.0, 16777217.0, 0.1, 0.1 + 1e-12, 1e300, 2e300, 1e-60]
IDS = ["a", "b", "B", "aa", "2", "10", "é", "한", "\U0001f600", "\uff5e", "_", "~"]

lists = st.dictionaries(st.sampled_from(IDS), st.sampled_from(SCORES), min_size=1)


def order_of_trec_eval(scores: dict[str, float]) -> list[str]:
    """Each document in turn is the only relevant one; its place is 1 / reciprocal rank."""
    qrels = {doc_id: {doc_id: 1} for doc_id in scores}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"})
    found = evaluator.evaluate(dict.fromkeys(scores, scores))
    return sorted(scores, key=lambda doc_id: round(1 / found[doc_id]["recip_rank"]))


@given(scores=lists)
def test_ties_are_broken_as_in_trec_eval(scores: dict[str, float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.trec"
        lines = [f"q Q0 {doc_id} 0 {score!r} t\n" for doc_id, score in scores.items()]
        path.write_text("".join(lines), encoding="utf-8")
        ours = load_run("r", path, Diagnostics(), ties="trec9")["doc_id"].to_list()
    assert ours == order_of_trec_eval(scores)


@given(order=st.permutations(IDS))
def test_a_written_run_has_our_order_for_trec_eval(order: list[str]) -> None:
    rows = [("r", "q", rank, doc_id, 0.5) for rank, doc_id in enumerate(order, 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.trec"
        path.write_bytes(trec_run(pl.DataFrame(rows, schema=RUN_COLUMNS, orient="row")))
        with path.open(encoding="utf-8") as stream:
            written = pytrec_eval.parse_run(stream)
    assert order_of_trec_eval(written["q"]) == order
