"""GPUs of Ray's processes: which ones a process sees, and whether torch can use the assigned ones."""

import os
import sys
from collections.abc import Mapping, Sequence

from erag_ray.support.errors import JobError

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
"""Environment variables of torch's allocator; if the user sets neither, the first is set."""
ACCELERATOR = "accelerator_type:"
"""Prefix of Ray's resource for the model of a node's GPUs."""


def process_environment(num_gpus: float) -> dict[str, str]:
    """Return the environment variables of an actor's process.

    For actors without GPUs, Ray does not set CUDA_VISIBLE_DEVICES, and the process would use all GPUs.
    """
    if not num_gpus:
        return {"CUDA_VISIBLE_DEVICES": ""}
    # memory shared between several GPUs of one actor must be in plain segments (vllm#42609)
    if num_gpus > 1 or any(name in os.environ for name in ALLOCATOR):
        return {}
    # batches differ in shape: expandable segments avoid fragmentation
    return {ALLOCATOR[0]: "expandable_segments:True"}


def check_gpus() -> None:
    """Raise JobError, with torch's reason, if it cannot use Ray's GPUs, instead of silently computing on a CPU."""
    ray = sys.modules.get("ray")
    ids = ray.get_gpu_ids() if ray and ray.is_initialized() else []
    if not ids:
        return
    import torch

    from erag_ray.models.local.devices import gpu_error

    reason = gpu_error()
    if reason is None:
        return
    build = f"torch {torch.__version__} ({f'CUDA {torch.version.cuda}' if torch.version.cuda else 'no CUDA'})"
    gpus = ", ".join(map(str, ids))
    assert ray is not None
    raise JobError(
        f"node {ray.util.get_node_ip_address()}: Ray has assigned GPU {gpus}, but {build} cannot use it: {reason} "
        "Install a driver and a build of torch that match (jobs/cluster/README.md, 'GPU drivers'); to "
        "compute on CPUs, start Ray with --num-gpus 0"
    )


def gpu_names(nodes: Sequence[Mapping[str, float]]) -> str:
    """Return the GPU models of nodes, such as "A100", as far as Ray reports them."""
    names = {
        name.removeprefix(ACCELERATOR) for node in nodes for name in node if name.startswith(ACCELERATOR)
    }
    return ", ".join(sorted(names))
