"""Ray: starting or joining a cluster, assigning GPUs, and running numbered tasks on a pool of actors."""

from erag_ray.cluster.gpus import check_gpus, gpu_names, process_environment
from erag_ray.cluster.session import FREE_CPUS, gpu_room, nodes_alive, num_gpus_of, ray_session, wait_for_gpus
from erag_ray.cluster.tasks import task_pool

__all__ = [
    "FREE_CPUS",
    "check_gpus",
    "gpu_names",
    "gpu_room",
    "nodes_alive",
    "num_gpus_of",
    "process_environment",
    "ray_session",
    "task_pool",
    "wait_for_gpus",
]
