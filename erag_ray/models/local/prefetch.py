"""Prefetching: a thread computes the next item while the current one is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items in order; a thread computes the next while the caller uses the current one.

    An exception of the iterator is raised in the position of its item.
    """
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(_next, items)
        while item := pending.result():
            pending = pool.submit(_next, items)
            yield item[0]


def _next(items: Iterator[T]) -> tuple[T] | None:
    """Return the next item in a tuple; None after the last."""
    return next(((item,) for item in items), None)
