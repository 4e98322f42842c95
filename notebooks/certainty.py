"""Do the intervals cover, and do the tests find what is not there? On simulated data, where the truth is known.

    python notebooks/certainty.py [OUT]

Coverage: queries with a hidden quality, a precision of ten documents and a right or wrong answer that both depend on
it; how many 95 % bootstrap intervals of tau-b and rho hold the value of the whole population. False findings: four
retrievers of equal quality over the same queries; in how many data sets at least one of the six comparisons has an
adjusted p of at most .05. For each number of queries and share of right answers 2,000 data sets. Writes
OUT/certainty.md.
"""

import itertools
import pathlib
import sys

import numpy as np
import numpy.typing as npt
from scipy import stats

from erag_ray.measures.agreement import STATISTICS, Family, agree, resample_weights

SIZES = (60, 300, 3000)
RATES = (0.05, 0.2, 0.5)
NUM_SETS = 2000
NUM_RESAMPLES = 1000
NUM_DOCUMENTS = 10
CORRELATION = 0.6
POPULATION = 2_000_000
ALPHA = 0.05
Floats = npt.NDArray[np.float64]


def labels_and_utility(generator: np.random.Generator, count: int, rate: float) -> tuple[Floats, Floats]:
    """P@10 of a list and whether the answer is right, for so many queries."""
    quality = generator.standard_normal(count)
    precision = generator.binomial(NUM_DOCUMENTS, stats.norm.cdf(quality - 1)) / NUM_DOCUMENTS
    noise = generator.standard_normal(count) * np.sqrt(1 - CORRELATION**2)
    right = CORRELATION * quality + noise > stats.norm.ppf(1 - rate)
    return precision, right.astype(np.float64)


def coverage(count: int, rate: float, statistic: str, truth: float) -> tuple[int, int]:
    """How many intervals hold the truth, and how many there are."""
    held = given = 0
    for number in range(NUM_SETS):
        x, y = labels_and_utility(np.random.default_rng([count, int(100 * rate), number]), count, rate)
        found = agree(x, y, statistic, resample_weights(count, NUM_RESAMPLES, seed=number))
        if found.low is not None and found.high is not None:
            given += 1
            held += found.low <= truth <= found.high
    return held, given


def equal_runs(generator: np.random.Generator, count: int, rate: float, num_runs: int = 4) -> Floats:
    """Whether each of several equally good runs has each query right: [count, num_runs]."""
    difficulty = generator.standard_normal((count, 1))
    own = generator.standard_normal((count, num_runs))
    return (np.sqrt(0.5) * (difficulty + own) > stats.norm.ppf(1 - rate)).astype(np.float64)


def false_findings(count: int, rate: float) -> int:
    """In how many data sets a comparison of equal runs comes out as real."""
    pairs = list(itertools.combinations(range(4), 2))
    found = 0
    for number in range(NUM_SETS):
        runs = equal_runs(np.random.default_rng([1, count, int(100 * rate), number]), count, rate)
        family = Family()
        for a, b in pairs:
            family.add(runs[:, a] - runs[:, b])
        found += any(one.p_adjusted <= ALPHA for one in family.adjusted(ALPHA))
    return found


def share(part: int, whole: int) -> str:
    """A share with its 95 % interval (Wilson)."""
    if not whole:
        return "-"
    low, high = stats.binomtest(part, whole).proportion_ci(method="wilson")
    return f"{part / whole:.1%} [{low:.1%}, {high:.1%}]"


def main(out: pathlib.Path) -> None:
    names = [
        "queries",
        "right answers",
        *(f"{name}: covered | no interval" for name in STATISTICS),
        "false findings",
    ]
    lines = [f"| {' | '.join(names)} |", "|---" * (3 + 2 * len(STATISTICS)) + "|"]
    for rate in RATES:
        population = labels_and_utility(np.random.default_rng(0), POPULATION, rate)
        truths = {name: agree(*population, name).value for name in STATISTICS}
        for count in SIZES:
            cells = [f"{count:,}", f"{rate:.0%}"]
            for name, truth in truths.items():
                held, given = coverage(count, rate, name, truth or 0.0)
                cells += [share(held, given), f"{1 - given / NUM_SETS:.1%}"]
            lines.append(f"| {' | '.join([*cells, share(false_findings(count, rate), NUM_SETS)])} |")
            print(lines[-1], flush=True)
            out.mkdir(parents=True, exist_ok=True)
            (out / "certainty.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "results/certainty"))
