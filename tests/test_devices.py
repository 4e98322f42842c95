"""The device of a process: precision of its products, and its name on what it made."""

import pathlib
from collections.abc import Iterator

import models
import pyarrow.parquet as pq
import pytest
import torch
from tiny import Tiny, compare

from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.stage import run_stage
from erag_ray.models import make_model
from erag_ray.models.local.devices import TF32, gpu_error, set_matmul_precision
from erag_ray.store.folder import Folder
from erag_ray.store.responses import ResponseStore
from erag_ray.store.tables import read_manifest
from erag_ray.support.errors import JobError


@pytest.fixture
def matmul() -> Iterator[torch.backends.cuda.cuBLASModule]:
    before = torch.backends.cuda.matmul.fp32_precision
    yield torch.backends.cuda.matmul
    torch.backends.cuda.matmul.fp32_precision = before


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA T4")


def test_tf32_changes_the_products_and_not_the_weights(
    monkeypatch: pytest.MonkeyPatch, matmul: object
) -> None:
    pretend_gpu(monkeypatch, (8, 0))
    for dtype, weights, products in (
        ("tf32", torch.float32, "tf32"),
        ("float32", torch.float32, "ieee"),
        ("bfloat16", torch.bfloat16, "ieee"),
    ):
        assert set_matmul_precision(dtype) == weights
        assert torch.backends.cuda.matmul.fp32_precision == products


def test_two_models_of_a_process_multiply_in_their_own_precision(
    monkeypatch: pytest.MonkeyPatch, matmul: object
) -> None:
    pretend_gpu(monkeypatch, (8, 0))
    one, other = (
        models.BareModel(ReaderConfig(kind="fid", model="none", dtype=dtype)) for dtype in (TF32, "float32")
    )
    for model, products in ((one, TF32), (other, "ieee"), (one, TF32)):
        assert not list(model.run([]))
        assert torch.backends.cuda.matmul.fp32_precision == products


def test_tf32_is_refused_where_the_device_has_none(t5: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        model = make_model(ReaderConfig(kind="fid", model=t5, dtype="tf32"))
        with pytest.raises(
            JobError, match=r"reader.dtype: tf32 needs a GPU .*this process has CPU; use float32"
        ):
            model.load()
    pretend_gpu(monkeypatch, (7, 5))
    with pytest.raises(JobError, match=r"compute capability 8\.0 or more .*this process has NVIDIA T4"):
        set_matmul_precision("tf32")


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
def test_torchs_own_reason_is_given() -> None:
    assert "CUDA" in (gpu_error() or "")


@pytest.mark.cluster
def test_responses_of_several_devices_are_reported(tiny: Tiny, local_ray: None) -> None:
    # its processes have no need of torch
    plan = compare(tiny)
    run_stage(tiny.config, plan)
    (part,) = plan.plans
    store = ResponseStore(tiny.config.cache_dir, part.id)
    place = f"{tiny.config.out}/{plan.stage}"
    number = plan.requests.select("question_key", "passages_key").n_unique()
    manifest = read_manifest(Folder(place))
    assert manifest["devices"] == {part.id: {"CPU": number}}
    assert "Warning" not in str(manifest["summary"])
    # the same as if another machine had made some
    first = sorted(pathlib.Path(store.folder.root).glob("*.parquet"))[0]
    table = pq.read_table(first)
    metadata = {**(table.schema.metadata or {}), b"device": b"NVIDIA A100, torch 2.13.0"}
    half = table.slice(0, 2)
    pq.write_table(half.replace_schema_metadata(metadata), first)
    store.append(table.slice(2).replace_schema_metadata(None), "other", device="CPU")
    run_stage(tiny.config, compare(tiny))
    manifest = read_manifest(Folder(place))
    assert manifest["devices"] == {part.id: {"CPU": number - 2, "NVIDIA A100, torch 2.13.0": 2}}
    assert f"{part.id} are from different devices or versions" in str(manifest["summary"])
    assert "2 by NVIDIA A100, torch 2.13.0" in str(manifest["summary"])
