"""Keys of a language model, as reader or as judge, and of what computes it: vLLM inside the job, or a server."""

import re
from dataclasses import field
from typing import Literal

from erag_ray.config.keys.values import (
    Above0,
    Anything,
    AtLeast1,
    Keys,
    NotNegative,
    Path,
    Text,
    Whole,
    require,
)

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
NEEDED_PRICES = ("input", "output")
PRICES = (*NEEDED_PRICES, "cached_input")
NAME = re.compile("[A-Z_][A-Z0-9_]*")


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
    package carries (by the name that is imported); served: the name by which the server knows it.
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
    causal on a CPU at most 4096). A batch that does not fit even so is halved, and those after it are smaller."""


class EngineKeys(Keys):
    """How vLLM computes a model (kind: vllm)."""

    tensor_parallel_size: AtLeast1 = 1
    """vllm: GPUs over which each copy of the model is spread; Ray gives each actor this number, all on one node."""

    engine_process: Literal["actor", "child"] = "actor"
    """vllm: where its engine runs: in the actor's process, or in a child of it, so that requests are prepared while it
    computes."""

    engine_args: dict[str, Anything] = field(default_factory=dict)
    """vllm: more arguments of vllm.LLM, such as {quantization: fp8, max_model_len: 16384} (prompt and output together
    have at most 8192 tokens otherwise). Part of the model's fingerprint, but for gpu_memory_utilization and
    kv_cache_memory_bytes."""

    def _check(self) -> None:
        with_key = (
            f"{name} (use the key {key})" for name, key in OWN_ARGS.items() if name in self.engine_args
        )
        refused = (name for name in REFUSED_ARGS if name in self.engine_args)
        for names in (", ".join(with_key), ", ".join(refused)):
            require(not names, f"engine_args must not have {names}")


class ServerKeys(Keys):
    """A model behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, or a cloud (kind: served)."""

    base_url: Text | list[Text] | None = None
    """served: where the server answers, such as http://localhost:8000/v1; several servers of the same model share the
    requests."""

    api: Literal["chat", "completions"] = "chat"
    """served: chat (messages, through the server's chat template) or completions (plain text)."""

    revision: Text | None = None
    """served: which weights the server has, in your own words, such as a date or a commit; required, because a server
    cannot tell. Other weights need another revision: responses are kept by it."""

    concurrency: AtLeast1 = 64
    """served: most requests of one actor that are under way at once. Fewer are, when the server answers 429."""

    requests_per_minute: AtLeast1 | None = None
    """served: most requests that one actor sends in a minute (null: no limit)."""

    tokens_per_minute: AtLeast1 | None = None
    """served: most tokens, of prompts and outputs, that one actor asks for in a minute (null: no limit)."""

    timeout_seconds: Above0 = 120.0
    """served: how long one request may take before it is sent again."""

    patience_seconds: NotNegative = 600.0
    """served: how long requests are sent again while there is no connection to the server, or a gateway says so (502,
    503, 504); after that they fail."""

    temperature: NotNegative = 0.0
    """served: 0 is greedy, and the only one for which a response depends only on the request."""

    request_seed: Whole | None = 0
    """served: the seed sent with each request (null: none; some clouds refuse it)."""

    extra_body: dict[str, Anything] = field(default_factory=dict)
    """served: more fields of each request, such as {chat_template_kwargs: {enable_thinking: false}}."""

    api_key_env: Text | None = None
    """served: the name of an environment variable, in capitals, with the key on every node; never the key
    itself."""

    price_per_million: dict[str, NotNegative] = field(default_factory=dict)
    """served: the price of a million tokens: input, output, and cached_input (without it: the price of input)."""

    def _check(self) -> None:
        check_key_variable(self.api_key_env)
        prices = self.price_per_million
        unknown = sorted(set(prices) - set(PRICES))
        require(not unknown, f"price_per_million has the keys {', '.join(PRICES)}, not {', '.join(unknown)}")
        missing = [name for name in NEEDED_PRICES if prices and name not in prices]
        require(not missing, f"price_per_million must have a price for {' and '.join(missing)}")

    @property
    def base_urls(self) -> list[str]:
        """Every server."""
        urls = [self.base_url] if isinstance(self.base_url, str) else list(self.base_url or ())
        return [url.rstrip("/") for url in urls]

    def price_of(
        self, num_prompt_tokens: int, num_cached_tokens: int, num_output_tokens: int
    ) -> float | None:
        """Return the price of these tokens, some of whose prompts a server had in its cache; None if none is given."""
        prices = self.price_per_million
        if not prices:
            return None
        new, cached = prices["input"], prices.get("cached_input", prices["input"])
        parts = (num_prompt_tokens - num_cached_tokens) * new, num_cached_tokens * cached
        return (sum(parts) + num_output_tokens * prices["output"]) / 1e6


def check_key_variable(name: str | None) -> None:
    """Raise ValueError, without the name, which may be the key, if the variable with a key cannot be called so."""
    text = "api_key_env must be the name of a variable, in capitals, and never the key itself"
    require(name is None or bool(NAME.fullmatch(name)), text)
