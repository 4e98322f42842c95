"""How large work is cut: numbered tasks that leave a file each, and the folder they lie in.

A worker is made once in each process that works and then called with task numbers. What it makes is a function of its
settings and the number, and appears whole, so a task that is done twice or stopped half-way does no harm, and one whose
file is there need not be done again.
"""

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from erag_ray.store.folder import TORN, Folder
from erag_ray.store.tables import whole_manifest
from erag_ray.support.errors import InputError
from erag_ray.support.progress import counted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Numbered tasks of one worker, and what one is called in the progress.

    The class ``worker`` is made with ``settings``, plain values, as keyword arguments; a call with a number does that
    task.
    """

    worker: type[Any]
    settings: Mapping[str, Any]
    numbers: Sequence[int]
    noun: str


Do = Callable[[Tasks], None]
"""Does tasks, here or on a cluster; returns when all of them are done."""


def do_tasks(tasks: Tasks, *, show: bool = False) -> None:
    """Do tasks one after the other in this process, and show how many are done."""
    if not tasks.numbers:
        return
    with counted(tasks.noun, len(tasks.numbers), show=show) as on_progress:
        worker = tasks.worker(**tasks.settings)
        for count, number in enumerate(tasks.numbers, 1):
            worker(number)
            on_progress(count)


def part(number: int) -> str:
    return f"{number:05}"


def write_frame(frame: pl.DataFrame, folder: Folder, *names: str) -> None:
    folder.write_parquet(frame.to_arrow(), *names)


def read_frame(folder: Folder, *names: str) -> pl.DataFrame:
    """Read a frame that `write_frame` has written; raise InputError if it is not there or not whole."""
    try:
        return pl.DataFrame(folder.read_parquet(*names))
    except (OSError, pa.ArrowException) as error:
        raise _damaged(folder, names, error) from error


def read_whole_frames(folder: Folder, below: str, schema: pl.Schema) -> Iterator[pl.DataFrame]:
    """Yield the frames in a folder, by name; a damaged one, or one with other columns, is set aside and reported."""
    for name in sorted(folder.names(below, suffix=".parquet")):
        try:
            yield pl.DataFrame(folder.read_parquet(below, name)).match_to_schema(schema)
        except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            folder.read_bytes(below, name)  # raises where it is the disk that fails, and not the file
            folder.set_aside(below, name)
            logger.warning("set aside in %s: %s is damaged (%s)", folder.at(below, TORN), name, error)


def write_array(array: npt.NDArray[Any], folder: Folder, *names: str) -> None:
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    folder.write_bytes(sink.getvalue(), *names)


def open_array(folder: Folder, *names: str) -> npt.NDArray[Any]:
    """Open an array, memory-mapped if local, else read completely; raise InputError if it is none, or damaged."""
    try:
        array: npt.NDArray[Any] = (
            np.load(folder.at(*names), mmap_mode="r", allow_pickle=False)
            if folder.is_local
            else np.load(io.BytesIO(folder.read_bytes(*names)), allow_pickle=False)
        )
    except (ValueError, EOFError, OSError) as error:
        raise _damaged(folder, names, error) from error
    return array


def _damaged(folder: Folder, names: Sequence[str], error: Exception) -> InputError:
    text = f"{folder.at(*names)}: damaged ({error}). Delete the folder"
    return InputError([f"{text} {folder.root} and start the same command again"])


def undone(
    folder: Folder, below: str, suffix: str, count: int, form: Mapping[str, type] | None = None
) -> list[int]:
    """Return the tasks of ``count`` without a file that can be read; a damaged file is set aside."""
    existing = set(folder.names(below, suffix=suffix))
    names = [f"{part(number)}{suffix}" for number in range(count)]
    return [
        number
        for number, name in enumerate(names)
        if name not in existing or not _is_whole(folder, below, name, form)
    ]


def _is_whole(folder: Folder, below: str, name: str, form: Mapping[str, type] | None) -> bool:
    if name.endswith(".json"):
        return whole_manifest(folder, below, name=name, form=form, sets_aside=True) is not None
    try:
        if name.endswith(".npy"):
            open_array(folder, below, name)
        else:
            with folder.filesystem.open_input_file(folder.at(below, name)) as file:
                pq.read_metadata(file)
    except (OSError, ValueError, pa.ArrowException):
        folder.set_aside(below, name)
        return False
    return True
