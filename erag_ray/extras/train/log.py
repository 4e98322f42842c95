"""The training log, a CSV line for each step, and messages of workers for the user."""

from __future__ import annotations

import contextlib
import csv
import io
import pathlib
from collections.abc import Mapping, Sequence

from erag_ray.store.folder import Folder, replace_file

COLUMNS = ("step", "stage", "loss", "gradient_norm", "learning_rate", "tokens", "seconds")
LOG, LINES = "log.csv", "messages.txt"


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
