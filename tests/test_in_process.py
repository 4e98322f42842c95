"""Reading in this process, without Ray; its settings stay."""

import gc
import os
import subprocess
import sys

import pytest
import torch
from heavy_packages import LIGHT_INSTALL
from tiny import Tiny, make_tables

from erag_ray.inference.in_process import VARIABLES


def settings() -> tuple[object, ...]:
    """What an actor changes in its process."""
    return gc.get_threshold(), torch.get_num_threads(), [*map(os.environ.get, VARIABLES)]


def test_this_process_reads_without_ray_and_keeps_its_settings(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    before = settings()
    make_tables(tiny.with_config(num_readers=0))
    assert settings() == before


def test_a_light_install_reads_here_unless_something_asks_for_ray(tiny: Tiny) -> None:
    asking = compare_light(tiny, "--ray_address=auto")
    assert asking.returncode == 1
    assert "ray is not installed. To install it: pip install 'erag-ray[cpu]'" in asking.stderr
    done = compare_light(tiny)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Which retriever serves the reader echo")


def compare_light(tiny: Tiny, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``erag-ray compare`` on the tiny comparison in a process without the packages of the extra cpu."""
    code = f"{LIGHT_INSTALL}\nfrom erag_ray.cli.run import run\nrun('compare')"
    runs = [f"--runs.{name}={tiny.run(name)}" for name in ("good", "bad")]
    files = [f"--queries=[{tiny.queries}]", f"--passages=[{tiny.passages}]", *runs, "--depth=2"]
    out = [f"--out={tiny.folder}/light", f"--cache_dir={tiny.folder}/light-cache", "--reader.kind=echo"]
    command = [sys.executable, "-c", code, *files, *out, *words]
    return subprocess.run(command, cwd=tiny.folder, capture_output=True, text=True, timeout=120)
