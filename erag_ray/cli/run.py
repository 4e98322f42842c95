"""The walk, step by step: what the jobs string together. Each step reads sealed tables and seals its own.

`inputs` (files -> tables), `reading` (tables -> readings), `judging` (readings -> labels, correlations, report).
`reading` brings Ray and torch, so it is imported by the jobs that read, not here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar

from erag_ray.cli.access import check_access
from erag_ray.cli.public import with_public
from erag_ray.cli.submission import check_outputs
from erag_ray.config import parse
from erag_ray.progress import say
from erag_ray.schemas import InputError, JobError
from erag_ray.stages import locked
from erag_ray.store import JobTracebacks


class WritesOut(Protocol):
    """What every job's config has: the folder that it writes to."""

    @property
    def out(self) -> str: ...


Config = TypeVar("Config", bound=WritesOut)


def run_job(kind: type[Config], main: Callable[[Config], None], description: str) -> None:
    """Parse the command line and run a job; bad input ends it with code 2 and one message, nothing sealed.

    A job that cannot go on for another reason that it knows, or because a disk or the network does not let it, ends
    with code 1 and its message.
    """
    # code outside the package, named module:name in a config, may lie in the folder where the job starts
    sys.path.append(os.getcwd())
    config = parse(kind, description)
    tracebacks = JobTracebacks(config.out)
    try:
        check_outputs(config)
        check_access(config)
        with locked(config.out), tracebacks:
            main(with_public(config))
    except InputError as error:
        _end(2, str(error), tracebacks)
    except JobError as error:
        _end(1, str(error), tracebacks)
    except OSError as error:
        kept = "what was read and sealed so far is kept; make room or mend that, and start the same command again"
        _end(1, f"the job cannot go on: {error}; {kept}", tracebacks)
    except KeyboardInterrupt:
        _end(130, "stopped; start the same command again to go on", tracebacks)
    say(*tracebacks.named())


def _end(code: int, text: str, tracebacks: JobTracebacks) -> NoReturn:
    say(text, *tracebacks.named())
    raise SystemExit(code) from None
