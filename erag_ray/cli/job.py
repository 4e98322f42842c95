"""A job with its config: its folder is locked, its errors become one message and an exit code."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from erag_ray.cli.access import check_access
from erag_ray.cli.public import with_public
from erag_ray.cli.submission import check_outputs
from erag_ray.errors import InputError, JobError
from erag_ray.stages import locked
from erag_ray.store import JobTracebacks

logger = logging.getLogger(__name__)
Config = TypeVar("Config", bound=Any)


def run(config: Config, main: Callable[[Config], int | None]) -> None:
    """Run a job in its folder; log where the tracebacks of user code are, if there are any.

    Raises:
        SystemExit: with the code that ``main`` returns, if it is not 0; 2 for bad input, 1 for another error that a job
            knows, or of a disk or network.
    """
    tracebacks = JobTracebacks(config.out)
    try:
        check_outputs(config)
        check_access(config)
        with locked(config.out), tracebacks:
            code = main(with_public(config))
    except InputError as error:
        _end(2, str(error))
    except JobError as error:
        _end(1, str(error))
    except OSError as error:
        kept = "what was read and sealed so far is kept; make room or mend that, and start the same command again"
        _end(1, f"the job cannot go on: {error}; {kept}")
    finally:
        for line in tracebacks.named():
            logger.info("%s", line)
    if code:
        raise SystemExit(code)


def _end(code: int, text: str) -> NoReturn:
    logger.error("%s", text)
    raise SystemExit(code) from None
