"""Configs of the papers' tables and figures, and of a retrieval whose passages are labelled by two rules."""

from dataclasses import field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from erag_ray.config.keys.values import AtLeast1, Keys, Number, Path, Text
from erag_ray.config.retrieval import RetrieveConfig


class PapersConfig(Keys):
    """Tables and figures of the papers from finished jobs; each folder is the ``out`` of a job."""

    comparison: Path = "results/papers/fid"
    """Table 1, Figure 1 and the reproduction's table: a comparison at several depths."""

    by_size: dict[str, Path] = field(default_factory=dict)
    """Figure 2: reader size -> comparison, all with the same questions and runs."""

    by_augmentation: dict[str, Path] = field(default_factory=dict)
    """Figure 3: FiD and IPA -> comparison, both with the same questions and runs."""

    dual_labels: Path | None = None
    """Table 3 of the dual-label paper: a job of erag-ray dual_labels."""

    size_depth: AtLeast1 = 50
    """Figure 2: number of documents."""

    augmentation_depth: AtLeast1 = 10
    """Figure 3: number of documents."""

    reproduction_depth: AtLeast1 = 40
    """The reproduction's table: number of documents."""

    statistic: Text = "kendall_tau_b"
    """Statistic of agreement in the figures: kendall_tau_b or spearman_rho."""

    out: Path = "results/papers/report"
    """Folder of report.md and of the figures: their data (such as figure_2.csv) and pictures (such as figure_2.svg)."""


class DualLabelsConfig(RetrieveConfig):
    """A retrieval, and how the best passage of each question is labelled."""

    EVERYDAY: ClassVar = {**RetrieveConfig.EVERYDAY, "Labels": ("word_rule", "confidence")}

    splitter: Text = "recursive_characters"
    """How pages become passages: whitespace100 (windows of 100 words; any other number too), recursive_characters
    (300 characters, by LangChain), or package.module:name."""

    word_rule: Literal["contains_answer_kilt", "contains_answer_dpr"] = "contains_answer_kilt"
    """When a passage contains an answer: as a substring of the normalised text (so also before a Korean particle), or
    as whole tokens."""

    confidence: Annotated[Number, Field(gt=0, lt=1)] = 0.95
    """Coverage of the intervals."""

    depth: AtLeast1 = 1
    """Length of the lists; only the first passage is labelled."""

    out: Path = "results/dual_labels"
    """Folder of <out>/runs/NAME.parquet, <out>/dual_labels, <out>/indexes and, from pages, <out>/corpus."""
