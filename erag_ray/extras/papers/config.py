"""Configs of the papers' tables and figures, and of a retrieval whose passages are labelled by two rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from erag_ray.config import RetrieveConfig, require


@dataclass(frozen=True, kw_only=True)
class PapersConfig:
    """Tables and figures of the papers from finished jobs; each folder is the ``out`` of a job."""

    PATHS: ClassVar = ("comparison", "by_size", "by_augmentation", "dual_labels", "out")

    comparison: str = "results/papers/fid"
    """Table 1, Figure 1 and the reproduction's table: a comparison at several depths."""

    by_size: dict[str, str] = field(default_factory=dict)
    """Figure 2: reader size -> comparison, all with the same questions and runs."""

    by_augmentation: dict[str, str] = field(default_factory=dict)
    """Figure 3: FiD and IPA -> comparison, both with the same questions and runs."""

    dual_labels: str | None = None
    """Table 3 of the dual-label paper: a job of jobs/dual_labels.py."""

    size_depth: int = 50
    """Figure 2: number of documents."""

    augmentation_depth: int = 10
    """Figure 3: number of documents."""

    reproduction_depth: int = 40
    """The reproduction's table: number of documents."""

    statistic: str = "kendall_tau_b"
    """Statistic of agreement in the figures: kendall_tau_b or spearman_rho."""

    out: str = "results/papers/report"
    """Folder of report.md and of the figures: their data (such as figure_2.csv) and pictures (such as figure_2.svg)."""

    def __post_init__(self) -> None:
        for name in ("size_depth", "augmentation_depth", "reproduction_depth"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class DualLabelsConfig(RetrieveConfig):
    """A retrieval, and how the best passage of each question is labelled."""

    EVERYDAY: ClassVar = {**RetrieveConfig.EVERYDAY, "Labels": ("word_rule", "confidence")}

    splitter: str = "recursive_characters"
    """How pages become passages: whitespace100 (windows of 100 words; any other number too), recursive_characters
    (300 characters, by LangChain), or package.module:name."""

    word_rule: Literal["contains_answer_kilt", "contains_answer_dpr"] = "contains_answer_kilt"
    """When a passage holds an answer: as a substring of the normalised text (so also before a Korean particle), or
    as whole tokens."""

    confidence: float = 0.95
    """Coverage of the intervals."""

    depth: int = 1
    """Length of the lists; only the first passage is labelled."""

    out: str = "results/dual_labels"
    """Folder of <out>/runs/NAME.parquet, <out>/dual_labels, <out>/indexes and, from pages, <out>/corpus."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.confidence < 1, f"confidence must lie between 0 and 1, got {self.confidence}")
