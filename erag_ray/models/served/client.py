"""A client for one server, or several servers of one model: JSON requests and answers, and errors classified.

The package ``openai`` sends requests. Retries are decided here (`RETRIES`): a refused request waits without occupying a
slot, and goes to the next server.
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
"""The largest number of retries: after a 429; after 408, 409, 5xx, a lost connection or an invalid answer; after
``reader.timeout_seconds`` without an answer."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 8.0
"""The first and the largest pause after a failure; pauses double, and a longer Retry-After takes precedence."""
CONNECT_SECONDS = 20.0
KEEPALIVE_SECONDS = 4.0
"""How long an idle connection stays open: servers close theirs after 5 seconds (uvicorn) or more."""
SPARE_CONNECTIONS = 8
MAX_FAILED_IN_A_ROW = 20
"""The job ends after so many consecutive requests failed, each after all retries."""
RESUME_ADVICE = "responses so far are kept; start the same command again"
NO_KEY = "none"
"""Sent to servers without keys, since the package openai requires one."""
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
"""Words in the error of a request that a content filter refused."""
Kind = Literal["refused", "failed", "late"]


class RequestError(Exception):
    """The failure of a single request; other requests may succeed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class _Retry(Exception):
    """A failure after which the request is sent again.

    Attributes:
        kind: a key of `RETRIES`.
        text: the message.
        pause: seconds to wait before the retry; None if the server does not say.
    """

    def __init__(self, kind: Kind, text: str, pause: float | None = None) -> None:
        super().__init__(text)
        self.kind, self.text, self.pause = kind, text, pause


def key_of(config: ReaderConfig) -> str:
    """Return the API key.

    Raises:
        InputError: its environment variable is not set on this node.
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
    """Sends requests to the servers of a model in turn. Belongs to one event loop; one client per process.

    Args:
        config: of the reader.
    """

    def __init__(self, config: ReaderConfig) -> None:
        self.config = config
        self._key = key_of(config)
        self.limit = AdaptiveLimit(config.concurrency * len(config.base_urls))
        self._requests = RateLimit(config.requests_per_minute)
        self._tokens = RateLimit(config.tokens_per_minute)
        self._servers = [_Server(url, self._connection(url)) for url in config.base_urls]
        self._turns = itertools.cycle(self._servers)
        self._failed_in_a_row = 0
        self.ended: JobError | None = None
        """The error for which no more requests are sent; None while they are."""

    def _connection(self, url: str) -> Any:
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
        """Return each server's URL and its model list.

        Raises:
            JobError: a server does not answer, or returns an error.
        """
        lists = []
        for server in self._servers:
            try:
                async with asyncio.timeout(self.config.timeout_seconds):
                    lists.append((server.url, await server.client.get("/models", cast_to=object)))
            except Exception as error:
                raise self.job_error(server.url, error) from error
        return lists

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Wait until no request is in flight; while open, only requests with ``is_exclusive`` are sent."""
        return self.limit.exclusive()

    async def post(
        self,
        body: Mapping[str, Any],
        num_tokens: float = 0.0,
        *,
        server: int | None = None,
        max_retries: int | None = None,
        is_exclusive: bool = False,
    ) -> dict[str, Any]:
        """Send a request; return the answer as JSON, which has at least one choice.

        Args:
            body: of the request.
            num_tokens: estimated number of tokens in prompt and output.
            server: index of the server; None for the next in turn.
            max_retries: of each kind; None: as in `RETRIES`.
            is_exclusive: do not wait for a slot; for use within `exclusive`.

        Raises:
            RequestError: this request failed.
            JobError: all requests will fail.
        """
        counts = Counter[str]()
        while True:
            try:
                async with _no_slot() if is_exclusive else self.limit.slot():
                    return await self._post_once(body, num_tokens, server)
            except _Retry as retry:
                counts[retry.kind] += 1
                most = RETRIES[retry.kind] if max_retries is None else max_retries
                if counts[retry.kind] > most:
                    self._give_up(retry, counts[retry.kind])
                await asyncio.sleep(self._pause(retry, counts))

    def _pause(self, retry: _Retry, counts: Mapping[str, int]) -> float:
        if retry.kind == "refused":
            return 0.0  # slot() waits
        seconds = min(FIRST_RETRY_SECONDS * 2.0 ** (counts[retry.kind] - 1), MAX_RETRY_SECONDS)
        return max(retry.pause or 0.0, seconds * random.uniform(0.75, 1.0))

    async def _post_once(
        self, body: Mapping[str, Any], num_tokens: float, server_index: int | None
    ) -> dict[str, Any]:
        """Send a request once.

        Raises:
            _Retry: it should be sent again.
            RequestError, JobError: as `post`.
        """
        await self._requests.take(1)
        await self._tokens.take(num_tokens)
        if self.ended:
            raise self.ended  # another request ended the job while this one waited
        server = next(self._turns) if server_index is None else self._servers[server_index]
        try:
            async with asyncio.timeout(self.config.timeout_seconds):
                answer = await server.client.post(PATHS[self.config.api], cast_to=object, body=body)
        except Exception as error:
            raise self._classified(server.url, error) from error
        if fault := _fault_of(answer):
            self.limit.count_failed()
            raise _Retry("failed", f"{server.url}: {fault}")
        self._count_good(answer, num_tokens)
        return answer  # type: ignore[no-any-return]

    def _count_good(self, answer: Mapping[str, Any], num_tokens: float) -> None:
        used = usage_of(answer, "total_tokens")
        self._tokens.correct(used - num_tokens if used else 0.0)
        self.limit.count_good()
        self._failed_in_a_row = 0

    def _classified(self, url: str, error: Exception) -> Exception:
        """Return an error as `_Retry`, `RequestError` or `JobError`; unchanged if it is a bug of this package."""
        import aiohttp
        import openai

        text = f"{url}: {self.text_of(error)}"
        if isinstance(error, openai.RateLimitError) and not _is_quota(error):
            pause = _retry_after(error.response.headers)
            self.limit.count_refused(pause)
            return _Retry("refused", text, pause)
        if isinstance(error, openai.APIStatusError):
            return self._classified_status(url, text, error)
        if isinstance(error, TimeoutError) or _is_read_timeout(error):
            self.limit.count_failed()
            return _Retry("late", text)
        if isinstance(error, openai.APIConnectionError | aiohttp.ClientError | OSError):
            self.limit.count_failed()
            return _Retry("failed", text)
        if isinstance(error, ValueError):
            self.limit.count_failed()
            return _Retry("failed", f"{url}: the answer is no JSON")
        return error

    def _classified_status(self, url: str, text: str, error: Any) -> Exception:
        status = error.status_code
        if status in ADVICE:
            self.ended = self.job_error(url, error)
            return self.ended
        if status in (408, 409) or status >= 500:
            self.limit.count_failed()
            return _Retry("failed", text, _retry_after(error.response.headers))
        is_filtered = any(word in f"{error} {error.body}" for word in FILTERED)
        return RequestError(Failure("refused" if is_filtered else "input", text))

    def _give_up(self, retry: _Retry, count: int) -> NoReturn:
        self._failed_in_a_row += 1
        text = f"{retry.text}, {count} times"
        if self._failed_in_a_row >= MAX_FAILED_IN_A_ROW:
            message = f"{self._failed_in_a_row} requests in a row failed, the last one: {text}"
            self.ended = JobError(f"{message}; {RESUME_ADVICE}")
            raise self.ended from retry
        raise RequestError(Failure("resource", text)) from retry

    def job_error(self, url: str, error: Exception) -> JobError:
        """Return an error that ends the job: what happened, and what to do."""
        text = self.text_of(error)
        is_certificate = "certificate" in text.lower()
        advice = ADVICE.get(getattr(error, "status_code", 0)) or (CERTIFICATE if is_certificate else IS_IT_UP)
        return JobError(f"{url}: {text}. {advice}; {RESUME_ADVICE}")

    def text_of(self, error: BaseException) -> str:
        """Return an error's message as one line without the key."""
        if isinstance(error, TimeoutError) or _is_read_timeout(error):
            return f"no answer within {self.config.timeout_seconds:g} s"
        causes = list(_causes(error))
        if len(causes) > 1 and not hasattr(error, "status_code"):
            causes = causes[1:]  # the package openai says only "Connection error." or "Request timed out."
        text = ": ".join(dict.fromkeys(str(cause) or type(cause).__name__ for cause in causes))
        return one_line(text.replace(self._key, "***") if self._key != NO_KEY else text)


def usage_of(answer: Mapping[str, Any], name: str) -> int:
    """Return a token count in an answer's ``usage``, by its dotted path; 0 if it has none."""
    counts: Any = answer.get("usage")
    for key in name.split("."):
        counts = counts.get(key) if isinstance(counts, dict) else None
    is_count = isinstance(counts, int) and not isinstance(counts, bool) and counts >= 0
    return counts if is_count else 0


@asynccontextmanager
async def _no_slot() -> AsyncIterator[None]:
    yield


def _fault_of(answer: object) -> str:
    """Return what is wrong with an answer of status 200; "" if nothing is."""
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
    """Return whether a 429 means that the account has no credit, so that waiting does not help."""
    return getattr(error, "code", None) == "insufficient_quota"


def _is_read_timeout(error: BaseException) -> bool:
    return any(type(cause).__name__ in ("ReadTimeout", "SocketTimeoutError") for cause in _causes(error))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in a server's Retry-After; None if it is missing or invalid."""
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
    """Return the seconds until an HTTP date; NaN if it is none."""
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except (TypeError, ValueError):
        return math.nan
