"""The kernel that an A100 (compute capability 8.0) takes for an attention without gradients.

After ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` and ``attention.cpp`` of PyTorch 2.13.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
MASK_MULTIPLE = 8
"""Strides of a mask, in elements, that the efficient kernel reads in place."""


class Attention(NamedTuple):
    """One attention as the GPU computes it.

    Attributes:
        kernel: ``math`` is no fused kernel: scores and weights of all pairs go through memory.
        dtype: of the query.
        head: size of a query.
        num_keys: that each query meets.
        mask: ``copied`` where the kernel gets another one: converted from bool, or padded to `MASK_MULTIPLE`.
    """

    kernel: Literal["flash", "efficient", "math"]
    dtype: torch.dtype
    head: int
    num_keys: int
    mask: Literal["none", "in place", "copied"]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Attention:
    """The kernel for the arguments of ``scaled_dot_product_attention``."""
    tensors = (query, key, value)
    if not _is_dense(tensors) or any(map(_has_gaps, tensors)):
        kernel = "math"
    elif attn_mask is None and _takes_flash(query, key, is_causal=is_causal):
        kernel = "flash"
    else:
        kernel = "efficient" if _takes_efficient(tensors, attn_mask) else "math"
    return Attention(kernel, query.dtype, query.shape[-1], key.shape[-2], _mask(attn_mask))


def _is_dense(tensors: tuple[Tensor, ...]) -> bool:
    same_batch = len({tensor.shape[0] for tensor in tensors}) == 1
    return same_batch and all(tensor.dim() == 4 and tensor.shape[2] > 0 for tensor in tensors)


def _has_gaps(tensor: Tensor) -> bool:
    return tensor.stride(-1) != 1


def _takes_flash(query: Tensor, key: Tensor, *, is_causal: bool) -> bool:
    is_square = query.shape[2] == key.shape[2]
    return query.dtype in HALF and query.shape[-1] <= 256 and (is_square or not is_causal)


def _takes_efficient(tensors: tuple[Tensor, ...], mask: Tensor | None) -> bool:
    """16 bytes at a time, of heads of one number; grouped queries are left to the other kernels."""
    multiple = 16 // tensors[0].element_size()
    starts = all(tensor.storage_offset() % multiple == 0 for tensor in tensors)
    sizes = all(tensor.shape[-1] % multiple == 0 for tensor in tensors)
    has_groups = len({tensor.shape[1] for tensor in tensors}) > 1
    return starts and sizes and not has_groups and not (mask is not None and _has_gaps(mask))


def _mask(mask: Tensor | None) -> Literal["none", "in place", "copied"]:
    if mask is None:
        return "none"
    is_aligned = not _has_gaps(mask) and all(stride % MASK_MULTIPLE == 0 for stride in mask.stride()[:-1])
    return "in place" if is_aligned and mask.dtype != torch.bool else "copied"
