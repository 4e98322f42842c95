"""Keys of a model behind a server: where it is, how fast it may be asked, and what that costs."""

from __future__ import annotations

import re
from dataclasses import field
from typing import ClassVar, Literal

from erag_ray.config.keys.values import Above0, Anything, AtLeast1, Keys, NotNegative, Text, Whole, require

NEEDED_PRICES = ("input", "output")
PRICES = (*NEEDED_PRICES, "cached_input")
NAME = re.compile("[A-Z_][A-Z0-9_]*")


class ServerKeys(Keys):
    """A model behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, or a cloud (kind: served)."""

    # what changes how a server is reached, and not what it answers
    ACCESS_KEYS: ClassVar = (
        "base_url",
        "concurrency",
        "requests_per_minute",
        "tokens_per_minute",
        "timeout_seconds",
        "patience_seconds",
        "api_key_env",
        "price_per_million",
    )

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
        """Return the price of these tokens; None if no price is given.

        Args:
            num_prompt_tokens: of all prompts.
            num_cached_tokens: of those, what the server had in its cache.
            num_output_tokens: of all outputs.
        """
        prices = self.price_per_million
        if not prices:
            return None
        new, cached = prices["input"], prices.get("cached_input", prices["input"])
        parts = (num_prompt_tokens - num_cached_tokens) * new, num_cached_tokens * cached
        return (sum(parts) + num_output_tokens * prices["output"]) / 1e6


def check_key_variable(name: str | None) -> None:
    """Check the name of the variable with a key; a message does not repeat it: it may be the key.

    Raises:
        ValueError: it cannot be a name.
    """
    text = "api_key_env must be the name of a variable, in capitals, and never the key itself"
    require(name is None or bool(NAME.fullmatch(name)), text)
