"""Shared by models in this process: tokens, weights, devices, memory, likelihoods and early stopping."""

from erag_ray.models.local.devices import TF32, backend, device, gpu_error, has_tf32, set_matmul_precision
from erag_ray.models.local.int8 import is_supported, quantize_weights
from erag_ray.models.local.linear import linear
from erag_ray.models.local.memory import (
    GPU_SHARE,
    free_memory,
    is_gpu_lost,
    is_out_of_memory,
    keep_freed_memory,
    largest_batch,
)
from erag_ray.models.local.memory_estimate import causal_memory_estimate, t5_memory_estimate
from erag_ray.models.local.model import DEFAULT_LIMITS, LocalModel, PromptTokens
from erag_ray.models.local.weights import quiet
from erag_ray.models.local.word_cache import Ids

__all__ = [
    "DEFAULT_LIMITS",
    "GPU_SHARE",
    "TF32",
    "Ids",
    "LocalModel",
    "PromptTokens",
    "backend",
    "causal_memory_estimate",
    "device",
    "free_memory",
    "gpu_error",
    "has_tf32",
    "is_gpu_lost",
    "is_out_of_memory",
    "is_supported",
    "keep_freed_memory",
    "largest_batch",
    "linear",
    "quantize_weights",
    "quiet",
    "set_matmul_precision",
    "t5_memory_estimate",
]
