"""The package as installed without the extras cpu and gpu: code to run first in a new process."""

from __future__ import annotations

from erag_ray.support.registry import OF_MODELS

LIGHT_INSTALL = f"""
import importlib.machinery
find_spec = importlib.machinery.PathFinder.find_spec
def find(name, path=None, target=None):
    return None if name.partition(".")[0] in {OF_MODELS!r} else find_spec(name, path, target)
importlib.machinery.PathFinder.find_spec = find
"""
