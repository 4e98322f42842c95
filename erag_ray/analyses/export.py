"""Runs and LABELS -> TREC files."""

import functools
import re
from collections.abc import Callable, Iterator

import polars as pl
import xxhash

from erag_ray.config.job import JobConfig
from erag_ray.data.runs.trec import trec_qrels, trec_run
from erag_ray.inputs.evidence import Inputs
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import LABELS
from erag_ray.store.stages.stage import EXPORT
from erag_ray.store.tables import TableStore
from erag_ray.support.progress import stage_progress

MAX_NAME = 150


def export(config: JobConfig, inputs: Inputs) -> list[str]:
    """Write runs as TREC runs and LABELS as TREC qrels under ``trec/``.

    Return what could not be written, and why; it is in the manifest there too.
    """
    tables = TableStore(config.out)
    labels, folder = tables.read(LABELS), tables.folder
    notes: list[str] = []
    folder.delete_folder(EXPORT)
    with stage_progress("TREC files", show=config.progress) as at:
        for name, write in at.each(list(_trec_files(config, inputs, labels)), "files"):
            notes += _export(folder, name, write)
    tables.write_manifest({"notes": notes}, EXPORT)
    return notes


def _trec_files(
    config: JobConfig, inputs: Inputs, labels: pl.DataFrame
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for (run_id,), run in inputs.runs.group_by("run_id", maintain_order=True):
        yield f"{run_id}.trec", functools.partial(trec_run, run)
    for (annotator, reader, score), part in labels.group_by(
        "annotator", "reader", "score", maintain_order=True
    ):
        name = ".".join(str(word) for word in (annotator, score, reader) if word) + ".qrels"
        yield name, functools.partial(trec_qrels, part, config.threshold)


def _export(out: Folder, name: str, write: Callable[[], bytes]) -> Iterator[str]:
    # a name may come from a config or from outside code: it must not leave the folder
    safe = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[-MAX_NAME:]
    if safe != name or name.startswith("."):
        # and two names must not become one file
        safe = f"{xxhash.xxh3_64_hexdigest(name.encode())[:8]}-{safe}"
    try:
        data = write()
    except ValueError as error:
        yield f"{EXPORT}/{safe} was not written: {error}"
    else:
        out.write_bytes(data, EXPORT, safe)
