"""A job with its config: its folder is locked, its errors become one message and an exit code."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from erag_ray.cli.paths import check_access, check_inputs, check_outputs
from erag_ray.store.stages.lock import locked
from erag_ray.store.stages.memory import job_memory
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.registry import install_advice

logger = logging.getLogger(__name__)
Config = TypeVar("Config", bound=Any)


def run(config: Config, main: Callable[[Config], int | None]) -> None:
    """Run a job in its folder.

    Raises:
        SystemExit: with the code that ``main`` returns, if it is not 0; 2 for bad input, 1 for another error that a job
            knows, or of a disk or network.
    """
    try:
        with job_folder(config):
            code = main(config)
    except InputError as error:
        _end(2, str(error))
    except JobError as error:
        _end(1, str(error))
    except ModuleNotFoundError as error:
        if not (advice := install_advice(error)):
            raise
        _end(2, f"{error.name} is not installed{advice}")
    except OSError as error:
        advice = "responses and sealed tables so far are kept. Make room or repair it, and start the same command again"
        _end(1, f"the job cannot go on: {error}; {advice}")
    if code:
        raise SystemExit(code)


@contextlib.contextmanager
def job_folder(config: Any) -> Iterator[None]:
    """Check and lock a job's folder.

    Raises:
        InputError: a path cannot be used, or another job works in the folder.
    """
    check_outputs(config)
    check_inputs(config)
    check_access(config)
    with locked(config.out), job_memory():
        yield


def _end(code: int, text: str) -> NoReturn:
    logger.error("%s", text)
    raise SystemExit(code) from None
