"""Scores of subsets -> CREDITS. Pure."""

from __future__ import annotations

import polars as pl

from erag_ray.extras.credit.lists import EXACT, CreditLists
from erag_ray.extras.credit.schemas import CREDITS
from erag_ray.store.schemas import conform

LIST = ["run_id", "query_id"]
DIGITS = 12
"""Credits are compared to this many digits: equal differences must tie."""
KEY = ["reader", "score", *LIST, "credit", "doc_id", "rank"]


def credits_of(lists: CreditLists, scores: pl.DataFrame) -> pl.DataFrame:
    """Return CREDITS: the weighted sum of a document's differences, with its standard error over samples.

    A sample of shapley is a permutation with its reverse: the standard error is that of the mean of independent pairs.
    It is 0 if nothing is sampled, and only then: null (unknown) if all samples of a credit are equal. A document of
    which a score is null, not judged, has a null credit.

    Args:
        lists: of `credit_lists`.
        scores: reader, score, run_id, query_id, subset, value: of every subset.
    """
    of_subset = scores.select(*LIST, "reader", "score", "subset", "value")
    without = of_subset.select(*LIST, without_subset="subset", lower="value")
    joined = lists.differences.join(of_subset, left_on=[*LIST, "with_subset"], right_on=[*LIST, "subset"])
    both = joined.join(without, on=[*LIST, "without_subset"])
    weighted = pl.col("weight") * (pl.col("value") - pl.col("lower"))
    is_judged = pl.col("value").is_not_null() & pl.col("lower").is_not_null()
    by_sample = both.group_by(*KEY, "sample").agg(part=weighted.sum(), is_judged=is_judged.all())
    is_exact, judged = (pl.col("sample") == EXACT).all(), pl.col("is_judged").all()
    # the sum of n parts has the standard error of n times their mean
    spread = (pl.col("part").std() * pl.len().sqrt()).round(DIGITS)
    error = pl.when(is_exact).then(0.0).when(spread > 0).then(spread)
    credits = (
        by_sample.sort("sample")
        .group_by(KEY)
        .agg(
            value=pl.when(judged).then(pl.col("part").sum().round(DIGITS)),
            standard_error=pl.when(judged).then(error),
        )
    )
    depths = lists.subsets.select(*LIST, "depth").unique()
    table = credits.join(depths, on=LIST).select(CREDITS.columns.names).sort(CREDITS.key)
    return pl.DataFrame(conform(table, CREDITS))
