"""GPUs that Ray assigns: work never falls back to a CPU unnoticed, and processes without GPUs see none."""

import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import types
from typing import Any

import pytest
import torch
from quiet_ray import ENVIRONMENT
from tiny import Tiny

from erag_ray.config.reader import ReaderConfig
from erag_ray.config.retrieval import SearchConfig
from erag_ray.inference import pool as inference
from erag_ray.inference.actor import GARBAGE_THRESHOLDS
from erag_ray.inference.cluster import gpus, tasks
from erag_ray.inference.cluster.gpus import gpu_names, process_environment
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.support.errors import JobError

HELPERS = pathlib.Path(__file__).parent / "helpers"
REFUSAL = r"Ray has assigned GPU [01], but torch 2\S+ \(.*\) cannot use it: \w.* Install a driver and"

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="about GPUs that torch does not see")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    command = [sys.executable, str(HELPERS / "fake_gpus.py"), str(tmp_path_factory.mktemp("gpus"))]
    outside = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment = {
        **outside,
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(map(str, (HELPERS.parents[1], HELPERS.parent, HELPERS))),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["job", "training", "tasks"])
def test_work_on_a_gpu_that_torch_does_not_see_ends_with_torchs_reason(found: Any, kind: str) -> None:
    assert re.search(REFUSAL, found[kind]), found[kind]


@pytest.mark.cluster
def test_actors_without_gpus_see_none(found: Any) -> None:
    assert [task["visible"] for task in found["without"]] == ["", "", "", ""]


@pytest.mark.cluster
def test_actors_that_no_node_has_gpus_for_are_refused_at_once(found: Any) -> None:
    assert found["too_many"].startswith("search.gpus_per_actor: 3, but no node of the cluster has as many")


@pytest.mark.parametrize(
    ("num_actors", "gpus_per_actor", "expected"),
    [(5, 1.0, 3), (2, 1.0, 2), (9, 0.5, 6), (9, 2.0, 1), (9, 0.0, 9), (40, 0.1, 30)],
)
def test_a_pool_has_no_more_actors_than_gpus(num_actors: int, gpus_per_actor: float, expected: int) -> None:
    nodes = [{"CPU": 8.0}, {"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 1.0}]
    search = SearchConfig(num_actors=num_actors, gpus_per_actor=gpus_per_actor)
    assert tasks.num_actors(search, nodes) == expected
    if gpus_per_actor:
        with pytest.raises(JobError, match=r"GPUs \(a node: CPU 8, GPU 0\)\. Set it to 0"):
            tasks.num_actors(search, nodes[:1])


def test_a_users_settings_of_the_allocator_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in gpus.ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    assert process_environment(0.5) == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert process_environment(0) == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync")
    assert process_environment(1) == {}


@pytest.mark.cluster
def test_readers_start_without_gpus_and_with_threads_for_their_tokenizers(
    local_ray: None, tiny: Tiny
) -> None:
    config = tiny.with_config(reader=ReaderConfig(kind="echoing:Environment"), cpus_per_reader=2).config
    plan = plan_stage(config, prepare(config), "compare", single_document=True, end_to_end=True)
    (output,) = run_stage(config, plan).responses["output"].unique().to_list()
    assert json.loads(output) == ["", "2", "true", "1000", list(GARBAGE_THRESHOLDS)]


def test_the_kinds_of_gpus_are_named_once() -> None:
    nodes = [{"CPU": 8.0, "accelerator_type:A100": 1.0}, {"accelerator_type:A100": 1.0}, {"GPU": 1.0}]
    assert gpu_names(nodes) == "A100"
    assert gpu_names([*nodes, {"accelerator_type:H100": 1.0}]) == "A100, H100"
    assert gpu_names([{"CPU": 4.0}]) == ""


@pytest.mark.parametrize(("seconds", "expected"), [(None, -1), ("90", 7.0)])
def test_a_block_may_take_longer_than_rays_half_hour_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, seconds: str | None, expected: float
) -> None:
    monkeypatch.delenv(inference.NO_PROGRESS, raising=False)
    if seconds:
        monkeypatch.setenv(inference.NO_PROGRESS, seconds)
    context = types.SimpleNamespace(execution_no_progress_timeout_s=7.0)
    monkeypatch.setattr(inference.ray.data.DataContext, "get_current", lambda: context)
    inference._set_up_data()
    assert context.execution_no_progress_timeout_s == expected


QUIET = """
import logging
from erag_ray.inference.pool import _set_up_data
_set_up_data()
print(logging.getLogger("ray.data._internal.execution.operators.map_operator").getEffectiveLevel())
"""


def test_ray_data_is_quiet_in_a_process_that_has_not_imported_it_yet() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True)
    assert done.stdout == f"{logging.ERROR}\n"
