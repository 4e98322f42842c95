"""Ray: starting or joining a cluster, assigning GPUs, and running numbered tasks on a pool of actors."""
