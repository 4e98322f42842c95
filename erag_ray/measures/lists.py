"""Measures of ranked lists: from labels in rank order to one float64 per list, at every cut-off.

The input is `Lists`: the labels of many ranked lists of one depth, without missing labels. All code is vectorised over
lists, and a measure computes its values at all cut-offs at once, so ten cut-offs cost as much as one.

Definitions follow trec_eval: P@k divides by k on short lists too; R@k and AP@k divide by the number of relevant
documents in the base; a query without a relevant document, or without a list, gets 0.

Labels are declared *binary* (0 or 1), *graded* (0 or more) or *signed* (below 0: the document does harm). Ranks behind
the end of a short list count 0.

To add a measure: one function ``Lists -> float64 [num_lists, depth]`` and one entry in `MEASURES`.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from erag_ray.support.registry import find_instance
from erag_ray.support.user_code import running

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Kind = Literal["binary", "graded", "signed"]


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Labels of many ranked lists, all cut at one depth; raises ValueError if one is not finite, as of user code."""

    labels: Floats
    """[num_lists, depth], in rank order; 0 behind the end of a shorter list."""
    lengths: Integers
    """[num_lists], number of documents in each list, at most depth."""
    ideal: Floats
    """[num_lists, width], the labels of the base in descending order, padded with 0: of the list itself
    (ideal="list") or of the union of all compared runs' lists (ideal="pool"). Negative labels count 0."""

    def __post_init__(self) -> None:
        if not np.isfinite(self.labels).all():
            raise ValueError("labels must be finite")

    @cached_property
    def sums(self) -> Floats:
        """Return [num_lists, depth], the sum of the labels down to each rank."""
        return np.cumsum(self.labels, axis=1)

    @cached_property
    def ideal_sums(self) -> Floats:
        """Return [num_lists, 1], the sum of the base's labels: of binary ones, the number of relevant documents."""
        return np.asarray(self.ideal.sum(axis=1, keepdims=True), np.float64)

    @property
    def depth(self) -> int:
        """Return the depth that the lists are cut to, which is the largest cut-off."""
        return int(self.labels.shape[1])


def pad(values: npt.ArrayLike, lengths: npt.ArrayLike, width: int) -> Floats:
    """Return concatenated rows as [num_rows, width], each row cut at the width or padded with 0."""
    flat, sizes = np.asarray(values, dtype=np.float64), np.asarray(lengths, dtype=np.int64)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    columns = np.arange(len(flat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    result = np.zeros((len(sizes), width))
    fits = columns < width
    result[rows[fits], columns[fits]] = flat[fits]
    return result


def list_ideal(labels: Floats, lengths: npt.ArrayLike | None = None) -> Lists:
    """Return lists with ideal="list": the base of each list is its documents, cut at the depth.

    Labels and lengths are as in `Lists`; without lengths every list is as long as the depth.
    """
    matrix = np.asarray(labels, dtype=np.float64)
    sizes = np.full(len(matrix), matrix.shape[1]) if lengths is None else np.asarray(lengths)
    descending = -np.sort(-np.maximum(matrix, 0.0), axis=1)
    return Lists(labels=matrix, lengths=sizes.astype(np.int64), ideal=descending)


def precision(lists: Lists) -> Floats:
    """Return the mean label of the first k ranks, missing documents counting 0 (m_P.c; graded: eRAG's eval.py)."""
    return lists.sums / _ranks(lists)


def success(lists: Lists) -> Floats:
    """Return the largest label in the first k ranks; on binary labels trec_eval's success, the paper's Hit Ratio."""
    return np.maximum.accumulate(lists.labels, axis=1)


def recall(lists: Lists) -> Floats:
    """Return the fraction of the base's relevant documents that are in the first k ranks (trec_eval m_recall.c)."""
    return _ratio(lists.sums, lists.ideal_sums)


def average_precision(lists: Lists) -> Floats:
    """Return the sum of the precision at each relevant rank up to k over the base's relevant count (m_map_cut.c)."""
    return _ratio(np.cumsum(lists.labels * precision(lists), axis=1), lists.ideal_sums)


def reciprocal_rank(lists: Lists) -> Floats:
    """Return 1 / rank of the first relevant document, 0 if it is below rank k (m_recip_rank.c on the list cut at k)."""
    return np.maximum.accumulate(lists.labels / _ranks(lists), axis=1)


def ndcg(lists: Lists) -> Floats:
    """Return nDCG: gain label, discount log2(rank + 1), over the DCG of the base cut at k (m_ndcg_cut.c)."""
    discounts = np.log2(_ranks(lists) + 1)
    num_missing = max(0, lists.depth - lists.ideal.shape[1])
    ideal = np.pad(lists.ideal[:, : lists.depth], ((0, 0), (0, num_missing)))
    return _ratio(np.cumsum(lists.labels / discounts, axis=1), np.cumsum(ideal / discounts, axis=1))


def harmful(lists: Lists) -> Floats:
    """Return the fraction of the first k ranks with documents with which the reader scores less than without any."""
    return np.cumsum(lists.labels < 0, axis=1) / _ranks(lists)


def udcg(lists: Lists) -> Floats:
    """Return the logistic function of the mean label of the first k documents; without documents 1/2.

    With the labels of the annotator ``udcg``: UDCG (arXiv 2510.21440). A list of fewer documents has the mean of these.
    """
    counts = np.minimum(_ranks(lists), lists.lengths[:, None])
    return 1 / (1 + np.exp(-lists.sums / np.maximum(counts, 1)))


def _ranks(lists: Lists) -> Floats:
    return np.arange(1.0, lists.depth + 1)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Divide; 0 where the denominator is 0, so that a query without a relevant document counts as 0."""
    is_positive = np.broadcast_to(denominator > 0, numerator.shape)
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=is_positive)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure: its function and the kinds of labels that it is defined for."""

    name: str
    function: Callable[[Lists], Floats]
    """Lists -> [num_lists, depth]: the value at every cut-off 1..depth."""
    uses_ideal: bool
    """The value depends on the base, so ideal="list" and ideal="pool" differ."""
    takes: frozenset[Kind]
    """The kinds of labels that it is defined for; measures of binary labels also take graded ones with a threshold."""
    by_default: bool = True
    """Computed where a job names no measures."""
    sign: Literal[1, -1] = 1
    """1: more is better; -1: less is better."""

    @property
    def needs_binary(self) -> bool:
        """Return whether graded labels need a threshold."""
        return self.takes == BINARY


def compute_all(
    names: Collection[str], lists: Lists, cutoffs: Collection[int], threshold: float | None = None
) -> dict[tuple[str, int], Floats]:
    """Compute several measures at several cut-offs, each 1..depth: (name, cutoff) -> [num_lists].

    Names are keys of `MEASURES`, aliases (`canonical_name`), or ``package.module:name`` of a `Measure`; defined for
    labels of this kind (`check_measures`). For measures that need binary labels, label >= threshold is relevant, in the
    lists and in the base. If set it is always applied; it is never inferred from the labels. Raise ValueError for an
    unknown measure.
    """
    thresholded = lists
    if threshold is not None:
        labels, ideal = ((part >= threshold).astype(np.float64) for part in (lists.labels, lists.ideal))
        thresholded = replace(lists, labels=labels, ideal=ideal)
    values: dict[tuple[str, int], Floats] = {}
    for name in names:
        measure = _find(name)
        with running(f"measures: {name}", measure.function):
            given = thresholded if measure.needs_binary else lists
            at_every_cutoff = np.asarray(measure.function(given), np.float64)
            # it may be user code
            if at_every_cutoff.shape != (shape := given.labels.shape):
                raise ValueError(f"returned an array of shape {at_every_cutoff.shape}, not {shape}")
        # copies rather than views, which would keep the values at all cut-offs in memory
        values |= {(name, cutoff): at_every_cutoff[:, cutoff - 1].copy() for cutoff in cutoffs}
    return values


def check_measures(names: Collection[str], kind: Kind, threshold: float | None = None) -> None:
    """Check names and threshold, before any reader runs.

    Raises:
        ValueError: an unknown measure; a threshold that is not above 0, or above 1 on binary labels; graded labels
            without a threshold for a measure that needs binary ones; or labels for which a measure is not defined.
    """
    measures = [_find(name) for name in names]
    if threshold is not None and not 0 < threshold < float("inf"):
        raise ValueError(f"threshold {threshold} must be above 0: the label 0 is never relevant")
    if kind == "binary" and threshold is not None and threshold > 1:
        raise ValueError(f"threshold {threshold} is above 1: no binary label would be relevant")
    refused = [measure for measure in measures if not takes(measure, kind, threshold)]
    if refused:
        names = ", ".join(measure.name for measure in refused)
        need = f"{names} are not defined for them. Use"
        if kind == "graded" and all(measure.needs_binary for measure in refused):
            need = f"{names} need a threshold (label >= threshold is relevant). Set one, or use"
        allowed = ", ".join(measures_for(kind, threshold))
        raise ValueError(f"the labels are {kind}, and {need} only {allowed}")


def takes(measure: Measure, kind: Kind, threshold: float | None) -> bool:
    """Return whether a measure is defined for labels of a kind; a threshold makes graded ones binary."""
    return kind in measure.takes or (kind == "graded" and threshold is not None and measure.needs_binary)


def measures_for(kind: Kind, threshold: float | None) -> list[str]:
    """Return the names of all measures that are defined for labels of a kind."""
    return [name for name, measure in MEASURES.items() if takes(measure, kind, threshold)]


def default_measures(kind: Kind, threshold: float | None) -> list[str]:
    """Return the names of the measures for labels of a kind that a job gets without naming any."""
    return [name for name in measures_for(kind, threshold) if MEASURES[name].by_default]


def canonical_name(name: str) -> str:
    """Return the name of a measure in `MEASURES` and in tables: AP for MAP, RR for MRR, Success for Hit Ratio.

    Case, blanks, hyphens and underscores in aliases are ignored; other names are returned unchanged.
    """
    return OTHER_NAMES.get(re.sub(r"[\s_-]", "", name.lower()), name)


def _find(name: str) -> Measure:
    arguments = 'uses_ideal=False, takes=frozenset({"binary"})'
    return find_instance("measure", canonical_name(name), MEASURES, Measure, arguments)


BINARY: frozenset[Kind] = frozenset({"binary"})
ALL: frozenset[Kind] = frozenset({"binary", "graded", "signed"})

MEASURES = {
    measure.name: measure
    for measure in (
        Measure(name="P", function=precision, uses_ideal=False, takes=ALL),
        Measure(name="R", function=recall, uses_ideal=True, takes=BINARY),
        Measure(name="AP", function=average_precision, uses_ideal=True, takes=BINARY),
        Measure(name="RR", function=reciprocal_rank, uses_ideal=False, takes=BINARY),
        Measure(name="nDCG", function=ndcg, uses_ideal=True, takes=frozenset({"binary", "graded"})),
        Measure(name="Success", function=success, uses_ideal=False, takes=ALL),
        Measure(name="Harmful", function=harmful, uses_ideal=False, takes=frozenset({"signed"}), sign=-1),
        Measure(name="UDCG", function=udcg, uses_ideal=False, takes=frozenset({"signed"}), by_default=False),
    )
}


# --- measures over the facts of a question ---

ALPHA = 0.5
"""How much of a fact's gain a document loses for each earlier one that has it (Clarke et al., SIGIR 2008)."""


@dataclass(frozen=True, kw_only=True)
class FactLists:
    """Labels of ranked lists for each fact of their questions, all with one number of facts; within [0, 1]."""

    labels: Floats
    """[num_lists, depth, num_facts], in rank order; 0 behind the end of a list."""
    ideal: Floats
    """[num_lists, width, num_facts], the base in any order; 0 behind its end."""


def coverage(lists: FactLists) -> Floats:
    """Return the mean over facts of 1 - prod(1 - label) over the first k ranks: the share of facts that they give."""
    return np.asarray((1 - np.cumprod(1 - lists.labels, axis=1)).mean(axis=2), np.float64)


def alpha_ndcg(lists: FactLists) -> Floats:
    """Return alpha-nDCG with alpha = .5 over facts (Clarke et al., SIGIR 2008).

    A document gains for each fact its label times the product of 1 - alpha x label over earlier documents; the discount
    is log2(rank + 1). The ideal order is the greedy one, as usual (the best one is NP-hard, so that values slightly
    above 1 are possible); of equal gains the last document of the base comes first, as in ndeval.
    """
    depth = lists.labels.shape[1]
    discounts = np.log2(np.arange(1.0, depth + 1) + 1)
    remaining = np.cumprod(1 - ALPHA * lists.labels, axis=1)
    before = np.concatenate([np.ones_like(remaining[:, :1]), remaining[:, :-1]], axis=1)
    gains = (lists.labels * before).sum(axis=2)
    ideal = _greedy_gains(lists.ideal, depth)
    return _ratio(np.cumsum(gains / discounts, axis=1), np.cumsum(ideal / discounts, axis=1))


def _greedy_gains(base: Floats, depth: int) -> Floats:
    """Return the gains [num_lists, depth] of a base's documents, the one with the largest gain next."""
    base = base[:, ::-1]
    remaining, gains = np.ones((len(base), base.shape[2])), np.zeros((len(base), depth))
    is_free, rows = np.ones(base.shape[:2], np.bool_), np.arange(len(base))
    for rank in range(min(depth, base.shape[1])):
        # rounded, so that equal gains tie in whichever order they are summed
        gain = np.where(is_free, np.einsum("ldf,lf->ld", base, remaining).round(12), -1.0)
        best = gain.argmax(axis=1)
        gains[:, rank] = gain[rows, best]
        remaining *= 1 - ALPHA * base[rows, best]
        is_free[rows, best] = False
    return gains


FACT_MEASURES = {"Coverage": (coverage, False), "alpha-nDCG": (alpha_ndcg, True)}
"""Measures of the annotator ``erag_facts`` -> the function to [num_lists, depth], and whether it uses the ideal."""

# names in the literature of measures and of their means
OTHER_NAMES = {"map": "AP", "mrr": "RR", "hit": "Success", "hitratio": "Success", "hitrate": "Success"}
