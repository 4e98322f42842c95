"""How often does a verdict say what is not so? On simulated worlds, where the truth is known.

    python notebooks/verdicts.py [OUT]

Runs answer the same questions right or wrong; both depend on a difficulty that the runs share, and each run has a
known share of right answers. A statement is false if it calls a run worse that is as good as the one that leads, or
better, at that depth. *wrong*: the share of worlds with a false statement in the verdict, or any two runs of a family
that differ significantly the wrong way round. *missed*: the share of plain intervals without the true difference.
*settled*: the share of truly different pairs with the first run that are significant; for two runs beside the exact
power of one sign test.
Writes OUT/family.md, the family-wise error of equal runs, and OUT/verdicts.md.
"""

import itertools
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from erag_ray.analyses.columns import by_dataset
from erag_ray.analyses.comparisons import COMPARISONS, comparisons
from erag_ray.analyses.contract import Results
from erag_ray.analyses.means import MEANS, means
from erag_ray.analyses.settings import Settings
from erag_ray.analyses.standing import Standing, standing
from erag_ray.measures.agreement import Family
from erag_ray.store.schemas import QUERIES, UTILITY

SIZES = ((2, 10), (2, 100), (2, 1000), (10, 30), (10, 300), (34, 100), (34, 3000), (200, 50), (200, 300))
"""Numbers of runs and of questions."""
FAMILIES = (
    (2, 100, 4000, 0),
    (2, 1000, 4000, 0),
    (10, 300, 2000, 0),
    (34, 100, 500, 0),
    (34, 1000, 500, 0),
    (34, 1000, 300, 10),
    (200, 60, 100, 0),
    (200, 300, 100, 0),
)
"""Numbers of equal runs, questions, sets, and runs that are copies of another one."""
KINDS = ("equal", "near", "far", "silent", "identical", "depths", "missing")
RATE = 0.4
ALPHA = 0.05
Floats = npt.NDArray[np.float64]
Answers = Mapping[tuple[str, int], Floats]
"""(run, depth) -> right answers, NaN where one is missing."""
Rates = Mapping[tuple[str, int], float]


class World(NamedTuple):
    """Answers, and the true share of right answers of each run and depth."""

    answers: Answers
    rates: Rates


def world(kind: str, num_runs: int, count: int, seed: int) -> World:
    """Simulate the answers of all runs to the same questions."""
    generator = np.random.default_rng([KINDS.index(kind), num_runs, count, seed])
    names = [f"run{number:03}" for number in generator.permutation(num_runs)]
    difficulty = generator.standard_normal(count)
    answers, rates = {}, {}
    for number, name in enumerate(names):
        for depth in (1, 4) if kind == "depths" else (1,):
            rate = _rate(kind, number, num_runs, depth)
            noise = generator.standard_normal(count)
            if kind == "identical" and number % 2:
                answers[name, depth] = answers[names[number - 1], depth]
            elif kind == "depths" and depth == 1 and number:
                answers[name, depth] = answers[names[0], depth]
            else:
                right = np.sqrt(0.5) * (difficulty + noise) > stats.norm.ppf(1 - rate)
                answers[name, depth] = right.astype(np.float64)
            rates[name, depth] = rate
            if kind == "missing":
                answers[name, depth][generator.random(count) < 0.2] = np.nan
    return World(answers, rates)


def _rate(kind: str, number: int, num_runs: int, depth: int) -> float:
    share = number / max(1, num_runs - 1)
    if kind == "near" or (kind == "depths" and depth == 4):
        return RATE - 0.05 * share
    if kind == "far":
        return 0.7 - 0.5 * share
    return 0.0 if kind == "silent" and number % 2 else RATE


def results_of(answers: Answers) -> Results:
    """Return the tables of a job with these answers."""
    count = len(next(iter(answers.values())))
    ids = [f"q{number}" for number in range(count)]
    empty = {"reader": "r", "score": "exact_match"}
    parts = [
        pl.DataFrame({**empty, "run_id": run, "query_id": ids, "depth": depth, "value": values})
        for (run, depth), values in answers.items()
    ]
    utility = pl.concat(parts).with_columns(pl.col("value").fill_nan(None))
    schema = UTILITY.empty().schema
    questions = {"question": "?", "answers": [["a"]] * count, "dataset": "d", "score": "exact_match"}
    queries = pl.DataFrame({"query_id": ids, **questions}).select(QUERIES.columns.names)
    settings = Settings(
        depths=sorted({depth for _, depth in answers}),
        measures=None,
        cutoffs=(),
        threshold=None,
        statistics=(),
        num_resamples=2,
        confidence=1 - ALPHA,
        num_permutations=2,
        seed=0,
    )
    (dataset,) = by_dataset([], utility.cast(schema).select(schema.names()), queries, settings)  # type: ignore[arg-type]
    tables = {"means": means(dataset, settings), "comparisons": comparisons(dataset, settings)}
    return Results(tables=tables, configs={"means": {"confidence": 1 - ALPHA}})


def false_statements(ranked: Standing, rates: Rates) -> Iterator[str]:
    """Yield what a verdict says of the run that leads and is not so."""
    first = ranked.runs[0]
    for rival in ranked.rivals:
        for depth in ranked.depths:
            one = ranked.pairs.between(first, rival.run, depth)
            true = rates[first, depth] - rates[rival.run, depth]
            if one is not None and one.is_significant and one.points * true <= 0:
                yield f"{first} against {rival.run} with {depth}"


class Counts(NamedTuple):
    """What one world shows."""

    is_wrong: bool
    num_missed: int
    num_pairs: int
    num_settled: int
    num_different: int


def counts_of(simulated: World) -> Counts:
    """Evaluate a world and compare its verdict with the truth."""
    results = results_of(simulated.answers)
    ranked = standing(results[MEANS], results[COMPARISONS], "d", ALPHA)
    if ranked is None:
        raise ValueError("there are no scores")
    rows = results[COMPARISONS].drop_nulls("p_value")
    a, b = (
        np.array([simulated.rates[key] for key in rows.select(name, "depth").iter_rows()])
        for name in ("run_a", "run_b")
    )
    true, is_significant = a - b, rows["p_adjusted"].to_numpy() <= ALPHA
    is_false = is_significant & (np.sign(rows["difference"].to_numpy()) * true <= 0)
    is_missed = (rows["low"].to_numpy() > true + 1e-9) | (rows["high"].to_numpy() < true - 1e-9)
    return Counts(
        is_wrong=bool(is_false.any()) or any(false_statements(ranked, simulated.rates)),
        num_missed=int(is_missed.sum()),
        num_pairs=len(true),
        num_settled=int((is_significant & (true != 0)).sum()),
        num_different=int((true != 0).sum()),
    )


def exact_power(kind: str, count: int) -> float | None:
    """Return the power of one exact sign test of two runs; None if they are equally good."""
    a, b = (_rate(kind, number, 2, 1) for number in (0, 1))
    if a == b or kind == "depths":
        return None
    cuts = stats.norm.ppf([a, b]) if b else np.array([stats.norm.ppf(a), -40.0])
    both = stats.multivariate_normal.cdf(cuts, cov=[[1, 0.5], [0.5, 1]])
    won, lost = a - both, b - both
    differ = won + lost
    power = 0.0
    for num in range(1, count + 1):
        wins = np.arange(num + 1)
        tail = 2 * stats.binom.cdf(np.minimum(wins, num - wins), num, 0.5)
        found = stats.binom.pmf(wins, num, won / differ)[tail <= ALPHA].sum()
        power += stats.binom.pmf(num, count, differ) * found
    return float(power)


def row_of(kind: str, num_runs: int, count: int, num_worlds: int) -> list[str]:
    """Return the cells of one kind of world and size."""
    every = [counts_of(world(kind, num_runs, count, seed)) for seed in range(num_worlds)]
    wrong = sum(one.is_wrong for one in every)
    low, high = stats.binomtest(wrong, num_worlds).proportion_ci(method="wilson")
    num_pairs, num_different = (sum(one[at] for one in every) for at in (2, 4))
    missed = sum(one.num_missed for one in every) / num_pairs if num_pairs else 0.0
    settled = f"{sum(one.num_settled for one in every) / num_different:.1%}" if num_different else "-"
    power = exact_power(kind, count) if num_runs == 2 else None
    return [
        kind,
        f"{num_runs}",
        f"{count:,}",
        f"{num_worlds:,}",
        f"{wrong / num_worlds:.1%} [{low:.1%}, {high:.1%}]",
        f"{missed:.1%}",
        settled if power is None else f"{settled} ({power:.1%})",
    ]


def family_wise_error(num_runs: int, count: int, num_sets: int, num_copies: int = 0) -> int:
    """Return in how many sets of equal runs, some of them copies, any two differ significantly."""
    wrong = 0
    for seed in range(num_sets):
        generator = np.random.default_rng([num_runs, count, seed])
        cut = generator.standard_normal((count, 1)) - stats.norm.ppf(1 - RATE) * np.sqrt(2)
        runs = (generator.standard_normal((count, num_runs)) < cut).astype(np.float64)
        runs[:, :num_copies] = runs[:, -1:]
        family = Family()
        for a, b in itertools.combinations(range(num_runs), 2):
            family.add(runs[:, a] - runs[:, b])
        wrong += any(one.p_adjusted <= ALPHA for one in family.adjusted(ALPHA))
    return wrong


def num_worlds_of(num_runs: int, count: int) -> int:
    """Return how many worlds of a size are simulated: fewer where one takes long."""
    return int(np.clip(400_000 / (num_runs**2 * max(count, 100) / 25), 6, 500))


def write_errors(out: pathlib.Path) -> None:
    """Write the family-wise error of equal runs to OUT/family.md."""
    lines = ["| runs | questions | copies | sets | any two differ |", "|---|---|---|---|---|"]
    for num_runs, count, num_sets, num_copies in FAMILIES:
        wrong = family_wise_error(num_runs, count, num_sets, num_copies)
        low, high = stats.binomtest(wrong, num_sets).proportion_ci(method="wilson")
        share = f"{wrong / num_sets:.1%} [{low:.1%}, {high:.1%}]"
        lines.append(f"| {num_runs} | {count:,} | {num_copies} | {num_sets:,} | {share} |")
        print(lines[-1], flush=True)
        (out / "family.md").write_text("\n".join(lines) + "\n")


def main(out: pathlib.Path) -> None:
    names = ["world", "runs", "questions", "worlds", "wrong", "missed", "settled (exact power)"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    out.mkdir(parents=True, exist_ok=True)
    write_errors(out)
    for num_runs, count in SIZES:
        for kind in KINDS:
            lines.append(f"| {' | '.join(row_of(kind, num_runs, count, num_worlds_of(num_runs, count)))} |")
            print(lines[-1], flush=True)
            (out / "verdicts.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "results/verdicts"))
