"""T5's forward pass arranged for reading: segments encoded once, answers decoded greedily over the states of several.

Against a general implementation it leaves out what reading never needs (training, dropout, sampling, beams) and changes
the order of two sums: in cross-attention the query goes through the key projection instead of every state, and the
weighted mean of the states through the value projection. Scores are the same numbers, q . (W h) = (W' q) . h, in far
fewer operations for outputs shorter than a head is wide, and no keys and values are kept for the states, of which FiD
has thousands for each question. Rows that have ended leave the batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from erag_ray.models.local.early_stopping import Stop
from erag_ray.models.local.int8 import check_supported, rounded
from erag_ray.models.local.linear import (
    Weights,
    add_linear,
    normed,
    normed_linear,
    normed_order,
    normed_relu_linear,
)
from erag_ray.models.local.memory import KEPT_BYTES, free_on, machine_bytes, reusable, to_device
from erag_ray.models.t5.attention import attending, hidden, in_order
from erag_ray.models.t5.encoder_cache import Fused, Padded, flat

KINDS = ("t5", "mt5", "umt5")
DTYPES = (torch.float32, torch.bfloat16)
"""In float16 T5's activations overflow, and transformers' own clamping is wanted."""
WINDOW_SHARE = 0.05
CPU_WINDOW = 32768
"""Most tokens whose states are kept at a time on a CPU: some questions; more would be no faster."""
CPU_PASS = 2048
"""Most tokens in one pass of the encoder on a CPU: what a layer works on then stays in its caches."""
GPU_PASS = 65536
"""The same on a GPU, which fewer tokens keep busy."""
GPU_MULTIPLE = 8
"""A mask whose rows are no multiple of it would be copied in every layer, by a GPU's fused attention."""
CHECK_EVERY = 8
"""Steps between two looks at which rows have ended, on a GPU: each look waits for it."""


class Attention(NamedTuple):
    """One attention layer's weights."""

    norm: Tensor
    projections: Weights
    """[3 * inner, width]: queries, keys and values; of cross-attention the queries' alone."""
    out: Weights
    bias: Tensor | None
    """[buckets, heads], of positions."""
    keys: Tensor | None = None
    values: Tensor | None = None
    """[heads, head, width], of cross-attention."""


class Feed(NamedTuple):
    """One feed-forward layer's weights; ``inner`` is twice as high where it is gated."""

    norm: Tensor
    inner: Weights
    out: Weights


class Block(NamedTuple):
    """One block; only those of the decoder have ``cross``."""

    own: Attention
    cross: Attention | None
    feed: Feed


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Encoder or decoder."""

    blocks: Sequence[Block]
    norm: Tensor


class Engine:
    """The weights of a model of one of `KINDS`, and what reading does with them.

    Args:
        model: transformers' own, on its device. Both use the same weights: where the engine joins those of several
            layers, the model's become parts of the joined ones.
        is_int8: multiply in 8-bit integers.

    Raises:
        JobError: in 8-bit integers this machine does not multiply.
    """

    def __init__(self, model: Any, *, is_int8: bool = False) -> None:
        if is_int8:
            check_supported(model.device)
        settings = model.config
        self.heads, self.head = settings.num_heads, settings.d_kv
        self.epsilon = settings.layer_norm_epsilon
        self.buckets = settings.relative_attention_num_buckets
        self.max_distance = settings.relative_attention_max_distance
        self.is_gated = settings.is_gated_act
        self.is_relu = settings.dense_act_fn == "relu"
        self.act = activation(settings.dense_act_fn, model.encoder.block[0].layer[-1].DenseReluDense.act)
        self.widest: int = max(3 * self.heads * self.head, (1 + self.is_gated) * settings.d_ff)
        self.embedding = model.get_input_embeddings().weight
        self.is_int8 = is_int8
        self.output = self._weights(model.get_output_embeddings().weight)
        self.encoder = self._stack(model.encoder)
        self.decoder = self._stack(model.decoder)
        self.device = self.embedding.device

    def window_tokens(self) -> int:
        """Tokens whose states fill `WINDOW_SHARE` of what is free on the GPU, or of the machine's memory.

        On a CPU at most `CPU_WINDOW`.
        """
        is_cpu = self.device.type == "cpu"
        size = machine_bytes() if is_cpu else free_on(self.device)
        bytes_of_token: int = self.embedding.shape[1] * self.embedding.element_size()
        fitting = int(size * WINDOW_SHARE) // bytes_of_token
        return min(fitting, CPU_WINDOW) if is_cpu else fitting

    def pass_tokens(self, batch_tokens: int) -> int:
        """Most tokens in one pass of the encoder, where a batch has so many."""
        if self.device.type != "cpu":
            return min(batch_tokens, GPU_PASS)
        kept: int = (KEPT_BYTES - 1) // (self.widest * self.embedding.element_size())
        return max(1, min(batch_tokens, CPU_PASS, kept))

    def _stack(self, stack: Any) -> Stack:
        blocks: list[Block] = []
        for block in stack.block:
            own = self._attention(block.layer[0].layer_norm, block.layer[0].SelfAttention)
            # T5 has one table of position biases, in the first block; UMT5 one in each
            if own.bias is None and blocks:
                own = own._replace(bias=blocks[0].own.bias)
            cross = None
            if len(block.layer) == 3:
                cross = self._cross(block.layer[1].layer_norm, block.layer[1].EncDecAttention)
            blocks.append(Block(own, cross, self._feed(block.layer[-1])))
        return Stack(blocks=blocks, norm=stack.final_layer_norm.weight)

    def _attention(self, norm: Any, layer: Any) -> Attention:
        table = layer.relative_attention_bias.weight if layer.has_relative_attention_bias else None
        projections = self._weights(layer.q.weight, layer.k.weight, layer.v.weight)
        return Attention(norm.weight, projections, self._weights(layer.o.weight), table)

    def _cross(self, norm: Any, layer: Any) -> Attention:
        shape = (self.heads, self.head, -1)
        keys, values = layer.k.weight.view(shape), layer.v.weight.view(shape)
        query, out = self._weights(layer.q.weight), self._weights(layer.o.weight)
        return Attention(norm.weight, query, out, None, keys, values)

    def _feed(self, layer: Any) -> Feed:
        dense = layer.DenseReluDense
        parts = [dense.wi_0, dense.wi_1] if self.is_gated else [dense.wi]
        inner = self._weights(*(part.weight for part in parts))
        return Feed(layer.layer_norm.weight, inner, self._weights(dense.wo.weight))

    def _weights(self, *parts: Tensor) -> Weights:
        """Of one layer, or of several that take the same input."""
        weights = torch.cat([part.detach() for part in parts]) if len(parts) > 1 else parts[0].detach()
        if self.is_int8:
            return rounded(weights)
        if len(parts) > 1:
            # so that none is held twice
            for part, joined in zip(parts, torch.split(weights, list(map(len, parts))), strict=True):
                part.data = joined
        return weights

    @property
    def multiple(self) -> int:
        """Widths of batches that suit the device are multiples of it."""
        return 1 if self.device.type == "cpu" else GPU_MULTIPLE

    @torch.inference_mode()
    def encode(self, batch: Padded) -> Tensor:
        """States of some segments of similar length, one after the other: [tokens, width], without padding."""
        return flat(self._encoded(to_device(batch.ids, self.device), batch.lengths), batch)

    def _encoded(self, ids: Tensor, lengths: Sequence[int]) -> Tensor:
        states = functional.embedding(ids, self.embedding)
        rows, length = ids.shape
        attend = attending(self._biases(self.encoder, length, bidirectional=True), lengths, length)
        for block in self.encoder.blocks:
            projected = normed_linear(states, block.own.norm, self.epsilon, block.own.projections)
            projected = projected.view(rows, length, 3, self.heads, self.head)
            add_linear(states, attend(projected, id(block.own.bias)), block.own.out)
            self._add_fed(states, block.feed)
        return normed(states, self.encoder.norm, self.epsilon)

    def _add_fed(self, states: Tensor, feed: Feed) -> None:
        given = (states, feed.norm, self.epsilon, feed.inner)
        if self.is_relu and not self.is_gated:
            add_linear(states, normed_relu_linear(*given), feed.out)
            return
        inner = normed_linear(*given)
        if self.is_gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = self.act(gate).mul_(inner)
        else:
            inner = self.act(inner)
        add_linear(states, inner, feed.out)

    def _biases(self, stack: Stack, length: int, *, bidirectional: bool) -> dict[int, Tensor]:
        """The bias to each distance, [heads, 2 * length - 1], of every table of the stack, by its id."""
        away = torch.arange(1 - length, length, device=self.device)
        places = relative_position_bucket(away, self.buckets, self.max_distance, bidirectional=bidirectional)
        tables = {id(block.own.bias): block.own.bias for block in stack.blocks if block.own.bias is not None}
        # of a head one after the other: they are read far more often than made
        return {key: functional.embedding(places, table).t().contiguous() for key, table in tables.items()}

    @torch.inference_mode()
    def decode(
        self, fused: Fused, *, start: int, ends: Sequence[int], most: int, stop: Stop | None = None
    ) -> list[list[int]]:
        """Greedy outputs over encoder states, each up to and with its end, or to where no more of it was wanted.

        Args:
            fused: the states of each row.
            start: the token that a decoder starts with.
            ends: tokens that end an output.
            most: tokens in one output.
            stop: whether no more of a row is wanted. An output ends at the first token after which it says so,
                whatever batch the row is in.
        """
        run = _Run(self, fused, start, ends, most)
        every = 1 if self.device.type == "cpu" else CHECK_EVERY
        for step in range(most):
            run.step(step)
            if (step + 1) % every == 0 and not run.leave(run.ended(stop)):
                break
        return run.outputs(set(ends), stop)


class _Run:
    """One batch on its way: what each row has written, and its own keys and values.

    A GPU is waited for where `ended` looks at it, and where outputs are read at the end.
    """

    def __init__(self, engine: Engine, fused: Fused, start: int, ends: Sequence[int], most: int) -> None:
        self.engine = engine
        self.states = fused.states
        self.hidden = hidden(fused.lengths, self.states.shape[1], self.states)
        rows, device = len(fused.lengths), engine.device
        self.places = list(range(rows))
        self.all_written = torch.zeros(rows, most, dtype=torch.long, device=device)
        self.written, self.num_written = self.all_written, 0
        self.last = torch.full((rows,), start, device=device)
        self.end = to_device(torch.tensor(list(ends), dtype=torch.long), device)
        self.has_ended = torch.zeros(rows, device=device, dtype=torch.bool)
        shape = (2, len(engine.decoder.blocks), rows, engine.heads, most, engine.head)
        self.cache = reusable(shape, self.states)
        biases = engine._biases(engine.decoder, most, bidirectional=False)
        self.biases = {key: in_order(own, most) for key, own in biases.items()}

    def step(self, step: int) -> None:
        """The next token of every row."""
        engine = self.engine
        states = functional.embedding(self.last, engine.embedding)
        for number, block in enumerate(engine.decoder.blocks):
            assert block.cross is not None
            add_linear(states, self._own(states, block.own, number, step), block.own.out)
            add_linear(states, self._cross(states, block.cross), block.cross.out)
            engine._add_fed(states, block.feed)
        # T5 1.0 scales its states before the output layer, which changes no order
        scores = normed_order(states, engine.decoder.norm, engine.epsilon, engine.output)
        self.last = first_largest(scores)
        self.written[:, step] = self.last
        self.num_written = step + 1
        self.has_ended |= torch.isin(self.last, self.end)

    def _own(self, states: Tensor, layer: Attention, number: int, step: int) -> Tensor:
        engine, rows = self.engine, len(states)
        projected = normed_linear(states, layer.norm, engine.epsilon, layer.projections)
        query, key, value = projected.view(rows, 3, engine.heads, engine.head).unbind(1)
        keys, values = self.cache[0, number], self.cache[1, number]
        keys[:, :, step], values[:, :, step] = key, value
        scores = keys[:, :, : step + 1] @ query[..., None]
        scores = scores[..., 0] + self.biases[id(layer.bias)][:, step, : step + 1]
        weights = scores.float().softmax(dim=-1).to(states.dtype)
        found = weights[:, :, None] @ values[:, :, : step + 1]
        return found.reshape(rows, -1)

    def _cross(self, states: Tensor, layer: Attention) -> Tensor:
        engine, rows = self.engine, len(states)
        assert layer.keys is not None
        assert layer.values is not None
        query = normed_linear(states, layer.norm, engine.epsilon, layer.projections)
        by_head = query.view(rows, engine.heads, engine.head).transpose(0, 1)
        # [rows, heads, width]: the queries in the space of the states
        asked = (by_head @ layer.keys).transpose(0, 1)
        # the states are keys and values in one, and read from memory once
        both = self.states[:, None]
        met = functional.scaled_dot_product_attention(
            asked[:, None], both, both, attn_mask=self.hidden, scale=1.0
        )
        found = met[:, 0].transpose(0, 1) @ layer.values.transpose(1, 2)
        return found.transpose(0, 1).reshape(rows, -1)

    def ended(self, stop: Stop | None) -> list[bool]:
        """Of which rows nothing more is wanted. The device is waited for once."""
        columns = [self.has_ended[:, None], self.written[:, : self.num_written]]
        rows = torch.cat(columns if stop else columns[:1], dim=1).tolist()
        return [
            bool(end) or (stop is not None and stop(place, ids))
            for place, (end, *ids) in zip(self.places, rows, strict=True)
        ]

    def leave(self, has_ended: Sequence[bool]) -> bool:
        """Rows that have ended go, once half of them have; whether any is left."""
        num_ended = sum(has_ended)
        if num_ended == len(self.places):
            return False
        if 2 * num_ended >= len(self.places):
            self._keep([row for row, is_gone in enumerate(has_ended) if not is_gone])
        return True

    def _keep(self, rows: Sequence[int]) -> None:
        self._store()
        self.places = [self.places[row] for row in rows]
        left = to_device(torch.tensor(rows), self.engine.device)
        self.states, self.cache = self.states[left], self.cache[:, :, left]
        self.written, self.last, self.has_ended = self.written[left], self.last[left], self.has_ended[left]
        self.hidden = None if self.hidden is None else self.hidden[left]

    def _store(self) -> None:
        """Copy what the rows have written so far to where all rows are kept."""
        if self.written is not self.all_written:
            self.all_written[to_device(torch.tensor(self.places), self.engine.device)] = self.written

    def outputs(self, ends: set[int], stop: Stop | None) -> list[list[int]]:
        """What each row has written, up to and with its end, or to where no more of it was wanted."""
        self._store()
        written = self.all_written[:, : self.num_written].tolist()
        rows = [_up_to_end(row, ends) for row in written]
        return rows if stop is None else [up_to_stop(place, row, stop) for place, row in enumerate(rows)]


def _up_to_end(ids: list[int], ends: set[int]) -> list[int]:
    length = next((place + 1 for place, id_ in enumerate(ids) if id_ in ends), len(ids))
    return ids[:length]


def up_to_stop(place: int, ids: list[int], stop: Stop) -> list[int]:
    """The shortest start of a row after which no more of it is wanted; else all of it."""
    lengths = range(1, len(ids))
    return ids[: next((length for length in lengths if stop(place, ids[:length])), len(ids))]


def activation(name: str, by_library: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a feed-forward layer's activation, in one kernel where torch has it.

    Args:
        name: in the model's config.
        by_library: transformers' own; of "gelu_new" it makes eight kernels, each of which reads and writes all numbers.
    """
    return functools.partial(functional.gelu, approximate="tanh") if name == "gelu_new" else by_library


def first_largest(scores: Tensor) -> Tensor:
    """The place of the largest of each row: [rows]."""
    if scores.device.type == "cpu" and scores.dtype == torch.float32:
        # in a sixth of the time that torch takes
        return torch.from_numpy(scores.numpy().argmax(axis=1))
    return scores.argmax(dim=-1)


def relative_position_bucket(
    distance: Tensor, num_buckets: int, max_distance: int, *, bidirectional: bool
) -> Tensor:
    """The bucket of each distance (key minus query) in T5's table of position biases (Raffel et al., 2020, 2.1).

    Half of the buckets hold one distance each, the others ever more, up to ``max_distance``; with ``bidirectional``
    keys behind the query have half of all buckets for themselves, else a key behind counts as distance 0.
    """
    count = num_buckets // 2 if bidirectional else num_buckets
    side = count * (distance > 0) if bidirectional else torch.zeros_like(distance)
    away = distance.abs() if bidirectional else (-distance).clamp(min=0)
    exact = count // 2
    ratio = torch.log(away.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (ratio * (count - exact)).long()).clamp(max=count - 1)
    return side + torch.where(away < exact, away, far)
