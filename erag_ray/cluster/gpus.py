"""GPUs of Ray's processes: which of them a process sees, and that torch can use those that Ray has assigned."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import ray
import torch

from erag_ray.errors import JobError
from erag_ray.models.local import gpu_error

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
"""Variables by which a user may set torch's allocator; the first is set where neither is."""
ACCELERATOR = "accelerator_type:"
"""Prefix of the resource by which Ray names the kind of a node's GPUs."""


def process_environment(num_gpus: float) -> dict[str, str]:
    """Return the environment variables with which an actor's process starts.

    Ray leaves CUDA_VISIBLE_DEVICES alone where no GPU is asked for, and such a process would use them all.

    Args:
        num_gpus: that the actor asks Ray for.
    """
    if not num_gpus:
        return {"CUDA_VISIBLE_DEVICES": ""}
    # what several GPUs of one actor share among each other must lie in plain segments (vllm#42609)
    if num_gpus > 1 or any(name in os.environ for name in ALLOCATOR):
        return {}
    # batches differ in shape: segments that grow leave no gaps between them
    return {ALLOCATOR[0]: "expandable_segments:True"}


def check_gpus() -> None:
    """Refuse to compute on a CPU in a process to which Ray has assigned GPUs.

    Raises:
        JobError: torch cannot use them; the message has torch's own reason.
    """
    ids = ray.get_gpu_ids() if ray.is_initialized() else []
    reason = gpu_error() if ids else None
    if reason is None:
        return
    build = f"torch {torch.__version__} ({f'CUDA {torch.version.cuda}' if torch.version.cuda else 'no CUDA'})"
    gpus = ", ".join(map(str, ids))
    raise JobError(
        f"node {ray.util.get_node_ip_address()}: Ray has assigned GPU {gpus}, but {build} cannot use it: {reason} "
        "Install a driver and a build of torch that match (jobs/cluster/README.md, 'GPU drivers'); to "
        "compute on CPUs, start Ray with --num-gpus 0"
    )


def gpu_names(nodes: Sequence[Mapping[str, float]]) -> str:
    """Return the kinds of GPUs that nodes have, such as "A100", as far as Ray knows them."""
    names = {
        name.removeprefix(ACCELERATOR) for node in nodes for name in node if name.startswith(ACCELERATOR)
    }
    return ", ".join(sorted(names))
