"""Config of the export: which labels leave, and how training data are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from erag_ray.config import require


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Labels of a finished job as a dataset, and as training data for retrievers."""

    PATHS: ClassVar = ("job", "out")

    job: str = "results/job"
    """Folder of a finished job (jobs/compare.py or jobs/annotate.py)."""

    annotator: str = "erag"
    """The annotator whose labels make the training data. The dataset of labels has those of all annotators."""

    threshold: float | None = None
    """A document with a label of at least this is a positive (null: the job's threshold, else 0.5)."""

    num_negatives: int = 1
    """Negatives of each row: documents that were retrieved for the question and have label 0 or do harm, harmful ones
    first, then by rank. Questions with fewer are left out and counted."""

    harmful_only: bool = False
    """Only documents with a gain below 0 are negatives. Needs a job with the annotator gain or gain_likelihood."""

    validation_fraction: float = 0.1
    """Share of the questions in the split validation."""

    test_fraction: float = 0.1
    """Share of the questions in the split test; the rest is train. A question's split depends on its text and the
    seed alone, so it is the same in every export."""

    seed: int = 0
    """Seed of the splits and of the order of the rows."""

    license: str = "unknown"
    """Licence of questions and passages, for the card: an identifier of the Hugging Face Hub, such as cc-by-sa-4.0."""

    out: str = "results/export"
    """Folder of README.md (the card), labels/ and training/; not the out of another job."""

    progress: bool = True
    """Show a progress bar."""

    def __post_init__(self) -> None:
        require(self.num_negatives >= 1, f"num_negatives must be at least 1, got {self.num_negatives}")
        threshold = self.threshold
        require(threshold is None or threshold > 0, f"threshold must be above 0, got {threshold}")
        for name in ("validation_fraction", "test_fraction"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must be within 0..1, got {value}")
        held_out = self.validation_fraction + self.test_fraction
        require(
            held_out < 1, f"validation_fraction and test_fraction must leave a rest, got {held_out} together"
        )
        require(self.seed >= 0, f"seed must not be negative, got {self.seed}")
