"""Prediction-powered values: right in expectation whatever the auxiliary label is, and narrower where it is good."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scripts import import_script

from erag_ray.extras import prediction_powered
from erag_ray.extras.prediction_powered import LabelSample, PoweredValues, powered_values

Floats = npt.NDArray[np.float64]
QUESTIONS = np.array([0, 0, 1, 1, 1, 2, 2, 2])
WEIGHTS = np.array([0.5, -0.5, 0.5, 0.3, -0.5, 0.5, -0.2, -0.5])
CHANCES = np.array([0.5, 0.9, 0.3, 0.8, 0.6, 0.4, 1.0, 0.7])
LABELS = np.array([1.0, 0, 1, 0.4, 0, 0, 1, 1])
AUXILIARIES = {
    "good": np.array([0.9, 0.1, 0.8, 0.5, 0.1, 0, 1, 0.7]),
    "wrong": 1 - LABELS,
    "large": np.array([300.0, -20, 10, 5, 7, 0, 0, 900]),
    "constant": np.full(8, 0.1),
    "no label": np.zeros(8),
}


def sample_of(is_read: Any, auxiliary: Floats, **changes: Any) -> LabelSample:
    sample = LabelSample(
        questions=QUESTIONS,
        weights=WEIGHTS,
        probabilities=CHANCES,
        is_read=np.array(is_read),
        labels=np.where(is_read, LABELS, np.nan),
        auxiliary=auxiliary,
    )
    return dataclasses.replace(sample, **changes)


@pytest.mark.parametrize("name", AUXILIARIES)
def test_over_all_samples_the_values_are_those_of_all_labels(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All 256 samples of eight documents, each with its probability, and lines fitted to one document or more."""
    monkeypatch.setattr(prediction_powered, "MIN_READ", 1)
    expected, is_fitted = np.zeros(3), False
    for is_read in itertools.product([False, True], repeat=8):
        chance = np.where(is_read, CHANCES, 1 - CHANCES).prod()
        values = powered_values(sample_of(is_read, AUXILIARIES[name]), 3)
        is_fitted |= bool(np.abs(values.values - values.from_labels).max() > 0.01)
        expected += chance * values.values
    assert is_fitted
    np.testing.assert_allclose(expected, np.bincount(QUESTIONS, WEIGHTS * LABELS), atol=1e-9)


def drawn(generator: np.random.Generator, num_questions: int, correlation: float) -> LabelSample:
    """Eight documents a question, whose labels are right or wrong, with an auxiliary label of this correlation."""
    count = 8 * num_questions
    normal = generator.normal(size=(2, count))
    labels = (normal[0] < 0).astype(np.float64)
    auxiliary = correlation * normal[0] + np.sqrt(1 - correlation**2) * normal[1]
    chances = generator.uniform(0.2, 0.9, count)
    return LabelSample(
        questions=np.repeat(np.arange(num_questions), 8),
        weights=np.tile(np.r_[np.full(4, 0.25), np.full(4, -0.25)], num_questions),
        probabilities=chances,
        is_read=generator.random(count) < chances,
        labels=labels,
        auxiliary=auxiliary,
    )


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.floats(-0.95, 0.95), st.floats(0.01, 100), st.floats(-5, 5))
def test_scale_and_origin_of_the_auxiliary_do_not_matter(
    seed: int, correlation: float, scale: float, origin: float
) -> None:
    sample = drawn(np.random.default_rng(seed), 20, correlation)
    scaled = dataclasses.replace(sample, auxiliary=origin - scale * sample.auxiliary)
    one, other = powered_values(sample, 20), powered_values(scaled, 20)
    np.testing.assert_allclose(other.values, one.values, atol=1e-5)
    assert other.slope * scale == pytest.approx(-one.slope, abs=1e-5)


@settings(max_examples=50)
@given(
    hnp.arrays(np.float64, 8, elements=st.floats(-1e3, 1e3)),
    hnp.arrays(np.bool_, 8),
    hnp.arrays(np.float64, 8, elements=st.floats(0, 1)),
)
def test_any_sample_gives_finite_values_and_a_full_one_the_truth(
    auxiliary: Floats, is_read: npt.NDArray[np.bool_], labels: Floats
) -> None:
    values = powered_values(sample_of(is_read, auxiliary, labels=labels), 4)
    assert np.isfinite(values.values).all()
    assert values.values[3] == 0, "no documents"
    full = sample_of(np.ones(8, bool), auxiliary, labels=labels, probabilities=np.ones(8))
    np.testing.assert_allclose(
        powered_values(full, 4).values[:3], np.bincount(QUESTIONS, WEIGHTS * labels), atol=1e-9
    )


def test_lambda_and_correlation_are_those_of_the_population_where_much_is_read() -> None:
    sample = drawn(np.random.default_rng(5), 4000, 0.7)
    values = powered_values(sample, 4000)
    # a label is a normal variable cut at its median
    assert values.correlation == pytest.approx(-0.7 * np.sqrt(2 / np.pi), abs=0.02)
    assert values.slope == pytest.approx(stats.linregress(sample.auxiliary, sample.labels).slope, abs=0.01)


def test_a_good_auxiliary_narrows_the_values_and_a_useless_one_costs_nothing() -> None:
    spreads = {}
    for correlation in (0.0, 0.95):
        values = powered_values(drawn(np.random.default_rng(8), 2000, correlation), 2000)
        spreads[correlation] = values.values.std() / values.from_labels.std()
    assert spreads[0.95] < 0.75
    # labels of mean 1/2: the intercept alone helps
    assert spreads[0.95] < spreads[0.0] < 1


def slope(values: PoweredValues) -> tuple[float, float | None]:
    return values.slope, values.correlation


def test_a_constant_auxiliary_gives_lambda_0_and_so_does_one_that_is_constant_where_it_was_read() -> None:
    sample = drawn(np.random.default_rng(1), 50, 0.5)
    constant = dataclasses.replace(sample, auxiliary=np.full(400, 0.1))
    assert slope(powered_values(constant, 50)) == (0.0, None)
    unseen = dataclasses.replace(sample, auxiliary=np.where(sample.is_read, 0.1, 0.7))
    assert slope(powered_values(unseen, 50)) == (pytest.approx(0.0, abs=1e-3), None)


def test_with_hardly_a_document_read_no_line_is_fitted() -> None:
    is_read = np.ones(8, bool)
    values = powered_values(sample_of(is_read, AUXILIARIES["good"]), 3)
    assert values.slope == 0
    np.testing.assert_allclose(values.values, values.from_labels, atol=1e-9)


def test_an_auxiliary_label_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="auxiliary labels must be finite"):
        powered_values(sample_of(np.ones(8, bool), np.full(8, np.inf)), 3)


simulation = import_script("notebooks/prediction_powered.py")


@pytest.mark.parametrize(("correlation", "widest"), [(0.0, (1.0, 1.05)), (0.8, (0.75, 0.75))])
def test_intervals_cover_whatever_the_auxiliary_says(correlation: float, widest: tuple[float, float]) -> None:
    of_documents = simulation.coverage(200, correlation, 0.2, num_sets=150)
    of_questions = simulation.question_coverage(300, 60, correlation, num_sets=150)
    for (covered, width), most in zip((of_documents, of_questions), widest, strict=True):
        # 95 % of 150 sets, to within three standard errors
        assert covered >= 0.895
        assert width < most


def test_generated_labels_have_the_correlation_and_the_difference_that_is_said() -> None:
    data = simulation.generated(np.random.default_rng(3), 4000, 0.6)
    assert np.corrcoef(data.labels, data.auxiliary)[0, 1] == pytest.approx(0.6, abs=0.01)
    weights = np.where((data.ranks >= 1) & (data.ranks <= 10), 0.1, 0.0)
    means = data.labels @ weights / 4000
    assert means[0] - means[1] == pytest.approx(simulation.truth((0, 1)), abs=0.006)
