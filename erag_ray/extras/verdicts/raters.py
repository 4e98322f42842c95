"""Agreement of two raters (Cohen's kappa) and of many (Krippendorff's alpha), with intervals by question."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from erag_ray.measures.agreement import TIE_DIGITS

Floats = npt.NDArray[np.float64]


def kappa(counts: Floats) -> Floats:
    """Return Cohen's kappa (Educational and Psychological Measurement, 1960); NaN where chance alone agrees always.

    Args:
        counts: [..., 4], items that both raters accept, only the first, only the second, and none of them.
    """
    total = counts.sum(axis=-1)
    both, first, second, neither = np.moveaxis(counts, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        agree = (both + neither) / total
        accepts = (both + first) / total, (both + second) / total
        chance = accepts[0] * accepts[1] + (1 - accepts[0]) * (1 - accepts[1])
        return np.where(chance < 1, (agree - chance) / (1 - chance), np.nan)


def pair_counts(items: npt.NDArray[np.bool_]) -> Floats:
    """Return the counts of `kappa` of each item: [num_items, 2], what two raters say, to [num_items, 4]."""
    first, second = items.T
    columns = (first & second, first & ~second, ~first & second, ~first & ~second)
    return np.stack(columns, axis=1).astype(np.float64)


def alpha(sums: Floats) -> Floats:
    """Return Krippendorff's alpha for two values (Content Analysis, 2018, ch. 12); NaN where all verdicts are equal.

    Args:
        sums: [..., 3] over items with at least two verdicts: of the pairs that disagree (each item's times 1 / (its
            number of verdicts - 1)), of verdicts that accept, and of those that do not.
    """
    disagree, accepted, refused = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - (accepted + refused - 1) * disagree / (accepted * refused), np.float64)


def verdict_sums(accepted: Floats, refused: Floats) -> Floats:
    """Return the sums of `alpha` of each item, [num_items, 3], by its numbers of verdicts; 0 for fewer than two."""
    number = accepted + refused
    disagree = accepted * refused / np.maximum(number - 1, 1)
    return np.where((number > 1)[:, None], np.stack([disagree, accepted, refused], axis=1), 0.0)


def with_interval(
    statistic: Callable[[Floats], Floats],
    items: Floats,
    questions: npt.NDArray[np.int64],
    weights: npt.NDArray[np.integer],
    confidence: float,
) -> tuple[float | None, float | None, float | None]:
    """Return a statistic of summed items with its percentile interval; each resample draws whole questions.

    Args:
        statistic: `kappa` or `alpha`.
        items: [num_items, n], what it sums.
        questions: [num_items], index of each item's question.
        weights: [num_resamples, num_questions] from `resample_weights`.
        confidence: coverage of the interval.
    """
    by_question = np.zeros((weights.shape[1], items.shape[1]))
    np.add.at(by_question, questions, items)
    value = round(float(statistic(by_question.sum(axis=0))), TIE_DIGITS)
    drawn = np.round(statistic(weights.astype(np.float64) @ by_question), TIE_DIGITS)
    drawn = drawn[~np.isnan(drawn)]
    if np.isnan(value):
        return None, None, None
    if len(np.unique(questions)) < 2 or not len(drawn):
        return value, None, None
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return value, float(low), float(high)
