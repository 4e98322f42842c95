"""Labels, runs and end-to-end scores small enough to work out by hand, and what evaluation makes of them."""

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from erag_ray.analyses import best_depths as of_depths
from erag_ray.analyses import comparisons as of_runs
from erag_ray.analyses import contrasts as of_annotators
from erag_ray.analyses import correlations as of_labels
from erag_ray.analyses import means as of_questions
from erag_ray.analyses.columns import PER_QUERY, DatasetColumns, by_dataset
from erag_ray.analyses.contract import eligible_questions
from erag_ray.analyses.settings import Settings
from erag_ray.store.schemas import QUERIES, UTILITY, conform


def framed(rows: Sequence[tuple[object, ...]], schema: object) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=schema.empty().schema, orient="row")  # type: ignore[attr-defined]


def settings(**changes: object) -> Settings:
    of_lists = {"depths": [2], "measures": None, "cutoffs": [], "threshold": None}
    statistics = ["kendall_tau_b", "spearman_rho"]
    draws = {"num_resamples": 200, "confidence": 0.9, "num_permutations": 500, "seed": 0}
    return Settings(**{**of_lists, "statistics": statistics, **draws, **changes})  # type: ignore[arg-type]


def queries(*rows: tuple[str, str, str], answers: Sequence[str] = ("paris",)) -> pl.DataFrame:
    """Rows of query_id, dataset, score."""
    made = [
        {
            "query_id": name,
            "dataset": dataset,
            "question": f"{name}?",
            "answers": list(answers),
            "score": score,
        }
        for name, dataset, score in rows
    ]
    return pl.DataFrame(conform(pl.DataFrame(made), QUERIES))


def everywhere(labels: pl.DataFrame, queries: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """All annotators were asked about all questions."""
    utility = UTILITY.empty()
    return {name: eligible_questions(name, queries, labels, utility) for name in labels["annotator"].unique()}


Tables = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, Settings]
Columns = Mapping[tuple[str, str, int], Sequence[float | None]]
"""(reader, run, depth) -> a value for each of q0, q1, ..."""


def columns_of(
    values: pl.DataFrame, *others: *tuple[pl.DataFrame, pl.DataFrame, Settings]
) -> list[DatasetColumns]:
    return by_dataset([values], *others)


def of_each(
    make: Callable[..., pl.DataFrame], columns: Sequence[DatasetColumns], *more: object
) -> pl.DataFrame:
    """Of each dataset, one below the other."""
    return pl.concat(make(dataset, *more) for dataset in columns)


def means(*given: *Tables) -> pl.DataFrame:
    """Of PER_QUERY, UTILITY, QUERIES and settings; so the next three."""
    return of_each(of_questions.means, columns_of(*given), given[-1])


def correlations(*given: *Tables) -> pl.DataFrame:
    return of_each(of_labels.correlations, columns_of(*given), given[-1])


def comparisons(*given: *Tables) -> pl.DataFrame:
    return of_each(of_runs.comparisons, columns_of(*given), given[-1])


def contrasts(*given: *Tables) -> pl.DataFrame:
    return of_each(of_annotators.contrasts, columns_of(*given), given[-1])


def best_depths(end_to_end: pl.DataFrame, queries: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    columns = columns_of(measured({}), end_to_end, queries, settings)
    return of_each(of_depths.best_depths, columns, settings)


def used(columns: Columns, score: str = "exact_match") -> pl.DataFrame:
    """UTILITY of columns."""
    rows = [
        (reader, score, run, f"q{number}", depth, one)
        for (reader, run, depth), column in columns.items()
        for number, one in enumerate(column)
    ]
    return pl.DataFrame(conform(pl.DataFrame(rows, schema=UTILITY.columns.names, orient="row"), UTILITY))


def measured(columns: Columns, annotator: str = "erag", measure: str = "P") -> pl.DataFrame:
    """PER_QUERY of columns of a measure."""
    rows = [
        (reader, "", annotator, f"q{number}", run, depth, measure, depth, "any", one)
        for (reader, run, depth), column in columns.items()
        for number, one in enumerate(column)
    ]
    table = pl.DataFrame(rows, schema=PER_QUERY.columns.names, orient="row")
    return pl.DataFrame(conform(table, PER_QUERY))


def tables_of(values: Columns, utility: Columns, **changes: object) -> Tables:
    """Tables of columns, with the questions that these have."""
    amount = len(next(iter(utility.values())))
    return measured(values), used(utility), numbered(amount), settings(**changes)


def numbered(amount: int) -> pl.DataFrame:
    return queries(*((f"q{number}", "d", "exact_match") for number in range(amount)))
