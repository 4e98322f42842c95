"""Reading in this process, without Ray: the same tables as by actors, and what is answered stays."""

from __future__ import annotations

import gc
import os

import pytest
import torch
from tiny import Tiny, assert_same, make_tables, results


def settings() -> tuple[object, ...]:
    """What an actor changes in its process."""
    variables = [os.environ.get(name) for name in ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM")]
    return gc.get_threshold(), torch.get_num_threads(), variables


def test_this_process_reads_without_ray_and_keeps_its_settings(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    before = settings()
    make_tables(tiny.with_config(num_readers=0))
    assert settings() == before


@pytest.mark.long
def test_actors_and_this_process_give_the_same_tables(tiny: Tiny, local_ray: None) -> None:
    make_tables(
        tiny.with_config(
            num_readers=0, out=f"{tiny.config.out}-here", cache_dir=f"{tiny.config.cache_dir}-here"
        )
    )
    make_tables(tiny)
    here = tiny.with_config(out=f"{tiny.config.out}-here")
    assert_same(results(here), results(tiny))
