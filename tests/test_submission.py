"""The main job, submitted to a running Ray: it succeeds, fails by its exit code, and goes on after it was stopped.

The Ray wants a token, as one does by default where a local job has run before.

"""

import contextlib
import dataclasses
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import psutil
import pytest
from crashes import NUM_REQUESTS, stored, wait_for, wait_until, without_delay, write_larger
from quiet_ray import ENVIRONMENT
from ray.job_submission import JobSubmissionClient
from scripts import ROOT, python
from tiny import job_command

from erag_ray.config.job import JobConfig
from erag_ray.store.schemas import COSTS
from erag_ray.store.tables import TableStore

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
TOKEN = secrets.token_hex(32)
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
OF_AGENT = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port")
PORTS = ("port", "dashboard-port", "ray-client-server-port", *OF_AGENT, "metrics-export-port")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """A head of these tests' own: where it takes jobs, the environment of those who submit them, and its log."""

    ports: dict[str, int]
    environment: dict[str, str]
    log: pathlib.Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.ports['dashboard-port']}"

    @property
    def client(self) -> JobSubmissionClient:
        """A client in this process, whose own mode stays as it is."""
        return JobSubmissionClient(self.address, headers={"Authorization": f"Bearer {TOKEN}"})

    def takes_jobs(self) -> bool:
        """Later than its port is open."""
        with contextlib.suppress(OSError, RuntimeError):
            self.client.submit_job(entrypoint="true")
            return True
        return False

    def submit(self, name: str, command: list[str], tree: pathlib.Path = ROOT) -> subprocess.Popen[str]:
        """``ray job submit`` of a job of a source tree."""
        options = ["--address", self.address, "--working-dir", str(tree), "--submission-id", name]
        # the command without its own interpreter, as the guide has it
        job = [*RAY, "job", "submit", *options, "--", "python", *command[1:]]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(job, env=self.environment, text=True, **pipes)

    def unpacked(self) -> list[pathlib.Path]:
        """Ray's copies of the submitted source trees."""
        session = re.search(r"saved to: \S*?(/\S+)/logs/", self.log.read_text())
        assert session
        folders = pathlib.Path(session[1], "runtime_resources", "working_dir_files").glob("_ray_pkg_*")
        return [folder for folder in folders if folder.is_dir()]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """What jobs/cluster/README.md says: the token in a file, and the mode in which it is sent.

    The head's processes, and no others, are ended by their ids.
    """
    folder = tmp_path_factory.mktemp("head")
    token = folder / "auth_token"
    token.write_text(TOKEN)
    known = {**os.environ, **ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    known.pop("RAY_ADDRESS", None)
    # a submitted job runs with the `python` that its head finds, not with the one that submits it
    known["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    # ports that no other Ray on this machine has: an agent whose port is taken takes no jobs
    head = Head(ports={name: free_port() for name in PORTS}, environment=known, log=folder / "log")
    options = [f"--{name}={port}" for name, port in head.ports.items()]
    # a folder of its own, with a short path for sockets: else jobs may get the address of another Ray that runs here
    files = tempfile.mkdtemp(prefix="ray-")
    options.append(f"--temp-dir={files}")
    command = [*RAY, "start", "--head", "--block", "--num-cpus=5", "--dashboard-host=127.0.0.1", *options]
    with head.log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--disable-usage-stats"], env=known, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: process.poll() is not None or head.takes_jobs(), f"see {head.log}")
        assert process.poll() is None, head.log.read_text()
        yield head
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        # at SIGTERM it waits for agents that linger
        process.kill()
        process.wait()
        for other in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                other.kill()
        shutil.rmtree(files, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture
def config(tmp_path: pathlib.Path) -> JobConfig:
    return dataclasses.replace(write_larger(tmp_path), cpus_per_reader=1)


def test_a_submitted_job_is_stopped_submitted_again_after_an_edit_and_succeeds(
    head: Head, config: JobConfig, tmp_path: pathlib.Path
) -> None:
    first = head.submit("stopped", job_command(config, tmp_path))
    wait_for(config, NUM_REQUESTS // 5)
    stop = [*RAY, "job", "stop", "--address", head.address, "stopped"]
    subprocess.run(stop, env=head.environment, check=True, capture_output=True)
    first.communicate(timeout=120)
    assert head.client.get_job_status("stopped") == "STOPPED"
    written = len(stored(config))
    assert 0 < written < NUM_REQUESTS
    assert not pathlib.Path(config.out, "report.md").exists()

    copies = len(head.unpacked())
    again = head.submit("again", job_command(without_delay(config), tmp_path), edited(tmp_path / "edited"))
    told, _ = again.communicate(timeout=300)
    assert again.returncode == 0, told
    assert head.client.get_job_status("again") == "SUCCEEDED"
    assert f"Report: {config.out}/report.md" in told
    rows = stored(config)
    assert len(rows) == rows.select("question_key", "passages_key").n_unique() == NUM_REQUESTS
    costs = TableStore(f"{config.out}/compare").read(COSTS)
    assert costs["num_reader_calls"].to_list() == [NUM_REQUESTS - written, written]
    assert len(head.unpacked()) == copies + 1
    assert not [folder for copy in head.unpacked() for folder in copy.glob("results")]


def edited(tree: pathlib.Path) -> pathlib.Path:
    """A copy of this source tree with an edit."""
    for name in ("erag_ray", "jobs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tree / "jobs" / "compare.py").open("a") as file:
        file.write("# edited\n")
    return tree


def test_relative_outputs_are_refused_and_nothing_is_written(
    head: Head, config: JobConfig, tmp_path: pathlib.Path
) -> None:
    relative = dataclasses.replace(config, out="results/nq", cache_dir="results/store")
    job = head.submit("relative", job_command(relative, tmp_path))
    told, _ = job.communicate(timeout=180)
    assert job.returncode != 0
    assert "out (results/nq) and cache_dir (results/store) would lie in Ray's copy of the working_dir" in told
    assert "Traceback" not in told
    assert head.client.get_job_info("relative").driver_exit_code == 2
    assert head.unpacked()
    assert not [folder for copy in head.unpacked() for folder in copy.glob("results")]


def test_without_the_mode_neither_a_submission_nor_a_job_gets_in(
    head: Head, config: JobConfig, tmp_path: pathlib.Path
) -> None:
    command = job_command(config, tmp_path)
    without = {name: value for name, value in head.environment.items() if name != "RAY_AUTH_MODE"}
    job = dataclasses.replace(head, environment=without).submit("without", command)
    told, _ = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "Missing authentication token" in told
    assert "RAY_AUTH_MODE is currently 'disabled' (not 'token')" in told

    local = {**without, "RAY_ADDRESS": f"127.0.0.1:{head.ports['port']}", "PYTHONPATH": str(ROOT)}
    done = python(*command[1:], env=local)
    assert done.returncode == 1
    assert "Set RAY_AUTH_MODE=token" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_job_that_fails_says_why_and_its_submission_fails(
    head: Head, config: JobConfig, tmp_path: pathlib.Path
) -> None:
    wrong = dataclasses.replace(config, passages=[str(tmp_path / "nothing.jsonl")])
    job = head.submit("wrong", job_command(wrong, tmp_path))
    told, _ = job.communicate(timeout=180)
    assert job.returncode != 0
    assert "nothing.jsonl" in told
    assert "Traceback" not in told
    assert head.client.get_job_status("wrong") == "FAILED"
    assert not pathlib.Path(config.out, "report.md").exists()
