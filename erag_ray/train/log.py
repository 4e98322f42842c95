"""The training log: one CSV line a step; and the lines that a worker has for the user."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import pathlib
from collections.abc import Mapping, Sequence

COLUMNS = ("step", "stage", "loss", "gradient_norm", "learning_rate", "tokens", "seconds")
LOG, LINES = "log.csv", "messages.txt"


class TrainingLog:
    """``<out>/log.csv``: a line a step with `COLUMNS` (segment tokens of the step, seconds so far) and dev scores.

    A full disk must not end one worker alone: lines that cannot be written wait, and the next checkpoint tells.
    """

    def __init__(self, out: pathlib.Path, datasets: Sequence[str]) -> None:
        self.path = out / LOG
        self.lines = out / LINES
        self._size = 0
        self._waiting: list[Mapping[str, object]] = []
        self.columns = [*COLUMNS, "dev", *(f"dev_{name}" for name in datasets)]

    def go_on_from(self, step: int) -> float:
        """Drop what was logged after so many steps; gives the seconds that the kept steps took."""
        kept = [row for row in read_log(self.path) if int(row["step"]) <= step]
        unfinished = self.path.with_suffix(".unfinished")
        with open(unfinished, "w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)
        os.replace(unfinished, self.path)
        self._size = self.path.stat().st_size
        return float(kept[-1]["seconds"]) if kept else 0.0

    def add(self, values: Mapping[str, object]) -> None:
        """Append the line of a step; missing columns stay empty."""
        self._waiting.append(values)
        text = io.StringIO()
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(self._waiting)
        with contextlib.suppress(OSError), open(self.path, "r+b") as file:
            # half a line may stand there from the last time
            file.truncate(self._size)
            file.seek(self._size)
            file.write(text.getvalue().encode())
            file.flush()
            self._size, self._waiting = file.tell(), []

    def say(self, line: str) -> None:
        """Leave a line for the user, whom the driver shows it to."""
        with open(self.lines, "a") as file:
            file.write(line + "\n")


def read_log(path: pathlib.Path) -> list[dict[str, str]]:
    """The whole lines of a log; none where there is no file."""
    if not path.is_file():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    return [row for row in csv.DictReader(whole.splitlines()) if row.get("seconds")]
