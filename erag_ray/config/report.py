"""Keys of the report: of jobs that write one, and of the job that makes it again from a finished folder."""

from dataclasses import field
from typing import Literal

from erag_ray.config.keys.values import AtLeast1, Flag, Keys, Path


class ReportKeys(Keys):
    """Content of a report's page for each question."""

    texts: Literal["all", "snippets", "none"] = "all"
    """Texts of the documents: all, snippets (their beginnings), or none."""

    depth: AtLeast1 = 10
    """The first documents of each list that are shown at once, with texts; deeper ones have a title and labels only."""

    single_file: Flag = False
    """Write the page as one file, to be mailed, instead of a folder of files."""


class ReportConfig(Keys):
    """The report of a finished job, made again only from its sealed tables."""

    out: Path = "results/job"
    """Folder of a finished job (erag-ray compare or erag-ray evaluate); the report is written there."""

    verbose: Flag = False
    """Print all tables, warnings and notes before the verdict."""

    report: ReportKeys = field(default_factory=ReportKeys)
    """Content of the page."""

    progress: Flag = True
    """Show a progress bar."""
