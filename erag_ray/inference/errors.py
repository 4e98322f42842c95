"""The limit of a job for errors: requests without an output, and outputs without a score."""

from __future__ import annotations

from collections.abc import Iterable

from erag_ray.config.job import JobConfig
from erag_ray.support.errors import JobError
from erag_ray.support.user_code import one_line

LINE_CHARACTERS = 2000


def check_share(noun: str, num_errors: int, total: int, lines: Iterable[str], config: JobConfig) -> None:
    """Check that the errors are within ``max_error_fraction``.

    Raises:
        JobError: there are more.
    """
    most = config.max_error_fraction
    if num_errors > most * total:
        head = f"{num_errors} of {total} {noun} are errors, more than max_error_fraction {most}."
        head = f"{head} The responses so far are kept"
        raise JobError("\n  ".join([head, *(one_line(line, LINE_CHARACTERS) for line in lines)]))
