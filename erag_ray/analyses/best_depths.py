"""BEST_DEPTHS: how many documents serve the reader best in each run."""

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from erag_ray.analyses.columns import DatasetColumns, measured_and_used, table_of
from erag_ray.analyses.contract import OF_COLUMNS, TESTED, Analysis, Results, View, per_dataset
from erag_ray.analyses.parts.formats import with_interval
from erag_ray.analyses.parts.model import Finding, Format, Note, Part, Value
from erag_ray.analyses.parts.shapes import estimate, field, listing, name_field, rows_of
from erag_ray.analyses.settings import Floats, Settings
from erag_ray.measures.agreement import TIE_DIGITS, Clusters, paired_differences, paired_test
from erag_ray.measures.scores import score_sign
from erag_ray.store.schemas import table_schema

BEST_DEPTHS = table_schema(
    "best_depths", "dataset* reader* score* run_id* depth deepest difference? low? high? num_queries"
)
IS_SETTLED = (pl.col("low") > 0) | (pl.col("high") < 0)
NO_GAIN = Value(reason="no depth serves better than the deepest lists")
Row = tuple[object, ...]


def best_depths(dataset: DatasetColumns, settings: Settings) -> pl.DataFrame:
    """BEST_DEPTHS: how many documents serve the reader best in each run, of ties the fewest.

    ``difference`` is the mean utility at that depth minus the one at the deepest lists, paired over queries. Its
    interval, null if they are one, is at alpha divided by the numbers of runs and of depths to choose from
    (Bonferroni). A score that is neither better nor worse with more has no best depth but the deepest.
    """
    rows: list[Row] = []
    _, ends = measured_and_used(dataset.of_runs)
    runs: dict[Row, dict[int, Floats]] = {}
    for name, column in ends:
        key = (name["reader"], name["score"], name["run_id"])
        runs.setdefault(key, {})[int(str(name["depth"]))] = column
    for run, utilities in runs.items():
        level = (1 - settings.confidence) / (len(runs) * max(1, len(utilities) - 1))
        sign = score_sign(str(run[1]))
        rows.append((dataset.dataset, *run, *_best_depth(utilities, sign, level, dataset.draws.clusters)))
    return table_of(rows, BEST_DEPTHS)


def _best_depth(utilities: Mapping[int, Floats], sign: int, level: float, clusters: Clusters | None) -> Row:
    """Best depth, deepest depth, difference with its interval, number of queries; by depth -> [num_queries]."""
    depths = sorted(utilities, reverse=not sign)
    table = np.stack([utilities[depth] for depth in depths])
    is_judged = ~np.isnan(table).any(axis=0)
    if not is_judged.any():
        return (depths[0], max(depths), None, None, None, 0)
    best = int(np.argmax(np.round(sign * table[:, is_judged].mean(axis=1), TIE_DIGITS)))
    differences = paired_differences(table[best], table[depths.index(max(depths))])
    differences[~is_judged] = np.nan
    test = paired_test(differences, clusters)
    interval = test.interval(level) if depths[best] != max(depths) and test.count > 1 else (None, None)
    return (depths[best], max(depths), test.mean, *interval, int(is_judged.sum()))


def show(view: View) -> Iterator[Part]:
    """Yield the depth that serves the reader best in each run, and whether more documents serve it worse."""
    rows = view.rows(BEST_DEPTHS).sort("reader", "run_id")
    # all datasets have this table, or none
    if (view.results[BEST_DEPTHS]["depth"] != view.results[BEST_DEPTHS]["deepest"]).any():
        yield listing(
            rows_of(rows),
            (
                name_field("run", "run_id"),
                field("best depth", "depth", Format.COUNT),
                field("deepest", "deepest", Format.COUNT),
                field(
                    "utility at the best depth minus at the deepest",
                    lambda row: estimate(row, "difference") if row["difference"] else NO_GAIN,
                ),
            ),
            caption="Paired over queries; the interval is corrected for the number of runs and depths (Bonferroni). "
            "Since the best depth is chosen by the same queries, the difference is a little too large.",
            **view.about("best_depths", "how many documents serve the reader best"),
        )
    largest = rows.filter(IS_SETTLED).sort(pl.col("difference").abs(), "run_id", descending=[True, False])
    for row in rows_of(largest.head(1)):
        sign = 1 if row["difference"] > 0 else -1
        low, high = sorted((sign * row["low"], sign * row["high"]))
        gain = with_interval(sign * row["difference"], low, high, drop_zero=True)
        side = "above" if sign > 0 else "below"
        text = f"fewer documents serve it better: {row['run_id']} with {row['depth']} is {gain} {side} {row['deepest']}"
        yield Finding(topic="depth", text=text)


def show_all(results: Results) -> Iterator[Note]:
    for row in rows_of(results[BEST_DEPTHS].filter(IS_SETTLED).sort("dataset", "run_id")):
        difference = with_interval(row["difference"], row["low"], row["high"])
        text = f"{row['dataset']}, {row['run_id']}: fewer documents serve this reader better: best depth"
        text += f" {row['depth']}, difference from depth {row['deepest']} {difference}"
        yield Note(text=text, is_warning=True)


ANALYSIS = Analysis(
    schema=BEST_DEPTHS,
    sources=OF_COLUMNS,
    settings=TESTED,
    code=("scores",),
    make=per_dataset(best_depths),
    show=show,
    show_all=show_all,
)
