"""Cost of the requests of a model, against its limit, those in flight included."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from erag_ray.config.reader import ReaderConfig
from erag_ray.support.errors import JobError

POLL_SECONDS, ROUNDING = 0.02, 1e-9


class TokenCounts(NamedTuple):
    """Tokens of a request and its answer; ``is_estimated`` if the server did not count them all."""

    num_prompt: int
    num_cached: int
    num_output: int
    is_estimated: bool = False


class SpentError(Exception):
    """A request is not sent, since the budget is spent."""


class Charge:
    """The price of one request: the estimate while it is in flight, then what it has cost."""

    def __init__(self, price: float) -> None:
        self.estimate, self.price = price, 0.0


class Budget:
    """The largest price of a model's requests: what is spent on answers, and estimates of what is in flight."""

    def __init__(self, config: ReaderConfig, limit: float | None = None) -> None:
        self._config, self.limit = config, math.inf if limit is None else limit
        self.spent, self.in_flight, self._num_in_flight = 0.0, 0.0, 0
        self.may_grow = False
        """Whether the limit may grow, since other actors have money left."""

    def price_of(self, counts: TokenCounts) -> float:
        """Return the price of a request; 0 without prices."""
        return self._config.price_of(counts.num_prompt, counts.num_cached, counts.num_output) or 0.0

    @property
    def is_spent(self) -> bool:
        """Whether no further request may be sent."""
        return self.spent >= self.limit * (1 - ROUNDING)

    @asynccontextmanager
    async def charging(self, counts: TokenCounts) -> AsyncIterator[Charge]:
        """While open, an estimated price counts as spent; then the price that is set meanwhile does.

        Waits while the estimates of the requests in flight leave no room. A request by itself is always sent, so that
        only one can exceed the limit. Raise SpentError if the budget is spent.
        """
        charge = Charge(self.price_of(counts))
        while (self.is_spent and self.may_grow) or (
            self._num_in_flight and self.spent + self.in_flight + charge.estimate > self.limit
        ):
            await asyncio.sleep(POLL_SECONDS)
        if self.is_spent:
            raise SpentError
        self.in_flight += charge.estimate
        self._num_in_flight += 1
        try:
            yield charge
        finally:
            self.spent += charge.price
            self.in_flight -= charge.estimate
            self._num_in_flight -= 1

    def wait(self) -> bool:
        """Wait while the budget is spent and may grow; return whether it is spent."""
        while self.is_spent and self.may_grow:
            time.sleep(POLL_SECONDS)
        return self.is_spent

    def check(self) -> None:
        """Raise JobError if the budget is spent."""
        if self.wait():
            text = f"max_cost: {self.spent:.4f} is spent of {self.limit:.4f} that this actor had"
            raise JobError(f"{text}. The responses so far are kept; a new job may spend as much again")
