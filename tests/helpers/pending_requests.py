"""Requests for a pool, as PENDING, and the job that answers them."""

import pathlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from models import form_for

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.actor import ModelActor
from erag_ray.inference.work import Work
from erag_ray.models import make_model, model_id
from erag_ray.prompts.request import Form, Request, Response
from erag_ray.store.schemas import PENDING

FORM = form_for("echo")


def requests(*questions: str) -> list[Request]:
    return [Request(FORM, question) for question in questions]


def as_pending(asked: Sequence[Request]) -> pa.Table:
    """PENDING: requests of one form whose keys are their places."""
    rows = [
        {
            "question_key": key,
            "passages_key": key,
            "form": 0,
            "question": request.question,
            "titles": [passage.title for passage in request.passages],
            "texts": [passage.text for passage in request.passages],
            "answers": request.answers,
        }
        for key, request in enumerate(asked)
    ]
    return pa.Table.from_pylist(rows, schema=PENDING.columns)


def pending(*questions: str) -> pa.Table:
    return as_pending(requests(*questions))


def in_order(answers: Iterator[tuple[int, Response]]) -> list[Response]:
    """The responses in the order of the requests; each has exactly one."""
    found = list(answers)
    assert sorted(place for place, _ in found) == list(range(len(found)))
    return [response for _, response in sorted(found, key=lambda answer: answer[0])]


def actor_of(
    config: ReaderConfig, folder: pathlib.Path, form: Form = FORM, seconds: float = 3600.0
) -> ModelActor:
    """An actor that answers with a store in this folder, and writes what it has every so many seconds."""
    return ModelActor(config, model_id(make_model(config)), [form], str(folder), "job", 1, seconds, None)


def work_of(folder: pathlib.Path, block: pa.Table, reader: ReaderConfig) -> tuple[Work, JobConfig]:
    (folder / "requests").mkdir()
    pq.write_table(block, folder / "requests" / "part.parquet")
    work = Work(
        requests=str(folder / "requests"),
        num_requests=block.num_rows,
        config=reader,
        model=model_id(make_model(reader)),
        forms=[FORM],
        resources=make_model(reader).resources(),
    )
    config = JobConfig(
        cache_dir=str(folder),
        rows_per_block=20,
        write_every_seconds=0.1,
        max_batch_seconds=2.0,
        progress=False,
    )
    return work, config
