"""Keys of the report, and the config of the job that makes it again from a finished folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from erag_ray.config.check import require
from erag_ray.config.keys import check_types


@dataclass(frozen=True, kw_only=True)
class ReportKeys:
    """Content of a report's page for each question."""

    texts: Literal["all", "snippets", "none"] = "all"
    """Texts of the documents: all, snippets (their beginnings), or none."""

    depth: int = 10
    """The first documents of each list that are shown at once, with texts; deeper ones have a title and labels only."""

    single_file: bool = False
    """Write the page as one file, to be mailed, in place of a folder of files."""

    def __post_init__(self) -> None:
        check_types(self)
        require(self.depth >= 1, f"report.depth must be at least 1, got {self.depth}")


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """The report of a finished job, made again from its sealed tables alone."""

    PATHS: ClassVar = ("out",)

    out: str = "results/job"
    """Folder of a finished job (jobs/compare.py or jobs/evaluate.py); the report is written there."""

    verbose: bool = False
    """Print all tables, warnings and notes before the verdict."""

    report: ReportKeys = field(default_factory=ReportKeys)
    """What the page holds."""

    progress: bool = True
    """Show a progress bar."""
