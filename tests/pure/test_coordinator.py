"""Shares of ``max_cost`` among actors, and what a stopped job waits for."""

import pytest

from erag_ray.inference import coordinator as coordinator_module
from erag_ray.inference.coordinator import Coordinator


def test_an_actor_without_work_leaves_its_share_to_the_others() -> None:
    coordinator = Coordinator(100.0, 2)
    coordinator.report("idle", 0, 0.0, 0.0, False)
    spent = 0.0
    for _ in range(60):
        orders = coordinator.report("busy", 0, spent, 0.0, False)
        assert orders.limit <= 100.0
        spent = orders.limit
        coordinator.report("idle", 0, 0.0, 0.0, False)
    assert spent == pytest.approx(100.0)
    assert not coordinator.report("busy", 0, 100.0, 0.0, False).may_grow


def test_shares_are_never_more_than_the_money_together() -> None:
    coordinator, spent = Coordinator(10.0, 3), [0.0, 0.0, 0.0]
    for step in range(90):
        actor = step * step % 3
        limit = coordinator.report(str(actor), 0, spent[actor], 0.0, False).limit
        spent[actor] = max(spent[actor], limit)
    assert 9.0 < sum(spent) <= 10.0 + 1e-9


def test_an_actor_that_died_keeps_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(100.0, 2)
    coordinator.report("dead", 3, 10.0, 5.0, False)
    monkeypatch.setattr(coordinator_module, "GONE_SECONDS", -1.0)
    limits = [coordinator.report("other", 2, 0.0, 0.0, False).limit for _ in range(3)]
    assert limits[0] == pytest.approx(42.5)
    assert coordinator.num_responses() == 5
    assert coordinator.stop()


def test_a_stopped_job_waits_until_all_actors_have_written() -> None:
    coordinator = Coordinator(None, 2)
    assert coordinator.stop()
    assert coordinator.report("one", 1, 0.0, 0.0, False).is_stopping
    assert not coordinator.stop()
    coordinator.report("one", 1, 0.0, 0.0, True)
    assert coordinator.stop()
