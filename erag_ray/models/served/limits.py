"""How many requests are under way at once, and how many are sent in a minute."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

FIRST, LEAST = 20, 1
"""Requests under way at first, and after any number of refusals."""
DOWN, UP = 0.8, 1.05
"""Factors of the limit: after a 429, and after as many answers in a row as the limit allows at once."""
PAUSE_SECONDS = 15.0
"""How long nothing new is sent after a 429 that does not say when to come back."""
MAX_PAUSE_SECONDS = 120.0
ROUND_SECONDS = 1.0
"""Requests that are refused within this time were sent together, and lower the limit once."""


class AdaptiveLimit:
    """The most requests under way at once: fewer after the server refuses one (429), slowly more as it answers.

    Args:
        most: the limit is never above it.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = min(FIRST, most)
        self._num_running, self._num_good = 0, 0
        self._resume_at, self._round_ends_at = 0.0, 0.0
        self._is_closed, self._is_idle = False, asyncio.Event()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_idle.set()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait until one more may be under way, first come, first served; it is, until this ends."""
        await self._enter()
        try:
            # a request that is refused meanwhile makes the pause longer
            while (left := self._resume_at - time.monotonic()) > 0:
                await asyncio.sleep(left)
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        self._num_running -= 1
        if not self._num_running:
            self._is_idle.set()
        self._admit()

    def _admit(self) -> None:
        """Let in those who have waited longest."""
        while self._waiting and self._num_running < self.limit and not self._is_closed:
            place = self._waiting.popleft()
            if not place.done():
                self._num_running += 1
                self._is_idle.clear()
                place.set_result(None)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until nothing is under way; nothing is sent through `slot` until this ends."""
        self._is_closed = True
        try:
            await self._is_idle.wait()
            yield
        finally:
            self._is_closed = False
            self._admit()

    def count_good(self) -> None:
        """Count an answer of the server's."""
        self._num_good += 1
        if self._num_good >= self.limit and self.limit < self.most:
            self.limit, self._num_good = min(self.most, math.ceil(self.limit * UP)), 0

    def count_failed(self) -> None:
        """Count another failure of the server's: the limit does not grow in this round."""
        self._num_good = 0

    def count_refused(self, retry_after: float | None) -> None:
        """Count a 429: fewer are under way from now on, and nothing new is sent for a while."""
        now = time.monotonic()
        pause = PAUSE_SECONDS if retry_after is None else min(retry_after, MAX_PAUSE_SECONDS)
        if now >= self._round_ends_at:
            self.limit = max(min(LEAST, self.most), int(self.limit * DOWN))
            self._round_ends_at = now + max(pause, ROUND_SECONDS)
        self._resume_at, self._num_good = max(self._resume_at, now + pause), 0


class RateLimit:
    """At most so many units in a minute, evenly; a unit is a request or a token.

    Args:
        per_minute: None for no limit.
    """

    def __init__(self, per_minute: int | None) -> None:
        self._seconds = 60.0 / per_minute if per_minute else 0.0
        self._free_at = 0.0

    async def take(self, units: float) -> None:
        """Wait until so many more may be sent."""
        if not self._seconds:
            return
        start = max(self._free_at, time.monotonic())
        self._free_at = start + units * self._seconds
        await asyncio.sleep(start - time.monotonic())

    def correct(self, units: float) -> None:
        """Take account of so many units more, or fewer, than were foreseen."""
        self._free_at += units * self._seconds
