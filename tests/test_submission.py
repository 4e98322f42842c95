"""The main job, submitted to a running Ray: it succeeds, fails by its exit code, and goes on after it was stopped.

The Ray wants a token, as one does by default where a local job has run before.

"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
from crashes import NUM_REQUESTS, end, stored, write_larger
from quiet_ray import ENVIRONMENT
from ray.job_submission import JobSubmissionClient
from tiny import job_command

from erag_ray.config.job import JobConfig
from erag_ray.store.schemas import COSTS
from erag_ray.store.tables import TableStore

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
ROOT = pathlib.Path(__file__).parents[1]
TOKEN = secrets.token_hex(32)
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
OF_AGENT = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port")
PORTS = ("port", "dashboard-port", "ray-client-server-port", *OF_AGENT, "metrics-export-port")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What jobs/cluster/README.md says: the token in a file, and the mode in which it is sent."""
    token = tmp_path_factory.mktemp("token") / "auth_token"
    token.write_text(TOKEN)
    known = {**os.environ, **ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    known.pop("RAY_ADDRESS", None)
    # a submitted job runs with the `python` that its head finds, not with the one that submits it
    known["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    return known


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """Ports that no other Ray on this machine has: an agent whose port is taken takes no jobs."""
    return {name: free_port() for name in PORTS}


@pytest.fixture(scope="module")
def head_log(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("head") / "log"


@pytest.fixture(scope="module")
def address(environment: dict[str, str], ports: dict[str, int], head_log: pathlib.Path) -> Iterator[str]:
    """A head of these tests' own; its processes, and no others, are ended by their ids."""
    options = [f"--{name}={port}" for name, port in ports.items()]
    command = [*RAY, "start", "--head", "--block", "--num-cpus=5", "--dashboard-host=127.0.0.1", *options]
    with head_log.open("w") as out:
        head = subprocess.Popen(
            [*command, "--disable-usage-stats"], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        place = f"http://127.0.0.1:{ports['dashboard-port']}"
        wait_for_agent(place, head, head_log)
        yield place
    finally:
        family = psutil.Process(head.pid).children(recursive=True)
        head.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(20)
        end(family)
        head.kill()
        head.wait()


def client(address: str) -> JobSubmissionClient:
    """A client in this process, whose own mode stays as it is."""
    return JobSubmissionClient(address, headers={"Authorization": f"Bearer {TOKEN}"})


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_for_agent(address: str, head: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    """Until the head takes jobs, which is later than its port is open."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert head.poll() is None, log.read_text()
        with contextlib.suppress(OSError, RuntimeError):
            client(address).submit_job(entrypoint="true")
            return
        time.sleep(0.5)
    raise AssertionError(log.read_text())


def submit(
    address: str, environment: dict[str, str], name: str, command: list[str], tree: pathlib.Path = ROOT
) -> subprocess.Popen[str]:
    """``ray job submit`` of a job of a source tree."""
    options = ["--address", address, "--working-dir", str(tree), "--submission-id", name]
    # the command without its own interpreter, as the guide has it
    job = [*RAY, "job", "submit", *options, "--", "python", *command[1:]]
    return subprocess.Popen(job, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def status(address: str, name: str) -> str:
    return str(client(address).get_job_status(name))


def unpacked(head_log: pathlib.Path) -> list[pathlib.Path]:
    """Ray's copies of the submitted source trees."""
    session = re.search(r"saved to: \S*?(/\S+)/logs/", head_log.read_text())
    assert session
    folders = pathlib.Path(session[1], "runtime_resources", "working_dir_files").glob("_ray_pkg_*")
    return [folder for folder in folders if folder.is_dir()]


@pytest.fixture
def config(tmp_path: pathlib.Path) -> JobConfig:
    return dataclasses.replace(write_larger(tmp_path), cpus_per_reader=1)


def test_a_submitted_job_is_stopped_submitted_again_after_an_edit_and_succeeds(
    address: str,
    environment: dict[str, str],
    head_log: pathlib.Path,
    config: JobConfig,
    tmp_path: pathlib.Path,
) -> None:
    command = job_command(config, tmp_path)
    first = submit(address, environment, "stopped", command)
    deadline = time.monotonic() + 180
    while len(stored(config)) < NUM_REQUESTS // 5:
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline, "the job wrote nothing"
        time.sleep(0.2)
    stop = [*RAY, "job", "stop", "--address", address, "stopped"]
    subprocess.run(stop, env=environment, check=True, capture_output=True)
    first.communicate(timeout=120)
    assert status(address, "stopped") == "STOPPED"
    written = len(stored(config))
    assert 0 < written < NUM_REQUESTS
    assert not pathlib.Path(config.out, "report.md").exists()

    copies = len(unpacked(head_log))
    again = submit(address, environment, "again", command, edited(tmp_path / "edited"))
    told, _ = again.communicate(timeout=300)
    assert again.returncode == 0, told
    assert status(address, "again") == "SUCCEEDED"
    assert f"Report: {config.out}/report.md" in told
    rows = stored(config)
    assert len(rows) == rows.select("question_key", "passages_key").n_unique() == NUM_REQUESTS
    costs = TableStore(f"{config.out}/compare").read(COSTS)
    assert costs["num_reader_calls"].to_list() == [NUM_REQUESTS - written, written]
    assert len(unpacked(head_log)) == copies + 1
    assert not [folder for copy in unpacked(head_log) for folder in copy.glob("results")]


def edited(tree: pathlib.Path) -> pathlib.Path:
    """A copy of this source tree with an edit."""
    for name in ("erag_ray", "jobs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tree / "jobs" / "compare.py").open("a") as file:
        file.write("# edited\n")
    return tree


def test_relative_outputs_are_refused_and_nothing_is_written(
    address: str,
    environment: dict[str, str],
    head_log: pathlib.Path,
    config: JobConfig,
    tmp_path: pathlib.Path,
) -> None:
    relative = dataclasses.replace(config, out="results/nq", cache_dir="results/store")
    job = submit(address, environment, "relative", job_command(relative, tmp_path))
    told, _ = job.communicate(timeout=180)
    assert job.returncode != 0
    assert "out (results/nq) and cache_dir (results/store) would lie in Ray's copy of the working_dir" in told
    assert "Traceback" not in told
    assert client(address).get_job_info("relative").driver_exit_code == 2
    assert unpacked(head_log)
    assert not [folder for copy in unpacked(head_log) for folder in copy.glob("results")]


def test_without_the_mode_neither_a_submission_nor_a_job_gets_in(
    address: str,
    environment: dict[str, str],
    ports: dict[str, int],
    config: JobConfig,
    tmp_path: pathlib.Path,
) -> None:
    without = {name: value for name, value in environment.items() if name != "RAY_AUTH_MODE"}
    job = submit(address, without, "without", job_command(config, tmp_path))
    told, _ = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "Missing authentication token" in told
    assert "RAY_AUTH_MODE is currently 'disabled' (not 'token')" in told

    local = {**without, "RAY_ADDRESS": f"127.0.0.1:{ports['port']}", "PYTHONPATH": str(ROOT)}
    command = job_command(config, tmp_path)
    done = subprocess.run(command, cwd=ROOT, env=local, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "Set RAY_AUTH_MODE=token" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_job_that_fails_says_why_and_its_submission_fails(
    address: str, environment: dict[str, str], config: JobConfig, tmp_path: pathlib.Path
) -> None:
    wrong = dataclasses.replace(config, passages=[str(tmp_path / "nothing.jsonl")])
    job = submit(address, environment, "wrong", job_command(wrong, tmp_path))
    told, _ = job.communicate(timeout=180)
    assert job.returncode != 0
    assert "nothing.jsonl" in told
    assert "Traceback" not in told
    assert status(address, "wrong") == "FAILED"
    assert not pathlib.Path(config.out, "report.md").exists()
