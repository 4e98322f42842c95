"""Keys of a model that vLLM computes inside the job's own processes."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from erag_ray.config.keys.values import Anything, AtLeast1, Keys, require

OWN_ARGS = {
    "model": "model",
    "dtype": "dtype",
    "tensor_parallel_size": "tensor_parallel_size",
    "max_num_seqs": "batch_size",
    "max_num_batched_tokens": "batch_tokens",
}
"""Arguments of vLLM that have a key of their own."""
REFUSED_ARGS = ("trust_remote_code", "tokenizer", "skip_tokenizer_init", "revision")
"""Arguments that would run code inside a model, or make another model of it."""


class EngineKeys(Keys):
    """How vLLM computes a model (kind: vllm)."""

    # what changes how fast it computes
    ENGINE_SPEED_KEYS: ClassVar = ("tensor_parallel_size",)

    tensor_parallel_size: AtLeast1 = 1
    """vllm: GPUs over which each copy of the model is spread; Ray gives each actor this number, all on one node."""

    engine_args: dict[str, Anything] = field(default_factory=dict)
    """vllm: more arguments of vllm.LLM, such as {quantization: fp8, max_model_len: 16384} (prompt and output together
    have at most 8192 tokens otherwise). Part of the model's fingerprint, but for gpu_memory_utilization and
    kv_cache_memory_bytes."""

    def _check(self) -> None:
        with_key = [
            f"{name} (use the key {key})" for name, key in OWN_ARGS.items() if name in self.engine_args
        ]
        require(not with_key, f"engine_args must not have {', '.join(with_key)}")
        refused = [name for name in REFUSED_ARGS if name in self.engine_args]
        require(not refused, f"engine_args must not have {', '.join(refused)}")
