"""Cross-attention of T5's decoder: over a copy of the encoder states for each row, or over one table for all rows.

Rows with different states have a copy each. The key projection is applied to the query instead of every state, and the
value projection to the weighted mean of the states. Scores are the same numbers, q . (W h) = (W' q) . h, with far
fewer operations for outputs with fewer tokens than a head has dimensions, and without keys and values of the encoder
states, of which FiD has thousands for each question.

Leave-one-outs and other subsets of one list have the same segments. They share a table that has each segment once, and
a mask has the segments of each row. Keys and values of the table are projected once for all rows and steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from erag_ray.models.t5.attention import padding_mask
from erag_ray.models.t5.encoder_cache import EncoderStates, Indices, SharedStates

MIN_SHARING = 4
"""A state of a table is in at least so many rows on average, so the lists of a few runs keep copies."""
NUM_STEPS = 3
"""Output tokens for which the operations of a table and of copies are compared: a short answer with its end."""


class Projections(NamedTuple):
    """The key and value projections of the encoder states in one layer, each [heads, head, width]."""

    keys: Tensor
    values: Tensor


def is_table_faster(
    num_rows: int, num_row_states: int, num_states: int, layers: Sequence[Projections]
) -> bool:
    """Return whether a table needs fewer operations than a copy of the states for each row, and no more memory.

    Args:
        num_rows: of the batch.
        num_row_states: of all rows together.
        num_states: of the table.
        layers: of the decoder.
    """
    heads, head, width = layers[0].keys.shape
    size = num_states * (width + 2 * len(layers) * heads * head)
    if num_row_states < MIN_SHARING * num_states or size > num_row_states * width:
        return False
    operations = num_states * (width + NUM_STEPS * num_rows) * heads * head
    return operations < NUM_STEPS * num_row_states * heads * width


class CopiedStates:
    """Cross-attention of rows with a padded copy of the encoder states each.

    Args:
        states: of the rows.
        layers: of the decoder.
    """

    def __init__(self, states: EncoderStates, layers: Sequence[Projections]) -> None:
        self.states = states.states
        self.layers = layers
        self.mask = padding_mask(states.lengths, self.states.shape[1], self.states)

    def attend(self, query: Tensor, number: int) -> Tensor:
        """Return the means of values [rows, heads * head] for the queries [rows, heads, head] of layer ``number``."""
        layer = self.layers[number]
        # [rows, heads, width]: the queries in the space of the encoder states
        projected = (query.transpose(0, 1) @ layer.keys).transpose(0, 1)
        # the encoder states are both keys and values, and read from memory once
        keys_values = self.states[:, None]
        means = functional.scaled_dot_product_attention(
            projected[:, None], keys_values, keys_values, attn_mask=self.mask, scale=1.0
        )
        values = means[:, 0].transpose(0, 1) @ layer.values.transpose(1, 2)
        return values.transpose(0, 1).reshape(len(query), -1)

    def advance(self, tokens: Tensor) -> None:
        """Add the next token of each row; it is not needed here."""

    def select(self, index: Tensor) -> None:
        """Keep some of the rows."""
        self.states = self.states[index]
        self.mask = None if self.mask is None else self.mask[index]


class StateTable:
    """Cross-attention of rows with one table of encoder states, on a CPU.

    In the first layer a query depends on the output tokens so far, but not on the encoder states. There rows with the
    same tokens, a prefix, attend to each segment together, and only the mean over the segments is a row's own.

    Args:
        states: of the rows.
        layers: of the decoder.
    """

    def __init__(self, states: SharedStates, layers: Sequence[Projections]) -> None:
        self.states = states.states
        self.lengths = states.lengths
        self.layers = layers
        self.keys_values = dict[int, Tensor]()
        """Of each layer, once it needs them."""
        self.num_prefixes = 0
        """For which the first layer has attended."""
        self._set_rows(states.counts, np.zeros(len(states.counts), np.int64))

    def _set_rows(self, counts: Indices, prefixes: Indices) -> None:
        """Set the rows: how often each has each segment, and a number of its prefix."""
        self.counts = counts
        # a segment that a row has twice counts twice
        self.log_counts = torch.from_numpy(counts).float().log().clamp(min=torch.finfo(self.states.dtype).min)
        mask = self.log_counts.to(self.states.dtype)
        self.mask = mask.repeat_interleave(torch.from_numpy(self.lengths), dim=1)
        self._set_prefixes(prefixes)

    def _set_prefixes(self, prefixes: Indices) -> None:
        _, first_rows, self.prefixes = np.unique(prefixes, return_index=True, return_inverse=True)
        self.first_rows = torch.from_numpy(first_rows)

    def advance(self, tokens: Tensor) -> None:
        """Add the next token of each row to its prefix."""
        ids = tokens.numpy()
        self._set_prefixes(self.prefixes * (ids.max() + 1) + ids)

    def select(self, index: Tensor) -> None:
        """Keep some of the rows."""
        rows = index.numpy()
        self._set_rows(self.counts[rows], self.prefixes[rows])

    def attend(self, query: Tensor, number: int) -> Tensor:
        """Return the means of values [rows, heads * head] for the queries [rows, heads, head] of layer ``number``."""
        if number == 0 and self._prefers_prefixes(len(query)):
            self.num_prefixes += len(self.first_rows)
            return self._attend_by_prefix(query[self.first_rows])
        if number not in self.keys_values:
            self.keys_values[number] = _keys_values(self.states, self.layers[number])
        keys, values = self.keys_values[number]
        means = functional.scaled_dot_product_attention(
            query.transpose(0, 1)[None], keys, values, attn_mask=self.mask, scale=1.0
        )
        return means[0].transpose(0, 1).reshape(len(query), -1)

    def _prefers_prefixes(self, num_rows: int) -> bool:
        """Return whether the prefixes of this step need fewer operations than its rows with keys and values.

        Or than the projection of keys and values, as long as there are none: it needs those of ``head`` prefixes, but
        is one product of large matrices, in about half of the time.
        """
        _, head, width = self.layers[0].keys.shape
        num_prefixes = len(self.first_rows)
        is_first = 0 not in self.keys_values and 2 * (self.num_prefixes + num_prefixes) <= head
        return is_first or num_prefixes * width <= num_rows * head

    def _attend_by_prefix(self, query: Tensor) -> Tensor:
        """Return the means of values of all rows for the queries [prefixes, heads, head]."""
        num_prefixes, heads, _ = query.shape
        num_rows, num_segments = self.counts.shape
        layer, prefixes = self.layers[0], torch.from_numpy(self.prefixes)
        log_sums, means = self._attend_by_segment((query.transpose(0, 1) @ layer.keys).flatten(0, 1))
        scores = log_sums.view(num_segments, heads, num_prefixes)[:, :, prefixes]
        # [heads, rows, segments]
        weights = (scores + self.log_counts.t()[:, None]).softmax(dim=0).to(query.dtype).permute(1, 2, 0)
        # of every prefix, from which each row takes its own
        mixed = weights @ means.view(num_segments, heads, -1).transpose(0, 1)
        row_means = mixed.view(heads, num_rows, num_prefixes, -1)[:, torch.arange(num_rows), prefixes]
        return (row_means @ layer.values.transpose(1, 2)).transpose(0, 1).flatten(1)

    def _attend_by_segment(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to the states of each segment by itself, for queries in the space of the states [queries, width].

        Returns:
            The logarithms of sums of exponentials of scores, [segments, queries], in float32, and the weighted means
            of states, [segments, queries, width].
        """
        lengths, starts = torch.from_numpy(self.lengths), np.cumsum(self.lengths) - self.lengths
        scores = (self.states @ queries.t()).float()
        largest = torch.from_numpy(np.maximum.reduceat(scores.numpy(), starts))
        weights = scores.sub_(largest.repeat_interleave(lengths, dim=0)).exp_()
        sums = torch.from_numpy(np.add.reduceat(weights.numpy(), starts))
        parts = torch.split(weights.to(queries.dtype), lengths.tolist())
        pairs = zip(parts, torch.split(self.states, lengths.tolist()), strict=True)
        totals = torch.stack([part.t() @ states for part, states in pairs])
        return largest + sums.log(), totals / sums[..., None].to(totals.dtype)


def _keys_values(states: Tensor, layer: Projections) -> Tensor:
    """Return the keys and values of states [states, width]: [2, 1, heads, states, head]."""
    heads, head, _ = layer.keys.shape
    weights = torch.cat([layer.keys.flatten(0, 1), layer.values.flatten(0, 1)])
    projected = functional.linear(states, weights).view(1, len(states), 2, heads, head)
    return projected.permute(2, 0, 3, 1, 4)


def cross_attention_for(
    states: EncoderStates | SharedStates, layers: Sequence[Projections]
) -> CopiedStates | StateTable:
    """Return the cross-attention of a batch with these encoder states."""
    return StateTable(states, layers) if isinstance(states, SharedStates) else CopiedStates(states, layers)
