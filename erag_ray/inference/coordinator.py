"""Coordination of the actors of a pool: counts of responses, shares of ``max_cost``, and when they have to stop."""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

STOP_SECONDS = 10.0
"""The longest time that a stopped job waits for its actors to write their responses."""
REPORT_SECONDS, STOPPING_REPORT_SECONDS, POLL_SECONDS = 1.0, 0.1, 0.1
LOOK_SECONDS = 2.0
"""The time between two looks at the nodes that Ray drains."""
GONE_SECONDS = 5.0
"""A process that has not reported for this time is gone, and gets no money."""


class Orders(NamedTuple):
    """Limit of all that an actor may spend, whether it may grow, and whether the actor has to write and stop.

    ``is_draining``: Ray has been told that its node will end, for example because a spot machine is taken back.
    """

    limit: float
    may_grow: bool
    is_stopping: bool
    is_draining: bool = False


@dataclass
class _Process:
    num_responses: int = 0
    spent: float = 0.0
    used: float = 0.0
    limit: float = 0.0
    has_written: bool = False
    reported_at: float = 0.0


class Coordinator:
    """Gets a report of each actor every `REPORT_SECONDS`, with totals, so that it may itself be started again."""

    def __init__(self, max_cost: float | None, size: int) -> None:
        self._max_cost, self._size = math.inf if max_cost is None else max_cost, size
        self._processes: dict[str, _Process] = {}
        self._num_loads = Counter[str]()
        self._is_stopping = False
        self._draining: Container[str] = ()
        self._looked_at = -math.inf

    def start_loading(self, actor: str) -> int:
        """Return how many processes of an actor have started to load its model since one of them has loaded it."""
        self._num_loads[actor] += 1
        return self._num_loads[actor]

    def end_loading(self, actor: str) -> None:
        del self._num_loads[actor]

    def report(
        self, name: str, num_responses: int, spent: float, in_flight: float, has_written: bool, node: str = ""
    ) -> Orders:
        """Take the report of a process; divide the money that nobody has used evenly, within what is not granted.

        ``node``: id of its node in Ray; "" without Ray.
        """
        now, process = time.monotonic(), self._processes.setdefault(name, _Process())
        process.num_responses, process.spent, process.used = num_responses, spent, spent + in_flight
        process.has_written, process.reported_at = has_written, now
        if self._max_cost == math.inf:
            return Orders(math.inf, False, self._is_stopping, self._is_draining(node))
        for other in self._processes.values():
            if now > other.reported_at + GONE_SECONDS:
                other.limit = other.used
        granted = math.fsum(other.limit for other in self._processes.values() if other is not process)
        unused = self._max_cost - math.fsum(other.used for other in self._processes.values())
        process.limit = max(min(process.used + unused / self._size, self._max_cost - granted), process.used)
        may_grow = math.fsum(other.spent for other in self._processes.values()) < self._max_cost * (1 - 1e-9)
        return Orders(process.limit, may_grow, self._is_stopping, self._is_draining(node))

    def _is_draining(self, node: str) -> bool:
        if node and time.monotonic() > self._looked_at + LOOK_SECONDS:
            self._looked_at = time.monotonic()
            # Ray has no public call for it: where this one fails, only SIGTERM gives notice
            with contextlib.suppress(Exception):
                from ray._private.state import state

                self._draining = state.get_draining_nodes()
        return node in self._draining

    def num_responses(self) -> int:
        return sum(process.num_responses for process in self._processes.values())

    def stop(self) -> bool:
        """Tell the actors to write and stop; return whether all have."""
        self._is_stopping, now = True, time.monotonic()
        return all(
            process.has_written or now > process.reported_at + GONE_SECONDS
            for process in self._processes.values()
        )
