"""Config of the gate: two finished jobs, and how much worse the candidate may be."""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from erag_ray.config.keys.values import AtLeast1, Keys, Number, Path, Text, require

Change = Literal["run", "retriever", "corpus", "reader", "prompt"]


class GateConfig(Keys):
    """Whether a candidate is worse than a baseline by more than a margin; each is a run in the ``out`` of a job."""

    baseline: Path = "results/baseline"
    """Folder of the finished job that the candidate is measured against."""

    baseline_run: Text | None = None
    """Run in it (null: its only one)."""

    candidate: Path | None = None
    """Folder of the candidate's finished job (null: that of the baseline)."""

    candidate_run: Text | None = None
    """Run in it (null: the one named as the baseline's)."""

    depth: AtLeast1 | None = None
    """How many documents the reader got (null: the largest depth that both jobs have)."""

    margin: Annotated[Number, Field(ge=0, lt=1)] = 0.02
    """The loss from which on a candidate is too bad, in units of the score, which is in 0..1."""

    confidence: Annotated[Number, Field(gt=0.5, lt=1)] = 0.95
    """Of each one-sided bound: a wrong pass, and a wrong failure, have at most the probability 1 - confidence."""

    allow_changes: list[Change] = field(default_factory=lambda: ["run", "retriever", "corpus"])
    """What may differ between the two: run (lists or given outputs), retriever (the file that the lists come from),
    corpus (the passages), reader (its model, weights and settings), prompt. Any other difference is an error."""

    auxiliary: Text | None = None
    """An annotator of both jobs that asks no reader, such as contains_answer_dpr, whose labels of all questions narrow
    the bounds where the reader answered a sample of them (reader_queries; null: none)."""

    comment: Path | None = None
    """File of the Markdown comment for a pull request (null: OUT/gate.md)."""

    out: Path = "results/gate"
    """Folder of the comment."""

    def _check(self) -> None:
        is_file = self.comment is None or not self.comment.endswith("/")
        require(is_file, f"comment must name a file, got {self.comment}")
