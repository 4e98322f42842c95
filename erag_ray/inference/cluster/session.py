"""The Ray that a job runs on."""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator

import ray
from ray._private import ray_constants, worker
from ray.exceptions import AuthenticationError

from erag_ray.support.errors import JobError
from erag_ray.support.termination import keep_handler
from erag_ray.support.threads import num_cpus
from erag_ray.support.user_code import one_line

logger = logging.getLogger(__name__)
FREE_CPUS = 2
QUIET = {
    "RAY_DATA_PARQUET_FOOTER_NUM_ACTORS": "1",  # its default of 32 actors costs 10 s at the start of each job
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # an error line about every Ray Data actor, which concerns large arguments
}

LEVEL_LINE, END = b"RAY_BACKEND_LOG_LEVEL", b"\0\n"
# how often Ray tries to connect (default: 20); an attempt takes 41 s where nobody answers, 1 s where it is refused
ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
REFUSALS = (AuthenticationError, ConnectionError)
TOKEN_HINT = (
    ". If the cluster is up, it may want a token: Ray 2.60 does wherever ~/.ray/auth_token exists. Set "
    "RAY_AUTH_MODE=token, with the same token on this machine; see 'Machines of your own' in jobs/cluster/README.md"
)


@contextlib.contextmanager
def ray_session(address: str | None = None) -> Iterator[None]:
    """A Ray to run on: the one that is initialised, the given or surrounding cluster, else a local one.

    A Ray that this starts is shut down at the end. Raise JobError if the cluster cannot be had.
    """
    if ray.is_initialized():
        yield
        return
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    address = address or os.environ.get("RAY_ADDRESS")
    # Ray's own handler kills its processes before this one has closed what it has open there, which ends in an abort
    with keep_handler(signal.SIGTERM), _without_level_line():
        if address:
            _connect(address)
        else:
            _start()
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _without_level_line() -> Iterator[None]:
    """While open, standard error lacks the line in which Ray's C++ code tells its log level; it has no switch."""
    stderr, (source, sink) = os.dup(2), os.pipe()
    passing = threading.Thread(target=_pass_lines, args=(source, stderr), daemon=True)
    passing.start()
    os.dup2(sink, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        # not by closing it: Ray's processes have inherited the other end
        os.write(sink, END)
        passing.join()
        for descriptor in (source, sink, stderr):
            os.close(descriptor)


def _pass_lines(source: int, target: int) -> None:
    with open(source, "rb", closefd=False) as lines, contextlib.suppress(OSError):
        for line in lines:
            if LEVEL_LINE not in line:
                os.write(target, line.removesuffix(END))
            if line.endswith(END):
                return


def _start() -> None:
    """Start a local Ray; once more if its processes do not start in time."""
    for is_last in (False, True):
        try:
            return _start_once()
        except Exception as error:  # Ray has no type of its own for this
            reason = one_line(str(error))
            ray.shutdown()
        if not is_last:
            logger.info("Ray did not start: %s. It is started once more", reason)
    raise JobError(
        f"Ray did not start on this machine, tried twice: {reason}. Is the machine overloaded, or its memory, /tmp or "
        "/dev/shm full? Start the same command again, or name a running cluster by ray_address"
    )


def _start_once() -> None:
    """Start a local Ray whose processes listen on 127.0.0.1 only."""
    # as Ray does on macOS and Windows; its argument for the address replaces 127.0.0.1 by the machine's
    is_cluster, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        ray.init(
            address="local",  # else a cluster that happens to run on this machine would be looked for
            # the pool takes the CPUs; reading Parquet needs logical ones of its own, or nothing moves
            num_cpus=num_cpus() + FREE_CPUS,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = is_cluster


def _connect(address: str) -> None:
    attempts = os.environ.get(ATTEMPTS)
    os.environ[ATTEMPTS] = attempts or "1"
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (*REFUSALS, RuntimeError, ValueError) as error:
        reason = " ".join(str(getattr(error, "message", error)).split())
        hint = TOKEN_HINT if isinstance(error, REFUSALS) else ""
        raise JobError(f"ray_address or RAY_ADDRESS: no connection to {address}: {reason}{hint}") from error
    finally:
        if attempts is None:
            del os.environ[ATTEMPTS]


def session_folder() -> list[str]:
    """Return the folder of Ray's logs and spilled objects on this machine; none without a Ray."""
    node = worker._global_node
    return [node.get_session_dir_path()] if node else []
