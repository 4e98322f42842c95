"""The training log, a CSV line for each step, and messages of workers; both are shown while the training runs."""

import contextlib
import csv
import io
import pathlib
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

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
        folder = Folder(str(self.out))
        folder.write_bytes(self._lines([{name: name for name in self.columns}, *rows]).encode(), LOG)
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
    """Print messages of workers until ``closing`` is set.

    With ``show`` also step, loss, dev score and time left, a line every `TRAINING_LINE_SECONDS`.
    """
    num_shown, printed, ended = len(_messages(out)), 0, False
    next_line = time.monotonic() + TRAINING_LINE_SECONDS
    while not ended:
        ended = closing.wait(1.0)
        messages, rows = _messages(out), read_log(out / LOG)
        lines, num_shown = messages[num_shown:], len(messages)
        step = int(rows[-1]["step"]) if rows else 0
        if show and step != printed and (ended or time.monotonic() >= next_line):
            lines.append(_progress_text(rows, num_steps))
            printed, next_line = step, time.monotonic() + TRAINING_LINE_SECONDS
        for line in lines:
            print(line, file=sys.stderr, flush=True)


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
