"""Limits of the number of requests in flight, and of requests and tokens per minute."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

FIRST_LIMIT, LEAST_LIMIT = 20, 1
"""The initial and the smallest number of requests in flight."""
LOWER_BY, RAISE_BY = 0.8, 1.05
"""Factors of the limit: after a 429, and after as many consecutive successes as the limit."""
PAUSE_SECONDS = 15.0
"""The pause after a 429 without Retry-After."""
MAX_PAUSE_SECONDS = 60.0
"""The longest pause that a server can ask for by Retry-After."""
ROUND_SECONDS = 1.0
"""Several 429s within this time, or the pause, lower the limit once, since their requests were sent together."""


class AdaptiveLimit:
    """Limit of the number of requests in flight: lower after a 429, slowly higher after successes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = min(FIRST_LIMIT, most)
        self._num_running, self._num_good = 0, 0
        self._resume_at, self._round_ends_at = 0.0, 0.0
        self._is_closed, self._is_idle = False, asyncio.Event()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_idle.set()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a free slot, first come, first served, and occupy it while open."""
        await self._enter()
        try:
            # another 429 during the pause extends it
            while (seconds := self._resume_at - time.monotonic()) > 0:
                await asyncio.sleep(seconds)
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._admit()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        self._num_running -= 1
        if not self._num_running:
            self._is_idle.set()
        self._admit()

    def _admit(self) -> None:
        """Give free slots to those who have waited longest."""
        while self._waiting and self._num_running < self.limit and not self._is_closed:
            future = self._waiting.popleft()
            if not future.done():
                self._num_running += 1
                self._is_idle.clear()
                future.set_result(None)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Wait until no request is in flight, and block `slot` while open."""
        self._is_closed = True
        try:
            await self._is_idle.wait()
            yield
        finally:
            self._is_closed = False
            self._admit()

    def count_good(self) -> None:
        self._num_good += 1
        if self._num_good >= self.limit and self.limit < self.most:
            self.limit, self._num_good = min(self.most, math.ceil(self.limit * RAISE_BY)), 0

    def count_failed(self) -> None:
        """Count a failure other than a 429, which restarts the count of successes."""
        self._num_good = 0

    def count_refused(self, retry_after: float | None) -> None:
        """Count a 429: lower the limit, and pause."""
        now = time.monotonic()
        pause = PAUSE_SECONDS if retry_after is None else min(retry_after, MAX_PAUSE_SECONDS)
        if now >= self._round_ends_at:
            self.limit = max(min(LEAST_LIMIT, self.most), int(self.limit * LOWER_BY))
            self._round_ends_at = now + max(pause, ROUND_SECONDS)
        self._resume_at, self._num_good = max(self._resume_at, now + pause), 0


class RateLimit:
    """Limit of units per minute, evenly spread; a unit is a request or a token."""

    def __init__(self, per_minute: int | None) -> None:
        self._seconds = 60.0 / per_minute if per_minute else 0.0
        self._free_at = 0.0

    async def take(self, units: float) -> None:
        """Wait until ``units`` more may be sent."""
        if not self._seconds:
            return
        start = max(self._free_at, time.monotonic())
        self._free_at = start + units * self._seconds
        await asyncio.sleep(start - time.monotonic())

    def correct(self, units: float) -> None:
        """Add units to what was taken, or subtract if negative, once the true number is known."""
        self._free_at += units * self._seconds
