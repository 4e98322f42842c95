"""Requests without an output, outputs without a score: how many of them a job bears."""

from __future__ import annotations

from collections.abc import Iterable

from erag_ray.config import JobConfig
from erag_ray.errors import JobError
from erag_ray.user_code import one_line

LINE_CHARACTERS = 2000


def check_share(noun: str, num_errors: int, total: int, lines: Iterable[str], config: JobConfig) -> None:
    """Refuse more errors than ``max_error_fraction`` allows.

    Args:
        noun: what they are errors of.
        num_errors: how many there are.
        total: of how many.
        lines: the first few of them, by name.
        config: the job.

    Raises:
        JobError: they are more.
    """
    most = config.max_error_fraction
    if num_errors > most * total:
        head = f"{num_errors} of {total} {noun} are errors, more than max_error_fraction {most}; what was read is kept"
        raise JobError("\n  ".join([head, *(one_line(line, LINE_CHARACTERS) for line in lines)]))
