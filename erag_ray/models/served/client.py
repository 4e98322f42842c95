"""One server, or several of the same model: requests as JSON, answers as they are, errors by what to do about them.

The package ``openai`` sends. What is sent again, how often and when, is decided here (`RETRIES`): a refused request
waits outside the limit of those under way, and goes to the next server.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import platform
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple, NoReturn

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError, JobError
from erag_ray.models.served.limits import AdaptiveLimit, RateLimit
from erag_ray.requests import Failure
from erag_ray.user_code import one_line

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
RETRIES: dict[str, int] = {"refused": 20, "failed": 6, "late": 2}
"""How often a request is sent again: after a 429; after 408, 409, 5xx, a lost connection or a broken answer; after
``reader.timeout_seconds`` without an answer."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 8.0
"""The pause after a failure; it doubles up to the second, where no Retry-After says more."""
CONNECT_SECONDS = 20.0
KEEPALIVE_SECONDS = 4.0
"""How long an idle connection is kept: servers close theirs after 5 seconds (uvicorn) or more."""
SPARE_CONNECTIONS = 8
MAX_FAILED_IN_A_ROW = 20
"""So many requests that failed one after the other, each after all retries: the job ends."""
KEPT = "what was answered so far is kept; start the same command again"
NO_KEY = "none"
"""What a server gets that wants no key."""
ADVICE = {
    401: "reader.api_key_env must name a variable that holds a valid key",
    402: "the account has no credit",
    403: "the key may not use this model",
    404: "reader.base_url must end where the API begins, mostly in /v1, and reader.model must be a name that it lists",
    429: "the account has no credit",
}
CERTIFICATE = (
    "the server's certificate is not trusted: set SSL_CERT_FILE, on every node, to a file with its issuer's"
)
IS_IT_UP = "is the server up, and is reader.base_url its address?"
FILTERED = ("content_filter", "content_policy")
"""In the error of a request that a content filter has refused."""
Kind = Literal["refused", "failed", "late"]


class RequestError(Exception):
    """A request that gets no answer; others may."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class _Again(Exception):
    """A request that may get an answer if it is sent again.

    Attributes:
        kind: of what went wrong, a key of `RETRIES`.
        text: what it was.
        pause: seconds until it may be sent again; None where the server does not say.
    """

    def __init__(self, kind: Kind, text: str, pause: float | None = None) -> None:
        super().__init__(text)
        self.kind, self.text, self.pause = kind, text, pause


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


class _Server(NamedTuple):
    url: str
    client: Any


class Client:
    """Asks the servers of a model, evenly. Belongs to one event loop; a process needs one.

    Args:
        config: of the reader.
    """

    def __init__(self, config: ReaderConfig) -> None:
        self.config = config
        self._key = key_of(config)
        self.limit = AdaptiveLimit(config.concurrency * len(config.base_urls))
        self._requests = RateLimit(config.requests_per_minute)
        self._tokens = RateLimit(config.tokens_per_minute)
        self._servers = [_Server(url, self._opened(url)) for url in config.base_urls]
        self._turns = itertools.cycle(self._servers)
        self._failed_in_a_row = 0
        self.ended: JobError | None = None
        """Why nothing more is sent."""

    def _opened(self, url: str) -> Any:
        import httpx2
        import openai

        seconds = self.config.timeout_seconds
        limits = httpx2.Limits(
            max_connections=self.limit.most + SPARE_CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS
        )
        return openai.AsyncOpenAI(
            base_url=url,
            api_key=self._key,
            max_retries=0,
            timeout=httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
            http_client=openai.DefaultAioHttpClient(limits=limits),
        )

    async def close(self) -> None:
        """Close all connections."""
        for server in self._servers:
            await server.client.close()

    async def models(self) -> list[tuple[str, Any]]:
        """Return each server's URL and what it says about its models.

        Raises:
            JobError: a server does not answer, or refuses.
        """
        found = []
        for server in self._servers:
            try:
                async with asyncio.timeout(self.config.timeout_seconds):
                    found.append((server.url, await server.client.get("/models", cast_to=object)))
            except Exception as error:
                raise self.ending(server.url, error) from error
        return found

    def alone(self) -> AbstractAsyncContextManager[None]:
        """While open, nothing is under way but what is asked with ``is_alone``."""
        return self.limit.alone()

    async def ask(
        self,
        body: Mapping[str, Any],
        num_tokens: float = 0.0,
        *,
        place: int | None = None,
        max_retries: int | None = None,
        is_alone: bool = False,
    ) -> dict[str, Any]:
        """Return the answer to a request, as JSON; it has a choice.

        Args:
            body: of the request.
            num_tokens: that it takes, prompt and output, by an estimate.
            place: which server is asked; None for the next one.
            max_retries: of each kind; None: as in `RETRIES`.
            is_alone: it does not wait for others, since none are under way.

        Raises:
            RequestError: this request gets no answer.
            JobError: no request gets one.
        """
        counts = Counter[str]()
        while True:
            try:
                async with _nothing() if is_alone else self.limit.slot():
                    return await self._once(body, num_tokens, place)
            except _Again as again:
                counts[again.kind] += 1
                most = RETRIES[again.kind] if max_retries is None else max_retries
                if counts[again.kind] > most:
                    self._give_up(again, counts[again.kind])
                await asyncio.sleep(self._pause(again, counts))

    def _pause(self, again: _Again, counts: Mapping[str, int]) -> float:
        if again.kind == "refused":
            return 0.0  # the limit waits
        seconds = min(FIRST_RETRY_SECONDS * 2.0 ** (counts[again.kind] - 1), MAX_RETRY_SECONDS)
        return max(again.pause or 0.0, seconds * random.uniform(0.75, 1.0))

    async def _once(self, body: Mapping[str, Any], num_tokens: float, place: int | None) -> dict[str, Any]:
        """Send a request once.

        Raises:
            _Again: it may be sent again.
            RequestError, JobError: as `ask`.
        """
        await self._requests.take(1)
        await self._tokens.take(num_tokens)
        if self.ended:
            raise self.ended  # it has waited while another learnt that none gets an answer
        server = next(self._turns) if place is None else self._servers[place]
        try:
            async with asyncio.timeout(self.config.timeout_seconds):
                answer = await server.client.post(PATHS[self.config.api], cast_to=object, body=body)
        except Exception as error:
            raise self._meaning(server.url, error) from error
        if fault := _fault_of(answer):
            self.limit.count_failed()
            raise _Again("failed", f"{server.url}: {fault}")
        self._count_good(answer, num_tokens)
        return answer  # type: ignore[no-any-return]

    def _count_good(self, answer: Mapping[str, Any], num_tokens: float) -> None:
        used = usage_of(answer, "total_tokens")
        self._tokens.correct(used - num_tokens if used else 0.0)
        self.limit.count_good()
        self._failed_in_a_row = 0

    def _meaning(self, url: str, error: Exception) -> Exception:
        """Return what an error means: `_Again`, `RequestError`, `JobError`, or itself where it is a fault of ours."""
        import aiohttp
        import openai

        text = f"{url}: {self.text_of(error)}"
        if isinstance(error, openai.RateLimitError) and not _is_quota(error):
            pause = _retry_after(error.response.headers)
            self.limit.count_refused(pause)
            return _Again("refused", text, pause)
        if isinstance(error, openai.APIStatusError):
            return self._meaning_of_status(url, text, error)
        if isinstance(error, TimeoutError) or _is_read_timeout(error):
            self.limit.count_failed()
            return _Again("late", text)
        if isinstance(error, openai.APIConnectionError | aiohttp.ClientError | OSError):
            self.limit.count_failed()
            return _Again("failed", text)
        if isinstance(error, ValueError):
            self.limit.count_failed()
            return _Again("failed", f"{url}: the answer is no JSON")
        return error

    def _meaning_of_status(self, url: str, text: str, error: Any) -> Exception:
        status = error.status_code
        if status in ADVICE:
            self.ended = self.ending(url, error)
            return self.ended
        if status in (408, 409) or status >= 500:
            self.limit.count_failed()
            return _Again("failed", text, _retry_after(error.response.headers))
        is_filtered = any(word in f"{error} {error.body}" for word in FILTERED)
        return RequestError(Failure("refused" if is_filtered else "input", text))

    def _give_up(self, again: _Again, count: int) -> NoReturn:
        self._failed_in_a_row += 1
        text = f"{again.text}, {count} times"
        if self._failed_in_a_row >= MAX_FAILED_IN_A_ROW:
            many = f"{self._failed_in_a_row} requests in a row failed, the last one: {text}"
            self.ended = JobError(f"{many}; {KEPT}")
            raise self.ended from again
        raise RequestError(Failure("resource", text)) from again

    def ending(self, url: str, error: Exception) -> JobError:
        """Return the end of the job that an error means: what happened, and what to do."""
        text = self.text_of(error)
        is_certificate = "certificate" in text.lower()
        advice = ADVICE.get(getattr(error, "status_code", 0)) or (CERTIFICATE if is_certificate else IS_IT_UP)
        return JobError(f"{url}: {text}. {advice}; {KEPT}")

    def text_of(self, error: BaseException) -> str:
        """Return what an error says, in a line, without the key."""
        if isinstance(error, TimeoutError) or _is_read_timeout(error):
            return f"no answer within {self.config.timeout_seconds:g} s"
        causes = list(_causes(error))
        if len(causes) > 1 and not hasattr(error, "status_code"):
            causes = causes[1:]  # the package's own are "Connection error." and "Request timed out."
        text = ": ".join(dict.fromkeys(str(cause) or type(cause).__name__ for cause in causes))
        return one_line(text.replace(self._key, "***") if self._key != NO_KEY else text)


def usage_of(answer: Mapping[str, Any], name: str) -> int:
    """Return a count of tokens of an answer; 0 where it has none."""
    counts: Any = answer.get("usage")
    for part in name.split("."):
        counts = counts.get(part) if isinstance(counts, dict) else None
    is_count = isinstance(counts, int) and not isinstance(counts, bool) and counts >= 0
    return counts if is_count else 0


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


def _fault_of(answer: object) -> str:
    """What is wrong with an answer that came with status 200; "" if nothing is."""
    if not isinstance(answer, dict):
        return "the answer is no JSON object"
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return ""
    why = answer.get("error")
    return "the answer has no choice" + (f": {one_line(str(why))}" if why else "")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_quota(error: Any) -> bool:
    """Whether a 429 says that there is no money left: waiting does not help."""
    return getattr(error, "code", None) == "insufficient_quota"


def _is_read_timeout(error: BaseException) -> bool:
    return any(type(cause).__name__ in ("ReadTimeout", "SocketTimeoutError") for cause in _causes(error))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks for; None where it does not, or nothing that can be read."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name, "")
        try:
            seconds = float(value) / unit
        except ValueError:
            seconds = _until(value)
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def _until(date: str) -> float:
    """Seconds until an HTTP date; NaN where it is none."""
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except (TypeError, ValueError):
        return math.nan
