"""Memory: estimates of the peak of a batch, the largest batch that fits, and out-of-memory errors."""

import gc
import inspect
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

CPU_SHARE = 0.25
"""Fraction of a machine's memory for the batches of all its models."""
GPU_SHARE = 0.8
"""Fraction of a GPU's free memory for batches: fragmentation makes the rest unusable."""
FIRST_PATIENCE = 16
"""After an out-of-memory error: the number of batches that must fit before larger ones are tried again."""
FLOAT32 = 4
"""Bytes of a number."""
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

# out-of-memory messages of the CPU, and of GPU allocations outside torch's allocator
MESSAGES = (
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # no memory for the workspace of cuBLAS
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
)


class Limits(NamedTuple):
    """The size of the largest batch."""

    rows: int
    tokens: int
    """The largest number of prompt tokens, padding included."""
    row_tokens: int = 0
    """Tokens that are added for each request, for its memory besides its prompt."""

    def fit(self, rows: int, longest: int) -> bool:
        """Return whether a batch of ``rows`` requests of at most ``longest`` tokens is within the limits."""
        return rows <= self.rows and rows * (longest + self.row_tokens) <= self.tokens

    def rows_of(self, longest: int) -> int:
        """Return how many requests of ``longest`` tokens a batch may have: at least one."""
        return max(1, min(self.rows, self.tokens // (longest + self.row_tokens)))


class MemoryEstimate(NamedTuple):
    """Bytes of a batch: for each prompt token, padding included, and for each request in addition."""

    token: int
    row: int


class BatchLimits:
    """Limits that shrink after an out-of-memory error, and double up to the initial ones after batches that fit."""

    def __init__(self, most: Limits) -> None:
        self.most = self.now = most
        self._patience, self._num_good = FIRST_PATIENCE // 2, 0

    def shrink(self, rows: int, longest: int) -> None:
        """Limit the next batches to ``rows`` requests of ``longest`` tokens, and double the wait until they grow."""
        self._patience *= 2
        tokens = min(self.now.tokens, rows * (longest + self.now.row_tokens))
        self.now, self._num_good = self.now._replace(tokens=tokens), 0

    def count_good(self) -> None:
        self._num_good += self.now != self.most
        if self._num_good >= self._patience:
            self.now, self._num_good = self.now._replace(tokens=min(2 * self.now.tokens, self.most.tokens)), 0


def largest_batch(room: int, estimate: MemoryEstimate, most: Limits) -> Limits:
    """Return the largest batch within ``room`` bytes and the limits ``most``: at least one request of one token."""
    row_tokens = -(-estimate.row // estimate.token)
    tokens = max(1 + row_tokens, min(most.tokens, room // estimate.token))
    return Limits(max(1, min(most.rows, tokens // (1 + row_tokens))), tokens, row_tokens)


def room_on(device: torch.device, share: float) -> int:
    """Return the bytes available for the batches of a model whose weights are loaded on a device.

    On a GPU the free memory counts, on a CPU `CPU_SHARE` of the machine's memory; of these, models that share the
    device each have a ``share``.
    """
    if device.type == "cpu":
        return int(machine_bytes() * CPU_SHARE * share)
    total, allocated = torch.cuda.mem_get_info(device)[1], torch.cuda.memory_allocated(device)
    return max(0, int(min(free_on(device), total * share - allocated) * GPU_SHARE))


def free_on(device: torch.device) -> int:
    """Return the bytes that this process can still allocate on a GPU, including its allocator's free blocks."""
    reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + reserved


def machine_bytes() -> int:
    """Return the memory of this machine, or the memory limit of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = [file for file in map(pathlib.Path, CONTAINER_LIMITS) if file.is_file()]
    limits = [int(text) for text in (file.read_text().strip() for file in files) if text.isdigit()]
    return min([total, *limits])


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in MESSAGES)


def free_memory() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor from the host to a device; asynchronously to a GPU."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def reusable(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised tensor whose memory can be reused after it is freed.

    For large blocks that are allocated for every batch. On a CPU torch aligns blocks to 64 bytes. For an aligned block
    glibc needs a larger free block, which a freed one of the same size is not, so the heap fragments. NumPy allocates
    without alignment; from 4 MB on it asks for huge pages, which are resident as a whole after a write to one byte.
    """
    if like.device.type != "cpu" or 0 in shape:
        return like.new_empty(shape)
    bytes_ = np.empty(math.prod(shape) * like.element_size(), np.uint8)
    return torch.from_numpy(bytes_).view(like.dtype).view(tuple(shape))


# --- estimates, in bytes by the shape of the model: rather too high than too low ---


def pass_token_bytes(settings: Any, dtype: torch.dtype, length: int) -> int:
    """Return the bytes of one token in a pass of T5's encoder."""
    inner = settings.num_heads * settings.d_kv
    feed = (4 if settings.is_gated_act else 2) * settings.d_ff
    # scores, mask with bias, and weights, if no fused kernel takes the bias
    attention = 3 * settings.num_heads * length
    return int(dtype.itemsize * (4 * settings.d_model + 5 * inner + feed + attention))


def t5_memory_estimate(
    settings: Any, dtype: torch.dtype, new_tokens: int, *, num_logits: int = 1, keeps_keys: bool = False
) -> MemoryEstimate:
    """Estimate the memory of T5's decoder over encoder states, for outputs of at most ``new_tokens`` tokens.

    Of these ``num_logits`` are decoded or scored at a time. With ``keeps_keys`` every layer keeps keys and values of
    the encoder states.
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
    """Estimate the memory of a decoder-only model, as `t5_memory_estimate`.

    The largest number of tokens in a prompt, ``length``, determines the size of the mask.
    """
    settings, size = model.config.get_text_config(), model.dtype.itemsize
    layers, width = settings.num_hidden_layers, settings.hidden_size
    feed = getattr(settings, "intermediate_size", None) or 4 * width
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
