"""Config of the papers' tables and figures: the finished jobs and their parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from erag_ray.config import require


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
