"""A client for one server, or several servers of one model: JSON requests and answers, and errors classified.

The package ``openai`` sends requests. Retries are decided here (`RETRIES`): a refused request waits without occupying a
slot, and goes to the next server.
"""

import asyncio
import itertools
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NoReturn

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.budget import Budget, Charge, TokenCounts
from erag_ray.models.served.answers import FILTERED, UNREADABLE, counts_of, failure_of, usage_of
from erag_ray.models.served.limits import MAX_PAUSE_SECONDS, PAUSE_SECONDS, AdaptiveLimit, RateLimit
from erag_ray.prompts.request import Failure
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.masking import Secret, masked
from erag_ray.support.user_code import one_line

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
logger = logging.getLogger(__name__)
RETRIES: dict[str, int] = {"refused": 20, "failed": 6, "away": 6, "late": 2}
"""The largest number of retries: after a 429; after 408, 409, 425, 5xx, a lost connection or an invalid answer; without
a connection or after 502 to 504; after ``reader.timeout_seconds`` without an answer. Retries without a connection do
not count for ``reader.patience_seconds`` if no other request is answered."""
AWAY = (502, 503, 504)
LINE_SECONDS, LONG_PAUSE_SECONDS = 30.0, 10.0
"""A long wait is logged, at most once in this time."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 8.0
"""The first and the largest pause after a failure; pauses double, and a longer Retry-After takes precedence, up to
`MAX_PAUSE_SECONDS`."""
CONNECT_SECONDS = 20.0
KEEPALIVE_SECONDS = 4.0
"""How long an idle connection stays open: servers close theirs after 5 seconds (uvicorn) or more."""
SPARE_CONNECTIONS = 8
MAX_FAILED_IN_A_ROW = 20
"""The job ends after this number of consecutive requests failed, each after all retries."""
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
NO_LIST = (404, 405, 501)
NO_TOKENS = TokenCounts(0, 0, 0)
CERTIFICATE = (
    "the server's certificate is not trusted: set SSL_CERT_FILE, on every node, to a file with its issuer's"
)
IS_IT_UP = "is the server up, and is reader.base_url its address?"
Kind = Literal["refused", "failed", "away", "late"]


class RequestError(Exception):
    """The failure of a single request; other requests may succeed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class _Retry(Exception):
    """A failure after which the request is sent again, in ``pause`` seconds (None: the server does not say)."""

    def __init__(self, kind: Kind, text: str, pause: float | None = None) -> None:
        super().__init__(text)
        self.kind, self.text, self.pause = kind, text, pause


def key_of(config: ReaderConfig) -> str:
    """Return the API key; raise InputError if its environment variable is not set on this node, or holds none."""
    if config.api_key_env is None:
        return NO_KEY
    try:
        return Secret("reader.api_key_env", config.api_key_env).value
    except ValueError as error:
        raise InputError([str(error)]) from error


class Client:
    """Sends requests to the servers of a model in turn. Belongs to one event loop; one client per process."""

    def __init__(self, config: ReaderConfig) -> None:
        self.config, self.may_all_fail = config, False
        key = key_of(config)
        self.limit = AdaptiveLimit(config.concurrency * len(config.base_urls))
        self._requests = RateLimit(config.requests_per_minute)
        self._tokens = RateLimit(config.tokens_per_minute)
        self._servers = [(url, self._connection(url, key)) for url in config.base_urls]
        self._turns = itertools.cycle(self._servers)
        self._failed_in_a_row = 0
        self._num_good, self._away_since, self._logged_at = 0, math.inf, -math.inf
        self.checking = asyncio.Lock()
        self.ended: JobError | None = None
        """The error for which no more requests are sent; None while they are."""

    def _connection(self, url: str, key: str) -> Any:
        import httpx2
        import openai

        from erag_ray.models.served.bounded import bound_size

        seconds = self.config.timeout_seconds
        limits = httpx2.Limits(
            max_connections=self.limit.most + SPARE_CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS
        )
        return openai.AsyncOpenAI(
            base_url=url,
            api_key=key,
            max_retries=0,
            timeout=httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
            http_client=openai.DefaultAioHttpClient(
                limits=limits, headers={"Accept-Encoding": "gzip"}, event_hooks={"response": [bound_size]}
            ),
        )

    async def close(self) -> None:
        for _, client in self._servers:
            await client.close()

    async def models(self) -> list[tuple[str, Any]]:
        """Return each server's URL and its model list (None: it has none); raise JobError if one does not answer."""
        lists = []
        for url, client in self._servers:
            try:
                async with asyncio.timeout(self.config.timeout_seconds):
                    models = await client.get("/models", cast_to=object)
            except Exception as error:
                # some gateways list no models; whether the address is right, a plain request shows then
                models = None
                if getattr(error, "status_code", 0) not in NO_LIST:
                    # not from the error: its message may repeat the key
                    raise self.job_error(url, error) from None
            lists.append((url, masked(models)))
        return lists

    async def post(
        self,
        body: Mapping[str, Any],
        estimate: TokenCounts = NO_TOKENS,
        *,
        budget: Budget | None = None,
        server: int | None = None,
        max_retries: int | None = None,
        is_exclusive: bool = False,
    ) -> dict[str, Any]:
        """Send a request to a server by its index, or to the next; return the reply as JSON, an answer (`failure_of`).

        ``estimate`` has the tokens in prompt and output, and without a ``budget`` they are free. ``max_retries`` are of
        each kind, by default those of `RETRIES`. Within ``limit.exclusive``, ``is_exclusive`` ones wait for no slot.

        Raises:
            RequestError: this request failed.
            SpentError: the budget is spent.
            JobError: all requests will fail.
        """
        budget = budget or Budget(self.config)
        num_sent, counts = Counter[str](), Counter[str]()
        while True:
            num_good = self._num_good
            try:
                async with (
                    nullcontext() if is_exclusive else self.limit.slot(),
                    budget.charging(estimate) as charge,
                ):
                    num_good = self._num_good
                    return await self._post_once(body, estimate, server, budget, charge)
            except _Retry as retry:
                if retry.kind != "refused":
                    self.limit.count_failed()
                num_sent[retry.kind] += 1
                if max_retries is not None or num_good != self._num_good or not self._is_patient(retry):
                    counts[retry.kind] += 1
                if counts[retry.kind] > (RETRIES[retry.kind] if max_retries is None else max_retries):
                    self._give_up(retry, num_sent[retry.kind])
                await asyncio.sleep(self._pause(retry, num_sent[retry.kind]))

    async def _is_up(self, client: Any) -> bool:
        """Return whether a server lists its models, so that a lost connection is due to the request."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.get("/models", cast_to=object)
        except Exception:
            return False
        return True

    def _is_patient(self, retry: _Retry) -> bool:
        """Return whether to wait for a server that is away, and note since when it is."""
        if retry.kind == "away":
            self._away_since = min(self._away_since, time.monotonic())
        return retry.kind == "away" and time.monotonic() - self._away_since < self.config.patience_seconds

    def _pause(self, retry: _Retry, num_sent: int) -> float:
        """Return the seconds to wait; a long wait is logged."""
        doubled = FIRST_RETRY_SECONDS * 2.0 ** min(num_sent - 1, 16)
        seconds = max(retry.pause or 0.0, min(doubled, MAX_RETRY_SECONDS) * random.uniform(0.75, 1.0))
        if retry.kind == "refused" and retry.pause is None:
            seconds = PAUSE_SECONDS
        seconds = min(seconds, MAX_PAUSE_SECONDS)
        is_long = seconds >= LONG_PAUSE_SECONDS or doubled >= MAX_RETRY_SECONDS
        if is_long and time.monotonic() - self._logged_at > LINE_SECONDS:
            self._logged_at = time.monotonic()
            wished = f" (it asks for {retry.pause:,.0f} s)" if (retry.pause or 0.0) > seconds else ""
            logger.warning("%s; sent again in %.0f s%s", retry.text, seconds, wished)
        return 0.0 if retry.kind == "refused" else seconds  # slot() waits

    async def _post_once(
        self,
        body: Mapping[str, Any],
        estimate: TokenCounts,
        server_index: int | None,
        budget: Budget,
        charge: Charge,
    ) -> dict[str, Any]:
        await self._requests.take(1)
        num_tokens = estimate.num_prompt + estimate.num_output
        await self._tokens.take(num_tokens)
        if self.ended:
            raise self.ended  # another request ended the job while this one waited
        url, client = next(self._turns) if server_index is None else self._servers[server_index]
        try:
            async with asyncio.timeout(self.config.timeout_seconds):
                answer = masked(await client.post(PATHS[self.config.api], cast_to=object, body=body))
        except Exception as error:
            failed = self._classified(url, error)
            if _is_away(error) and isinstance(failed, _Retry) and await self._is_up(client):
                failed.kind = "failed"
            # an answer that is late or cannot be read may have to be paid
            is_billed = isinstance(error, ValueError) or getattr(failed, "kind", "") == "late"
            charge.price = charge.estimate * is_billed
            raise failed from None
        charge.price = budget.price_of(counts_of(answer, estimate) if isinstance(answer, dict) else estimate)
        failure = failure_of(answer)
        if failure and failure.kind == "resource":
            raise _Retry("failed", f"{url}: {failure.text}")
        self._count_good(answer, num_tokens)
        if failure:
            raise RequestError(failure._replace(text=f"{url}: {failure.text}"))
        return answer  # type: ignore[no-any-return]

    def _count_good(self, answer: Mapping[str, Any], num_tokens: float) -> None:
        used = usage_of(answer, "total_tokens")
        self._tokens.correct(used - num_tokens if used else 0.0)
        self.limit.count_good()
        self._failed_in_a_row = 0
        self._num_good, self._away_since = self._num_good + 1, math.inf

    def _classified(self, url: str, error: Exception) -> Exception:
        """Return an error as `_Retry`, `RequestError` or `JobError`; unchanged if it is a bug of this package."""
        import aiohttp
        import openai

        text = f"{url}: {self.text_of(error)}"
        # without credit, waiting does not help
        if isinstance(error, openai.RateLimitError) and error.code != "insufficient_quota":
            pause = _retry_after(error.response.headers)
            self.limit.count_refused(pause)
            return _Retry("refused", text, pause)
        if isinstance(error, openai.APIStatusError):
            return self._classified_status(url, text, error)
        if isinstance(error, TimeoutError) or _is_read_timeout(error):
            return _Retry("late", text)
        if isinstance(error, openai.APIConnectionError | aiohttp.ClientError | OSError):
            return _Retry("away" if _is_away(error) else "failed", text)
        if isinstance(error, UNREADABLE):
            is_too_large = type(error).__name__ == "SizeError"
            return _Retry("failed", text if is_too_large else f"{url}: the answer is no JSON")
        return error

    def _classified_status(self, url: str, text: str, error: Any) -> Exception:
        status = error.status_code
        is_filtered = any(word in f"{error} {error.body}".casefold() for word in FILTERED)
        # OpenRouter answers 403 for a single question that its moderation flags
        if status in ADVICE and not (status == 403 and is_filtered):
            self.ended = self.job_error(url, error)
            return self.ended
        if status in (408, 409, 425) or status >= 500:
            return _Retry("away" if status in AWAY else "failed", text, _retry_after(error.response.headers))
        return RequestError(Failure("refused" if is_filtered else "input", text))

    def _give_up(self, retry: _Retry, count: int) -> NoReturn:
        self._failed_in_a_row += 1
        text = f"{retry.text}, {count} times"
        if self._failed_in_a_row >= MAX_FAILED_IN_A_ROW and not self.may_all_fail:
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
        if isinstance(error, TimeoutError) or _is_read_timeout(error):
            return f"no answer within {self.config.timeout_seconds:g} s"
        causes = list(_causes(error))
        if len(causes) > 1 and not hasattr(error, "status_code"):
            causes = causes[1:]  # the package openai says only "Connection error." or "Request timed out."
        return one_line(": ".join(dict.fromkeys(str(cause) or type(cause).__name__ for cause in causes)))


def _is_away(error: BaseException) -> bool:
    """Return whether there was no connection, or one that ended before an answer began."""
    import aiohttp

    causes = list(_causes(error))
    has_begun = any(isinstance(cause, aiohttp.ClientPayloadError) for cause in causes)
    return not has_begun and any(isinstance(cause, aiohttp.ClientConnectionError) for cause in causes)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_read_timeout(error: BaseException) -> bool:
    return any(type(cause).__name__ in ("ReadTimeout", "SocketTimeoutError") for cause in _causes(error))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in a server's Retry-After, a number or an HTTP date; None if it is missing or invalid."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name, "")
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
            except (TypeError, ValueError):
                continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None
