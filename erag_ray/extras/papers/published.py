"""Published tables of the papers, next to which measured ones are shown; the reproduction's table in both forms."""

import pathlib

import polars as pl

from erag_ray.analyses.order import STATISTIC_NAMES, whole_lists
from erag_ray.analyses.parts.formats import MISSING, counted, number
from erag_ray.analyses.parts.model import Column, Format, Table, Value
from erag_ray.analyses.parts.shapes import columns, estimate, names, plain
from erag_ray.data.runs.references import END_TO_END

MEASURE_NAMES = {"p": "P", "r": "R", "map": "AP", "mrr": "RR", "ndcg": "nDCG", "hit_ratio": "Success"}
REPRODUCED = ("P", "Success")
OF_REPRODUCTION = (
    *columns(STATISTIC_NAMES.values()),
    Column("mean", Format.NUMBER_4),
    Column("queries", Format.COUNT),
    Column("end to end", Format.TEXT),
)


def read_published(name: str) -> pl.DataFrame:
    """Return a published table, by its file name in ``published_tables``."""
    return pl.read_csv(pathlib.Path(__file__).parent / "published_tables" / name)


def reproduction_table(correlations: pl.DataFrame, means: pl.DataFrame, depth: int) -> Table:
    """Return the table of the reproduction per dataset and run: agreement of eRAG's P and Success, and the means."""
    selected = whole_lists(correlations).filter(
        pl.col("annotator") == "erag",
        pl.col("depth") == depth,
        pl.col("measure").is_in(REPRODUCED),
        pl.col("statistic").is_in(list(STATISTIC_NAMES)),
    )
    at_depth = means.filter(pl.col("depth") == depth, pl.col("cutoff") == depth)
    keys = ("dataset", "run_id", "measure")
    utility = at_depth.filter(annotator=END_TO_END).rows_by_key(keys[:2], named=True, unique=True)
    measured = at_depth.filter(annotator="erag").rows_by_key(keys, named=True, unique=True)
    rows = []
    for (dataset, run, measure), part in selected.sort(keys).group_by(keys, maintain_order=True):
        end_to_end = utility.get((dataset, run), {})
        agreements = {row["statistic"]: estimate(row) for row in part.to_dicts()}
        rows.append(
            (
                *plain(str(dataset), str(run), f"{measure}@{depth}"),
                *(agreements.get(name, Value()) for name in STATISTIC_NAMES),
                Value(measured.get((dataset, run, measure), {}).get("mean")),
                Value(end_to_end.get("num_queries", MISSING)),
                Value(f"{end_to_end.get('score', '')} {number(end_to_end.get('mean'), 4)}"),
            )
        )
    return Table(
        name="reproduction",
        title=f"The reproduction's table: eRAG, {counted(depth, 'document')}",
        columns=(*names("dataset", "run", "measure"), *OF_REPRODUCTION),
        rows=tuple(rows),
        caption="With intervals; if nearly no answer is right, agreement is not meaningful.",
    )


def published_reproduction() -> Table:
    """Return the results of the student reproduction of 2025: NQ, BM25, 40 documents, a thousandth of Wikipedia."""
    table = read_published("reproduction.csv")
    rows = tuple(
        plain(
            f"{MEASURE_NAMES.get(row['measure'], str(row['measure']).capitalize())}@{row['k']}",
            *(row[name] for name in ("kendall_tau", "spearman_rho", "mean_value", "num_queries")),
            f"exact_match {number(row['e2e_exact_match'], 4)}",
        )
        for row in table.to_dicts()
    )
    return Table(
        name="published_reproduction",
        title="The reproduction's table as published: NQ, BM25",
        columns=(*names("measure"), *OF_REPRODUCTION),
        rows=rows,
        caption="A reproduction report of 2025: T5-small trained for one epoch, a thousandth of Wikipedia. Six of 568 "
        "answers were right, so its tau depends on six questions.",
    )
