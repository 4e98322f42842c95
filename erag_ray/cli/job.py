"""A job with its config: its paths are checked, its folder is locked, its errors become one message and an exit code.

Refused are outputs that would not last, and inputs that the job would replace. Object stores are checked before
anything is read, so that one out of reach costs one short wait.
"""

import contextlib
import itertools
import logging
import os
import pathlib
import posixpath
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from erag_ray.config.keys.values import paths_of
from erag_ray.store.digests import CACHE
from erag_ray.store.folder import Folder
from erag_ray.store.stages.lock import job_memory, locked
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.registry import install_advice
from erag_ray.support.threads import give_way
from erag_ray.support.uris import is_uri

logger = logging.getLogger(__name__)
Config = TypeVar("Config", bound=Any)
OUTPUTS = ("out", "cache_dir")
# the end of Ray's path, on each node, to the folders of submitted working_dirs; each state of one has its own folder
UNPACKED = ("runtime_resources", "working_dir_files")
ANSWER_SECONDS = 30.0
SETTINGS = {
    "s3": "AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


def run(config: Config, main: Callable[[Config], int | None]) -> None:
    """Run a job in its folder.

    Raises:
        SystemExit: with the code that ``main`` returns, if it is not 0; 2 for bad input, 1 for another error that a job
            knows, or of a disk or network.
    """
    give_way()
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
    """Check and lock a job's folder; raise InputError if a path cannot be used, or another job works in the folder."""
    check_outputs(config)
    check_inputs(config)
    check_access(config)
    with locked(config.out), job_memory():
        yield


def _end(code: int, text: str) -> NoReturn:
    logger.error("%s", text)
    raise SystemExit(code) from None


def check_outputs(config: Any) -> None:
    """Refuse, by InputError, outputs in Ray's copy of the working_dir: after an edit the next job has another copy."""
    paths = {name: getattr(config, name) for name in OUTPUTS if hasattr(config, name)}
    paths[CACHE] = os.environ.get(CACHE, "")
    lost = [f"{name} ({path})" for name, path in paths.items() if path and _is_in_copy(path)]
    if lost:
        what = f"{' and '.join(lost)} would lie in Ray's copy of the working_dir"
        why = "after an edit the next submission gets another copy, and Ray deletes old ones"
        what_to_do = "Give paths that all nodes see: absolute ones such as /shared/nq, or URIs"
        raise InputError([f"{what}: {why}. {what_to_do}"])


def check_inputs(config: Any) -> None:
    """Refuse, by InputError, inputs and caches inside the job's own ``out``, where it writes."""
    out = _normal(config.out)
    problems = [
        f"{key}: {path} is inside out ({config.out}), where this job writes and deletes. Choose another out"
        for key, path in paths_of(config)
        if key != "out" and _is_inside(path, out) and (key == "cache_dir" or _is_input(path, out))
    ]
    if problems:
        raise InputError(problems)


def _is_inside(path: str, folder: str) -> bool:
    return f"{_normal(path)}/".startswith(f"{folder}/")


def _is_input(path: str, out: str) -> bool:
    """Return whether a path is not a name from a hub, nor an input that a comparison in Python has written itself."""
    return (is_uri(path) or os.path.exists(os.path.expanduser(path))) and not _is_inside(path, f"{out}/given")


def _normal(path: str) -> str:
    return posixpath.normpath(path) if is_uri(path) else os.path.realpath(os.path.expanduser(path))


def _is_in_copy(path: str) -> bool:
    return not is_uri(path) and UNPACKED in itertools.pairwise(pathlib.Path(_normal(path)).parts)


def check_access(config: Any) -> None:
    """Raise InputError unless every bucket of the config answers, by its first path; all are checked at once."""
    firsts: dict[str, str] = {}
    for uri in (path for _, path in paths_of(config) if is_uri(path)):
        firsts.setdefault("/".join(uri.split("/")[:3]), uri)
    faults: dict[str, str | None] = dict.fromkeys(firsts.values())
    asking = [threading.Thread(target=_ask, args=(uri, faults), daemon=True) for uri in faults]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(ANSWER_SECONDS)
    for uri, thread in zip(faults, asking, strict=True):
        if thread.is_alive():
            faults[uri] = f"no answer within {ANSWER_SECONDS:.0f} seconds"
    problems = [f"{uri}: {fault}{_hint(uri)}" for uri, fault in faults.items() if fault]
    if problems:
        raise InputError(problems)


def _ask(uri: str, faults: dict[str, str | None]) -> None:
    try:
        Folder(uri).exists()
    except (OSError, ValueError, pa.ArrowException) as error:
        faults[uri] = f"cannot be reached: {error}"


def _hint(uri: str) -> str:
    names = SETTINGS.get(uri.partition("://")[0])
    return f" (the environment says where it is and who asks: {names})" if names else ""
