"""cluster.yaml: valid for the pinned Ray, and what its validator does not look at. Needs no cloud.

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


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def test_ray_accepts_the_file(cluster: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(copy.deepcopy(cluster)))
    broken = copy.deepcopy(cluster)
    broken["available_node_types"]["readers"]["GPUs"] = 8
    with pytest.raises(Exception, match="GPUs"):
        validate_config(prepare_config(broken))


def test_image_is_of_the_pinned_ray(cluster: dict[str, Any]) -> None:
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    assert cluster["docker"]["image"].startswith(f"rayproject/ray:{pinned[1]}-")


def test_head_runs_no_readers_and_workers_have_the_gpus_of_their_machine(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    readers = types["readers"]
    # p4d.24xlarge: 96 vCPU, 8 x A100 (AWS instance type specifications)
    assert readers["node_config"]["InstanceType"] == "p4d.24xlarge"
    assert readers["resources"] == {"CPU": 96, "GPU": 8}
    # a GPU pool may not grow on an autoscaling cluster, so its size is fixed
    assert readers["min_workers"] == readers["max_workers"] == cluster["max_workers"]
