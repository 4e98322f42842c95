"""The check of a job's reader, which brings torch and is imported when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from erag_ray.config import JobConfig
from erag_ray.datasets import Dataset


def check_reader(config: JobConfig, datasets: Mapping[str, Dataset]) -> Sequence[str]:
    """Return what is wrong with the reader of a job; see `planning.check_reader`."""
    from erag_ray import planning

    return planning.check_reader(config, datasets)
