"""Command line -> a running job, its messages on standard error, and an exit code."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from erag_ray.config.command_line.parsing import parse
from erag_ray.support.logs import on_stderr
from erag_ray.support.masking import masked_traceback
from erag_ray.support.registry import find, plugins
from erag_ray.support.termination import sigterm_interrupts

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
    sys.excepthook = lambda _, error, __: print(masked_traceback(error), file=sys.stderr)
    config = parse(kind, description)
    with on_stderr(), sigterm_interrupts() as termination:
        try:
            from erag_ray.cli.job import run

            run(config, main)
        except KeyboardInterrupt:
            logger.info("stopped; start the same command again to go on")
            raise SystemExit(termination.exit_code) from None


@dataclasses.dataclass(frozen=True)
class Job:
    """A job of an extra: an entry point of the group ``erag_ray.jobs``.

    Attributes:
        config: its config.
        main: runs it; imports what is heavy itself, and returns an exit code or None.
    """

    config: type[Any]
    main: Callable[[Any], int | None]


def run_extra(name: str, description: str) -> None:
    """Parse the command line and run the job called ``name`` of an extra, as `run_job` does.

    Raises:
        SystemExit: 2 where the extra is not installed or cannot be imported.
    """
    if name not in plugins("job"):
        print(f"the job {name} belongs to an extra of erag_ray that is not installed", file=sys.stderr)
        raise SystemExit(2)
    try:
        job: Job = find("job", name, {})
    except ValueError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    run_job(job.config, job.main, description)
