"""Settings of the analyses, and names that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.config.job import JobConfig

ANY = "any"
"""The ideal of a measure that has none."""
OWN_LIST = "list"
"""The ideal, and the recall base, of the run's own list."""
POOL = "pool"
"""Those of the union of all compared runs."""
IDEALS = (OWN_LIST, POOL)

Floats = npt.NDArray[np.float64]
Name = tuple[str, int, str, int, str]
"""run_id, depth, measure, cutoff and ideal."""
ListValues = tuple[Name, Floats]
"""The name of a measure; its values [num_queries], NaN where not judged."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the evaluation.

    Attributes:
        depths: lists are cut to each of these: those of the end-to-end scores, and the labels' own.
        measures: names; None takes all that a column of labels allows.
        cutoffs: ranks; those beyond a depth are left out, the depth itself is added.
        threshold: for measures that need binary labels.
        statistics: names of `measures.agreement.STATISTICS`.
        num_resamples: bootstrap resamples of the queries, the same for every column of a dataset.
        confidence: of the intervals.
        num_permutations: random pairings of measure and utility behind each p-value of a correlation.
        seed: of the resamples and the permutations.
        slices: paths in the records of questions, and `config.job.KNOWN`.
        ideals: which of `IDEALS` measures use; those without an ideal are computed in any case.
        auxiliary: the annotator whose labels predict what the reader was not asked (None: nothing is predicted).
        clusters: CLUSTERS: intervals and tests draw, flip and permute these (None: each query by itself).
    """

    depths: Sequence[int]
    measures: Sequence[str] | None
    cutoffs: Sequence[int]
    threshold: float | None = None
    statistics: Sequence[str] = ()
    num_resamples: int = 0
    confidence: float = JobConfig.confidence
    num_permutations: int = 0
    seed: int = 0
    slices: Sequence[str] = ()
    ideals: Sequence[str] = IDEALS
    auxiliary: str | None = None
    clusters: pl.DataFrame | None = None

    def cutoffs_at(self, depth: int) -> list[int]:
        return sorted({cutoff for cutoff in self.cutoffs if cutoff <= depth} | {depth})


def settings_of(config: JobConfig, clusters: pl.DataFrame | None = None) -> Settings:
    """Return the part of a config that analyses need, with the job's CLUSTERS."""
    return Settings(
        depths=sorted({*config.depths, config.depth}),
        measures=config.measures,
        cutoffs=config.cutoffs,
        threshold=config.threshold,
        statistics=config.statistics,
        num_resamples=config.num_resamples,
        confidence=config.confidence,
        num_permutations=config.num_permutations,
        seed=config.seed,
        slices=tuple(dict.fromkeys(config.slices)),
        ideals=(OWN_LIST,) if len(config.searched_corpora) > 1 else IDEALS,
        auxiliary=config.auxiliary,
        clusters=clusters,
    )
