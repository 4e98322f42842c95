"""A T5 inference engine: segments are encoded once, outputs decoded greedily over the states of several segments.

Compared to a general implementation it has no training, dropout, sampling or beams, and changes the order of sums in
cross-attention (`CopiedStates`). Finished sequences are evicted from the batch.
"""

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.t5.modeling_t5 import T5Attention

from erag_ray.models.local.linear import (
    Weights,
    add_linear,
    check_supported,
    normed,
    normed_linear,
    normed_order,
    normed_relu_linear,
    quantize_weights,
)
from erag_ray.models.local.memory import free_on, machine_bytes, reusable, to_device
from erag_ray.models.local.process import KEPT_BYTES
from erag_ray.models.local.tokens import up_to_end
from erag_ray.models.t5.attention import CopiedStates, Projections, attention_for, bias_matrix
from erag_ray.models.t5.encoder_cache import EncoderStates, Padded, flat

KINDS = ("t5", "mt5", "umt5")
DTYPES = (torch.float32, torch.bfloat16)
"""Not float16, in which T5's activations overflow and need the clamping of transformers."""
WINDOW_SHARE = 0.05
"""Fraction of the memory for the encoder cache."""
CPU_WINDOW = 32768
"""The largest number of tokens in the encoder cache on a CPU: a few questions; more would be no faster."""
CPU_PASS = 2048
"""The largest number of tokens in one pass of the encoder on a CPU: activations of a layer then stay in its caches."""
GPU_PASS = 65536
"""The same on a GPU, which is fully used with fewer tokens."""
GPU_MULTIPLE = 8
"""Masks have rows of a multiple of it; a GPU's fused attention would copy others in every layer."""
CHECK_EVERY = 8
"""Steps between two evictions on a GPU, since each one synchronises with it."""


class Attention(NamedTuple):
    norm: Tensor
    projections: Weights
    """[3 * inner, width]: queries, keys and values; of cross-attention only the queries."""
    out: Weights
    bias: Tensor | None
    """[buckets, heads], of positions."""
    encoder: Projections | None = None
    """Of the encoder states, in cross-attention."""


class Feed(NamedTuple):
    """The weights of a feed-forward layer; ``inner`` has twice as many rows if it is gated."""

    norm: Tensor
    inner: Weights
    out: Weights


class Block(NamedTuple):
    """A block of the encoder or decoder; only those of the decoder have ``cross_attention``."""

    self_attention: Attention
    cross_attention: Attention | None
    feed: Feed


class Stack(NamedTuple):
    blocks: Sequence[Block]
    norm: Tensor


class Engine:
    """Encodes and decodes with the weights of a model of transformers, of one of `KINDS`, on its device.

    They share the weights: where the engine concatenates those of several layers, the model's become views of the
    result. With ``is_int8`` matrix products are in int8. Raises JobError if the machine does not support int8.
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
        self.act: Callable[[Tensor], Tensor] = model.encoder.block[0].layer[-1].DenseReluDense.act
        if settings.dense_act_fn == "gelu_new":
            # one kernel instead of the eight of transformers
            self.act = functools.partial(functional.gelu, approximate="tanh")
        self.widest: int = max(3 * self.heads * self.head, (1 + self.is_gated) * settings.d_ff)
        self.embedding = model.get_input_embeddings().weight
        self.is_int8 = is_int8
        self.output = self._weights(model.get_output_embeddings().weight)
        self.encoder = self._stack(model.encoder)
        self.decoder = self._stack(model.decoder)
        self.device = self.embedding.device

    def window_tokens(self) -> int:
        """Return the number of tokens whose states fill `WINDOW_SHARE` of the GPU's free or the machine's memory.

        On a CPU at most `CPU_WINDOW`.
        """
        is_cpu = self.device.type == "cpu"
        size = machine_bytes() if is_cpu else free_on(self.device)
        token_bytes: int = self.embedding.shape[1] * self.embedding.element_size()
        num_tokens = int(size * WINDOW_SHARE) // token_bytes
        return min(num_tokens, CPU_WINDOW) if is_cpu else num_tokens

    def pass_tokens(self, batch_tokens: int) -> int:
        """Return the largest number of tokens in one pass of the encoder, at most ``batch_tokens``."""
        if self.device.type != "cpu":
            return min(batch_tokens, GPU_PASS)
        # activations below KEPT_BYTES are allocated without page faults
        max_tokens: int = (KEPT_BYTES - 1) // (self.widest * self.embedding.element_size())
        return max(1, min(batch_tokens, CPU_PASS, max_tokens))

    def _stack(self, stack: Any) -> Stack:
        blocks: list[Block] = []
        for block in stack.block:
            attention = self._attention(block.layer[0].layer_norm, block.layer[0].SelfAttention)
            # T5 has one table of position biases, in the first block; UMT5 one in each
            if attention.bias is None and blocks:
                attention = attention._replace(bias=blocks[0].self_attention.bias)
            cross_attention = None
            if len(block.layer) == 3:
                cross_attention = self._cross(block.layer[1].layer_norm, block.layer[1].EncDecAttention)
            blocks.append(Block(attention, cross_attention, self._feed(block.layer[-1])))
        return Stack(blocks=blocks, norm=stack.final_layer_norm.weight)

    def _attention(self, norm: Any, layer: Any) -> Attention:
        table = layer.relative_attention_bias.weight if layer.has_relative_attention_bias else None
        projections = self._weights(layer.q.weight, layer.k.weight, layer.v.weight)
        return Attention(norm.weight, projections, self._weights(layer.o.weight), table)

    def _cross(self, norm: Any, layer: Any) -> Attention:
        shape = (self.heads, self.head, -1)
        encoder = Projections(layer.k.weight.view(shape), layer.v.weight.view(shape))
        query, out = self._weights(layer.q.weight), self._weights(layer.o.weight)
        return Attention(norm.weight, query, out, None, encoder)

    def _feed(self, layer: Any) -> Feed:
        dense = layer.DenseReluDense
        layers = [dense.wi_0, dense.wi_1] if self.is_gated else [dense.wi]
        inner = self._weights(*(linear.weight for linear in layers))
        return Feed(layer.layer_norm.weight, inner, self._weights(dense.wo.weight))

    def _weights(self, *parts: Tensor) -> Weights:
        """Return the weights of one layer, or the concatenated ones of several layers with the same input."""
        weights = torch.cat([part.detach() for part in parts]) if len(parts) > 1 else parts[0].detach()
        if self.is_int8:
            return quantize_weights(weights)
        if len(parts) > 1:
            # the model's weights become views, so that they are in memory once
            for part, joined in zip(parts, torch.split(weights, list(map(len, parts))), strict=True):
                part.data = joined
        return weights

    @property
    def projections(self) -> list[Projections]:
        """Return the projections of the encoder states in each layer of the decoder."""
        layers = [block.cross_attention for block in self.decoder.blocks]
        return [layer.encoder for layer in layers if layer is not None and layer.encoder is not None]

    @property
    def multiple(self) -> int:
        """Return the number of which widths of batches should be multiples on this device."""
        return 1 if self.device.type == "cpu" else GPU_MULTIPLE

    @torch.inference_mode()
    def encode(self, batch: Padded) -> Tensor:
        """Encode segments of similar length; return the states of all tokens without padding, [tokens, width]."""
        states = functional.embedding(to_device(batch.ids, self.device), self.embedding)
        rows, length = batch.ids.shape
        attend = attention_for(self._biases(self.encoder, length, bidirectional=True), batch.lengths, length)
        for block in self.encoder.blocks:
            layer = block.self_attention
            projected = normed_linear(states, layer.norm, self.epsilon, layer.projections)
            projected = projected.view(rows, length, 3, self.heads, self.head)
            add_linear(states, attend(projected, id(layer.bias)), layer.out)
            self._add_feed_forward(states, block.feed)
        return flat(normed(states, self.encoder.norm, self.epsilon), batch)

    def _add_feed_forward(self, states: Tensor, feed: Feed) -> None:
        arguments = (states, feed.norm, self.epsilon, feed.inner)
        if self.is_relu and not self.is_gated:
            add_linear(states, normed_relu_linear(*arguments), feed.out)
            return
        inner = normed_linear(*arguments)
        if self.is_gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = self.act(gate).mul_(inner)
        else:
            inner = self.act(inner)
        add_linear(states, inner, feed.out)

    def _biases(self, stack: Stack, length: int, *, bidirectional: bool) -> dict[int, Tensor]:
        """Return the bias for each distance, [heads, 2 * length - 1], of every table of the stack, by its id."""
        distances = torch.arange(1 - length, length, device=self.device)
        buckets = T5Attention._relative_position_bucket(
            distances, bidirectional, self.buckets, self.max_distance
        )
        biases = [block.self_attention.bias for block in stack.blocks]
        tables = {id(bias): bias for bias in biases if bias is not None}
        # contiguous for each head, since they are read in every layer
        return {key: functional.embedding(buckets, table).t().contiguous() for key, table in tables.items()}

    @torch.inference_mode()
    def decode(
        self, encoder_states: EncoderStates, *, start: int, ends: Sequence[int], most: int
    ) -> list[list[int]]:
        """Decode at most ``most`` tokens greedily over encoder states; return those of each output up to its end."""
        run = _Run(self, encoder_states, start, ends, most)
        every = 1 if self.device.type == "cpu" else CHECK_EVERY
        for step in range(most):
            run.step(step)
            if (step + 1) % every == 0 and not run.evict():
                break
        return run.outputs(ends)


class _Run:
    """A batch during decoding: the output tokens of each row, and the keys and values of its self-attention.

    It synchronises with a GPU only in `evict` and `outputs`.
    """

    def __init__(
        self, engine: Engine, encoder_states: EncoderStates, start: int, ends: Sequence[int], most: int
    ) -> None:
        self.engine = engine
        self.cross_attention = CopiedStates(encoder_states.states, encoder_states.lengths, engine.projections)
        num_rows, device = len(encoder_states.lengths), engine.device
        self.rows = list(range(num_rows))
        """The rows of the original batch that are still in it."""
        self.all_tokens = torch.zeros(num_rows, most, dtype=torch.long, device=device)
        self.tokens = self.all_tokens
        self.last = torch.full((num_rows,), start, device=device)
        self.end = to_device(torch.tensor(list(ends), dtype=torch.long), device)
        self.has_ended = torch.zeros(num_rows, device=device, dtype=torch.bool)
        shape = (2, len(engine.decoder.blocks), num_rows, engine.heads, most, engine.head)
        self.cache = reusable(shape, encoder_states.states)
        biases = engine._biases(engine.decoder, most, bidirectional=False)
        self.biases = {key: bias_matrix(bias, most) for key, bias in biases.items()}

    def step(self, step: int) -> None:
        engine = self.engine
        states = functional.embedding(self.last, engine.embedding)
        for number, block in enumerate(engine.decoder.blocks):
            assert block.cross_attention is not None
            attended = self._self_attention(states, block.self_attention, number, step)
            add_linear(states, attended, block.self_attention.out)
            layer = block.cross_attention
            query = normed_linear(states, layer.norm, engine.epsilon, layer.projections)
            query = query.view(len(states), engine.heads, engine.head)
            add_linear(states, self.cross_attention.attend(query, number), layer.out)
            engine._add_feed_forward(states, block.feed)
        # T5 1.0 scales its states before the output layer, which does not change the order of the scores
        self.last = normed_order(states, engine.decoder.norm, engine.epsilon, engine.output).argmax(dim=-1)
        self.tokens[:, step] = self.last
        self.has_ended |= torch.isin(self.last, self.end)

    def _self_attention(self, states: Tensor, layer: Attention, number: int, step: int) -> Tensor:
        engine, rows = self.engine, len(states)
        projected = normed_linear(states, layer.norm, engine.epsilon, layer.projections)
        query, key, value = projected.view(rows, 3, engine.heads, engine.head).unbind(1)
        keys, values = self.cache[0, number], self.cache[1, number]
        keys[:, :, step], values[:, :, step] = key, value
        scores = keys[:, :, : step + 1] @ query[..., None]
        scores = scores[..., 0] + self.biases[id(layer.bias)][:, step, : step + 1]
        weights = scores.float().softmax(dim=-1).to(states.dtype)
        return (weights[:, :, None] @ values[:, :, : step + 1]).reshape(rows, -1)

    def evict(self) -> bool:
        """Evict the rows that have ended, once they are half of the batch; return whether any row has not.

        Synchronises with the device once.
        """
        has_ended: list[bool] = self.has_ended.tolist()
        num_ended = sum(has_ended)
        if num_ended == len(self.rows):
            return False
        if 2 * num_ended >= len(self.rows):
            self._select([index for index, is_done in enumerate(has_ended) if not is_done])
        return True

    def _select(self, indices: Sequence[int]) -> None:
        self._store()
        self.rows = [self.rows[index] for index in indices]
        index = to_device(torch.tensor(indices), self.engine.device)
        self.cross_attention.select(index)
        self.cache = self.cache[:, :, index]
        self.tokens, self.last, self.has_ended = self.tokens[index], self.last[index], self.has_ended[index]

    def _store(self) -> None:
        if self.tokens is not self.all_tokens:
            self.all_tokens[to_device(torch.tensor(self.rows), self.engine.device)] = self.tokens

    def outputs(self, ends: Collection[int]) -> list[list[int]]:
        """Return the output tokens of each row, up to and with its end token."""
        self._store()
        return [up_to_end(ids, ends) for ids in self.all_tokens.tolist()]
