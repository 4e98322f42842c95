"""Effects of a precision: outputs, labels, and their agreement with what the reader does end to end."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import scipy.stats

from bench.config import BenchmarkConfig
from bench.readers.engine_only import loaded
from bench.readers.reading import fast_precisions
from bench.readers.table_2 import Case, given_case
from bench.timing import Row
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.inference.planning.plan import ModelPlan
from erag_ray.measures.scores import score_named
from erag_ray.store.responses import KEY_COLUMNS

BY_LIBRARY = "transformers' generate, float32"


def precision(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Measure ``size`` questions of ``config.job``: single documents, in every precision that is fast here.

    A label is 1 where the output's score is above 0; the measure is P at the job's depth, and what it is correlated
    with is always the utility in float32.

    Raises:
        InputError: there is no job, or its files, run or dataset cannot be used.
    """
    case = given_case(config, size)
    library = _scored(case, _outputs(case.single_document, "float32", by_library=True))
    utility = _scored(case, _outputs(case.end_to_end, "float32")).select("query_id", utility="score")
    yield _row(case, BY_LIBRARY, library, library, utility)
    for dtype in fast_precisions():
        scored = _scored(case, _outputs(case.single_document, dtype))
        yield _row(case, f"erag_ray, {dtype}", scored, library, utility)


def _outputs(plan: ModelPlan, dtype: Any, *, by_library: bool = False) -> pl.DataFrame:
    """The plan's REQUESTS with what the model wrote."""
    model: Any = loaded(dataclasses.replace(plan.model.config, dtype=dtype))
    if by_library:
        model.engine = None
    table = plan.make_requests(plan.new)
    texts = {index: one.text for index, one in model.run(PendingRequests(table, plan.forms))}
    outputs = [texts[index] for index in range(table.num_rows)]
    keys = pl.DataFrame(table.select(KEY_COLUMNS)).with_columns(output=pl.Series(outputs, dtype=pl.String))
    return plan.requests.join(keys, on=KEY_COLUMNS)


def _scored(case: Case, outputs: pl.DataFrame) -> pl.DataFrame:
    score = score_named(case.score).function
    rows = outputs.join(case.queries.select("query_id", "answers"), on="query_id")
    values = [score(output, answers) for output, answers in rows.select("output", "answers").iter_rows()]
    scored = rows.with_columns(score=pl.Series(values, dtype=pl.Float64))
    return scored.select("query_id", "doc_ids", "output", "score").sort("query_id", "doc_ids")


def _row(case: Case, by: str, scored: pl.DataFrame, whole: pl.DataFrame, utility: pl.DataFrame) -> Row:
    labels, expected = ((table["score"] > 0).to_list() for table in (scored, whole))
    sums = scored.group_by("query_id").agg(P=(pl.col("score") > 0).sum() / case.depth)
    both = sums.join(utility, on="query_id")
    return {
        "what": case.name,
        "by": by,
        "count": scored.height,
        "label_share": sum(labels) / len(labels),
        "same_outputs": (scored["output"] == whole["output"]).mean(),
        "same_labels": sum(map(bool.__eq__, labels, expected)) / len(labels),
        "kappa": kappa(labels, expected),
        "tau": float(scipy.stats.kendalltau(both["P"], both["utility"]).statistic),
    }


def kappa(labels: Sequence[bool], others: Sequence[bool]) -> float:
    """Agreement beyond chance of two lists of labels (Cohen, Educational and Psychological Measurement, 1960).

    1 where both are all the same label: then nothing could differ.
    """
    count = len(labels)
    observed = sum(map(bool.__eq__, labels, others)) / count
    first, second = sum(labels) / count, sum(others) / count
    chance = first * second + (1 - first) * (1 - second)
    return 1.0 if chance == 1 else (observed - chance) / (1 - chance)
