"""Starting a Ray, and connecting to one: what keeps a job out of it is one line that says what to do."""

import os
from typing import Any

import pytest
import ray
from quiet_ray import ENVIRONMENT
from ray._private import ray_constants
from ray.exceptions import AuthenticationError
from scripts import python

from erag_ray.inference.cluster.session import ray_session
from erag_ray.support.errors import JobError

ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
SLOW = "The current node timed out during startup. This could happen because\n the GCS has become overloaded."


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """A Ray whose first starts end with these errors; the arguments of each start."""
    starts: list[dict[str, Any]] = []

    def init(**arguments: Any) -> None:
        starts.append({**arguments, ATTEMPTS: os.environ.get(ATTEMPTS)})
        if len(starts) <= len(request.param):
            raise request.param[len(starts) - 1]  # as Ray does

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    for name in ("RAY_ADDRESS", ATTEMPTS):
        monkeypatch.delenv(name, raising=False)
    return starts


@pytest.mark.parametrize(
    ("starts", "may_want_token"),
    [
        ([ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")], True),
        (
            [AuthenticationError("Token authentication is enabled but no authentication token was found")],
            True,
        ),
        ([ValueError("Invalid Ray address: 'http://127.0.0.1:8265'.\n  1. Unset RAY_ADDRESS")], False),
        ([RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.59.0")], False),
    ],
    indirect=["starts"],
    ids=["no connection", "no token", "address of the dashboard", "another version"],
)
def test_a_cluster_that_lets_nobody_in_is_one_line_that_leads_to_the_token_if_it_may_want_one(
    starts: list[dict[str, Any]], may_want_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    expected = r"10\.0\.0\.1:6379: (Failed to connect|Token)|Invalid Ray address|Version mismatch"
    address = "10.0.0.1:6379" if may_want_token else None
    with pytest.raises(JobError, match=expected) as told, ray_session(address):
        raise AssertionError("connected")
    text = str(told.value)
    hints = ("RAY_AUTH_MODE=token" in text, "jobs/cluster/README.md" in text, "token" in text.lower())
    assert hints == (may_want_token,) * 3
    assert may_want_token or "RAY_ADDRESS" in text
    assert "\n" not in text
    assert {start[ATTEMPTS] for start in starts} == {"1"}
    assert ATTEMPTS not in os.environ


@pytest.mark.parametrize("starts", [[Exception(SLOW)]], indirect=True)
def test_a_ray_that_starts_slowly_is_started_once_more(
    starts: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "erag_ray"), ray_session():
        assert [start["address"] for start in starts] == ["local", "local"]
    assert ray_constants.ENABLE_RAY_CLUSTER
    (line,) = caplog.messages
    assert line.startswith("Ray did not start: The current node timed out during startup. This could")
    assert "\n" not in line


@pytest.mark.parametrize("starts", [[Exception(SLOW)] * 2], indirect=True)
def test_a_ray_that_does_not_start_is_one_line_without_a_traceback(starts: list[dict[str, Any]]) -> None:
    expected = "did not start on this machine, tried twice: The current node"
    with pytest.raises(JobError, match=expected) as told, ray_session():
        raise AssertionError("started")
    assert "Start the same command again" in str(told.value)
    assert "\n" not in str(told.value)
    assert told.value.__cause__ is told.value.__context__ is None
    assert len(starts) == 2


LISTENING = """
import psutil, ray
from erag_ray.inference.cluster.session import ray_session

with ray_session():
    assert ray.get(ray.remote(ray.util.get_node_ip_address).remote()) == "127.0.0.1"
    here = psutil.Process()
    for process in (here, *here.children(recursive=True)):
        for one in process.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN:
                print(one.laddr.ip.removeprefix("::ffff:"))
"""


@pytest.mark.long
def test_a_local_ray_listens_on_the_loopback_only() -> None:
    environment = {**os.environ, **ENVIRONMENT}
    environment.pop("RAY_ADDRESS", None)
    done = python("-c", LISTENING, env=environment)
    assert done.returncode == 0, done.stderr
    addresses = done.stdout.split()
    assert len(addresses) > 4
    assert set(addresses) == {"127.0.0.1"}
