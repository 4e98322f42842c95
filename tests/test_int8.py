"""Products of bytes: exactly those of the quantized numbers, row by row, and close to those of the floats."""

import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import models
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Tiny
from torch.nn import functional

from erag_ray.config.reader import ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.inference.planning.uses import use_of
from erag_ray.models import Model, make_model, model_id
from erag_ray.models.local import linear as int8
from erag_ray.models.local.quantize import MOST, MOST_POSITIVE, quantize, quantize_normed, quantize_relu
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Kind
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.support.errors import InputError, JobError

ROOT = pathlib.Path(__file__).parents[1]
needs_bytes = pytest.mark.skipif(not int8.is_supported(), reason="int8 needs a CPU")


@needs_bytes
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(2, 9),
    inputs=st.integers(1, 70),
    outputs=st.integers(2, 40),
    power=st.integers(-20, 15),
)
def test_products_are_those_of_the_rounded_numbers(
    seed: int, rows: int, inputs: int, outputs: int, power: int
) -> None:
    torch.manual_seed(seed)
    states, weights = torch.randn(rows, inputs) * 2.0**power, torch.randn(outputs, inputs)
    states[0] = 0
    weights[-1] = 0
    found = int8.linear(states, int8.quantize_weights(weights)).double()
    assert (found[0] == 0).all()
    assert (found[:, -1] == 0).all()
    steps = states.abs().amax(dim=1, keepdim=True).double() / 127
    by = weights.abs().amax(dim=1).double().clamp(min=1e-30) / 127
    integers = torch.floor(states.double() / steps.clamp(min=1e-30) + 128.5) - 128
    wanted = (integers @ (weights.double() / by[:, None]).round().t()) * steps * by
    # what lies between two integers may be rounded either way, by a machine that counts in float32
    one_apart = 2.1 * 127 * steps * by
    assert ((found - wanted).abs() <= one_apart + 1e-5 * wanted.abs()).all()
    rounding = 0.51 * inputs * 127 * 2 * steps * by
    assert ((found - states.double() @ weights.double().t()).abs() <= rounding + 1e-30).all()


numbers = pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 7), (40, 512), (2, 2048)])


@numbers
@pytest.mark.parametrize("power", [-60, 0, 20])
def test_numbers_come_back_from_bytes_to_half_a_step(rows: int, width: int, power: int) -> None:
    torch.manual_seed(rows)
    states, weight = torch.randn(rows, width) * 2.0**power, torch.randn(width)
    states[0] = 0
    for bytes_, scales, zero, wanted in (
        (*quantize(states), states),
        (*quantize_normed(states, weight, 1e-6), functional.rms_norm(states, (width,), weight, 1e-6)),
        (*quantize_relu(states, torch.full((rows, 1), 3.0)), states.relu() * 3),
    ):
        told = (bytes_.double() - zero) * scales
        assert (told[0] == 0).all()
        assert ((told - wanted).abs() <= 0.5001 * scales + 1e-5 * wanted.abs()).all()
        largest = (bytes_.int() - zero).abs().amax(dim=1)
        assert (largest[wanted.abs().amax(dim=1) > 0] == (MOST if zero else MOST_POSITIVE)).all()


def test_a_row_is_rounded_alike_whatever_the_others() -> None:
    torch.manual_seed(6)
    states, weight = torch.randn(50, 70), torch.randn(70)
    for round_ in (quantize, lambda rows: quantize_normed(rows, weight, 1e-6)):
        whole = round_(states)
        for row in (0, 17, 49):
            assert all(
                map(
                    torch.equal,
                    round_(states[row : row + 1])[:2],
                    (part[row : row + 1] for part in whole[:2]),
                )
            )


def test_rounding_in_threads_of_ones_own_is_the_same() -> None:
    torch.manual_seed(7)
    states = torch.randn(400, 300)
    wanted = quantize(states)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(quantize, [states] * 40):
            assert all(map(torch.equal, found[:2], wanted[:2]))


@pytest.mark.parametrize("in_bytes", [False, pytest.param(True, marks=needs_bytes)])
def test_what_stands_around_a_linear_layer(in_bytes: bool) -> None:
    torch.manual_seed(8)
    states, norm = torch.randn(3, 5, 64) * 4, torch.rand(64) + 0.5
    floats = torch.randn(200, 64), torch.randn(64, 200)
    inner, out = map(int8.quantize_weights, floats) if in_bytes else floats
    normed = functional.rms_norm(states, (64,), norm, 1e-6)
    product = functional.linear(normed, floats[0])
    most = 0.02 if in_bytes else 1e-5

    def is_close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
        return bool((found - wanted).norm() <= most * wanted.norm())

    assert is_close(int8.normed_linear(states, norm, 1e-6, inner), product)
    sums = states.clone()
    int8.add_linear(sums, int8.normed_relu_linear(states, norm, 1e-6, inner), out)
    assert is_close(sums, states + functional.linear(product.relu(), floats[1]))
    sums = torch.ones_like(product)
    int8.add_linear(sums, states, inner)
    assert is_close(sums, 1 + functional.linear(states, floats[0]))
    ordered = int8.normed_order(states, norm, 1e-6, inner).view(15, 200)
    assert torch.equal(
        ordered.argsort(), int8.normed_linear(states, norm, 1e-6, inner).view(15, 200).argsort()
    )


@needs_bytes
def test_a_rows_product_does_not_depend_on_the_others() -> None:
    torch.manual_seed(1)
    states, weights = torch.randn(50, 64) * torch.rand(50, 1) * 30, int8.quantize_weights(torch.randn(30, 64))
    whole = int8.linear(states, weights)
    for row in (0, 7, 49):
        assert torch.equal(int8.linear(states[row : row + 1], weights)[0], whole[row])


@pytest.mark.long
@needs_bytes
@pytest.mark.parametrize("kind", ["fid", "ipa"])
def test_a_model_in_int8_writes_nearly_the_same_whatever_the_batch(kind: str) -> None:
    # trained: rounding turns the outputs of random weights upside down
    folder = str(ROOT / "jobs" / "demo" / "reader")
    requests = models.some_requests(models.form_for(kind), 80)
    floats = models.outputs(models.loaded(kind, folder), requests)
    model = models.loaded(kind, folder, dtype="int8", batch_size=7)
    found = models.outputs(model, requests)
    assert model.engine is not None
    assert model.engine.is_int8
    assert sum(own == other for own, other in zip(found, floats, strict=True)) > 0.85 * len(requests)
    alone = models.outputs(models.loaded(kind, folder, dtype="int8", batch_size=1), requests)
    # what stands beside a row changes its attention's last digits, no more
    assert sum(own == other for own, other in zip(found, alone, strict=True)) > 0.85 * len(requests)


def test_a_model_in_int8_is_another_model_and_its_likelihoods_are_in_floats(t5: str, tiny: Tiny) -> None:
    def asked(kind: Kind, dtype: Any) -> Model:
        job = tiny.with_config(reader=ReaderConfig(kind="fid", model=t5, dtype=dtype)).config
        return use_of(kind, job, Dataset())[1]

    answering, scoring = (
        [asked(kind, dtype) for dtype in ("float32", "int8")] for kind in (ANSWER, GOLD_LIKELIHOOD)
    )
    assert len(set(map(model_id, answering))) == 2
    assert {model.config.dtype for model in scoring} == {"float32"}
    assert len(set(map(model_id, scoring))) == 1


def test_int8_is_for_t5_alone(llama: str) -> None:
    with pytest.raises(
        InputError, match=r"reader\.dtype: causal supports float32, tf32, bfloat16, float16, not int8"
    ):
        make_model(ReaderConfig(kind="causal", model=llama, dtype="int8"))


def test_where_bytes_are_not_multiplied_it_is_said(t5: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "is_supported", lambda: False)
    with pytest.raises(JobError, match=r"reader\.dtype: int8 needs a CPU"):
        models.loaded("fid", t5, dtype="int8")
    with pytest.raises(JobError, match="int8 is for CPUs"):
        int8.check_supported(torch.device("cuda"))
