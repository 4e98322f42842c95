"""Values that the steps of one job share in memory: made at their first use in a job, and gone with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
_SHARED: ContextVar[dict[str, Any] | None] = ContextVar("shared by the steps of this job", default=None)


@contextlib.contextmanager
def job_memory() -> Iterator[None]:
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def shared(key: str, make: Callable[[], T]) -> T:
    """Return what this job has under a key, which is made at its first use; outside of a job it is always made."""
    memory = _SHARED.get()
    if memory is None:
        return make()
    if key not in memory:
        memory[key] = make()
    value: T = memory[key]
    return value
