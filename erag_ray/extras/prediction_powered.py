"""Prediction-powered values: labels of a sample of the documents, and a cheap auxiliary label of all of them.

The value of a question is a weighted sum over its documents, sum_d w_d y_d (P and DCG of a list, differences of two
lists). Document d is read with a known probability pi_d, apart from all others, and only then its label y_d is known.
With any prediction x_d of the label the difference estimator

    sum_d w_d x_d + sum over the documents read of w_d (y_d - x_d) / pi_d

has the right expectation (Cassel, Sarndal & Wretman, Biometrika 1976; prediction-powered inference: Angelopoulos et
al., Science 2023, and PPI++, arXiv 2311.01453; PRECISE, arXiv 2606.05308). A good prediction makes its variance small,
a bad one large, so it is fitted to the sample: x_d = intercept + lambda f_d for the auxiliary label f_d, clamped to
the bounds of labels, [0, 1]. An f that says nothing gets a lambda near 0. One line serves all ranks: lines by groups of
ranks had the same variance.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from erag_ray.measures.agreement import TIE_DIGITS

Floats = npt.NDArray[np.float64]
OF_LISTS = ("P", "Success")
"""Measures of the auxiliary label that predict values without a counterpart, such as utility: the first there is."""
MIN_READ = 20
"""With fewer documents read, no line is fitted: the prediction is 0."""
RIDGE = 1e-6
"""Relative penalty of lambda: where the auxiliary label is constant among the documents read, lambda is 0."""
ROUNDING = 1e-12
"""Relative rounding error of a sum less one of its terms; what is smaller is 0."""
MIN_WIDTH = 1e-100
"""An auxiliary label whose values differ by less is constant: its squares underflow."""


@dataclass(frozen=True, kw_only=True)
class LabelSample:
    """The documents of all questions, and the labels of those that were read: arrays of [num_documents]."""

    questions: npt.NDArray[np.int64]
    """Index of each document's question, from 0."""
    weights: Floats
    """Of each label in the value of its question."""
    probabilities: Floats
    """Probability of being read; 0 only where the weight is 0."""
    is_read: npt.NDArray[np.bool_]
    labels: Floats
    """Within ``bounds`` where the document was read; not used elsewhere."""
    auxiliary: Floats
    """The cheap label of every document, finite."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """(smallest, largest) possible label; predictions are clamped to them."""


@dataclass(frozen=True, kw_only=True)
class PoweredValues:
    """Unbiased estimates of the values of questions."""

    values: Floats
    """[num_questions], rounded as `paired_differences`."""
    from_labels: Floats
    """[num_questions], the estimates without the auxiliary label (Horvitz & Thompson, JASA 1952)."""
    slope: float
    """Lambda, fitted on all questions; 0 for a constant auxiliary label."""
    correlation: float | None
    """Pearson's, of label and auxiliary label, estimated from the sample; None if one is constant in it."""


def powered_values(sample: LabelSample, num_questions: int) -> PoweredValues:
    """Estimate the value of each question by the difference estimator, with intercept and lambda fitted.

    The line of a question is fitted by least squares on all other questions. So it does not depend on which of the
    question's own documents were read, and the estimate is unbiased, not only in the limit of many questions. One
    without documents has the value 0. Raise ValueError if an auxiliary label is not finite, as user code may give it.
    """
    if not np.isfinite(sample.auxiliary).all():
        raise ValueError("auxiliary labels must be finite")
    inverse = np.divide(1.0, sample.probabilities, out=np.zeros(len(sample.weights)), where=sample.is_read)
    labels = np.where(sample.is_read, sample.labels, 0.0)
    # [num_documents, 2]: 1, and the auxiliary label minus its mean, in units of its range; 0 if constant
    width, ones = np.ptp(sample.auxiliary) if len(labels) else 0.0, np.ones(len(labels))
    scaled = sample.auxiliary / width if width >= MIN_WIDTH else 0 * ones
    predictors = np.stack([ones, scaled - scaled.mean() if len(scaled) else scaled], axis=1)
    # least squares in which each document read counts by its part of the estimate's variance
    spread = sample.weights**2 * (1 - sample.probabilities) * inverse**2
    squares = predictors[:, :, None] * predictors[:, None, :]
    gram = _by_question(sample, spread[:, None, None] * squares, num_questions)
    right = _by_question(sample, (spread * labels)[:, None] * predictors, num_questions)
    num_read = _by_question(sample, sample.is_read.astype(np.float64), num_questions)
    lines = _lines(*(_without_own(sums) for sums in (gram, right, num_read)))
    predicted = np.clip((lines[sample.questions] * predictors).sum(axis=1), *sample.bounds)
    from_labels = _by_question(sample, sample.weights * labels * inverse, num_questions)
    corrections = _by_question(sample, sample.weights * predicted * (1 - inverse), num_questions)
    slope = _lines(gram.sum(axis=0), right.sum(axis=0), num_read.sum())[1]
    return PoweredValues(
        values=np.asarray(np.round(from_labels + corrections, TIE_DIGITS), np.float64),
        from_labels=from_labels,
        slope=float(slope) / (width or 1.0),
        correlation=_correlation(sample.is_read, labels, predictors[:, 1], inverse),
    )


def estimate_all(column: Floats, predictor: Floats) -> PoweredValues:
    """Estimate a value for every question from those of a sample of them, at least one.

    The column [num_queries] is NaN where the reader was not asked (not where it failed); the predictor [num_queries] is
    the auxiliary value of every question, finite.
    """
    count, is_read = len(column), np.isfinite(column)
    read = column[is_read]
    sample = LabelSample(
        questions=np.arange(count),
        weights=np.ones(count),
        probabilities=np.full(count, is_read.mean()),
        is_read=is_read,
        labels=np.where(is_read, column, 0.0),
        auxiliary=predictor,
        # gains and differences may be below 0, and a user's measure may be above 1
        bounds=(min(0.0, float(read.min())), max(1.0, float(read.max()))),
    )
    values = powered_values(sample, count)
    # of exactly these, a line is fitted for the questions that were not read, and none for those that were
    return values if len(read) != MIN_READ else replace(values, values=values.from_labels)


def _by_question(sample: LabelSample, values: Floats, num_questions: int) -> Floats:
    """Sum [num_documents, ...] to [num_questions, ...]."""
    columns = values.reshape(len(values), -1).T
    sums = np.stack([np.bincount(sample.questions, column, num_questions) for column in columns], axis=-1)
    return np.asarray(sums.reshape(num_questions, *values.shape[1:]), np.float64)


def _without_own(sums: Floats) -> Floats:
    """Return the sum over all other questions, for each question: [num_questions, ...]."""
    total = sums.sum(axis=0)
    others = total - sums
    return np.where(np.abs(others) > ROUNDING * np.abs(total), others, 0.0)


def _lines(gram: Floats, right: Floats, num_read: Floats) -> Floats:
    """Return intercept and lambda, [..., 2]; 0 where fewer than `MIN_READ` documents were read."""
    tiny = np.finfo(np.float64).tiny
    penalty = np.zeros(gram.shape)
    penalty[..., 0, 0], penalty[..., 1, 1] = tiny, RIDGE * np.abs(gram[..., 1, 1]) + tiny
    solution = np.linalg.solve(gram + penalty, right[..., None])[..., 0]
    return np.where((np.asarray(num_read) >= MIN_READ)[..., None], solution, 0.0)


def _correlation(
    is_read: npt.NDArray[np.bool_], labels: Floats, auxiliary: Floats, inverse: Floats
) -> float | None:
    """Return the correlation over all documents that may be read: each one read counts as 1 / probability."""
    read, predictors = labels[is_read], auxiliary[is_read]
    if len(read) < 2 or np.ptp(read) < ROUNDING or np.ptp(predictors) < ROUNDING:
        return None
    covariance = np.cov(read, predictors, aweights=inverse[is_read])
    return float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))
