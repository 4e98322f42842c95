"""Estimates of the peak memory of a batch in bytes, by the shape of the model; rather too high than too low."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from erag_ray.models.local.memory import MemoryEstimate

FLOAT32 = 4


def pass_token_bytes(settings: Any, dtype: torch.dtype, length: int) -> int:
    """Return the bytes of one token in a pass of T5's encoder.

    Args:
        settings: the model's config.
        dtype: of its weights.
        length: tokens in a segment, to which each token attends.
    """
    inner = settings.num_heads * settings.d_kv
    feed = (4 if settings.is_gated_act else 2) * settings.d_ff
    # scores, mask with bias, and weights, if no fused kernel takes the bias
    attention = 3 * settings.num_heads * length
    return int(dtype.itemsize * (4 * settings.d_model + 5 * inner + feed + attention))


def t5_memory_estimate(
    settings: Any, dtype: torch.dtype, new_tokens: int, *, num_logits: int = 1, keeps_keys: bool = False
) -> MemoryEstimate:
    """Estimate the memory of T5's decoder over encoder states.

    Args:
        settings: the model's config.
        dtype: of its weights.
        new_tokens: the largest number of tokens in an output.
        num_logits: the number of output tokens decoded or scored at a time.
        keeps_keys: whether every layer keeps keys and values of the encoder states.
    """
    size, inner = dtype.itemsize, settings.num_heads * settings.d_kv
    keys = 2 * settings.num_decoder_layers * inner
    # states, twice while sequences are evicted; scores in both precisions
    scores = num_logits * settings.num_heads * (2 * size + 2 * FLOAT32)
    token = size * (2 * settings.d_model + keeps_keys * keys) + scores
    logits = num_logits * settings.vocab_size * (size + 2 * FLOAT32)
    return MemoryEstimate(token=token, row=2 * size * keys * new_tokens + logits)


def causal_memory_estimate(
    model: Any, new_tokens: int, length: int, *, num_logits: int = 1
) -> MemoryEstimate:
    """Estimate the memory of a decoder-only model.

    Args:
        model: of transformers.
        new_tokens: the largest number of tokens in an output.
        length: the largest number of tokens in a prompt, which determines the size of the mask.
        num_logits: the number of output tokens decoded or scored at a time.
    """
    settings, size = model.config.get_text_config(), model.dtype.itemsize
    layers, width, feed = settings.num_hidden_layers, settings.hidden_size, _feed_width(settings)
    heads = getattr(settings, "num_attention_heads", 1)
    head = getattr(settings, "head_dim", None) or width // heads
    layer_keys = 2 * (getattr(settings, "num_key_value_heads", None) or heads) * head
    # one layer is copied when sequences are evicted, or when transformers' own cache grows
    keys = (layers + 1) * layer_keys
    # states, normed states, and the larger of a layer's activations: gate, inner and product, or those of attention
    activations = 2 * width + max(3 * feed, 6 * width)
    logits = settings.vocab_size * (size + 2 * FLOAT32)
    has_all_logits = "logits_to_keep" not in inspect.signature(model.forward).parameters
    # the mask is boolean at first; kernels get it in floats, in rows padded to multiples of 8
    mask = length * (1 + 2 * size)
    token = size * (keys + activations) + mask + has_all_logits * logits
    return MemoryEstimate(token=token, row=size * keys * new_tokens + num_logits * logits)


def _feed_width(settings: Any) -> int:
    return int(getattr(settings, "intermediate_size", None) or 4 * settings.hidden_size)
