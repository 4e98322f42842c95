"""Diagnostics of input files: errors, which stop the job, and warnings, which are reported while it goes on.

Every loader writes into one `Diagnostics`, so that all errors of all inputs end up in one message before a model
loads. Repeats are capped per kind: the first few are named, the rest counted. What files hold may come up
in a line: it is shown without control characters, and long lines are cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from erag_ray.errors import InputError

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
        """Record problems of one kind; each text is a whole line that names its file, line or id.

        Args:
            kind: what is wrong and in which file; it says what the ones that are not named are.
            texts: the problems, or the first few of them.
            count: how many there are, where ``texts`` holds only the first few.
        """
        if texts:
            found = self._errors.setdefault(kind, _Kind())
            found.add(tuple(text for text in texts if text not in found.named), count)

    def warning(self, kind: str, *names: str, count: int | None = None) -> None:
        """Record something worth reporting; ``names`` are ids, ``count`` as in `error`."""
        self._warnings.setdefault(kind, _Kind()).add(names, count)

    def kinds(self) -> dict[str, dict[str, tuple[list[str], int]]]:
        """``errors`` and ``warnings``: each kind's texts or names, and its count; `add` takes it, also from JSON."""
        both = {"errors": self._errors, "warnings": self._warnings}
        return {
            name: {kind: (found.named, found.count) for kind, found in some.items()}
            for name, some in both.items()
        }

    def add(self, kinds: Mapping[str, Mapping[str, tuple[Sequence[str], int]]]) -> None:
        """Take over what another one has found, as its `kinds` say it."""
        for kind, (texts, count) in kinds["errors"].items():
            self.error(kind, *texts, count=count)
        for kind, (names, count) in kinds["warnings"].items():
            self.warning(kind, *names, count=count)

    @property
    def errors(self) -> tuple[str, ...]:
        """One line per problem, the first few of each kind and then the number of the others."""
        lines = (line for kind, found in self._errors.items() for line in _problem_lines(kind, found))
        return tuple(dict.fromkeys(map(_clean, lines)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line per kind: what it is, how many there are, and the first few names."""
        return tuple(_clean(_note_line(kind, found)) for kind, found in self._warnings.items())

    @property
    def num_errors(self) -> int:
        """How many problems there are, named or not."""
        return sum(found.count for found in self._errors.values())

    def raise_errors(self) -> None:
        """Raise `schemas.InputError` with every problem, if there is one."""
        if self._errors:
            raise InputError(self.errors)


def _clean(line: str) -> str:
    """A line that cannot steer a terminal, holds no other line, and can be written in UTF-8."""
    shown = line if len(line) <= LINE_CHARACTERS else f"{line[: LINE_CHARACTERS - 3]}..."
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), shown)


def _problem_lines(kind: str, found: _Kind) -> list[str]:
    more = found.count - len(found.named)
    return [*found.named, *([f"... and {more:,} more: {kind}"] if more > 0 else [])]


def _note_line(kind: str, found: _Kind) -> str:
    if not found.count:
        return kind
    more = found.count - len(found.named)
    names = ", ".join([*found.named, *([f"... and {more:,} more"] if more > 0 and found.named else [])])
    return f"{kind}: {found.count:,}" + (f" ({names})" if names else "")
