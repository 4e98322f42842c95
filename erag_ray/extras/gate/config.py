"""Config of the gate: two finished jobs, and how much worse the candidate may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from erag_ray.config import require

Change = Literal["run", "retriever", "corpus", "reader", "prompt"]


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Whether a candidate is worse than a baseline by more than a margin; each is a run in the ``out`` of a job."""

    PATHS: ClassVar = ("baseline", "candidate", "comment", "out")

    baseline: str = "results/baseline"
    """Folder of the finished job that the candidate is measured against."""

    baseline_run: str | None = None
    """Run in it (null: its only one)."""

    candidate: str | None = None
    """Folder of the candidate's finished job (null: that of the baseline)."""

    candidate_run: str | None = None
    """Run in it (null: the one named as the baseline's)."""

    depth: int | None = None
    """How many documents the reader got (null: the largest depth that both jobs have)."""

    margin: float = 0.02
    """The loss from which on a candidate is too bad, in units of the score, which lies in 0..1."""

    confidence: float = 0.95
    """Of each one-sided bound: a wrong pass, and a wrong failure, have at most the probability 1 - confidence."""

    allow_changes: list[Change] = field(default_factory=lambda: ["run", "retriever", "corpus"])
    """What may differ between the two: run (the lists of documents), retriever (the file that the lists come from),
    corpus (the passages), reader (its model, weights and settings), prompt. Any other difference is an error."""

    auxiliary: str | None = None
    """An annotator of both jobs that asks no reader, such as contains_answer_dpr, whose labels of all questions narrow
    the bounds where the reader answered a sample of them (reader_queries; null: none)."""

    num_resamples: int | None = None
    """No effect: the bounds are those of an exact test. Accepted so that job files of version 0.2 still run
    (default: null)."""

    seed: int | None = None
    """No effect, as `num_resamples` (default: null)."""

    comment: str | None = None
    """File of the Markdown comment for a pull request (null: OUT/gate.md)."""

    out: str = "results/gate"
    """Folder of the comment."""

    def __post_init__(self) -> None:
        require(self.depth is None or self.depth >= 1, f"depth must be at least 1, got {self.depth}")
        require(0 <= self.margin < 1, f"margin must lie from 0 to below 1, got {self.margin}")
        require(0.5 < self.confidence < 1, f"confidence must lie between 0.5 and 1, got {self.confidence}")
        is_file = self.comment is None or not self.comment.endswith("/")
        require(is_file, f"comment must name a file, got {self.comment}")
