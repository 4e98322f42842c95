"""Labels of the documents that were read -> what the labels of all documents would have given.

A label that was read with probability p stands for 1/p labels (Horvitz & Thompson, JASA 1952). Sums over documents (P,
DCG) are then right in expectation, and so are sums over pairs of documents (the numerator of AP), since two documents
are read apart from each other. Everything is vectorised over any leading axes: queries, or repetitions and queries.

AP and nDCG divide by what must be estimated too, and the plain quotient of two estimates is far off at few readings: of
one relevant document, read with p, it gives the full value with p and else 0. See `quotients`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from erag_ray.registry import find
from erag_ray.sequential_test.quotients import average_precision, ndcg, plain_ndcg
from erag_ray.sequential_test.sampled import Floats, Sampled, discounts, ranks


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What is estimated, and what that asks of the labels."""

    name: str
    function: Callable[[Sampled, Sampled, int], Floats]
    """(lists cut at the cut-off, base, cut-off) -> [...]."""
    is_unbiased: bool
    uses_base: bool = False
    needs_binary: bool = False


def estimate(name: str, lists: Sampled, cutoff: int, base: Sampled | None = None) -> Floats:
    """One estimate for each list: [...].

    The values of different queries are drawn apart from each other, as the queries are: see `mean_interval`.

    Args:
        name: a key of `ESTIMATES`.
        lists: the ranked lists.
        cutoff: 1..depth.
        base: of quotients only: the documents of each list's base, in any order, with the same labels and weights: the
            list itself to its depth, or the pool of all compared runs. Without it the lists themselves.

    Raises:
        ValueError: an unknown name; a cut-off outside 1..depth; labels other than 0 and 1 for
            AP and nDCG; guesses for a quotient.
    """
    chosen = find("estimate", name, ESTIMATES)
    if not 1 <= cutoff <= lists.labels.shape[-1]:
        raise ValueError(f"cutoff {cutoff} is outside 1..{lists.labels.shape[-1]}, the depth of the lists")
    below = base or lists
    if chosen.needs_binary and not all(np.isin(part.known, (0, 1)).all() for part in (lists, below)):
        raise ValueError(
            f"{name} needs labels of 0 and 1; apply a threshold first, or for nDCG take nDCG_graded"
        )
    if chosen.uses_base and any(part.guesses is not None for part in (lists, below)):
        raise ValueError(f"{name} is a quotient, which takes no guesses")
    return chosen.function(lists.cut(cutoff), below, cutoff)


def mean_interval(values: npt.ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats, Floats]:
    """Mean over queries with its interval (Student): (mean, low, high), each [...].

    The queries are a sample, and each query's documents are drawn apart from all others'. So the estimates of the
    queries are independent and alike, and their variance holds both: of what queries differ in, and of what was not
    read. Against the mean of all readings over these very queries the interval is too wide, never too narrow.

    Args:
        values: [..., num_queries].
        confidence: of the interval.

    Raises:
        ValueError: fewer than 2 queries, a value that is not finite, a confidence outside (0, 1).
    """
    estimates = np.asarray(values, np.float64)
    count = estimates.shape[-1] if estimates.ndim else 0
    if count < 2 or not np.isfinite(estimates).all():
        raise ValueError(f"an interval needs at least 2 queries with finite values, got {count}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is outside (0, 1)")
    mean: Floats = estimates.mean(axis=-1)
    error = estimates.std(axis=-1, ddof=1) / np.sqrt(count)
    half = error * stats.t.ppf((1 + confidence) / 2, count - 1)
    return mean, mean - half, mean + half


def _precision(lists: Sampled, base: Sampled, cutoff: int) -> Floats:
    total: Floats = lists.expanded().sum(axis=-1)
    return total / cutoff


def _dcg(lists: Sampled, base: Sampled, cutoff: int) -> Floats:
    total: Floats = (lists.expanded() * discounts(cutoff)).sum(axis=-1)
    return total


def _ap_numerator(lists: Sampled, base: Sampled, cutoff: int) -> Floats:
    """Sum over i of label_i / i times the labels down to i: a document with itself is read with p, a pair with p q."""
    labels = lists.expanded()
    above = np.cumsum(labels, axis=-1) - labels
    total: Floats = ((lists.expanded(2) + labels * above) / ranks(cutoff)).sum(axis=-1)
    return total


ESTIMATES = {
    item.name: item
    for item in (
        Estimate(name="P", function=_precision, is_unbiased=True),
        Estimate(name="DCG", function=_dcg, is_unbiased=True),
        Estimate(name="AP_numerator", function=_ap_numerator, is_unbiased=True),
        Estimate(name="AP", function=average_precision, is_unbiased=False, uses_base=True, needs_binary=True),
        Estimate(name="nDCG", function=ndcg, is_unbiased=False, uses_base=True, needs_binary=True),
        Estimate(name="nDCG_graded", function=plain_ndcg, is_unbiased=False, uses_base=True),
    )
}
