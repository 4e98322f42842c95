"""Agreement of columns over the same queries, their means and differences, with intervals and tests."""

from erag_ray.measures.agreement.correlation import (
    MIN_FOR_P_VALUE,
    MIN_RUNS_FOR_P_VALUE,
    Agreement,
    Resampled,
    agree,
    agree_over_runs,
    difference_of,
    permutation_p_values,
    permutations,
    permutations_among,
    resampled_agreement,
)
from erag_ray.measures.agreement.intervals import (
    MAX_UNDEFINED_SHARE,
    POWER,
    TIE_DIGITS,
    Interval,
    effect_size,
    mean_intervals,
    paired_differences,
    percentiles,
    resample_weights,
    round_up,
    score_intervals,
    share_of,
    wilson_interval,
)
from erag_ray.measures.agreement.paired_test import AdjustedTest, Family, PairedTest, holm, paired_test
from erag_ray.measures.agreement.statistics import STATISTICS, Clusters, Statistic, Weights

__all__ = [
    "MAX_UNDEFINED_SHARE", "MIN_FOR_P_VALUE", "MIN_RUNS_FOR_P_VALUE", "POWER", "STATISTICS", "TIE_DIGITS",
    "AdjustedTest", "Agreement", "Clusters", "Family", "Interval", "PairedTest", "Resampled", "Statistic",
    "Weights", "agree", "agree_over_runs", "difference_of", "effect_size", "holm",
    "mean_intervals", "paired_differences", "paired_test", "percentiles", "permutation_p_values",
    "permutations", "permutations_among", "resample_weights", "resampled_agreement", "round_up",
    "score_intervals", "share_of", "wilson_interval",
]  # fmt: skip
