"""How far a job is: a line when a stage takes long; for work that is counted a bar on a terminal, else lines."""

from __future__ import annotations

import contextlib
import html
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

import rich.console
import rich.progress

logger = logging.getLogger(__name__)
LINE_SECONDS = 30.0
QUICK_SECONDS = 5.0
"""A stage that takes no longer is not worth a line."""
T = TypeVar("T")


class StageProgress:
    """How far a stage is, in words."""

    def __init__(self) -> None:
        self.text = ""

    def each(self, items: Iterable[T], noun: str) -> Iterator[T]:
        """The items one after the other; counts those that are done."""
        total = f"/{len(items):,}" if isinstance(items, Sized) else ""
        for number, item in enumerate(items):
            self.text = f"{number:,}{total} {noun}, "
            yield item


@contextlib.contextmanager
def stage_progress(name: str, *, show: bool = True) -> Iterator[StageProgress]:
    """Name a stage on stderr after `QUICK_SECONDS`, again every `LINE_SECONDS`, and at its end with its seconds.

    A quicker one, and one that fails, has no last line.
    """
    current, start = StageProgress(), time.monotonic()
    with beside(_stage_lines, name, current) if show else contextlib.nullcontext():
        yield current
    seconds = time.monotonic() - start
    if show and seconds >= QUICK_SECONDS:
        logger.info("%s: done in %s", name, duration(seconds))


def duration(seconds: float) -> str:
    """Seconds for people: 90 s, 5.0 min, 3.2 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _stage_lines(closing: threading.Event, name: str, current: StageProgress) -> None:
    start, pause = time.monotonic(), QUICK_SECONDS
    while not closing.wait(pause):
        seconds, pause = time.monotonic() - start, LINE_SECONDS
        logger.info("%s: %s%s so far", name, current.text, duration(seconds))


@contextlib.contextmanager
def progress(count: Callable[[], int], total: int, title: str) -> Iterator[None]:
    """While open, show the responses so far, responses/s and time left.

    A bar on a terminal and in a notebook, else a line every `LINE_SECONDS`, and the first after `QUICK_SECONDS`.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    show = _notebook_bar if hasattr(shell, "kernel") else _bar if sys.stderr.isatty() else _lines
    with beside(show, count, total, title):
        yield


@contextlib.contextmanager
def beside(show: Callable[..., None], *arguments: object) -> Iterator[None]:
    """While open, ``show(closing, *arguments)`` runs in a thread; ``closing`` tells it to say its last and end."""
    closing = threading.Event()
    thread = threading.Thread(target=show, args=(closing, *arguments), daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


def _bar(closing: threading.Event, count: Callable[[], int], total: int, title: str) -> None:
    columns = (
        rich.progress.SpinnerColumn(),
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.fields[rate]} responses/s"),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    start = time.monotonic()
    with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, rate="0.0")
        while not closing.wait(1.0):
            done = count()
            bar.update(task, completed=done, rate=f"{done / (time.monotonic() - start):.1f}")
        bar.update(task, completed=count())


def _notebook_bar(closing: threading.Event, count: Callable[[], int], total: int, title: str) -> None:
    from IPython.display import HTML, display

    start, ended, shown = time.monotonic(), False, display(HTML(""), display_id=True)
    while not ended:
        ended = closing.wait(1.0)
        done, seconds = count(), time.monotonic() - start
        bar = f'<progress value="{done}" max="{total}"></progress>'
        shown.update(HTML(f"{html.escape(title)} {bar} {done:,}/{total:,}, {done / seconds:.1f} responses/s"))


def _lines(closing: threading.Event, count: Callable[[], int], total: int, title: str) -> None:
    start, pause, ended = time.monotonic(), QUICK_SECONDS, False
    while not ended:
        ended, pause = closing.wait(pause), LINE_SECONDS
        done, seconds = count(), time.monotonic() - start
        left = f", {duration((total - done) * seconds / done)} left" if 0 < done < total else ""
        left = left or f", {duration(seconds)} so far" * (done < total)
        text = f"{done:,}/{total:,} responses, {done / seconds:.1f} responses/s{left}"
        logger.info("%s: %s", title, text)


@contextlib.contextmanager
def counted(noun: str, total: int, *, show: bool = True) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how many of ``total`` are done, and shows it: for work in this process.

    A bar on a terminal, else a line every `LINE_SECONDS`.
    """
    if not show:
        yield lambda done: None
        return
    if sys.stderr.isatty():
        with rich.progress.Progress(console=rich.console.Console(stderr=True), transient=True) as bar:
            task = bar.add_task(noun, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    logged_at = time.monotonic()

    def line(done: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= LINE_SECONDS:
            logger.info("%s", f"{done:,}/{total:,} {noun}")
            logged_at = time.monotonic()

    yield line
