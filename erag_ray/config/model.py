"""Keys of a language model, as reader or as judge, and of vLLM inside the job's own processes."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from erag_ray.config.keys.values import Anything, AtLeast1, Keys, Path, Text, require

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


class ModelKeys(Keys):
    """A model, its limits and its batches."""

    kind: Text = "fid"
    """fid (T5, Fusion-in-Decoder), ipa (T5, all passages in one prompt), causal (any decoder-only model), vllm (the
    same, computed by vLLM), served (any model behind a server with OpenAI's API), echo (a fake without weights),
    function (only from Python: erag_ray.Function), or package.module:Class."""

    options: dict[str, Anything] = field(default_factory=dict)
    """package.module:Class only: whatever the class takes; it checks them itself."""

    model: Path | None = None
    """A folder, a Hugging Face hub name, a .gguf file, or package:NAME/FILE for a file that an installed Python
    package carries (by the name that is imported, or that pip shows); served: the name by which the server knows it.
    Code inside a model is never run."""

    model_revision: Text | None = None
    """Branch, tag or commit of a hub model."""

    max_prompt_tokens: AtLeast1 | None = None
    """Longest input, in tokens: for fid per passage with its question (null: 250), for ipa the whole prompt
    (null: 2048), for causal and vllm the whole prompt (null: what the model's context leaves, at most 4096), for served
    the whole prompt at 4 characters a token (null: nothing is cut)."""

    batch_size: AtLeast1 | None = None
    """Most requests in one batch (null: as many as fit and pay: on a CPU up to 128 for fid and ipa, 32 for causal; on a
    GPU 1024 and 512; vllm: its own choice). Not part of the reader's fingerprint."""

    batch_tokens: AtLeast1 | None = None
    """Most prompt tokens in one batch, padding included; a longer request is run by itself (null: as many as fit, by
    the model's shape, into 80 % of the reader's share of the GPU's free memory, or of a quarter of the machine's;
    causal on a CPU at most 16384). A batch that does not fit even so is halved, and those after it are smaller."""


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
