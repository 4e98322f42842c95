"""Settings of the analyses, and names that they share."""

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
    """Settings of the evaluation."""

    depths: Sequence[int]
    """Lists are cut to each of these: those of the end-to-end scores, and the labels' own."""
    measures: Sequence[str] | None
    """Names; None takes all that a column of labels allows."""
    cutoffs: Sequence[int]
    """Ranks; those beyond a depth are left out, the depth itself is added."""
    threshold: float | None = None
    """For measures that need binary labels."""
    statistics: Sequence[str] = ()
    """Names of `measures.agreement.STATISTICS`."""
    num_resamples: int = 0
    """Bootstrap resamples of the queries, the same for every column of a dataset."""
    confidence: float = JobConfig.confidence
    """Of the intervals."""
    num_permutations: int = 0
    """Random pairings of measure and utility behind each p-value of a correlation."""
    seed: int = 0
    """Of the resamples and the permutations."""
    slices: Sequence[str] = ()
    """Paths in the records of questions, and `config.job.KNOWN`."""
    ideals: Sequence[str] = IDEALS
    """Which of `IDEALS` measures use; those without an ideal are computed in any case."""
    auxiliary: str | None = None
    """The annotator whose labels predict what the reader was not asked (None: nothing is predicted)."""
    clusters: pl.DataFrame | None = None
    """CLUSTERS: intervals and tests draw, flip and permute these (None: each query by itself)."""

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
