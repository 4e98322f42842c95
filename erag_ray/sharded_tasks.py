"""How large work is cut: numbered tasks that leave a file each, and the folder they lie in.

A worker is made once in each process that works and then called with task numbers. What it makes is a function of its
settings and the number, and appears whole, so a task that is done twice or stopped half-way does no harm, and one whose
file is there need not be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl
import pyarrow as pa

from erag_ray.errors import InputError
from erag_ray.store import Folder, as_frame


class Worker(Protocol):
    """Does one numbered task after the other."""

    def __call__(self, number: int) -> None:
        """Do the task and leave its file."""


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Numbered tasks of one worker.

    Attributes:
        worker: its class, made with ``settings`` as keyword arguments.
        settings: plain values.
        numbers: the tasks.
        noun: what a task is, for progress.
    """

    worker: type[Any]
    settings: Mapping[str, Any]
    numbers: Sequence[int]
    noun: str


Do = Callable[[Tasks], None]
"""Does tasks, here or on a cluster; returns when all of them are done."""


def do_tasks(tasks: Tasks, on_progress: Callable[[int], None] = lambda done: None) -> None:
    """Do tasks one after the other in this process; ``on_progress`` hears how many are done."""
    if not tasks.numbers:
        return
    worker: Worker = tasks.worker(**tasks.settings)
    for count, number in enumerate(tasks.numbers, 1):
        worker(number)
        on_progress(count)


def part(number: int) -> str:
    """The name of a numbered part."""
    return f"{number:05}"


def write_frame(frame: pl.DataFrame, folder: Folder, *names: str) -> None:
    """Write a frame as one Parquet file."""
    folder.write_parquet(frame.to_arrow(), *names)


def read_frame(folder: Folder, *names: str) -> pl.DataFrame:
    """A frame that `write_frame` has written.

    Raises:
        InputError: it is not there or not whole.
    """
    try:
        return as_frame(folder.read_parquet(*names))
    except (OSError, pa.ArrowException) as error:
        location = folder.at(*names)
        raise InputError(
            [f"{location}: damaged ({error}); delete the index's folder to have it made again"]
        ) from error


def undone(folder: Folder, below: str, suffix: str, count: int) -> list[int]:
    """The tasks of ``count`` whose file is not there yet."""
    there = set(folder.names(below, suffix=suffix))
    return [number for number in range(count) if f"{part(number)}{suffix}" not in there]
