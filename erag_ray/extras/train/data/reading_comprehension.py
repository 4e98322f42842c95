"""Reading comprehension files, each question with its passage: ``question, title?, context, answers``."""

import dataclasses
from typing import Any

import polars as pl

from erag_ray.data.datasets.queries import COLUMNS, LoadedQueries
from erag_ray.data.datasets.questions import checked_answers
from erag_ray.data.datasets.tasks import Dataset, dataset_of_file, find_dataset
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import shown
from erag_ray.data.files.records import read_records
from erag_ray.data.passages.load import CORPUS_COLUMNS


def load_reading_comprehension(
    paths: list[str], diagnostics: Diagnostics, *, dataset: str | None = None, score: str | None = None
) -> tuple[LoadedQueries, pl.DataFrame]:
    """Load questions from JSON Lines, plain or gzip; return them and the CORPUS of their passages.

    A question's id is ``file:line``, and so is its (gold) passage's. The default data set is the file's name.
    """
    queries: list[tuple[Any, ...]] = []
    passages: list[tuple[Any, ...]] = []
    datasets: dict[str, Dataset] = {}
    for path in paths:
        name = dataset or dataset_of_file(path)
        properties = find_dataset(name, name) or Dataset()
        datasets[name] = dataclasses.replace(properties, score=score or properties.score)
        for record in read_records(path, diagnostics):
            question, answers = record.text("question"), checked_answers(record)
            if not answers and not record.faulty:
                record.fault("questions without an answer", f"the question {shown(question)} has no answer")
            title, context = record.text("title", optional=True), record.text("context")
            if not question.strip() and not record.faulty:
                record.fault("questions without text", "the question is blank")
            if not record.faulty:
                queries.append((record.location, name, question, answers, datasets[name].score))
                passages.append((record.location, None, title, context))
    table = pl.DataFrame(queries, schema=COLUMNS["queries"], orient="row")
    gold = table.select("query_id", rank=pl.lit(1), page_id=pl.lit(None), doc_id=pl.col("query_id"))
    loaded = LoadedQueries(queries=table, provenance=gold.cast(COLUMNS["provenance"]), datasets=datasets)
    return loaded, pl.DataFrame(passages, schema=CORPUS_COLUMNS, orient="row")
