"""Diagnostics of input files: errors, which stop the job, and warnings, which do not.

All loaders write into one `Diagnostics`, so that one message lists all errors of all inputs before a model loads. For
each kind the first few are listed and the rest counted. Lines may quote files: control characters are escaped, and long
lines are cut.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from erag_ray.support.errors import InputError

NUM_NAMED = 5
LINE_CHARACTERS = 2000
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(kw_only=True)
class _Kind:
    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, texts: Sequence[str], count: int | None) -> None:
        self.count += len(texts) if count is None else count
        self.named.extend(texts[: NUM_NAMED - len(self.named)])


class Diagnostics:
    """Errors and warnings, in the order of the first of each kind."""

    def __init__(self) -> None:
        self._errors: dict[str, _Kind] = {}
        self._warnings: dict[str, _Kind] = {}

    def error(self, kind: str, *texts: str, count: int | None = None) -> None:
        """Record errors of one kind; each text is a whole line with its file, line or id.

        ``kind`` is what is wrong and in which file: it describes the errors that are only counted. If ``texts`` are
        only the first few errors, ``count`` is the number of all.
        """
        if texts:
            errors = self._errors.setdefault(kind, _Kind())
            errors.add(tuple(text for text in texts if text not in errors.named), count)

    def warning(self, kind: str, *names: str, count: int | None = None) -> None:
        """Record warnings of one kind; ``names`` are ids, ``count`` as in `error`."""
        self._warnings.setdefault(kind, _Kind()).add(names, count)

    def attempt(self, key: str, check: Callable[..., object], *args: object) -> bool:
        """Run a check, record its ValueError as an error of a config key, and return whether it passed."""
        try:
            check(*args)
        except ValueError as error:
            self.error(f"config key {key}", f"{key}: {error}")
            return False
        return True

    def error_rows(self, kind: str, rows: pl.DataFrame, text: str, **values: object) -> None:
        """Record an error for each row: ``text`` with its columns and ``values`` in braces."""
        first = rows.head(NUM_NAMED).iter_rows(named=True)
        self.error(kind, *(text.format(**{**row, **values}) for row in first), count=rows.height)

    def warn_each(self, kind: str, names: pl.Series) -> None:
        """Record a warning for each of the ids, if there are any."""
        if len(names):
            self.warning(kind, *map(str, names.head(NUM_NAMED)), count=len(names))

    def kinds(self) -> dict[str, dict[str, tuple[list[str], int]]]:
        """Return ``errors`` and ``warnings`` as kind -> texts or names, and count: plain data for JSON and `add`."""
        return {
            severity: {kind: (entry.named, entry.count) for kind, entry in kinds.items()}
            for severity, kinds in (("errors", self._errors), ("warnings", self._warnings))
        }

    def add(self, kinds: Mapping[str, Mapping[str, tuple[Sequence[str], int]]]) -> None:
        """Add the errors and warnings of another `Diagnostics`, by its `kinds`."""
        for kind, (texts, count) in kinds["errors"].items():
            self.error(kind, *texts, count=count)
        for kind, (names, count) in kinds["warnings"].items():
            self.warning(kind, *names, count=count)

    @property
    def errors(self) -> tuple[str, ...]:
        """One line for each error: the first few of each kind, then the number of the others."""
        lines: list[str] = []
        for kind, entry in self._errors.items():
            more = entry.count - len(entry.named)
            lines += [*entry.named, *([f"... and {more:,} more: {kind}"] if more > 0 else [])]
        return tuple(dict.fromkeys(map(_clean, lines)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each kind: description, count and the first few names."""
        return tuple(_clean(_warning_line(kind, entry)) for kind, entry in self._warnings.items())

    @property
    def num_errors(self) -> int:
        """The number of errors, listed or not."""
        return sum(entry.count for entry in self._errors.values())

    def raise_errors(self) -> None:
        """Raise `support.errors.InputError` with all errors, if there are any."""
        if self._errors:
            raise InputError(self.errors)


def _clean(line: str) -> str:
    """Cut a long line, and escape what could control a terminal, break the line, or not be written as UTF-8."""
    shown = line if len(line) <= LINE_CHARACTERS else f"{line[: LINE_CHARACTERS - 3]}..."
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), shown)


def _warning_line(kind: str, entry: _Kind) -> str:
    if not entry.count:
        return kind
    more = entry.count - len(entry.named)
    names = ", ".join([*entry.named, *([f"... and {more:,} more"] if more > 0 and entry.named else [])])
    return f"{kind}: {entry.count:,}" + (f" ({names})" if names else "")
