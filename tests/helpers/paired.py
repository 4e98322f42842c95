"""Naive paired tests: all flips one by one, and Holm over distinct columns, to compare the package with."""

import itertools
import math
from collections.abc import Sequence


def flip_p_value(differences: Sequence[float]) -> float:
    """The share of all flips of the signs with a sum at least as far from 0."""
    values = [value for value in differences if value and not math.isnan(value)]
    least = abs(sum(values)) - 1e-9
    sums = [
        sum(map(math.prod, zip(signs, values, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    return sum(abs(one) >= least for one in sums) / len(sums)


def holm_by_hand(columns: Sequence[Sequence[float]], p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction in which equal columns count once, and zeros not at all; None: no test."""
    keys = [min(_key(column, 1), _key(column, -1)) for column in columns]
    is_some = [any(value and not math.isnan(value) for value in column) for column in columns]
    distinct = {
        key: p for key, p, some in zip(keys, p_values, is_some, strict=True) if p is not None and some
    }
    adjusted, largest = {}, 0.0
    for rank, (key, p) in enumerate(sorted(distinct.items(), key=lambda item: item[1])):
        largest = max(largest, p * (len(distinct) - rank))
        adjusted[key] = min(1.0, largest)
    return [None if p is None else adjusted.get(key, 1.0) for key, p in zip(keys, p_values, strict=True)]


def _key(column: Sequence[float], sign: int) -> tuple[float, ...]:
    return tuple(99.0 if math.isnan(value) else sign * value + 0.0 for value in column)
