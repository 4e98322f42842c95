"""What a report says first: which run serves the reader best."""

from __future__ import annotations

import polars as pl

from erag_ray.evaluate import END_TO_END
from erag_ray.report.build import title_of
from erag_ray.report.formats import with_interval
from erag_ray.report.load import Results
from erag_ray.report.model import DatasetVerdict, Finding, Verdict
from erag_ray.report.retrievers import best_first


def verdict(results: Results) -> Verdict:
    """Return the run of the highest utility for each dataset, and what is missing."""
    datasets = results.means["dataset"].unique().sort().to_list()
    return Verdict(
        question=title_of(results),
        datasets=tuple(_of_dataset(results.means.filter(dataset=dataset), dataset) for dataset in datasets),
        findings=tuple(Finding(topic="missing", text=text, is_warning=True) for text in results.missing),
    )


def _of_dataset(means: pl.DataFrame, dataset: str) -> DatasetVerdict:
    runs = best_first(means)
    used = means.filter(pl.col("annotator") == END_TO_END, pl.col("run_id").is_in(runs[:1]))
    best = used.filter(pl.col("depth") == pl.col("depth").max()).to_dicts()
    answers = [
        f"{row['run_id']} has the highest utility at {row['depth']} documents, "
        f"{with_interval(row['mean'], row['low'], row['high'])}"
        for row in best
    ]
    return DatasetVerdict(dataset=dataset, answer="; ".join(answers) or "no utility is known", findings=())
