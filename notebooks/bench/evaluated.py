"""Evaluation, measured: labels and runs -> values per query, against its peers; and all of the paper's Table 1."""

import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.stats

from bench.config import BenchmarkConfig
from bench.synthetic_labels import Tables, tables
from bench.timing import Row, rounds, seconds_of, timed
from erag_ray.analyses.columns import DatasetColumns, by_dataset, measured_and_used, same_list
from erag_ray.analyses.comparisons import comparisons
from erag_ray.analyses.contract import eligible_questions
from erag_ray.analyses.contrasts import contrasts
from erag_ray.analyses.correlations import correlations
from erag_ray.analyses.lists.values import per_query_parts
from erag_ray.analyses.means import means
from erag_ray.analyses.settings import POOL, Settings

CUTOFFS = (5, 10, 20)
"""And the depth."""
TREC_EVAL = {"P": "P", "R": "recall", "AP": "map_cut", "nDCG": "ndcg_cut", "Success": "success"}
RANX = {"P": "precision", "R": "recall", "AP": "map", "RR": "mrr", "nDCG": "ndcg", "Success": "hit_rate"}
ANNOTATORS = ["erag", "contains_answer_dpr", "provenance", "llm_relevance"]
SCIPY = {"kendall_tau_b": scipy.stats.kendalltau, "spearman_rho": scipy.stats.spearmanr}
SMALL = 100
SHARES = (3, 3, 5, 6, 10)
"""Of all queries, for each dataset."""
Frame = Any
Values = dict[tuple[str, str, int], npt.NDArray[np.float64]]
"""(run, measure, cut-off) -> the values of all queries, in the order of QUERIES."""


def measures(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """From frames of labels and runs to six measures at four cut-offs of every list of so many queries.

    One recall base on all sides, the labelled documents (which is ours with ideal="pool"). In are: looking labels up by
    ids, or making dicts of dicts (in plain loops over the frame's columns, the fastest way found), and the values; ours
    are in the long table PER_QUERY. Out are: generating the frames, compiling (once, before the rounds), reading RR
    at a cut-off from trec_eval's reciprocal rank, which knows none, and pandas frames for ranx, which are made before.

    Raises:
        ValueError: a value differs from a peer's by more than 1e-6.
    """
    data = tables(size, config.list_depth, ["provenance"], config.seed)
    settings = replace(_settings(config, config.list_depth), threshold=None)
    works = _works(data, settings)
    expected = works["erag_ray"]()()
    for name, work in works.items():
        _check_same(name, expected, work()())
    times = rounds(works, config.repeats)
    for name, seconds in times.items():
        row = {"what": "measures", "by": name, "count": data.runs.height}
        yield {**row, **timed(seconds, times["erag_ray"])}


def _settings(config: BenchmarkConfig, depth: int) -> Settings:
    return Settings(
        depths=[depth],
        measures=None,
        cutoffs=[cutoff for cutoff in CUTOFFS if cutoff < depth],
        threshold=0.5,
        statistics=list(SCIPY),
        num_resamples=config.num_resamples,
        confidence=0.95,
        num_permutations=1000,
        seed=config.seed,
    )


Work = Callable[[], Callable[[], Values]]


def _works(data: Tables, settings: Settings) -> dict[str, Work]:
    """Return the work to time; each returns a function that reads its values, which is not timed."""
    works: dict[str, Work] = {"erag_ray": lambda: _ours(data, settings)}
    if importlib.util.find_spec("pytrec_eval"):
        works["pytrec_eval"] = lambda: _trec_eval(data, settings)
    if importlib.util.find_spec("ranx"):
        labels, runs = _for_ranx(data)
        ids = data.queries["query_id"].to_list()
        works["ranx"] = lambda: _ranx(labels, runs, ids, settings)
    return works


def _check_same(name: str, expected: Values, actual: Values) -> None:
    worst = max(float(np.abs(actual[key] - values).max()) for key, values in expected.items())
    if actual.keys() != expected.keys() or not worst <= 1e-6:
        raise ValueError(f"{name}: values differ by up to {worst}")


def _ours(data: Tables, settings: Settings) -> Callable[[], Values]:
    eligible = {"provenance": eligible_questions("provenance", data.queries, data.labels, data.used)}
    pooled = replace(settings, ideals=[POOL])
    table = pl.concat(per_query_parts(data.labels, data.runs, eligible, data.queries, pooled))

    def read() -> Values:
        parts = table.partition_by("run_id", "measure", "cutoff", as_dict=True, maintain_order=True)
        return {key: part["value"].to_numpy() for key, part in parts.items()}

    return read


def _dicts(first: pl.Series, second: pl.Series, third: pl.Series) -> dict[str, dict[str, float]]:
    nested: dict[str, dict[str, float]] = {}
    for query_id, doc_id, value in zip(first.to_list(), second.to_list(), third.to_list(), strict=True):
        nested.setdefault(query_id, {})[doc_id] = value
    return nested


def _trec_eval(data: Tables, settings: Settings) -> Callable[[], Values]:
    import pytrec_eval

    cutoffs = settings.cutoffs_at(settings.depths[0])
    requested = {f"{name}.{','.join(map(str, cutoffs))}" for name in TREC_EVAL.values()} | {"recip_rank"}
    labels = data.labels
    qrels: Any = _dicts(labels["query_id"], labels["doc_id"], labels["label"].cast(pl.Int64))
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, requested)
    results = {}
    for (run_id,), run in data.runs.partition_by("run_id", as_dict=True).items():
        scores = -run["rank"].cast(pl.Float64)
        results[str(run_id)] = evaluator.evaluate(_dicts(run["query_id"], run["doc_id"], scores))
    ids = data.queries["query_id"].to_list()

    def read() -> Values:
        columns: Values = {}
        for run_id, of_run in results.items():
            for cutoff in cutoffs:
                for name, theirs in TREC_EVAL.items():
                    values = [of_run[query_id][f"{theirs}_{cutoff}"] for query_id in ids]
                    columns[run_id, name, cutoff] = np.array(values)
                ranks = np.array([of_run[query_id]["recip_rank"] for query_id in ids])
                columns[run_id, "RR", cutoff] = np.where(ranks >= 1 / cutoff, ranks, 0.0)
        return columns

    return read


def _for_ranx(data: Tables) -> tuple[Frame, dict[str, Frame]]:
    runs = data.runs.with_columns(score=-pl.col("rank").cast(pl.Float64))
    parts = runs.select("run_id", "query_id", "doc_id", "score").partition_by(
        "run_id", as_dict=True, include_key=False
    )
    labels = data.labels.select("query_id", "doc_id", score=pl.col("label").cast(pl.Int64))
    return _objects(labels), {str(name): _objects(part) for (name,), part in parts.items()}


def _objects(table: pl.DataFrame) -> Frame:
    """Return a pandas frame with the strings that ranx takes."""
    return table.to_pandas().astype({"query_id": object, "doc_id": object})


def _ranx(
    labels: Frame, runs: Mapping[str, Frame], ids: list[str], settings: Settings
) -> Callable[[], Values]:
    import ranx

    columns = {"q_id_col": "query_id", "doc_id_col": "doc_id"}
    qrels = ranx.Qrels.from_df(labels, **columns)
    names = [(name, cutoff) for name in RANX for cutoff in settings.cutoffs_at(settings.depths[0])]
    requested = [f"{RANX[name]}@{cutoff}" for name, cutoff in names]
    results = {}
    for run_id, frame in runs.items():
        results[run_id] = ranx.Run.from_df(frame, **columns)
        ranx.evaluate(qrels, results[run_id], requested, return_mean=False, threads=1)

    def read() -> Values:
        values: Values = {}
        for run_id, run in results.items():
            for (name, cutoff), theirs in zip(names, requested, strict=True):
                values[run_id, name, cutoff] = np.array([run.scores[theirs][query_id] for query_id in ids])
        return values

    return read


def table_1(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Evaluation of five datasets, two runs, four annotators, six measures at four cut-offs, tau and rho.

    ``size`` is the number of queries of all datasets together; the paper's have 3,000 to 10,000. The first and smallest
    has graded scores. The peer is a plain loop of scipy over resamples, timed on one resample of each pair of columns.
    """
    shares = np.array(SHARES) / sum(SHARES)
    parts = [
        tables(
            max(2, round(size * share)),
            config.list_depth,
            ANNOTATORS,
            config.seed + number,
            dataset=f"dataset{number}",
            graded=number == 0,
        )
        for number, share in enumerate(shares)
    ]
    names = ("queries", "runs", "labels", "used")
    data = Tables(**{name: pl.concat([getattr(part, name) for part in parts]) for name in names})
    settings = _settings(config, config.list_depth)
    eligible = {name: eligible_questions(name, data.queries, data.labels, data.used) for name in ANNOTATORS}
    given = (data.labels, data.runs, eligible, data.queries, settings)
    results: dict[str, pl.DataFrame] = {}
    columns: list[DatasetColumns] = []

    def values() -> None:
        results["values"] = pl.concat(per_query_parts(*given))
        columns.extend(by_dataset([results["values"]], data.used, data.queries, settings))

    def agreement() -> None:
        results["correlations"] = pl.concat(correlations(dataset, settings) for dataset in columns)

    def others() -> None:
        for table in (means, comparisons, contrasts):
            for dataset in columns:
                table(dataset, settings)

    # compiled before anything is timed
    compile_config = replace(config, list_depth=5, num_resamples=100)
    if size > SMALL:
        list(table_1(compile_config, SMALL))
    spent = {work.__name__: seconds_of(work) for work in (values, agreement, others)}
    count = results["correlations"].filter(over="queries").height
    for what, seconds in (("correlations", spent["agreement"]), ("evaluation", sum(spent.values()))):
        yield {"what": f"table 1, {what}", "by": "erag_ray", "seconds": seconds, "count": count}
    seconds = seconds_of(lambda: _scipy(columns, settings)) * settings.num_resamples
    yield {"what": "table 1, correlations", "by": "scipy (1 resample)", "seconds": seconds, "count": count}


def _scipy(datasets: Sequence[DatasetColumns], settings: Settings) -> None:
    """One resample of every pair of columns."""
    for dataset in datasets:
        measured, ends = measured_and_used(dataset.of_runs)
        drawn = np.repeat(np.arange(dataset.draws.weights.shape[1]), dataset.draws.weights[0])
        for (name, x), (target, y) in itertools.product(measured, ends):
            if same_list(name, target):
                for statistic in settings.statistics:
                    with warnings.catch_warnings(action="ignore", category=scipy.stats.ConstantInputWarning):
                        SCIPY[statistic](x[drawn], y[drawn])
