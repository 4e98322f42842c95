"""How often is the gate wrong? On simulated scores, where the true difference is known.

    python notebooks/gate.py [OUT]

Answers of a baseline and a candidate to the same questions are right or wrong, by two correlated normal variables that
are cut so that the baseline has 40 % right, and the candidate as much more or less as the true difference says. At a
true difference of exactly minus the margin "passed" is a wrong pass and "failed" a false alarm, both with a nominal
5 %. The last columns are of equal sides, where "passed" is right. For each number of questions and correlation 3,000
data sets. Writes OUT/gate.md.
"""

import functools
import pathlib
import sys
from collections import Counter

import numpy as np
from scipy import stats

from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.gate.decide import decide

SIZES = (50, 200, 600)
CORRELATIONS = (0.3, 0.8, 0.98)
RATE = 0.4
MARGIN = 0.02
NUM_SETS = 3000


@functools.cache
def verdict(count: int, won: int, lost: int) -> str:
    """The gate's verdict on so many questions, some of them won and some lost: their order plays no role."""
    differences = np.repeat([1.0, -1.0, 0.0], [won, lost, count - won - lost])
    return decide({"all": differences}, GateConfig(margin=MARGIN))["all"].verdict


def shares_that_differ(correlation: float, difference: float) -> tuple[float, float]:
    """The probabilities that a question is won, and that it is lost."""
    cuts = stats.norm.ppf([RATE, RATE + difference])
    both = stats.multivariate_normal.cdf(cuts, cov=[[1, correlation], [correlation, 1]])
    return float(RATE + difference - both), float(RATE - both)


def verdicts(count: int, correlation: float, difference: float) -> Counter[str]:
    """How many data sets of a true difference get each verdict."""
    won, lost = shares_that_differ(correlation, difference)
    generator = np.random.default_rng([count, int(100 * correlation), int(1000 * abs(difference))])
    drawn = generator.multinomial(count, [won, lost, 1 - won - lost], size=NUM_SETS)
    return Counter(verdict(count, int(row[0]), int(row[1])) for row in drawn)


def share(part: int) -> str:
    """A share of the data sets with its 95 % interval (Wilson)."""
    low, high = stats.binomtest(part, NUM_SETS).proportion_ci(method="wilson")
    return f"{part / NUM_SETS:.1%} [{low:.1%}, {high:.1%}]"


def main(out: pathlib.Path) -> None:
    names = (
        "questions",
        "correlation",
        "that differ",
        "wrong passes",
        "false alarms",
        "equal sides: passed",
        "failed",
    )
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for correlation in CORRELATIONS:
        for count in SIZES:
            at_margin, equal = (verdicts(count, correlation, difference) for difference in (-MARGIN, 0.0))
            cells = [
                f"{count:,}",
                f"{correlation:g}",
                f"{sum(shares_that_differ(correlation, -MARGIN)):.1%}",
                *(share(at_margin[name]) for name in ("passed", "failed")),
                *(f"{equal[name] / NUM_SETS:.1%}" for name in ("passed", "failed")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gate.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "results/gate_simulation"))
