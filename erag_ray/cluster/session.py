"""The Ray that a job runs on."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import ray
from ray.exceptions import AuthenticationError

from erag_ray.schemas import JobError

FREE_CPUS = 2
ROUNDING = 1e-9
"""Of shares of a GPU: ten tenths are one."""
GPU_WAIT_SECONDS, LOOK_SECONDS = 900.0, 5.0
QUIET = {
    "RAY_DATA_PARQUET_FOOTER_NUM_ACTORS": "1",  # its default of 32 actors costs 10 s at the start of each job
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # an error line about every Ray Data actor, which concerns large arguments
}

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

    A Ray that this starts is shut down at the end.

    Raises:
        JobError: the cluster cannot be had.
    """
    if ray.is_initialized():
        yield
        return
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        _connect(address)
    else:
        # the pool takes the cores; reading Parquet needs logical CPUs of its own, or nothing moves
        cores = os.cpu_count() or 1
        ray.init(
            address="local",  # else a cluster that happens to run on this machine would be looked for
            num_cpus=cores + FREE_CPUS,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    """Connect to a running cluster.

    Raises:
        JobError: there is none, or it does not let this process in.
    """
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


def nodes_alive() -> list[Mapping[str, float]]:
    """The resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def num_gpus_of(nodes: Sequence[Mapping[str, float]]) -> int:
    """All GPUs of these nodes."""
    return int(sum(node.get("GPU", 0) for node in nodes))


def gpu_room(num_gpus: float, each: float) -> int:
    """Return how many actors that need ``each`` GPUs fit on so many; 0 where they need none."""
    return int(num_gpus / each + ROUNDING) if each else 0


def wait_for_gpus(count: int | None) -> None:
    """Until the cluster has so many GPUs: its machines may still be starting, and a smaller pool would stay small.

    Raises:
        JobError: they did not come within `GPU_WAIT_SECONDS`.
    """
    deadline, last_count = time.monotonic() + GPU_WAIT_SECONDS, -1
    while (found := num_gpus_of(nodes_alive())) < (count or 0):
        if time.monotonic() > deadline:
            waited = f"after {GPU_WAIT_SECONDS:.0f} s"
            raise JobError(
                f"wait_for_gpus: {count}, but the cluster has {found} {waited}; start the job again"
            )
        if found != last_count:
            print(f"waiting for GPUs: {found} of {count} are here", file=sys.stderr, flush=True)
        last_count = found
        time.sleep(LOOK_SECONDS)
