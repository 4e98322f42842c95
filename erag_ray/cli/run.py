"""Command line -> a running job, its messages on standard error, and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

from erag_ray.config import parse
from erag_ray.logs import on_stderr
from erag_ray.termination import sigterm_interrupts

logger = logging.getLogger(__name__)


class WritesOut(Protocol):
    """Config of any job: it has the folder that the job writes to."""

    @property
    def out(self) -> str: ...


Config = TypeVar("Config", bound=WritesOut)


def run_job(kind: type[Config], main: Callable[[Config], int | None], description: str) -> None:
    """Parse the command line and run a job.

    Nothing heavy is imported before the command line and its config files are right: so a file of ``jobs/`` imports
    what it needs inside its ``main``.

    Exit codes: 0; 2 for bad input, with one message and nothing sealed; 1 for another reason that the job knows, or a
    disk or network that fails; another that ``main`` returns as its verdict; 130 after Ctrl-C and 143 after SIGTERM,
    where responses and sealed tables are kept.
    """
    # code outside the package, named module:name in a config, may lie in the folder where the job starts
    sys.path.append(os.getcwd())
    config = parse(kind, description)
    with on_stderr(), sigterm_interrupts() as termination:
        try:
            from erag_ray.cli.job import run

            run(config, main)
        except KeyboardInterrupt:
            logger.info("stopped; start the same command again to go on")
            raise SystemExit(termination.exit_code) from None
