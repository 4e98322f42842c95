"""The cluster files: valid for the pinned Ray, and what its validator does not look at. Needs no cloud.

Run: pytest tests/test_cluster.py
"""

from __future__ import annotations

import copy
import pathlib
import re
from typing import Any

import pytest
import yaml

ROOT = pathlib.Path(__file__).parent.parent
# file -> where the machine's type stands, and the type: 96 vCPU and 8 x A100 each (the clouds' own specifications)
MACHINES = {
    "cluster.yaml": ("InstanceType", "p4d.24xlarge"),
    "jobs/cluster/gcp.yaml": ("machineType", "a2-highgpu-8g"),
}


def pinned_ray() -> str:
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    return pinned[1]


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return found


@pytest.fixture(params=MACHINES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_ray_accepts_the_file(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    cluster = read(name)
    validate_config(prepare_config(copy.deepcopy(cluster)))
    broken = copy.deepcopy(cluster)
    broken["available_node_types"]["readers"]["GPUs"] = 8
    with pytest.raises(Exception, match="GPUs"):
        validate_config(prepare_config(broken))


def expected_gpus(name: str) -> int:
    """What the file's own command waits for."""
    (count,) = re.findall(r"--expect_gpus (\d+)", (ROOT / name).read_text())
    return int(count)


def test_image_is_of_the_pinned_ray(name: str) -> None:
    assert read(name)["docker"]["image"].startswith(f"rayproject/ray:{pinned_ray()}-")


def test_head_runs_no_readers_and_workers_have_the_gpus_of_their_machine(name: str) -> None:
    cluster = read(name)
    types = cluster["available_node_types"]
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    readers = types["readers"]
    key, machine = MACHINES[name]
    assert readers["node_config"][key] == machine
    assert readers["resources"] == {"CPU": 96, "GPU": 8}
    # a GPU pool may not grow on an autoscaling cluster, so its size is fixed
    assert readers["min_workers"] == readers["max_workers"] == cluster["max_workers"]
    assert expected_gpus(name) == readers["min_workers"] * readers["resources"]["GPU"]


def test_the_lines_to_change_are_marked_and_few(name: str) -> None:
    marked = [line for line in (ROOT / name).read_text().splitlines() if re.search(r"\S.*# CHANGE", line)]
    assert len(marked) == 2


JOB = "jobs/cluster/rayjob.yaml"
# fields of KubeRay's RayJob and RayCluster (ray.io/v1) that the file may use: a typing error is not one of them
SPEC = {
    "entrypoint",
    "backoffLimit",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "runtimeEnvYAML",
    "rayClusterSpec",
}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def test_the_kubernetes_job_is_tried_again_and_names_only_what_there_is() -> None:
    job = read(JOB)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert set(job["spec"]) == SPEC
    assert job["spec"]["backoffLimit"] >= 1
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert set(cluster["headGroupSpec"]) == GROUP & {"rayStartParams", "template"}
    (workers,) = cluster["workerGroupSpecs"]
    assert set(workers) == GROUP
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"]).keys() == {"env_vars"}


def test_the_kubernetes_job_writes_to_the_shared_volume() -> None:
    _, _, *arguments = read(JOB)["spec"]["entrypoint"].split()
    values = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert all(values[key].startswith("/shared/") for key in ("--config", "--out", "--store"))


def test_the_kubernetes_job_has_the_pinned_ray_a_bare_head_and_whole_machines() -> None:
    cluster = read(JOB)["spec"]["rayClusterSpec"]
    text = (ROOT / JOB).read_text()
    assert cluster["rayVersion"] == pinned_ray()
    assert set(re.findall(r"(\d+\.\d+\.\d+)-py311", text)) == {pinned_ray()}
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"]
    assert expected_gpus(JOB) == 8 * workers["replicas"]
    head, worker = (group["template"]["spec"] for group in (cluster["headGroupSpec"], workers))
    (container,) = worker["containers"]
    # Kubernetes wants requests and limits of a device to be equal
    assert {container["resources"][kind]["nvidia.com/gpu"] for kind in ("requests", "limits")} == {"8"}
    for pod in (head, worker):
        (container,) = pod["containers"]
        assert container["image"].endswith(f":{pinned_ray()}")
        assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            one["name"] for one in pod["volumes"]
        }
