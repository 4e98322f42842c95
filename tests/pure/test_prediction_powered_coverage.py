"""notebooks/prediction_powered.py in small: intervals cover, and a good auxiliary label names the winner sooner."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import import_script

simulation = import_script("notebooks/prediction_powered.py")


@pytest.mark.parametrize(("correlation", "widest"), [(0.0, 1.0), (0.8, 0.75)])
def test_intervals_cover_whatever_the_auxiliary_says(correlation: float, widest: float) -> None:
    covered, width = simulation.coverage(200, correlation, 0.2, num_sets=150)
    # 95 % of 150 sets, to within three standard errors
    assert covered >= 0.895
    assert width < widest


@pytest.mark.parametrize(("correlation", "widest"), [(0.0, 1.05), (0.8, 0.75)])
def test_intervals_of_sampled_questions_cover(correlation: float, widest: float) -> None:
    covered, width = simulation.question_coverage(300, 60, correlation, num_sets=150)
    # 95 % of 150 sets, to within three standard errors
    assert covered >= 0.895
    assert width < widest


def test_generated_labels_have_the_correlation_and_the_difference_that_is_said() -> None:
    data = simulation.generated(np.random.default_rng(3), 4000, 0.6)
    assert np.corrcoef(data.labels, data.auxiliary)[0, 1] == pytest.approx(0.6, abs=0.01)
    weights = np.where((data.ranks >= 1) & (data.ranks <= 10), 0.1, 0.0)
    means = data.labels @ weights / 4000
    assert means[0] - means[1] == pytest.approx(simulation.truth((0, 1)), abs=0.006)
