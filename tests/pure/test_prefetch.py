"""Items made one ahead in a thread."""

import threading
from collections.abc import Iterator

import pytest

from erag_ray.models.local.model import prefetch


def test_order_is_kept_and_the_next_item_is_made_while_one_is_used() -> None:
    made_second = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        made_second.set()
        yield 1

    seen = []
    for item in prefetch(items()):
        seen.append(item)
        # would wait in vain if the second were made after this one was used
        assert made_second.wait(timeout=20)
    assert seen == [0, 1]
    assert list(prefetch(iter(()))) == []


def test_items_that_are_false_do_not_end_it() -> None:
    assert list(prefetch(iter([0, None, ""]))) == [0, None, ""]


def test_at_most_one_item_is_ahead() -> None:
    made = []

    def items() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    for item in prefetch(items()):
        assert len(made) <= item + 2


def test_an_error_is_raised_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise ValueError("no more")

    iterator = prefetch(items())
    assert next(iterator) == 0
    with pytest.raises(ValueError, match="no more"):
        next(iterator)
