"""How far can one get with fewer readings? Sampling simulated on labels that were all read.

    python notebooks/fewer_readings.py [OUT] --labels FOLDER:DEPTH [FOLDER:DEPTH ...]

Each FOLDER is the --out of a finished jobs/annotate.py or jobs/compare.py. Its runs are cut to DEPTH, and so are the
measures. From the labels 200 samples are drawn for each share of the pairs. OUT/fewer_readings.md then holds:

- Means and differences: how far the estimates lie from what all readings give on the same queries, beside two ways to
  save as many readings: all documents of so many queries, and the top ranks of all (the rest taken as not relevant).
  Covered: how many 95 % intervals hold the value of the population, queries drawn from it anew.
- Settled: 2,000 orders of as many queries, drawn anew, looked at ten times; how many of all readings it took, how often
  a run was called better, and how often the last interval missed the population's difference. Then the same for
  lists that are swapped at random, so no run is better: how often one was called so.
"""

import argparse
import dataclasses
import itertools
import pathlib

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from erag_ray.extras.sequential_test.design import RANK_WEIGHTS, importance, probabilities, rank_weights
from erag_ray.extras.sequential_test.looks import BOUNDARIES, critical_values, look

SHARES = (0.1, 0.2, 0.3, 0.5, 0.7)
NUM_SETS = 200
NUM_ORDERS = 2000
NUM_LOOKS = 10
STOPPING_SHARES = (0.2, 0.5, 1.0)
NEGLIGIBLE = 0.02
"""Of the largest value that a measure can have."""
NAIVE = "t-test"
WAYS = (*BOUNDARIES, NAIVE)
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """The pairs of a finished job and where they stand in its runs' lists."""

    name: str
    depth: int
    queries: Rows
    """[num_pairs], the query's number."""
    labels: Floats
    """[num_pairs + 1]; the last is no pair: it stands behind the end of a list."""
    ranks: Rows
    """[num_pairs, num_runs], 0 where a run lacks the document."""
    lists: dict[str, Rows]
    """run -> [num_queries, depth], numbers of pairs."""

    @property
    def num_queries(self) -> int:
        """How many there are."""
        return int(self.queries.max()) + 1


def load(folder: str, depth: int) -> Data:
    """The labels of eRAG in a job's folder."""
    labels = pl.read_parquet(f"{folder}/labels/*.parquet")
    runs = pl.read_parquet(f"{folder}/runs/*.parquet").filter(pl.col("rank") <= depth)
    names = runs["run_id"].unique().sort().to_list()
    places = runs.pivot(on="run_id", index=["query_id", "doc_id"], values="rank").fill_null(0)
    known = labels.filter(annotator="erag").select("query_id", "doc_id", "label").drop_nulls()
    pairs = (
        places.join(known, on=["query_id", "doc_id"])
        .sort("query_id", "doc_id")
        .with_columns(query=pl.col("query_id").rank("dense").cast(pl.Int64) - 1)
    )
    queries, ranks = pairs["query"].to_numpy(), pairs.select(names).to_numpy().astype(np.int64)
    count, nothing = int(queries.max()) + 1, pairs.height
    lists = {name: np.full((count, depth), nothing) for name in names}
    for column, name in enumerate(names):
        found = np.flatnonzero(ranks[:, column])
        lists[name][queries[found], ranks[found, column] - 1] = found
    return Data(
        name=f"{pathlib.Path(folder).name}, {count} queries, depth {depth}",
        depth=depth,
        queries=queries,
        labels=np.append(pairs["label"].to_numpy(), 0.0),
        ranks=ranks,
        lists=lists,
    )


def draw(data: Data, chances: Floats, generator: np.random.Generator, count: int) -> Floats:
    """Weights of all pairs in so many samples: [count, num_pairs + 1]."""
    drawn = generator.random((count, len(chances))) < chances
    weights = np.divide(drawn, chances, out=np.zeros(drawn.shape), where=chances > 0)
    return np.append(weights, np.zeros((count, 1)), axis=1)


def values(data: Data, measure: str, run: str, weights: Floats) -> Floats:
    """Estimates of each query in each sample: [num_samples, num_queries]."""
    of_ranks = RANK_WEIGHTS[measure](data.depth)
    return np.stack([(sample * data.labels)[data.lists[run]] @ of_ranks for sample in weights])


def of_runs(data: Data, measure: str, weights: Floats) -> Floats:
    """The same of all runs: [num_samples, num_queries, num_runs]."""
    return np.stack([values(data, measure, run, weights) for run in data.lists], axis=-1)


def read_of(data: Data, measure: str, read: npt.NDArray[np.bool_]) -> Floats:
    """Each query's values if these pairs were read and all others are not relevant: [num_queries, num_runs]."""
    every: Floats = of_runs(data, measure, np.append(read, False).astype(np.float64)[None])[0]
    return every


def covered(found: Floats, wanted: Floats, generator: np.random.Generator) -> str:
    """Share of intervals that hold the truth, for queries drawn anew, each with a sample of its own.

    Args:
        found: [num_samples, num_queries, num_columns].
        wanted: [num_columns].
        generator: draws the queries.
    """
    rows, columns = (generator.integers(size, size=found.shape[:2]) for size in found.shape[:2])
    drawn = found[rows, columns]
    half = stats.t.isf(0.025, drawn.shape[1] - 1) * stats.sem(drawn, axis=1)
    return f"{(np.abs(drawn.mean(axis=1) - wanted) <= half).mean():.1%}"


def error(found: Floats, wanted: Floats) -> str:
    """Root of the mean square of [num_samples, ...] against what all readings give."""
    return f"{np.sqrt(((found - wanted) ** 2).mean()):.4f}"


def against(means: Floats) -> Floats:
    """Differences of all pairs of runs: [..., num_runs] -> [..., num_pairs]."""
    pairs = itertools.combinations(range(means.shape[-1]), 2)
    return np.stack([means[..., a] - means[..., b] for a, b in pairs], axis=-1)


def same_order(means: Floats, wanted: Floats) -> str:
    """Mean of Kendall's tau between the runs' order in each sample and by all readings."""
    found = [stats.kendalltau(row, wanted).statistic for row in means]
    return f"{np.nan_to_num(found).mean():.2f}"


def best_ranks(data: Data, share: float) -> npt.NDArray[np.bool_]:
    """The pairs at the best ranks, as many as the share."""
    best = np.where(data.ranks > 0, data.ranks, data.depth + 1).min(axis=1)
    read = np.zeros(len(best), bool)
    read[np.argsort(best, kind="stable")[: round(share * len(best))]] = True
    return read


def measured(data: Data, measure: str, share: float) -> list[str]:
    """A line of the first table."""
    generator = np.random.default_rng([data.depth, int(share * 100), len(measure)])
    weigh = rank_weights(measure, data.ranks, data.depth).max(axis=1)
    weights = draw(data, probabilities(weigh, share * len(weigh)), generator, NUM_SETS)
    found, full = of_runs(data, measure, weights), read_of(data, measure, np.ones(len(weigh), bool))
    means, wanted = found.mean(axis=1), full.mean(axis=0)
    order = generator.random((NUM_SETS, data.num_queries)).argsort(axis=1)
    subset = full[order[:, : round(share * data.num_queries)]].mean(axis=1)
    shallow = read_of(data, measure, best_ranks(data, share)).mean(axis=0)
    pairs = itertools.combinations(range(len(data.lists)), 2)
    drawn = np.stack([differences(data, measure, pair, share)[0].mean(axis=1) for pair in pairs], axis=-1)
    return [
        f"{share:.0%}",
        f"{max(means.mean(axis=0) - wanted, key=abs):+.4f}",
        *(error(way, wanted) for way in (means, subset, shallow)),
        covered(found, wanted, generator),
        *(error(way, against(wanted)) for way in (against(means), drawn, against(subset), against(shallow))),
        covered(against(found), against(wanted), generator),
        *(same_order(way, wanted) for way in (means, subset)),
    ]


def differences(data: Data, measure: str, pair: tuple[int, int], share: float) -> tuple[Floats, Floats]:
    """Two runs' differences and the numbers of readings, each [num_samples, num_queries]; drawn for this difference."""
    ranks = data.ranks[:, pair]
    weigh = importance(rank_weights(measure, ranks, data.depth))
    chances = probabilities(weigh, share * (ranks > 0).any(axis=1).sum())
    weights = draw(data, chances, np.random.default_rng([*pair, int(share * 100)]), NUM_SETS)
    runs = [list(data.lists)[number] for number in pair]
    first, second = (values(data, measure, run, weights) for run in runs)
    starts = np.searchsorted(data.queries, np.arange(data.num_queries))
    return first - second, np.add.reduceat(weights[:, :-1] > 0, starts, axis=1, dtype=np.float64)


def settled(data: Data, measure: str, pair: tuple[int, int], share: float) -> list[str]:
    """A line of the second table: each way to look, and what it came to."""
    found, read = differences(data, measure, pair, share)
    full = read_of(data, measure, np.ones(len(data.queries), bool)).mean(axis=0)
    truth, whole = full[pair[0]] - full[pair[1]], (data.ranks[:, pair] > 0).any(axis=1).sum()
    generator = np.random.default_rng([7, *pair, int(share * 100)])
    rows, orders = (generator.integers(size, size=(NUM_ORDERS, data.num_queries)) for size in found.shape)
    flips = generator.choice([-1.0, 1.0], (NUM_ORDERS, data.num_queries))
    num_read = np.cumsum(read[rows, orders], axis=1) / whole
    cells = [stopped(data, measure, way, found[rows, orders], flips, num_read, truth) for way in WAYS]
    return [f"{truth:+.3f}", f"{share:.0%}", *cells]


def stopped(
    data: Data, measure: str, way: str, found: Floats, flips: Floats, num_read: Floats, truth: float
) -> str:
    """What one way to look came to: shares of readings, of orders settled and told, of missed and of false findings."""
    ends = np.unique(np.linspace(0, data.num_queries, NUM_LOOKS + 1).astype(int))
    counts = ends[ends >= 2].tolist()
    ordinary = np.full(len(counts), stats.norm.isf(0.025))
    critical = ordinary if way == NAIVE else critical_values(way, counts, 0.05)
    seen, equal = (look(part, counts, critical) for part in (found, found * flips))
    most = (1 / np.log2(np.arange(2, data.depth + 2))).sum() if measure == "DCG" else 1.0
    at, at_equal = (stop(part.is_settled(NEGLIGIBLE * most)) for part in (seen, equal))
    missed = (seen.lows[at] > truth) | (seen.highs[at] < truth)
    used = num_read[at[0], np.array(counts)[at[1]] - 1]
    shares = (
        used,
        seen.is_settled(NEGLIGIBLE * most)[at],
        seen.is_significant[at],
        missed,
        equal.is_significant[at_equal],
    )
    return " / ".join(f"{part.mean():.1%}" for part in shares)


def stop(is_settled: npt.NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """Where each order stops: at the first look that settles it, else at the last."""
    looks = np.where(is_settled.any(axis=-1), is_settled.argmax(axis=-1), is_settled.shape[-1] - 1)
    return np.arange(len(looks)), looks


def table(head: str) -> list[str]:
    """The head of a Markdown table."""
    return ["", f"| {head} |", "|---" * (head.count("|") + 1) + "|"]


def main(out: pathlib.Path, folders: list[str]) -> None:
    lines: list[str] = []

    def tell(*new: str) -> None:
        lines.extend(new)
        print(*new, sep="\n", flush=True)
        out.mkdir(parents=True, exist_ok=True)
        (out / "fewer_readings.md").write_text("\n".join(lines) + "\n")

    every = [load(folder, int(depth)) for folder, depth in (name.rsplit(":", 1) for name in folders)]
    errors = "sampled | fewer queries | top ranks | covered"
    paired = "difference: sampled | drawn for it | fewer queries | top ranks | covered"
    tell(*table(f"data | measure | read | bias | {errors} | {paired} | tau of runs | fewer queries"))
    for data, measure, share in itertools.product(every, RANK_WEIGHTS, SHARES):
        tell(f"| {' | '.join([data.name, measure, *measured(data, measure, share)])} |")
    ways = " | ".join(f"{way}: read / settled / told / missed / false" for way in WAYS)
    tell(*table(f"data | measure | runs | difference | of documents | {ways}"))
    for data, measure in itertools.product(every, RANK_WEIGHTS):
        for (a, first), (b, second) in itertools.combinations(enumerate(data.lists), 2):
            for share in STOPPING_SHARES:
                cells = [data.name, measure, f"{first} - {second}", *settled(data, measure, (a, b), share)]
                tell(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=pathlib.Path, default=pathlib.Path("results/fewer_readings"))
    parser.add_argument("--labels", nargs="+", required=True, metavar="FOLDER:DEPTH")
    arguments = parser.parse_args()
    main(arguments.out, arguments.labels)
