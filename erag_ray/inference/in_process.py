"""PENDING to RESPONSES in this process, without Ray: for a model behind a server, a function, or one small model."""

import contextlib
import gc
import os
from collections.abc import Iterator

import pyarrow as pa

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.actor import ModelActor
from erag_ray.inference.work import Done, Work, sum_counts
from erag_ray.models import Isolation
from erag_ray.models.local.process import num_threads, set_threads
from erag_ray.store.folder import Folder
from erag_ray.store.responses import ResponseStore
from erag_ray.store.stages.lock import shared
from erag_ray.support.errors import JobError
from erag_ray.support.progress import progress
from erag_ray.support.threads import num_cpus
from erag_ray.support.user_code import RESUME_ADVICE

BLOCK_ROWS = 4096
VARIABLES = ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM", "GOMP_SPINCOUNT")


class LocalReader(ModelActor):
    """A reader in the user's own process, which it never ends."""

    def _load(self, config: ReaderConfig, name: str, memory_share: float) -> Isolation:
        # without super(), which a nested function cannot use
        return shared(f"loaded {name}", lambda: ModelActor._load(self, config, name, memory_share))

    def _end(self, error: Exception) -> None:
        """Report that the GPU is lost."""
        raise JobError(
            f"the GPU cannot be used any more: {error}; start a new process; {RESUME_ADVICE}"
        ) from error


def run_in_process(work: Work, config: JobConfig, job: str) -> Done:
    """Run the requests here, and return when their responses are in the store.

    Raises:
        JobError: the reader cannot go on; the responses so far are kept, also after the following.
        OSError, KeyboardInterrupt: the store cannot be written; Ctrl-C.
    """
    store = ResponseStore(config.cache_dir, work.model)
    reader: LocalReader | None = None
    shown: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if config.progress:
        shown = progress(lambda: reader.num_responses if reader else 0, work.num_requests, work.model)
    with store.lease(job), shown, _settings_restored():
        reader = LocalReader(
            config=work.config,
            model=work.model,
            forms=work.forms,
            store=config.cache_dir,
            job=job,
            num_threads=config.cpus_per_reader or num_cpus(),
            write_every_seconds=config.write_every_seconds,
            max_batch_seconds=None,
            max_cost=config.max_cost,
            may_all_fail=work.may_all_fail,
        )
        rows = config.rows_per_block or BLOCK_ROWS
        counts = list[pa.Table]()
        for block in _blocks(work.requests, rows):
            counts += map(pa.table, reader(block))
    return sum_counts(pa.concat_tables(counts), store, job)


def _blocks(folder: str, rows: int) -> Iterator[pa.Table]:
    """Yield PENDING in blocks, from the Parquet shards of a folder."""
    requests = Folder(folder)
    for name in sorted(requests.names(suffix=".parquet")):
        table = requests.read_parquet(name)
        for start in range(0, table.num_rows, rows):
            yield table.slice(start, rows)


@contextlib.contextmanager
def _settings_restored() -> Iterator[None]:
    """Restore the settings of this process that a `ModelActor` changes: threads, garbage collection, variables."""
    thresholds, threads = gc.get_threshold(), num_threads()
    variables = {name: os.environ.get(name) for name in VARIABLES}
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        set_threads(threads)
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
