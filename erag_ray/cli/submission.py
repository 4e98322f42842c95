"""Outputs of a job that was submitted to a cluster: refused where they would not last."""

from __future__ import annotations

import itertools
import os
import pathlib
from typing import Any

from erag_ray.errors import InputError
from erag_ray.store import CACHE
from erag_ray.uris import is_uri

OUTPUTS = ("out", "cache_dir")
# the end of Ray's path, on each node, to the folders of submitted working_dirs; each state of one has its own folder
UNPACKED = ("runtime_resources", "working_dir_files")


def check_outputs(config: Any) -> None:
    """Refuse outputs in Ray's copy of the working_dir: the next submission after an edit runs in another copy.

    Raises:
        InputError: some lie there.
    """
    paths = {name: getattr(config, name) for name in OUTPUTS if hasattr(config, name)}
    paths[CACHE] = os.environ.get(CACHE, "")
    lost = [f"{name} ({path})" for name, path in paths.items() if path and _is_in_copy(path)]
    if lost:
        what = f"{' and '.join(lost)} would lie in Ray's copy of the working_dir"
        why = "after an edit the next submission gets another copy, and Ray deletes old ones"
        what_to_do = "Give paths that all nodes see: absolute ones such as /shared/nq, or URIs"
        raise InputError([f"{what}: {why}. {what_to_do}"])


def _is_in_copy(path: str) -> bool:
    if is_uri(path):
        return False
    parts = pathlib.Path(os.path.realpath(os.path.expanduser(path))).parts
    return UNPACKED in itertools.pairwise(parts)
