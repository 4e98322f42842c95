"""Measures against trec_eval (pytrec_eval) on random lists: short, empty, without a useful document, pooled."""

import numpy as np
import pytest
from one_measure import compute

from erag_ray.measures.lists import Lists, compute_all, pad

pytrec_eval = pytest.importorskip("pytrec_eval", reason="the trec_eval parity tests need pytrec_eval-terrier")
pytestmark = pytest.mark.parity

DEPTH = 12
CUTOFFS = (1, 2, 3, 5, 10, 12)
NUM_LISTS = 8400
TREC_NAMES = {"P": "P", "R": "recall", "AP": "map_cut", "nDCG": "ndcg_cut", "Success": "success"}


class Sample:
    """Random lists with their base, as ours and as trec_eval's run and qrels."""

    def __init__(self, seed: int, max_label: int, num_pooled: int) -> None:
        random = np.random.default_rng(seed)
        base, labels = [], []
        self.run: dict[str, dict[str, float]] = {}
        self.qrels: dict[str, dict[str, int]] = {}
        for query in range(NUM_LISTS):
            size = int(random.integers(0, DEPTH + 1))
            # a share of useful documents per query, often none
            is_useful = random.random(size + num_pooled) < random.choice([0.0, 0.1, 0.5])
            grades = is_useful * random.integers(1, max_label + 1, size=size + num_pooled)
            # documents of the pool that are not in the list have the numbers behind its end
            self.run[str(query)] = {f"d{rank}": float(-rank) for rank in range(size)}
            self.qrels[str(query)] = {f"d{place}": int(grade) for place, grade in enumerate(grades)}
            labels.append(grades[:size])
            base.append(np.sort(grades)[::-1])
        lengths = np.array([len(row) for row in labels])
        widths = [len(row) for row in base]
        self.lists = Lists(
            labels=pad(np.concatenate(labels), lengths, DEPTH),
            lengths=lengths,
            ideal=pad(np.concatenate(base), widths, max(widths)),
        )

    def trec_eval(
        self, *measures: str, run: dict[str, dict[str, float]] | None = None, least: int = 1
    ) -> list[list[float]]:
        """Each measure of every query; 0 for a query that trec_eval leaves out because its list is empty."""
        evaluator = pytrec_eval.RelevanceEvaluator(self.qrels, {*measures}, relevance_level=least)
        results = evaluator.evaluate(run or self.run)
        return [[results.get(query, {}).get(name, 0.0) for query in self.run] for name in measures]


OWN = Sample(seed=1, max_label=1, num_pooled=0)
POOLED = Sample(seed=2, max_label=1, num_pooled=20)
GRADED = Sample(seed=3, max_label=3, num_pooled=8)

both_ideals = pytest.mark.parametrize("sample", [OWN, POOLED], ids=["list", "pool"])


@both_ideals
@pytest.mark.parametrize("name", list(TREC_NAMES))
def test_binary_measures(name: str, sample: Sample) -> None:
    """Lists times cut-offs times both bases: 100,800 values of each measure."""
    expected = sample.trec_eval(*(f"{TREC_NAMES[name]}_{cutoff}" for cutoff in CUTOFFS))
    found = compute_all([name], sample.lists, CUTOFFS)
    for cutoff, values in zip(CUTOFFS, expected, strict=True):
        np.testing.assert_allclose(found[name, cutoff], values, rtol=0, atol=1e-9)


@both_ideals
@pytest.mark.parametrize("cutoff", CUTOFFS)
def test_reciprocal_rank_is_trec_evals_on_the_cut_list(cutoff: int, sample: Sample) -> None:
    cut = {query: dict(list(run.items())[:cutoff]) for query, run in sample.run.items()}
    (expected,) = sample.trec_eval("recip_rank", run=cut)
    np.testing.assert_allclose(compute("RR", sample.lists, cutoff), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("cutoff", CUTOFFS)
def test_ndcg_takes_graded_labels_as_gains(cutoff: int) -> None:
    (expected,) = GRADED.trec_eval(f"ndcg_cut_{cutoff}")
    assert compute("nDCG", GRADED.lists, cutoff) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_threshold_is_trec_evals_relevance_level(threshold: int) -> None:
    expected = GRADED.trec_eval("map", "recall_5", least=threshold)
    for (name, cutoff), values in zip((("AP", DEPTH), ("R", 5)), expected, strict=True):
        assert compute(name, GRADED.lists, cutoff, threshold) == pytest.approx(values, abs=1e-9)
