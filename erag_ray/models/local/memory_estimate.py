"""Bytes that reading takes, by the shape of a model: estimates, rather too high, of what a batch holds at its peak."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from erag_ray.models.local.memory import Needs

FLOAT32 = 4


def pass_token_bytes(settings: Any, dtype: torch.dtype, length: int) -> int:
    """Of one token in a pass of T5's encoder.

    Args:
        settings: the model's config.
        dtype: of its weights.
        length: tokens in one segment: each meets so many others.
    """
    inner = settings.num_heads * settings.d_kv
    feed = (4 if settings.is_gated_act else 2) * settings.d_ff
    # scores, mask with bias, and weights, where no fused kernel takes the bias
    met = 3 * settings.num_heads * length
    return int(dtype.itemsize * (4 * settings.d_model + 5 * inner + feed + met))


def t5_needs(
    settings: Any, dtype: torch.dtype, new_tokens: int, *, at_once: int = 1, keeps_keys: bool = False
) -> Needs:
    """Of T5's decoder over encoded states.

    Args:
        settings: the model's config.
        dtype: of its weights.
        new_tokens: most in one output.
        at_once: how many of them are decoded at a time.
        keeps_keys: whether every layer keeps keys and values of the states.
    """
    size, inner = dtype.itemsize, settings.num_heads * settings.d_kv
    keys = 2 * settings.num_decoder_layers * inner
    # states, twice when rows leave; scores in both precisions
    scores = at_once * settings.num_heads * (2 * size + 2 * FLOAT32)
    token = size * (2 * settings.d_model + keeps_keys * keys) + scores
    logits = at_once * settings.vocab_size * (size + 2 * FLOAT32)
    return Needs(token=token, row=2 * size * keys * new_tokens + logits)


def causal_needs(model: Any, new_tokens: int, length: int, *, at_once: int = 1) -> Needs:
    """Of a decoder-only model.

    Args:
        model: transformers' own.
        new_tokens: most in one output.
        length: most tokens in a prompt: each is masked against so many others.
        at_once: how many tokens of an output are decoded, or scored, at a time.
    """
    settings, size = model.config.get_text_config(), model.dtype.itemsize
    layers, width, feed = settings.num_hidden_layers, settings.hidden_size, _feed_width(settings)
    heads = getattr(settings, "num_attention_heads", 1)
    head = getattr(settings, "head_dim", None) or width // heads
    layer_keys = 2 * (getattr(settings, "num_key_value_heads", None) or heads) * head
    # one layer is copied where rows leave, or where the library's own cache grows
    keys = (layers + 1) * layer_keys
    # states, normed ones, and the widest of what one layer makes of them: gate, inner and product, or its attention's
    passing = 2 * width + max(3 * feed, 6 * width)
    logits = settings.vocab_size * (size + 2 * FLOAT32)
    makes_all = "logits_to_keep" not in inspect.signature(model.forward).parameters
    # the mask is made of truth values, and kernels want it in numbers, in rows of multiples of 8
    mask = length * (1 + 2 * size)
    token = size * (keys + passing) + mask + makes_all * logits
    return Needs(token=token, row=size * keys * new_tokens + at_once * logits)


def _feed_width(settings: Any) -> int:
    return int(getattr(settings, "intermediate_size", None) or 4 * settings.hidden_size)
