"""Labels in rank order -> one number per ranked list, at every cut-off.

In: `Lists`, the labels of many ranked lists of one depth, complete (a list with a missing label is dealt with
before it gets here). Out: one float64 per list. Everything is vectorised over lists, and a measure gives its
values at all cut-offs at once, so ten cut-offs cost as much as one.

The meanings are trec_eval's: P@k divides by k on short lists too; R@k and AP@k divide by the number of
relevant documents in the base; a query without a relevant document, or without a list, gets 0.

Labels are declared *binary* (0 or 1), *graded* (0 or more) or *signed* (below 0: the document does harm). Where a list
is short, what is missing counts 0: no document, no gain and no harm.

To add a measure: one function ``Lists -> float64 [num_lists, depth]`` and one entry in `MEASURES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from erag_ray.registry import find_instance
from erag_ray.user_code import running

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Kind = Literal["binary", "graded", "signed"]


@dataclass(frozen=True, kw_only=True)
class Lists:
    """The labels of many ranked lists, all cut at one depth.

    Raises:
        ValueError: on shapes that do not fit each other, a label that is not finite or lies behind the end of its
            list, a base that is negative, not in descending order or holds less than its list.
    """

    labels: Floats
    """[num_lists, depth], in rank order; 0 behind the end of a shorter list."""
    lengths: Integers
    """[num_lists], number of documents in each list, at most depth."""
    ideal: Floats
    """[num_lists, width], the labels of the base in descending order, padded with 0: of the list itself
    (ideal="list") or of the union of all compared runs' lists (ideal="pool"). What does harm counts 0."""

    def __post_init__(self) -> None:
        _check_shapes(self)
        if not np.isfinite(self.labels).all():
            raise ValueError("labels must be finite")
        if not (np.isfinite(self.ideal) & (self.ideal >= 0)).all():
            raise ValueError("ideal must be finite and at least 0")
        if (self.labels * (np.arange(self.depth) >= self.lengths[:, None])).any():
            raise ValueError("labels behind the end of a list must be 0")
        if (np.diff(self.ideal, axis=1) > 0).any():
            raise ValueError("ideal must be in descending order in each row")
        smaller = self.ideal_sums[:, 0] < self.labels.sum(axis=1) - 1e-9
        if smaller.any():
            raise ValueError(f"the base of list {np.argmax(smaller)} holds less than the list itself")

    @cached_property
    def sums(self) -> Floats:
        """[num_lists, depth], the sum of the labels down to each rank."""
        return np.cumsum(self.labels, axis=1)

    @cached_property
    def ideal_sums(self) -> Floats:
        """[num_lists, 1], the sum of the base's labels; of binary ones, how many are relevant."""
        sums: Floats = self.ideal.sum(axis=1, keepdims=True)
        return sums

    @property
    def depth(self) -> int:
        """What the lists were cut to; the largest cut-off."""
        return int(self.labels.shape[1])


def _check_shapes(lists: Lists) -> None:
    labels, lengths, ideal = lists.labels, lists.lengths, lists.ideal
    if labels.ndim != 2 or ideal.ndim != 2 or not lengths.shape == (len(labels),) == (len(ideal),):
        raise ValueError(
            "labels must be [num_lists, depth], lengths [num_lists] and ideal [num_lists, width]; "
            f"got {labels.shape}, {lengths.shape} and {ideal.shape}"
        )
    if ((lengths < 0) | (lengths > lists.depth)).any():
        raise ValueError(f"lengths must be 0..{lists.depth}")


def pad(values: npt.ArrayLike, lengths: npt.ArrayLike, width: int) -> Floats:
    """Values of many rows laid end to end -> [num_rows, width]: each row cut at width, or padded with 0.

    Raises:
        ValueError: the lengths do not add up to the number of values.
    """
    flat, sizes = np.asarray(values, dtype=np.float64), np.asarray(lengths, dtype=np.int64)
    if sizes.sum() != len(flat):
        raise ValueError(f"the lengths add up to {sizes.sum()}, but there are {len(flat)} values")
    rows = np.repeat(np.arange(len(sizes)), sizes)
    columns = np.arange(len(flat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    result = np.zeros((len(sizes), width))
    kept = columns < width
    result[rows[kept], columns[kept]] = flat[kept]
    return result


def own_ideal(labels: Floats, lengths: npt.ArrayLike | None = None) -> Lists:
    """The lists with ideal="list": the base of each is its own documents, cut at the depth.

    Args:
        labels: [num_lists, depth], in rank order, 0 behind the end of a shorter list.
        lengths: [num_lists]; without it every list is as long as the depth.
    """
    matrix = np.asarray(labels, dtype=np.float64)
    sizes = np.full(len(matrix), matrix.shape[1]) if lengths is None else np.asarray(lengths)
    return Lists(labels=matrix, lengths=sizes.astype(np.int64), ideal=_descending(matrix))


def _descending(values: Floats) -> Floats:
    return -np.sort(-np.maximum(values, 0.0), axis=1)


def precision(lists: Lists) -> Floats:
    """Mean label of the first k ranks, missing documents counting 0 (m_P.c; graded: eRAG's eval.py)."""
    return lists.sums / _ranks(lists)


def success(lists: Lists) -> Floats:
    """Largest label in the first k ranks; on binary labels trec_eval's success, the paper's Hit Ratio."""
    return np.maximum.accumulate(lists.labels, axis=1)


def recall(lists: Lists) -> Floats:
    """Share of the base's relevant documents that are in the first k ranks (trec_eval m_recall.c)."""
    return _share(lists.sums, lists.ideal_sums)


def average_precision(lists: Lists) -> Floats:
    """Precision at each relevant rank up to k, summed, over the base's number of relevant (m_map_cut.c)."""
    found = np.cumsum(lists.labels * precision(lists), axis=1)
    return _share(found, lists.ideal_sums)


def reciprocal_rank(lists: Lists) -> Floats:
    """1 / rank of the first relevant document, 0 if it is behind k (m_recip_rank.c on the list cut to k)."""
    return np.maximum.accumulate(lists.labels / _ranks(lists), axis=1)


def ndcg(lists: Lists) -> Floats:
    """Gains are the labels, the discount is log2(rank + 1), the ideal is the base cut at k (m_ndcg_cut.c)."""
    discounts = np.log2(_ranks(lists) + 1)
    num_missing = max(0, lists.depth - lists.ideal.shape[1])
    best = np.pad(lists.ideal[:, : lists.depth], ((0, 0), (0, num_missing)))
    return _share(np.cumsum(lists.labels / discounts, axis=1), np.cumsum(best / discounts, axis=1))


def harmful(lists: Lists) -> Floats:
    """Share of the first k ranks whose documents do harm: with them the reader scores less than without any."""
    return np.cumsum(lists.labels < 0, axis=1) / _ranks(lists)


def _ranks(lists: Lists) -> Floats:
    return np.arange(1.0, lists.depth + 1)


def _share(part: Floats, whole: Floats) -> Floats:
    """The ratio, and 0 where the whole is 0: a query without a relevant document counts, with 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=np.broadcast_to(whole > 0, part.shape))


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure: its function and what it asks of the labels."""

    name: str
    function: Callable[[Lists], Floats]
    """Lists -> [num_lists, depth]: the value at every cut-off 1..depth."""
    uses_ideal: bool
    """The value depends on the base, so ideal="list" and ideal="pool" differ."""
    takes: frozenset[Kind]
    """The labels that it has a meaning for; those that need binary ones take graded ones with a threshold."""

    @property
    def needs_binary(self) -> bool:
        """Graded labels have no meaning here without a threshold."""
        return self.takes == BINARY


def compute(name: str, lists: Lists, cutoff: int, threshold: float | None = None) -> Floats:
    """One measure at one cut-off: [num_lists]. See `compute_all`."""
    return compute_all([name], lists, [cutoff], threshold)[name, cutoff]


def compute_all(
    names: Collection[str],
    lists: Lists,
    cutoffs: Collection[int],
    threshold: float | None = None,
    kind: Kind | None = None,
) -> dict[tuple[str, int], Floats]:
    """Several measures at several cut-offs: (name, cutoff) -> [num_lists].

    Args:
        names: keys of `MEASURES`, other names of theirs (`canonical_name`), or ``package.module:name`` of a `Measure`.
        lists: the ranked lists.
        cutoffs: each 1..depth.
        threshold: for graded labels and measures that need binary ones: label >= threshold is relevant, in
            the lists and in the base. It is applied whenever it is given, and never guessed from the labels.
        kind: what the labels are declared to be (None: what those at hand allow).

    Raises:
        ValueError: an unknown measure, a cut-off outside 1..depth, a threshold that is not above 0, or a
            measure that needs binary labels asked of graded ones without a threshold.
    """
    for cutoff in cutoffs:
        if not 1 <= cutoff <= lists.depth:
            raise ValueError(f"cutoff {cutoff} is outside 1..{lists.depth}, the depth of the lists")
    check_measures(names, kind or _kind(lists, threshold), threshold)
    thresholded = lists if threshold is None else _apply_threshold(lists, threshold)
    values: dict[tuple[str, int], Floats] = {}
    for name in names:
        measure = _find(name)
        with running(f"measures: {name}", measure.function):
            at_every_cutoff = _at_every_cutoff(measure, thresholded if measure.needs_binary else lists)
        # copies, so that the values at the other cut-offs can be freed
        values |= {(name, cutoff): at_every_cutoff[:, cutoff - 1].copy() for cutoff in cutoffs}
    return values


def _at_every_cutoff(measure: Measure, lists: Lists) -> Floats:
    """The values of a measure, which may be from outside."""
    values = np.asarray(measure.function(lists), np.float64)
    if values.shape != lists.labels.shape:
        raise ValueError(f"gave an array of shape {values.shape}, not {lists.labels.shape}")
    return values


def check_measures(names: Collection[str], kind: Kind, threshold: float | None = None) -> None:
    """Refuse what `compute` would refuse, before any reader runs.

    Args:
        names: the measures asked for.
        kind: what the labels are declared to be.
        threshold: as in `compute_all`.

    Raises:
        ValueError: an unknown measure; a threshold that is not above 0, or above 1 on binary labels; graded labels
            without a threshold for a measure that needs binary ones; or labels that a measure has no meaning for.
    """
    measures = [_find(name) for name in names]
    if threshold is not None and not 0 < threshold < float("inf"):
        raise ValueError(f"threshold {threshold} must be above 0: the label 0 is never relevant")
    if kind == "binary" and threshold is not None and threshold > 1:
        raise ValueError(f"threshold {threshold} is above 1: no binary label would be relevant")
    refused = [measure for measure in measures if not takes(measure, kind, threshold)]
    if refused:
        raise ValueError(_refusal(refused, kind, threshold))


def _refusal(refused: Collection[Measure], kind: Kind, threshold: float | None) -> str:
    names, allowed = ", ".join(measure.name for measure in refused), ", ".join(measures_for(kind, threshold))
    if kind == "graded" and all(measure.needs_binary for measure in refused):
        need = f"{names} need a threshold (label >= threshold is relevant); give one, or"
    else:
        need = f"{names} have no meaning for them;"
    return f"the labels are {kind}, and {need} ask only for {allowed}"


def takes(measure: Measure, kind: Kind, threshold: float | None) -> bool:
    """Whether a measure has a meaning for labels of a kind, made binary by a threshold if there is one."""
    return kind in measure.takes or (kind == "graded" and threshold is not None and measure.needs_binary)


def measures_for(kind: Kind, threshold: float | None) -> list[str]:
    """All measures that labels of a kind allow."""
    return [name for name, measure in MEASURES.items() if takes(measure, kind, threshold)]


def canonical_name(name: str) -> str:
    """The name of a measure in `MEASURES` and in every table: AP for MAP, RR for MRR, Success for Hit Ratio.

    Case, blanks, hyphens and underscores do not matter in these; any other name stays as it is.
    """
    return OTHER_NAMES.get(re.sub(r"[\s_-]", "", name.lower()), name)


def _find(name: str) -> Measure:
    rest = 'uses_ideal=False, takes=frozenset({"binary"})'
    return find_instance("measure", canonical_name(name), MEASURES, Measure, rest)


def _kind(lists: Lists, threshold: float | None) -> Kind:
    """What the labels are; a threshold declares graded ones, even where they all happen to be 0 or 1."""
    if (lists.labels < 0).any():
        return "signed"
    values = np.concatenate([lists.labels, lists.ideal], axis=None)
    return "binary" if threshold is None and bool(((values == 0) | (values == 1)).all()) else "graded"


def _apply_threshold(lists: Lists, threshold: float) -> Lists:
    return replace(
        lists,
        labels=(lists.labels >= threshold).astype(np.float64),
        ideal=(lists.ideal >= threshold).astype(np.float64),
    )


BINARY: frozenset[Kind] = frozenset({"binary"})
GAINS: frozenset[Kind] = frozenset({"binary", "graded"})
ALL: frozenset[Kind] = frozenset({"binary", "graded", "signed"})

MEASURES = {
    measure.name: measure
    for measure in (
        Measure(name="P", function=precision, uses_ideal=False, takes=ALL),
        Measure(name="R", function=recall, uses_ideal=True, takes=BINARY),
        Measure(name="AP", function=average_precision, uses_ideal=True, takes=BINARY),
        Measure(name="RR", function=reciprocal_rank, uses_ideal=False, takes=BINARY),
        Measure(name="nDCG", function=ndcg, uses_ideal=True, takes=GAINS),
        Measure(name="Success", function=success, uses_ideal=False, takes=ALL),
        Measure(name="Harmful", function=harmful, uses_ideal=False, takes=frozenset({"signed"})),
    )
}

# the means that papers report, by the names they have there
OTHER_NAMES = {"map": "AP", "mrr": "RR", "hit": "Success", "hitratio": "Success", "hitrate": "Success"}
