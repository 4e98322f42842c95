"""How far a job is: a line when a stage takes long; for work that is counted a bar on a terminal, else lines."""

import contextlib
import functools
import html
import logging
import operator
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
Count = Callable[[], int]
T = TypeVar("T")


class StageProgress:
    """How far a stage is, in words."""

    text = ""

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
    if show and (seconds := time.monotonic() - start) >= QUICK_SECONDS:
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
def progress(count: Count, total: int, title: str, noun: str = "responses") -> Iterator[None]:
    """While open, show how many of ``total`` are done, how many a second, and the time left.

    A bar on a terminal and in a notebook, else a line every `LINE_SECONDS`, the first after `QUICK_SECONDS`; the last
    one is left out of quick work without a title.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    show = _notebook_bar if hasattr(shell, "kernel") else _bar if sys.stderr.isatty() else _lines
    with beside(show, count, total, noun, f"{title}: " if title else ""):
        yield


@contextlib.contextmanager
def counted(noun: str, total: int, *, show: bool = True) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many of ``total`` are done: `progress` of work in this process."""
    done = [0]
    with progress(lambda: done[0], total, "", noun) if show else contextlib.nullcontext():
        yield functools.partial(operator.setitem, done, 0)


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


def _bar(closing: threading.Event, count: Count, total: int, noun: str, title: str) -> None:
    start, ended = time.monotonic(), False
    columns = (*rich.progress.Progress.get_default_columns(), rich.progress.TextColumn("{task.fields[text]}"))
    with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, text="")
        while not ended:
            ended, done = closing.wait(1.0), count()
            bar.update(task, completed=done, text=_text(done, total, noun, start))


def _notebook_bar(closing: threading.Event, count: Count, total: int, noun: str, title: str) -> None:
    from IPython.display import HTML, display

    start, ended, shown = time.monotonic(), False, display(HTML(""), display_id=True)
    while not ended:
        ended = closing.wait(1.0)
        done = count()
        bar = f'<progress value="{done}" max="{total}"></progress>'
        shown.update(HTML(f"{html.escape(title)}{bar} {html.escape(_text(done, total, noun, start))}"))


def _lines(closing: threading.Event, count: Count, total: int, noun: str, title: str) -> None:
    start, pause, ended = time.monotonic(), QUICK_SECONDS, False
    while not ended:
        ended, pause = closing.wait(pause), LINE_SECONDS
        done, seconds = count(), time.monotonic() - start
        left = f"{duration((total - done) * seconds / done)} left" if done else f"{duration(seconds)} so far"
        if title or not ended or seconds >= QUICK_SECONDS:
            logger.info("%s%s%s", title, _text(done, total, noun, start), f", {left}" * (done < total))


def _text(done: int, total: int, noun: str, start: float) -> str:
    return f"{done:,}/{total:,} {noun}, {done / (time.monotonic() - start):,.1f} a second"
