"""Command line -> a running job, its messages on standard error, and an exit code."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import TypeVar

from erag_ray import __version__
from erag_ray.cli.jobs import JOBS
from erag_ray.config.command_line.parsing import parse
from erag_ray.support.logs import on_stderr
from erag_ray.support.masking import masked_traceback
from erag_ray.support.registry import find, plugins
from erag_ray.support.termination import sigterm_interrupts

logger = logging.getLogger(__name__)


Config = TypeVar("Config")


def run_job(kind: type[Config], main: Callable[[Config], int | None], description: str) -> None:
    """Parse the command line and run a job.

    Nothing heavy is imported before the command line and its config files are right.

    Exit codes: 0; 2 for bad input, with one message; 1 for another reason that the job knows, or a
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


def run(name: str) -> None:
    """Parse the command line and run the job of a name, as `run_job` does.

    Raises:
        SystemExit: 2 where there is no such job, or it cannot be imported.
    """
    try:
        job = find("job", name, JOBS)
    except ValueError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    run_job(job.config, job.main, inspect.getdoc(job.main) or "")


def main() -> None:
    """Run the job that is the first word of the command line, or list all."""
    name = sys.argv[1] if sys.argv[1:] else "--help"
    if name in ("-h", "--help", "--version"):
        print(f"erag-ray {__version__}" if name == "--version" else _usage())
        return
    sys.argv[:2] = [f"erag-ray {name}"]
    run(name)


def _usage() -> str:
    """Return the names of all jobs, and the first line of the help of each."""
    lines = ["usage: erag-ray JOB --config FILE.yaml [--KEY VALUE ...], or erag-ray JOB --help", ""]
    for name in {**JOBS, **plugins("job")}:
        with contextlib.suppress(ValueError):
            text = inspect.getdoc(find("job", name, JOBS).main) or ""
            lines.append(f"  {name:12}{text.partition(chr(10))[0]}")
    cluster = (
        "on a cluster, in a clone: ray job submit --working-dir . -- python jobs/JOB.py --config FILE.yaml"
    )
    return "\n".join([*lines, "", cluster])
