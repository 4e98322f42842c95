"""Poisson sampling of documents: each is read with a known probability, independently of all others.

The probability of a document grows with the weight of its label in the estimate. Whether it is read depends on a random
number of its own that never changes (Brewer, Early & Joyce 1972: permanent random numbers), so a larger budget reads
all that a smaller one has read. A label that was read with probability p counts as 1/p labels (Horvitz & Thompson,
JASA 1952), so that sums over documents (P, DCG) are right in expectation.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import xxhash

Floats = npt.NDArray[np.float64]


def random_numbers(query_ids: Sequence[str], doc_ids: Sequence[str], seed: int = 0) -> Floats:
    """A number in [0, 1) for each pair, by a stable hash: [num_pairs], the same on every machine and in every job."""
    numbers = [
        # the length keeps ("a:b", "c") and ("a", "b:c") apart
        xxhash.xxh3_64_intdigest(f"{seed}:{len(query_id)}:{query_id}:{doc_id}".encode()) >> 11
        for query_id, doc_id in zip(query_ids, doc_ids, strict=True)
    ]
    return np.array(numbers, np.float64) * 2.0**-53


def probabilities(weights: npt.ArrayLike, budget: float) -> Floats:
    """Inclusion probabilities [num_pairs] in proportion to the weights, at most 1, that add up to the budget.

    The budget is how many readings are expected, above 0 and at most num_pairs; no probability falls when it grows.
    Weights [num_pairs], of `importance`, are not all 0; a document with weight 0 is never read. Where fewer documents
    than the budget have a weight, all of those are read.
    """
    values = np.asarray(weights, np.float64)
    descending = np.sort(values[values > 0])[::-1]
    if budget >= len(descending):
        return (values > 0).astype(np.float64)
    # m documents are certain (probability 1), the rest share what is left: the least m for which no other is above 1
    scales = (budget - np.arange(len(descending))) / np.cumsum(descending[::-1])[::-1]
    scale = scales[np.argmax(scales * descending <= 1)]
    return np.asarray(np.minimum(1.0, scale * values))


def rank_weights(measure: str, ranks: npt.ArrayLike, cutoff: int) -> Floats:
    """Return the weight of each document's label in the measure of each run's list: [num_pairs, num_runs].

    Measures are those of `RANK_WEIGHTS`. Ranks [num_pairs, num_runs] are 0 where a run's list lacks the document.
    """
    positions = np.asarray(ranks, np.int64)
    table = np.concatenate([[0.0], RANK_WEIGHTS[measure](cutoff)])
    return np.asarray(table[np.where(positions <= cutoff, positions, 0)])


def importance(weights: Floats) -> Floats:
    """Return the largest weight of each document's label in a difference of two runs: the weights of `probabilities`.

    A document with equal `rank_weights` [num_pairs, num_runs] in all runs cannot change a difference, and is not read
    (Schnabel et al., ICTIR 2016, section 4).
    """
    return np.asarray(np.ptp(weights, axis=1))


RANK_WEIGHTS: dict[str, Callable[[int], Floats]] = {
    "P": lambda cutoff: np.ones(cutoff) / cutoff,
    "DCG": lambda cutoff: 1 / np.log2(np.arange(1, cutoff + 1) + 1),
}
"""Measure, a sum over documents -> its weights of the ranks 1..cutoff."""
