"""Connecting to a running Ray: what keeps a job out of it is one line that says what to do. Needs no Ray."""

from __future__ import annotations

import os

import pytest
import ray
from ray.exceptions import AuthenticationError

from erag_ray.cluster import ray_session
from erag_ray.errors import JobError

ATTEMPTS = "RAY_gcs_server_port_wait_time_s"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A Ray that does not let this process in."""

    def init(**_: object) -> None:
        assert os.environ[ATTEMPTS] == "1"
        raise request.param

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv(ATTEMPTS, raising=False)


@pytest.mark.parametrize(
    "failing",
    [
        ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379"),
        AuthenticationError("Token authentication is enabled but no authentication token was found"),
    ],
    indirect=True,
    ids=["no connection", "no token"],
)
def test_a_cluster_that_lets_nobody_in_is_one_line_that_leads_to_the_token(failing: None) -> None:
    expected = r"10\.0\.0\.1:6379: (Failed to connect|Token).*RAY_AUTH_MODE=token"
    with pytest.raises(JobError, match=expected) as told, ray_session("10.0.0.1:6379"):
        raise AssertionError("connected")
    assert "jobs/cluster/README.md" in str(told.value)
    assert "\n" not in str(told.value)
    assert ATTEMPTS not in os.environ


@pytest.mark.parametrize(
    "failing",
    [
        ValueError("Invalid Ray address: 'http://127.0.0.1:8265'.\n  1. Unset RAY_ADDRESS"),
        RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.59.0"),
    ],
    indirect=True,
    ids=["address of the dashboard", "another version"],
)
def test_another_reason_is_told_in_one_line(failing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(JobError, match=r"Invalid Ray address|Version mismatch") as told, ray_session():
        raise AssertionError("connected")
    assert "RAY_ADDRESS" in str(told.value)
    assert "token" not in str(told.value)
    assert "\n" not in str(told.value)
