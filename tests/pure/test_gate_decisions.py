"""The gate's decisions from paired differences, against plain numpy and scipy."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.gate.decide import MIN_QUESTIONS, bounds, decide, overall
from erag_ray.measures.agreement import paired_test

RULE = GateConfig()
Floats = npt.NDArray[np.float64]


def binary(won: int, lost: int, same: int) -> Floats:
    return np.repeat([1.0, -1.0, 0.0], [won, lost, same])


def verdict(values: Floats, rule: GateConfig = RULE) -> str:
    return decide({"d": values}, rule)["d"].verdict


@given(st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=MIN_QUESTIONS, max_size=60))
def test_bounds_are_those_of_a_comparison_and_p_values_agree_with_them(raw: list[float]) -> None:
    values = np.array(raw)
    found = bounds(values, RULE)
    assert found.difference == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(paired_test(values).interval(0.1))
    # where a p-value is at its level, the bound is at the margin
    for p, is_decided in ((found.p_passed, found.low > -0.02), (found.p_failed, found.high < -0.02)):
        assert (p < 0.05) == is_decided or p == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (binary(10, 10, 180), "not settled"),
        (binary(20, 5, 375), "passed"),
        (binary(5, 30, 365), "failed"),
        (binary(0, 6, 34), "failed"),
        (binary(0, 0, 148), "not settled"),
        (binary(0, 0, 149), "passed"),
        (binary(0, MIN_QUESTIONS - 1, 0), "not settled"),
        (np.full(400, -0.005), "passed"),
        (np.full(400, -0.03), "failed"),
        (np.full(400, -0.02), "not settled"),
    ],
)
def test_verdicts(values: Floats, expected: str) -> None:
    assert verdict(values) == expected


def test_a_pass_takes_a_bound_above_the_margin_not_at_it_and_more_than_a_handful_of_questions() -> None:
    for margin in (0.0, 0.1):
        assert verdict(np.full(50, -margin), GateConfig(margin=margin)) == "not settled"
    # the true loss may be 30 % where 10 of 10 questions are equal
    assert bounds(np.zeros(10), RULE).low == pytest.approx(-(1 - 0.05**0.1))
    assert bounds(np.zeros(9), RULE).low is None


@given(
    st.integers(0, 40), st.integers(0, 40), st.integers(10, 300), st.floats(0.001, 0.3), st.floats(0.001, 0.3)
)
def test_a_larger_margin_never_makes_a_verdict_worse(
    won: int, lost: int, same: int, a: float, b: float
) -> None:
    order = ["failed", "not settled", "passed"]
    verdicts = [verdict(binary(won, lost, same), GateConfig(margin=m)) for m in sorted((a, b))]
    assert order.index(verdicts[0]) <= order.index(verdicts[1])


# --- several datasets ---


def test_two_datasets_are_corrected_by_holm() -> None:
    # one that passes alone, with a p-value between .025 and .05
    all_values = (binary(won, 20, 280) for won in range(100))
    values = next(one for one in all_values if 0.03 < bounds(one, RULE).p_passed < 0.045)
    clear = binary(60, 2, 238)
    assert verdict(values) == "passed"
    together = decide({"a": values, "b": values}, RULE)
    assert [one.verdict for one in together.values()] == ["not settled", "not settled"]
    # Holm tests the second at the full level once the first has passed
    assert [one.verdict for one in decide({"a": values, "b": clear}, RULE).values()] == ["passed", "passed"]
    assert together["a"].low == bounds(values, RULE).low


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["passed", "passed"], "passed"),
        (["passed", "not settled"], "not settled"),
        (["passed", "failed"], "failed"),
        (["not settled", "failed"], "failed"),
    ],
)
def test_the_whole_passes_if_each_has_passed_and_fails_if_one_has_failed(
    verdicts: list[str], expected: str
) -> None:
    base = bounds(np.zeros(20), RULE)
    assert overall([dataclasses.replace(base, verdict=one) for one in verdicts]) == expected  # type: ignore[arg-type]


# --- questions needed ---


def test_the_number_needed_makes_the_distance_detectable_by_a_one_sided_test() -> None:
    values = binary(12, 10, 178)
    needed = bounds(values, RULE).num_needed or 0
    errors = stats.t.ppf([0.95, 0.8], needed - 1).sum() * values.std(ddof=1) / math.sqrt(needed)
    assert 0.97 < (errors + 1 / needed) / (values.mean() + 0.02) <= 1
    # three of 150 differ, and a test takes five
    assert bounds(np.repeat([0.5, -0.25, 0.2, 0.0], [1, 1, 1, 147]), RULE).num_needed == 250


@pytest.mark.parametrize(
    ("won", "lost", "same"), [(12, 10, 178), (0, 1, 39), (3, 9, 60), (0, 0, 20), (2, 1, 37)]
)
def test_twice_as_many_questions_of_the_same_kind_settle_it(won: int, lost: int, same: int) -> None:
    values = binary(won, lost, same)
    assert verdict(values) == "not settled"
    needed = bounds(values, RULE).num_needed
    assert needed > len(values)
    assert verdict(np.tile(values, math.ceil(2 * needed / len(values)))) != "not settled"


def test_few_differing_questions_need_more_and_a_difference_of_exactly_the_margin_any_number() -> None:
    assert bounds(binary(0, 4, 196), RULE).num_needed is None
    assert bounds(np.zeros(50), RULE).num_needed == 150
    assert bounds(np.zeros(50), GateConfig(margin=0.0)).num_needed is None
