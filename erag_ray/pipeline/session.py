"""The Ray that a job runs on."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

import ray

FREE_CPUS = 2
QUIET = {
    "RAY_DATA_PARQUET_FOOTER_NUM_ACTORS": "1",  # its default of 32 actors costs 10 s at the start of each job
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # an error line about every Ray Data actor, which concerns large arguments
}


@contextlib.contextmanager
def ray_session(address: str | None = None) -> Iterator[None]:
    """A Ray to run on: the one that is initialised, the given or surrounding cluster, else a local one.

    A Ray that this starts is shut down at the end.
    """
    if ray.is_initialized():
        yield
        return
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
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
