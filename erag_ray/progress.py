"""How far a stretch of work is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

import rich.console
import rich.progress

from erag_ray.store import ReadingStore

LINE_SECONDS = 30.0


@contextlib.contextmanager
def progress(store: ReadingStore, job: str, total: int, title: str) -> Iterator[None]:
    """While open, shows readings done, readings/s and time left, by what has reached the store.

    A bar on a terminal, else a line every `LINE_SECONDS`.
    """
    closing = threading.Event()
    show = _bar if sys.stderr.isatty() else _lines
    thread = threading.Thread(target=show, args=(closing, store, job, total, title), daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


def _bar(closing: threading.Event, store: ReadingStore, job: str, total: int, title: str) -> None:
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.fields[rate]} readings/s"),
        rich.progress.TimeRemainingColumn(elapsed_when_finished=True),
    )
    known: dict[str, int] = {}
    start = time.monotonic()
    with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, rate="0.0")
        while not closing.wait(1.0):
            done = store.num_rows_of(job, known)
            bar.update(task, completed=done, rate=f"{done / (time.monotonic() - start):.1f}")
        bar.update(task, completed=store.num_rows_of(job, known))


def _lines(closing: threading.Event, store: ReadingStore, job: str, total: int, title: str) -> None:
    known: dict[str, int] = {}
    start = time.monotonic()
    ended = False
    while not ended:
        ended = closing.wait(LINE_SECONDS)
        done, seconds = store.num_rows_of(job, known), time.monotonic() - start
        left = f", {(total - done) * seconds / done:.0f} s left" if 0 < done < total else ""
        line = f"{title}: {done}/{total} readings, {done / seconds:.1f} readings/s{left}"
        print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def counted(noun: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how many of ``total`` are done, and shows it: for work in this process."""
    if sys.stderr.isatty():
        with rich.progress.Progress(console=rich.console.Console(stderr=True), transient=True) as bar:
            task = bar.add_task(noun, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    said = time.monotonic()

    def line(done: int) -> None:
        nonlocal said
        if time.monotonic() - said >= LINE_SECONDS:
            print(f"{done:,}/{total:,} {noun}", file=sys.stderr, flush=True)
            said = time.monotonic()

    yield line
