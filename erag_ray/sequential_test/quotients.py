"""AP and nDCG of a sample: sums over relevant documents, divided by what the number of relevant documents says.

1 / R is the integral of t^(R - 1) over t from 0 to 1, and 1 / (ideal DCG of R) is nearly a mixture of such powers too.
A power t^R is a product over documents, t for each that is relevant, so it can be estimated as sums are: a relevant
document that was read with probability p gives the factor 1 - (1 - t)/p, which is t in expectation. With that AP and
nDCG would be right in expectation, but where p is small the factors go far below -1 and their products anywhere. They
are stopped at -1: nothing changes while every p is at least 1/2, and below that the values are too high, by .01 where a
third is read and by .1 where a tenth is (``notebooks/fewer_readings.py``). nDCG at a cut-off below the base's width
keeps a bias of some hundredths at any p: its ideal is no such mixture there.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy import optimize

from erag_ray.sequential_test.sampled import Floats, Sampled, discounts, ranks

MAX_NODES = 32
NUM_POWERS = 64
SMALLEST = 1e-12
"""In place of a factor of 0, by which a product could not be divided again."""


def average_precision(lists: Sampled, base: Sampled, cutoff: int) -> Floats:
    """Precision at each relevant rank, over the base's number of relevant documents; labels 0 and 1."""
    total: Floats = np.zeros(lists.labels.shape[:-1])
    for node, share in zip(*_legendre(min(MAX_NODES, base.labels.shape[-1] // 2 + 1)), strict=True):
        own, product = _factors(lists, node), _factors(base, node).prod(axis=-1)
        # each document without its own factor; a pair counts one relevant document more, so one power of t more
        single = lists.expanded() / own
        above = np.cumsum(single, axis=-1) - single
        total += share * product * (single * (1 + node * above) / ranks(cutoff)).sum(axis=-1)
    return total


def ndcg(lists: Sampled, base: Sampled, cutoff: int) -> Floats:
    """DCG over that of the ideal order; labels 0 and 1, so the ideal hangs on the number of relevant alone."""
    gains, width = lists.expanded() * discounts(cutoff), base.labels.shape[-1]
    nodes, shares, rest = _powers(cutoff, width)
    others = base.expanded().sum(axis=-1, keepdims=True) - lists.expanded()
    total: Floats = (gains * np.interp(others, np.arange(width), rest)).sum(axis=-1)
    for node, share in zip(nodes, shares, strict=True):
        product = _factors(base, node).prod(axis=-1)
        total += share * product * (gains / _factors(lists, node)).sum(axis=-1)
    return total


def plain_ndcg(lists: Sampled, base: Sampled, cutoff: int) -> Floats:
    """DCG expanded, over the ideal DCG of an order in which each label that was read stands 1/p times; any labels.

    0 where nothing relevant was read.
    """
    order = np.argsort(-base.known, axis=-1, kind="stable")
    labels = np.take_along_axis(base.known, order, axis=-1)
    counts = np.cumsum(np.take_along_axis(base.weights, order, axis=-1), axis=-1)
    drops = labels - np.concatenate([labels[..., 1:], np.zeros_like(labels[..., :1])], axis=-1)
    sums = np.interp(counts, np.arange(cutoff + 1), np.concatenate([[0.0], np.cumsum(discounts(cutoff))]))
    gains, ideal = (lists.expanded() * discounts(cutoff)).sum(axis=-1), (drops * sums).sum(axis=-1)
    return np.asarray(np.divide(gains, ideal, out=np.zeros_like(gains), where=gains > 0))


def _factors(documents: Sampled, node: float) -> Floats:
    """What each document does to t^R; 1 where it was not read or is not relevant."""
    factors = np.maximum(1 - documents.expanded() * (1 - node), -1.0)
    return np.where(np.abs(factors) < SMALLEST, SMALLEST, factors)


@functools.cache
def _legendre(num_nodes: int) -> tuple[Floats, Floats]:
    """Nodes and shares of an integral over 0..1, exact for polynomials of degree 2 num_nodes - 1."""
    nodes, shares = np.polynomial.legendre.leggauss(num_nodes)
    return (nodes + 1) / 2, shares / 2


@functools.cache
def _powers(cutoff: int, width: int) -> tuple[Floats, Floats, Floats]:
    """Nodes and shares, all positive, whose powers t^(R - 1) add up to 1 / (ideal DCG of R), and what they leave.

    Nothing is left (1e-7) for a cut-off at the width of the base. For one above it up to .019: the ideal stops growing
    in a bend that no such mixture has. What is left is read off at the estimated R.
    """
    wanted = np.full(width, 1 / discounts(cutoff).sum())
    wanted[:cutoff] = 1 / np.cumsum(discounts(cutoff))[:width]
    nodes = np.concatenate([[0.0], 1 - np.geomspace(1, 1e-3, NUM_POWERS)[1:], [1.0]])
    powers = nodes ** np.arange(width)[:, None]
    shares, _ = optimize.nnls(powers, wanted)
    return nodes[shares > 0], shares[shares > 0], wanted - powers @ shares
