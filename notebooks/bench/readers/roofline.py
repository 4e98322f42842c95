"""The least time that readings can take on a machine: their products of matrices, at the rate that it multiplies at."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from erag_ray.models.local.devices import device, set_matmul_precision
from erag_ray.models.local.linear import linear, quantize_weights
from erag_ray.models.local.model import PromptTokens

TOKENS, WIDTH, INNER = 2048, 512, 2048


def encoder_operations(settings: Any, lengths: Iterable[int]) -> float:
    """Floating-point operations of T5's encoder for segments of so many tokens (a product and its sum are two)."""
    width, inner = settings.d_model, settings.num_heads * settings.d_kv
    feed = (3 if settings.is_gated_act else 2) * width * settings.d_ff
    each = 2.0 * (4 * width * inner + feed)
    total: float = settings.num_layers * sum(length * each + 4.0 * length**2 * inner for length in lengths)
    return total


def decoder_operations(settings: Any, num_states: Iterable[int], num_tokens: float) -> float:
    """Operations of T5's decoder for outputs of so many tokens, each over so many encoder states.

    The states' keys and values count once, as in any implementation that keeps them.
    """
    width, inner = settings.d_model, settings.num_heads * settings.d_kv
    feed = (3 if settings.is_gated_act else 2) * width * settings.d_ff
    token = 2.0 * (6 * width * inner + feed) * settings.num_decoder_layers + 2.0 * width * settings.vocab_size
    states = [
        settings.num_decoder_layers * count * inner * (4.0 * width + 4.0 * num_tokens) for count in num_states
    ]
    total: float = sum(states) + len(states) * num_tokens * token
    return total


def operations(settings: Any, prompts: Sequence[PromptTokens], num_outputs: float) -> float:
    """Operations of T5 for some prompts.

    Args:
        settings: the model's.
        prompts: as the model renders them.
        num_outputs: mean number of tokens in an output.
    """
    segments = [len(segment) for prompt in prompts for segment in prompt.segments]
    states = [prompt.length for prompt in prompts]
    return encoder_operations(settings, segments) + decoder_operations(settings, states, num_outputs)


def products(operations: float, dtype: str) -> Callable[[], None]:
    """The work of nothing but so many operations, in products of the size that T5-small's are."""
    inputs, weights = (torch.randn(rows, WIDTH, device=device()) for rows in (TOKENS, INNER))
    count = max(1, round(operations / (2.0 * TOKENS * WIDTH * INNER)))
    if dtype == "int8":
        matrix: Any = quantize_weights(weights)
    else:
        matrix = weights.to(set_matmul_precision(dtype))
        inputs = inputs.to(matrix.dtype)

    @torch.inference_mode()
    def work() -> None:
        for _ in range(count):
            linear(inputs, matrix)
        if inputs.is_cuda:
            torch.cuda.synchronize()

    return work
