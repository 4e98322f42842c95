"""The two errors that end a job with a message and without a traceback.

Their messages are without secrets. Imports nothing heavy, so that what answers before the heavy packages are loaded can
raise them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from erag_ray.support.masking import masked_message


class InputError(ValueError):
    """All problems with the inputs, in one message: a line per problem, each naming its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(map(masked_message, problems))
        noun = "problem" if len(self.problems) == 1 else "problems"
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{len(self.problems)} {noun} with the inputs:\n{lines}")

    def __reduce__(self) -> tuple[type[InputError], tuple[Any, ...]]:
        # pickle would make it anew from the message; a reader actor's error travels pickled
        return type(self), (self.problems,)


def first_of(problems: Sequence[str], most: int) -> list[str]:
    """Return the first problems of one kind, and how many more there are."""
    more = [f"and {len(problems) - most:,} more of such problems"] if len(problems) > most else []
    return [*problems[:most], *more]


class JobError(RuntimeError):
    """A job cannot go on: what happened, what is kept, and what to do, in one message."""

    def __init__(self, message: str) -> None:
        self.message = masked_message(message)
        super().__init__(self.message)

    def __reduce__(self) -> tuple[type[JobError], tuple[str]]:
        # Ray adds advice of its own to the arguments before it sends an actor's error
        return type(self), (self.message,)
