"""How much does an auxiliary label save, and do the intervals hold? Sampling simulated on labels that are all known.

    python notebooks/prediction_powered.py [OUT] [--labels FOLDER:AUXILIARY:DEPTH ...]

Generated labels: three runs of ten documents a question, two in five of them shared, right or wrong, and an auxiliary
label of a given correlation. Each FOLDER is the out of a finished jobs/annotate.py or jobs/compare.py with three runs;
its questions are drawn anew, with replacement. OUT/prediction_powered.md then holds:

- Coverage: how many 95 % intervals of a difference in P@10 hold the true one, with the auxiliary label, over 2,000 data
  sets, and the half-width of the intervals relative to that without it.
- Winner: three runs, five looks, Holm over the three pairs: how often a run is named the best, how often a wrong one,
  and the share of all documents that was read by then, with and without the auxiliary label, and with all documents.
- Questions: the same as Coverage where all documents of a sample of the questions are read (reader_queries).
"""

import argparse
import dataclasses
import itertools
import pathlib

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from erag_ray.extras.prediction_powered import LabelSample, estimate_all, powered_values
from erag_ray.extras.sequential_test.design import importance, probabilities, rank_weights
from erag_ray.extras.sequential_test.looks import largest_divisor, rejected
from erag_ray.measures.agreement import mean_intervals, resample_weights

CORRELATIONS = (0.0, 0.3, 0.6, 0.8)
FRACTIONS = (0.1, 0.2, 0.5)
SIZES = (200, 500)
SAMPLES = ((500, 50), (1000, 100), (1000, 300))
"""Questions in all, and those that are read."""
NUM_SETS = 2000
NUM_WINNERS = 200
NUM_LOOKS = 5
NUM_RESAMPLES = 500
DEPTH = 10
SHARED = 4
LEVELS = (0.30, 0.25, 0.20)
"""Mean share of useful documents of the three runs."""
Floats = npt.NDArray[np.float64]
PAIRS = tuple(itertools.combinations(range(3), 2))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """Documents of all questions: [num_documents], ranks [num_documents, 3]; ordered by question."""

    questions: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    labels: Floats
    auxiliary: Floats

    @property
    def num_questions(self) -> int:
        """How many there are."""
        return int(self.questions[-1]) + 1


def generated(generator: np.random.Generator, num_questions: int, correlation: float) -> Data:
    """Draw labels: of each question the last four documents are in all lists, the others in one.

    Documents of hard questions and of low ranks are useful less often.
    """
    own = DEPTH - SHARED
    ranks = np.zeros((3 * own + SHARED, 3), np.int64)
    for run in range(3):
        ranks[run * own : (run + 1) * own, run] = np.arange(1, own + 1)
    ranks[3 * own :] = np.arange(own + 1, DEPTH + 1)[:, None]
    rates = np.r_[np.repeat(LEVELS, own), np.full(SHARED, np.mean(LEVELS))]
    ease = generator.uniform(0.3, 1.7, num_questions)
    chances = np.clip(np.outer(ease, rates), 0.0, 1.0).ravel()
    labels = (generator.random(len(chances)) < chances).astype(np.float64)
    return Data(
        questions=np.repeat(np.arange(num_questions), len(rates)),
        ranks=np.tile(ranks, (num_questions, 1)),
        labels=labels,
        auxiliary=auxiliary_of(generator, labels, correlation),
    )


def auxiliary_of(generator: np.random.Generator, labels: Floats, correlation: float) -> Floats:
    """Draw right-or-wrong auxiliary labels of a correlation, as many of them 1 as labels are."""
    mean = labels.mean()
    copied = generator.random(len(labels)) < correlation
    return np.where(copied, labels, generator.random(len(labels)) < mean).astype(np.float64)


def truth(pair: tuple[int, int]) -> float:
    """Return the expected difference of two runs in P@10 of `generated`."""
    return (LEVELS[pair[0]] - LEVELS[pair[1]]) * (DEPTH - SHARED) / DEPTH


def loaded(folder: str, auxiliary: str, depth: int) -> Data:
    """Return the labels of a finished job with three runs, cut to a depth."""
    labels = pl.read_parquet(f"{folder}/labels/*.parquet")
    runs = pl.read_parquet(f"{folder}/runs/*.parquet").filter(pl.col("rank") <= depth)
    names = runs["run_id"].unique().sort().to_list()
    ranks = runs.pivot(on="run_id", index=["query_id", "doc_id"], values="rank").fill_null(0)
    for annotator in ("erag", auxiliary):
        column = labels.filter(annotator=annotator).select(
            "query_id", "doc_id", pl.col("label").alias(annotator)
        )
        ranks = ranks.join(column, on=["query_id", "doc_id"], how="left")
    pairs = ranks.filter(pl.col(auxiliary).is_not_null().any().over("query_id")).sort("query_id", "doc_id")
    return Data(
        questions=pairs["query_id"].rank("dense").cast(pl.Int64).to_numpy() - 1,
        ranks=pairs.select(names).to_numpy().astype(np.int64),
        labels=pairs["erag"].to_numpy(),
        auxiliary=pairs[auxiliary].fill_null(0.0).to_numpy(),
    )


def resampled(generator: np.random.Generator, data: Data, num_questions: int) -> Data:
    """Draw questions with replacement."""
    starts = np.searchsorted(data.questions, np.arange(data.num_questions + 1))
    drawn = generator.integers(data.num_questions, size=num_questions)
    sizes = starts[drawn + 1] - starts[drawn]
    rows = np.concatenate([np.arange(starts[one], starts[one + 1]) for one in drawn])
    return Data(
        questions=np.repeat(np.arange(num_questions), sizes),
        ranks=data.ranks[rows],
        labels=data.labels[rows],
        auxiliary=data.auxiliary[rows],
    )


def estimates(
    data: Data, weights: Floats, chances: Floats, is_read: npt.NDArray[np.bool_], count: int
) -> tuple[Floats, Floats]:
    """Return differences of the first questions with the auxiliary label, and without: each [count]."""
    rows = data.questions < count
    sample = LabelSample(
        questions=data.questions[rows],
        weights=weights[rows],
        probabilities=chances[rows],
        is_read=is_read[rows],
        labels=data.labels[rows],
        auxiliary=data.auxiliary[rows],
    )
    values = powered_values(sample, count)
    return values.values, values.from_labels


def sampled(
    generator: np.random.Generator, data: Data, fraction: float, depth: int
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return probabilities and whether each document is read, for all pairs of runs."""
    weights = importance(rank_weights("P", data.ranks, depth))
    chances = probabilities(weights, fraction * len(weights))
    return chances, generator.random(len(chances)) < chances


def coverage(
    num_questions: int, correlation: float, fraction: float, num_sets: int = NUM_SETS
) -> tuple[float, float]:
    """Return the share of 95 % intervals that hold the truth, and their half-width relative to none."""
    generator = np.random.default_rng([num_questions, int(100 * correlation), int(100 * fraction)])
    hits, widths = 0, np.zeros(2)
    for _ in range(num_sets):
        data = generated(generator, num_questions, correlation)
        weights = rank_weights("P", data.ranks, DEPTH)
        chances, is_read = sampled(generator, data, fraction, DEPTH)
        both = estimates(data, weights[:, 0] - weights[:, 1], chances, is_read, num_questions)
        errors = np.array([stats.sem(values) for values in both])
        widths += errors
        half = stats.t.isf(0.025, num_questions - 1) * errors[0]
        hits += bool(abs(both[0].mean() - truth((0, 1))) <= half)
    return hits / num_sets, float(widths[0] / widths[1])


def question_coverage(
    num_questions: int, num_read: int, correlation: float, num_sets: int = NUM_SETS
) -> tuple[float, float]:
    """Return what `coverage` does, where a sample of the questions is read and all others are predicted."""
    generator = np.random.default_rng([num_questions, num_read, int(100 * correlation)])
    hits, widths = 0, np.zeros(2)
    for number in range(num_sets):
        data = generated(generator, num_questions, correlation)
        is_read = generator.permutation(num_questions) < num_read
        read, cheap = (measured(data, labels) for labels in (data.labels, data.auxiliary))
        read[~is_read] = np.nan
        powered = [estimate_all(read[:, run], cheap[:, run]).values for run in (0, 1)]
        columns = np.stack([powered[0] - powered[1], read[:, 0] - read[:, 1]], axis=1)
        draws = resample_weights(num_questions, NUM_RESAMPLES, number)
        (_, low, high), (_, lowest, highest) = mean_intervals(columns, draws)
        widths += high - low, highest - lowest
        hits += bool(low <= truth((0, 1)) <= high)
    return hits / num_sets, float(widths[0] / widths[1])


def measured(data: Data, labels: Floats) -> Floats:
    """Return P@10 of each question and run, [num_questions, 3]."""
    weights = rank_weights("P", data.ranks, DEPTH)
    return np.stack([np.bincount(data.questions, labels * column) for column in weights.T], axis=1)


def winner(
    generator: np.random.Generator, data: Data, fraction: float, depth: int, *, is_powered: bool
) -> tuple[int | None, float]:
    """Return the run that is named the best (None: none is), and the share of all documents read by then."""
    chances, is_read = sampled(generator, data, fraction, depth)
    weights = rank_weights("P", data.ranks, depth)
    counts = np.linspace(0, data.num_questions, NUM_LOOKS + 1).round().astype(int)[1:].tolist()
    divisors, signs = np.zeros(3, np.int64), np.zeros(3)
    for number, count in enumerate(counts, start=1):
        for index, (a, b) in enumerate(PAIRS):
            both = estimates(data, weights[:, a] - weights[:, b], chances, is_read, count)
            values = both[0 if is_powered else 1]
            divisor = largest_divisor(values, counts, number, "even", 0.05, 3, both[1] != 0)
            if divisor > divisors[index]:
                divisors[index], signs[index] = divisor, np.sign(values.mean())
        beaten = {
            pair[1 if sign > 0 else 0]
            for pair, sign, is_different in zip(PAIRS, signs, rejected(divisors), strict=True)
            if is_different
        }
        if len(beaten) == 2:
            break
    share = float(is_read[data.questions < count].sum() / len(is_read))
    return ({0, 1, 2} - beaten).pop() if len(beaten) == 2 else None, share


def winners(draw: object, best: int, fraction: float, depth: int, is_powered: bool, num_sets: int) -> str:
    """Return how often a run and how often a wrong run is named, and the mean share of documents read."""
    generator = np.random.default_rng([int(100 * fraction), best])
    ended = [
        winner(generator, draw(generator), fraction, depth, is_powered=is_powered)  # type: ignore[operator]
        for _ in range(num_sets)
    ]
    named = np.mean([run is not None for run, _ in ended])
    wrong = np.mean([run is not None and run != best for run, _ in ended])
    return f"{named:.1%} / {wrong:.1%} / {np.mean([share for _, share in ended]):.1%}"


def table(head: str) -> list[str]:
    """The head of a Markdown table."""
    return ["", f"| {head} |", "|---" * (head.count("|") + 1) + "|"]


def main(out: pathlib.Path, folders: list[str], num_sets: int, num_winners: int) -> None:
    lines: list[str] = []

    def write(*new: str) -> None:
        lines.extend(new)
        print(*new, sep="\n", flush=True)
        out.mkdir(parents=True, exist_ok=True)
        (out / "prediction_powered.md").write_text("\n".join(lines) + "\n")

    ways = [(1.0, False), *((fraction, way) for fraction in (0.1, 0.2) for way in (False, True))]
    names = ["all documents"]
    names += [f"{fraction:.0%}{', auxiliary' if way else ''}" for fraction, way in ways[1:]]
    write(*table(f"data | correlation | {' | '.join(names)} (named / wrong / read)"))
    for correlation in CORRELATIONS:
        cells = [
            winners(
                lambda one, c=correlation: generated(one, 500, c), 0, *way[:1], DEPTH, way[1], num_winners
            )
            for way in ways
        ]
        write(f"| generated, 500 questions | {correlation:g} | {' | '.join(cells)} |")
    for folder, auxiliary, depth in (name.rsplit(":", 2) for name in folders):
        data = loaded(folder, auxiliary, int(depth))
        best = int((data.labels @ rank_weights("P", data.ranks, int(depth))).argmax())
        size = data.num_questions
        cells = [
            winners(
                lambda one, d=data: resampled(one, d, d.num_questions),
                best,
                fraction,
                int(depth),
                way,
                num_winners,
            )
            for fraction, way in ways
        ]
        correlation = np.corrcoef(data.labels, data.auxiliary)[0, 1]
        write(
            f"| {pathlib.Path(folder).name}, {size} questions, {auxiliary} | {correlation:.2f} | {' | '.join(cells)} |"
        )
    write(*table("questions | correlation | fraction | covered | half-width"))
    for size, correlation, fraction in itertools.product(SIZES, CORRELATIONS, FRACTIONS):
        covered, width = coverage(size, correlation, fraction, num_sets)
        write(f"| {size} | {correlation:g} | {fraction:.0%} | {covered:.1%} | {width:.2f} |")
    write(*table("questions | read | correlation | covered | width"))
    for (size, num_read), correlation in itertools.product(SAMPLES, CORRELATIONS):
        covered, width = question_coverage(size, num_read, correlation, num_sets)
        write(f"| {size} | {num_read} | {correlation:g} | {covered:.1%} | {width:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "out", nargs="?", type=pathlib.Path, default=pathlib.Path("results/prediction_powered")
    )
    parser.add_argument("--labels", nargs="*", default=[], metavar="FOLDER:AUXILIARY:DEPTH")
    parser.add_argument("--num_sets", type=int, default=NUM_SETS)
    parser.add_argument("--num_winners", type=int, default=NUM_WINNERS)
    arguments = parser.parse_args()
    main(arguments.out, arguments.labels, arguments.num_sets, arguments.num_winners)
