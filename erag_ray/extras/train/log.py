"""The training log, a CSV line for each step, and messages of workers; both are shown while the training runs."""

from __future__ import annotations

import contextlib
import csv
import io
import pathlib
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

import rich.console
import rich.progress

from erag_ray.store.folder import Folder

COLUMNS = ("step", "stage", "loss", "gradient_norm", "learning_rate", "tokens", "seconds")
LOG, MESSAGES = "log.csv", "messages.txt"
TRAINING_LINE_SECONDS = 10.0


class TrainingLog:
    """``<out>/log.csv``: a line per step with `COLUMNS` (segment tokens of the step, seconds so far) and dev scores."""

    def __init__(self, out: pathlib.Path, datasets: Iterable[str]) -> None:
        self.out = out
        self.columns = [*COLUMNS, "dev", *(f"dev_{name}" for name in datasets)]

    def resume(self, step: int) -> float:
        """Drop the lines after ``step``; return the seconds of the steps up to it."""
        rows = [row for row in read_log(self.out / LOG) if int(row["step"]) <= step]
        header = {name: name for name in self.columns}
        folder = Folder(str(self.out))
        folder.write_bytes(self._lines([header, *rows]).encode(), LOG)
        folder.record(MESSAGES)
        return float(rows[-1]["seconds"]) if rows else 0.0

    def add(self, values: Mapping[str, object]) -> None:
        """Append the line of a step; missing columns stay empty."""
        # a full disk must not end a single worker: the next checkpoint fails for all, and resuming repeats this step
        with contextlib.suppress(OSError), open(self.out / LOG, "a") as file:
            file.write(self._lines([values]))

    def _lines(self, rows: Sequence[Mapping[str, object]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(rows)
        return text.getvalue()

    def say(self, *lines: str) -> None:
        """Write messages for the user, which the driver prints."""
        with open(self.out / MESSAGES, "a") as file:
            file.writelines(f"{line}\n" for line in lines)


def read_log(path: pathlib.Path) -> list[dict[str, str]]:
    """Return the complete lines of a log; none without a file."""
    text = path.read_text() if path.is_file() else ""
    rows = csv.DictReader(text[: text.rfind("\n") + 1].splitlines())
    # a full disk cuts a line, and the next one follows in the same row
    return [
        row for row in rows if None not in row and (row.get("step") or "").isdigit() and row.get("seconds")
    ]


def watch(closing: threading.Event, out: pathlib.Path, num_steps: int, show: bool) -> None:
    """Print messages of workers and, with ``show``, step, loss, dev score and time left, until ``closing`` is set.

    As a bar on a terminal, else as a line every `TRAINING_LINE_SECONDS`.
    """
    num_shown = len(_messages(out))
    is_terminal = sys.stderr.isatty()
    console = rich.console.Console(stderr=True)
    columns = ("training", rich.progress.BarColumn(), "{task.description}")
    with rich.progress.Progress(*columns, console=console, disable=not (show and is_terminal)) as bar:
        task = bar.add_task("", total=num_steps)
        ended, printed, next_line = False, 0, time.monotonic() + TRAINING_LINE_SECONDS
        while not ended:
            ended = closing.wait(1.0)
            messages = _messages(out)
            for line in messages[num_shown:]:
                bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
            num_shown = len(messages)
            rows = read_log(out / LOG)
            if not rows:
                continue
            step, text = int(rows[-1]["step"]), _progress_text(rows, num_steps)
            bar.update(task, completed=step, description=text)
            if show and not is_terminal and step != printed and (ended or time.monotonic() >= next_line):
                print(text, file=sys.stderr, flush=True)
                printed, next_line = step, time.monotonic() + TRAINING_LINE_SECONDS


def _progress_text(rows: Sequence[Mapping[str, str]], num_steps: int) -> str:
    """Return the step, the last dev score, and of the last rows the loss and, from their speed, the time left."""
    recent, last = rows[-20:], rows[-1]
    loss = sum(float(row["loss"]) for row in recent) / len(recent)
    dev = next((f", dev {float(row['dev']):.3f}" for row in reversed(rows) if row.get("dev")), "")
    step, steps = int(last["step"]), int(last["step"]) - int(recent[0]["step"])
    elapsed = float(last["seconds"]) - float(recent[0]["seconds"])
    left = f", {(num_steps - step) * elapsed / steps:.0f} s left" if steps else ""
    return f"step {step:,}/{num_steps:,}: loss {loss:.3f}{dev}{left}"


def _messages(out: pathlib.Path) -> list[str]:
    return (out / MESSAGES).read_text().splitlines() if (out / MESSAGES).is_file() else []
