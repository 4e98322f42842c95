"""Config of the sequential test: the better of two runs, with as few responses as possible."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from erag_ray.config import JobConfig, require


@dataclass(frozen=True, kw_only=True)
class SettleConfig(JobConfig):
    """A comparison of two runs that stops when it is settled; all other keys are those of jobs/compare.py."""

    EVERYDAY: ClassVar = {
        "Comparison": (
            "compare",
            "measure",
            "cutoff",
            "fraction",
            "num_looks",
            "equivalence_margin",
            "confidence",
        ),
        **JobConfig.EVERYDAY,
    }

    compare: list[str] = field(default_factory=list)
    """The two runs."""

    measure: Literal["P", "DCG"] = "P"
    """What is compared: P, or DCG (what nDCG is before it is divided by the ideal)."""

    cutoff: int | None = None
    """The rank at which it is taken (null: depth)."""

    fraction: float = 0.5
    """How many readings are expected if no look settles it: this fraction of the documents in the two lists down to the
    cut-off. With a larger one the job goes on from what a smaller one has read (a second chance to be wrong, of which
    the intervals do not know)."""

    num_looks: int = 5
    """How often one looks, each time after as many further questions; a reader's model is loaded for each."""

    equivalence_margin: float = 0.02
    """A difference that is known to within this, above or below, is settled too; in the measure's own units."""

    boundary: Literal["even", "late", "mixture"] = "even"
    """How the looks share the errors that ``confidence`` leaves: even stops earliest, late keeps them for the end and
    has the narrowest interval there, mixture would hold at every single question."""

    def __post_init__(self) -> None:
        super().__post_init__()
        cutoff = self.depth if self.cutoff is None else self.cutoff
        require(1 <= cutoff <= self.depth, f"cutoff: {cutoff} is not within 1..depth={self.depth}")
        require(0 < self.fraction <= 1, f"fraction must lie above 0 and not above 1, got {self.fraction}")
        require(self.num_looks >= 1, f"num_looks must be at least 1, got {self.num_looks}")
        require(
            self.equivalence_margin >= 0,
            f"equivalence_margin must not be negative, got {self.equivalence_margin}",
        )

    @property
    def rank(self) -> int:
        """The rank at which the measure is taken."""
        return self.depth if self.cutoff is None else self.cutoff
