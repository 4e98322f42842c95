"""Labels in rank order, as far as they were read, and what they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Labels in rank order, as far as they were read.

    Raises:
        ValueError: shapes that differ; a weight other than 0 or at least 1; a label that was read and is negative or
            not finite; a guess that is not finite.
    """

    labels: Floats
    """[..., depth]; what stands where nothing was read does not matter."""
    weights: Floats
    """[..., depth], 1 / probability where a label was read, 0 elsewhere and behind the end of a list."""
    guesses: Floats | None = None
    """[..., depth], what each label was thought to be, without looking at the label of the same query; only the
    difference from it is then expanded (the difference estimator: Särndal, Swensson & Wretman 1992, section 6.3)."""

    def __post_init__(self) -> None:
        shapes = {np.shape(part) for part in (self.labels, self.weights, self.guesses) if part is not None}
        if len(shapes) > 1 or self.labels.ndim < 1:
            raise ValueError(f"labels, weights and guesses must have one shape, got {sorted(shapes)}")
        if not ((self.weights == 0) | (self.weights >= 1)).all() or not np.isfinite(self.weights).all():
            raise ValueError("weights must be 1 / probability where a label was read, and 0 elsewhere")
        known = self.labels[self.weights > 0]
        if not (np.isfinite(known) & (known >= 0)).all():
            raise ValueError("labels that were read must be finite and at least 0")
        if self.guesses is not None and not np.isfinite(self.guesses).all():
            raise ValueError("guesses must be finite")

    @property
    def known(self) -> Floats:
        """The labels that were read, 0 elsewhere."""
        return np.where(self.weights > 0, self.labels, 0.0)

    def expanded(self, power: int = 1) -> Floats:
        """Each label, or its square, in expectation."""
        if self.guesses is None:
            return self.weights * self.known**power
        guesses = self.guesses**power
        return guesses + self.weights * np.where(self.weights > 0, self.known**power - guesses, 0.0)

    def cut(self, depth: int) -> Sampled:
        """The first ranks alone."""
        guesses = None if self.guesses is None else self.guesses[..., :depth]
        return Sampled(labels=self.labels[..., :depth], weights=self.weights[..., :depth], guesses=guesses)


def ranks(cutoff: int) -> Floats:
    """1 to the cut-off."""
    return np.arange(1.0, cutoff + 1)


def discounts(cutoff: int) -> Floats:
    """1 / log2(rank + 1) of the ranks 1 to the cut-off."""
    return np.asarray(1 / np.log2(ranks(cutoff) + 1))
