"""One server, or several of the same model: requests as JSON, answers as they are, errors by what to do about them.

The package ``openai`` sends, waits and sends again (408, 409, 429, 5xx, lost connections; as long as Retry-After says).
"""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from erag_ray.config import ReaderConfig
from erag_ray.models.served.limits import AdaptiveLimit, RateLimit
from erag_ray.requests import Failure
from erag_ray.schemas import InputError, JobError
from erag_ray.user_code import one_line

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
MAX_RETRIES = 6
"""Of one request; the pauses between them grow to 8 seconds, or to what Retry-After says."""
MAX_TORN = 3
"""Sendings of one request whose answer is no JSON."""
MAX_FAILED_IN_A_ROW = 20
"""So many requests that failed one after the other, each after all retries: the job ends."""
KEPT = "what was answered so far is kept; start the same command again"
NO_KEY = "none"
"""What a server gets that wants no key."""
ADVICE = {
    401: "reader.api_key_env must name a variable that holds a valid key",
    403: "the key may not use this model",
    404: "reader.base_url must end where the API begins, mostly in /v1, and reader.model must be a name that it lists",
}


class RequestError(Exception):
    """A request that gets no answer; others may."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def key_of(config: ReaderConfig) -> str:
    """Return the API key.

    Raises:
        InputError: the variable that should hold it is not set on this node.
    """
    if config.api_key_env is None:
        return NO_KEY
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        text = f"reader.api_key_env: the environment variable {config.api_key_env} is not set on node {platform.node()}"
        raise InputError([text])
    return key


class _Side(NamedTuple):
    """One server."""

    url: str
    client: Any


class Client:
    """Asks the servers of a model, evenly. Belongs to one event loop.

    Args:
        config: of the reader.
        max_retries: of one request.
    """

    def __init__(self, config: ReaderConfig, max_retries: int = MAX_RETRIES) -> None:
        self.config, self.max_retries = config, max_retries
        self._key = key_of(config)
        self.limit = AdaptiveLimit(config.concurrency * len(config.base_urls))
        self._requests, self._tokens = (
            RateLimit(config.requests_per_minute),
            RateLimit(config.tokens_per_minute),
        )
        self._sides = [_Side(url, self._opened(url)) for url in config.base_urls]
        self._turns = itertools.cycle(self._sides)
        self._failed_in_a_row = 0

    def _opened(self, url: str) -> Any:
        import openai

        http = openai.DefaultAioHttpClient(event_hooks={"response": [self._look_at]})
        return openai.AsyncOpenAI(
            base_url=url,
            api_key=self._key,
            max_retries=self.max_retries,
            timeout=self.config.timeout_seconds,
            http_client=http,
        )

    async def _look_at(self, response: Any) -> None:
        """Note refusals, also of requests that are sent again."""
        if response.status_code == 429:
            self.limit.count_refused(_retry_after(response.headers))

    async def close(self) -> None:
        """Close all connections."""
        for side in self._sides:
            await side.client.close()

    async def models(self) -> list[tuple[str, Any]]:
        """Return each server's URL and what it says about its models.

        Raises:
            JobError: a server does not answer, or refuses.
        """
        found = []
        for side in self._sides:
            try:
                found.append((side.url, await side.client.get("/models", cast_to=object)))
            except Exception as error:
                self._end(side.url, error)
        return found

    async def ask(
        self, body: Mapping[str, Any], num_tokens: float = 0.0, side: int | None = None
    ) -> dict[str, Any]:
        """Return the answer to a request, as JSON.

        Args:
            body: of the request.
            num_tokens: that it takes, prompt and output, by an estimate.
            side: which server is asked; None for the next one.

        Raises:
            RequestError: this request gets no answer.
            JobError: no request gets one.
        """
        async with self.limit.slot():
            await self._requests.take(1)
            await self._tokens.take(num_tokens)
            answer = await self._answer(next(self._turns) if side is None else self._sides[side], body)
        used = (answer.get("usage") or {}).get("total_tokens")
        self._tokens.correct(used - num_tokens if used else 0.0)
        self.limit.count_good()
        self._failed_in_a_row = 0
        return answer

    async def _answer(self, side: _Side, body: Mapping[str, Any]) -> dict[str, Any]:
        for _ in range(MAX_TORN):
            try:
                answer = await side.client.post(PATHS[self.config.api], cast_to=object, body=body)
            except ValueError:
                continue  # half of an answer
            except Exception as error:
                self._raise(side.url, error)
            if isinstance(answer, dict):
                return answer
        self._count_failed(f"{side.url}: the answer is no JSON, {MAX_TORN} times")

    def _raise(self, url: str, error: Exception) -> NoReturn:
        """Raise what an error of the package ``openai`` means.

        Raises:
            RequestError: it concerns this request.
            JobError: it concerns all.
        """
        import openai

        if isinstance(error, openai.BadRequestError | openai.UnprocessableEntityError):
            kind = "refused" if "content_filter" in str(error) else "input"
            raise RequestError(Failure(kind, self._text(error))) from error
        if isinstance(error, openai.APIStatusError) and (error.status_code in ADVICE or _is_quota(error)):
            self._end(url, error)
        if isinstance(error, openai.APIStatusError) and error.status_code == 413:
            raise RequestError(Failure("input", self._text(error))) from error
        if isinstance(error, openai.APIError):
            self._count_failed(f"{url}: {self._text(error)}, after {self.max_retries} retries", error)
        raise error

    def _count_failed(self, text: str, error: Exception | None = None) -> NoReturn:
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= MAX_FAILED_IN_A_ROW:
            raise JobError(
                f"{self._failed_in_a_row} requests in a row failed, the last one: {text}; {KEPT}"
            ) from error
        raise RequestError(Failure("resource", text)) from error

    def _end(self, url: str, error: Exception) -> NoReturn:
        status = getattr(error, "status_code", None)
        advice = ADVICE.get(status or 0) or "is the server up, and is reader.base_url its address?"
        raise JobError(f"{url}: {self._text(error)}. {advice}; {KEPT}") from error

    def _text(self, error: Exception) -> str:
        """What an error says, in a line, without the key."""
        causes = [str(cause) or type(cause).__name__ for cause in _causes(error)]
        text = one_line(": ".join(dict.fromkeys(causes)))
        return text.replace(self._key, "***") if self._key != NO_KEY else text


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_quota(error: Any) -> bool:
    """Whether a 429 says that there is no money left: waiting does not help."""
    return error.status_code == 429 and getattr(error, "code", None) == "insufficient_quota"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        if "retry-after-ms" in headers:
            return float(headers["retry-after-ms"]) / 1000
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
