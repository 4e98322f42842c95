"""The training log, a CSV line for each step, and messages of workers; both are shown while the training runs."""

from __future__ import annotations

import contextlib
import csv
import io
import pathlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import rich.console
import rich.progress

from erag_ray.store.folder import Folder, replace_file
from erag_ray.support.progress import beside

COLUMNS = ("step", "stage", "loss", "gradient_norm", "learning_rate", "tokens", "seconds")
LOG, LINES = "log.csv", "messages.txt"
TRAINING_LINE_SECONDS = 10.0


class TrainingLog:
    """``<out>/log.csv``: a line per step with `COLUMNS` (segment tokens of the step, seconds so far) and dev scores.

    A full disk must not end a single worker: lines that cannot be written are buffered, and the next checkpoint raises.
    """

    def __init__(self, out: pathlib.Path, datasets: Sequence[str]) -> None:
        self.path = out / LOG
        self.lines = out / LINES
        self._size = 0
        self._buffer: list[Mapping[str, object]] = []
        self.columns = [*COLUMNS, "dev", *(f"dev_{name}" for name in datasets)]

    def resume(self, step: int) -> float:
        """Drop the lines after ``step``; return the seconds of the steps up to it."""
        out = Folder(str(self.path.parent))
        for name in (LOG, LINES, f"{self.path.stem}.unfinished"):
            out.record(name)
        rows = [row for row in read_log(self.path) if int(row["step"]) <= step]
        unfinished = self.path.with_suffix(".unfinished")
        with open(unfinished, "w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        replace_file(unfinished, self.path)
        self._size = self.path.stat().st_size
        return float(rows[-1]["seconds"]) if rows else 0.0

    def add(self, values: Mapping[str, object]) -> None:
        """Append the line of a step; missing columns stay empty."""
        self._buffer.append(values)
        text = io.StringIO()
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(self._buffer)
        with contextlib.suppress(OSError), open(self.path, "r+b") as file:
            # drop a partial line of a failed write
            file.truncate(self._size)
            file.seek(self._size)
            file.write(text.getvalue().encode())
            file.flush()
            self._size, self._buffer = file.tell(), []

    def say(self, line: str) -> None:
        """Write a message for the user, which the driver prints."""
        with open(self.lines, "a") as file:
            file.write(line + "\n")


def read_log(path: pathlib.Path) -> list[dict[str, str]]:
    """Return the complete lines of a log; none without a file."""
    if not path.is_file():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    rows = csv.DictReader(whole.splitlines())
    return [row for row in rows if (row.get("step") or "").isdigit() and row.get("seconds")]


@contextlib.contextmanager
def training_progress(out: pathlib.Path, num_steps: int, *, show: bool) -> Iterator[None]:
    """Context manager that prints messages of workers and, with ``show``, step, loss, dev score and time left.

    As a bar on a terminal, else as a line every `TRAINING_LINE_SECONDS`.
    """
    with beside(_watch, out, num_steps, show):
        yield


def _watch(closing: threading.Event, out: pathlib.Path, num_steps: int, show: bool) -> None:
    messages = _Tail(out / LINES)
    is_terminal = sys.stderr.isatty()
    console = rich.console.Console(stderr=True)
    columns = (
        rich.progress.TextColumn("training"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.description}"),
    )
    with rich.progress.Progress(*columns, console=console, disable=not (show and is_terminal)) as bar:
        task = bar.add_task("", total=num_steps)
        ended, first, printed = False, dict[str, str](), 0
        next_line = time.monotonic() + TRAINING_LINE_SECONDS
        while not ended:
            ended = closing.wait(1.0)
            for line in messages.lines():
                bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
            rows = read_log(out / LOG)
            if not rows:
                continue
            first = first or rows[-1]
            step, text = int(rows[-1]["step"]), _progress_text(rows, first, num_steps)
            bar.update(task, completed=step, description=text)
            if show and not is_terminal and step != printed and (ended or time.monotonic() >= next_line):
                print(f"step {step:,}/{num_steps:,}: {text}", file=sys.stderr, flush=True)
                printed, next_line = step, time.monotonic() + TRAINING_LINE_SECONDS


def _progress_text(rows: Sequence[Mapping[str, str]], first: Mapping[str, str], num_steps: int) -> str:
    """Return recent loss, last dev score, and the time left at the speed since the first row that was seen."""
    last = rows[-1]
    steps = int(last["step"]) - int(first["step"])
    elapsed = float(last["seconds"]) - float(first["seconds"])
    left = f", {(num_steps - int(last['step'])) * elapsed / steps:.0f} s left" if steps > 0 else ""
    recent = [float(row["loss"]) for row in rows[-20:]]
    dev = next((f", dev {float(row['dev']):.3f}" for row in reversed(rows) if row.get("dev")), "")
    return f"loss {sum(recent) / len(recent):.3f}{dev}{left}"


class _Tail:
    """The lines that are appended to a file from now on."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._position = path.stat().st_size if path.is_file() else 0

    def lines(self) -> list[str]:
        if not self._path.is_file():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        return whole.decode().splitlines()
