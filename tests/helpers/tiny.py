"""The tiny comparison that several tests walk through: 6 questions, 12 passages, 3 runs, all written out here.

The echo reader answers with the title of the passage that shares most words with the question (ties: the first), so
every output below can be told by eye. A passage is useful alone exactly when its title is the answer.
"""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import polars as pl
import rich.console
from polars.testing import assert_frame_equal

from erag_ray.analyses.costs import IS_LAST
from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.export import export
from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.config.retrieval import RetrieveConfig, RetrieverConfig
from erag_ray.extensions import further_lists, requested
from erag_ray.inference.planning.plan import StagePlan, plan_stage
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.labels.document_labels import label
from erag_ray.labels.end_to_end import score_end_to_end
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.report.build import build_report
from erag_ray.report.load import load
from erag_ray.report.markdown import parts_as_markdown
from erag_ray.report.stage import report
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import COSTS, LABELS, UTILITY, TableSchema
from erag_ray.store.tables import TableStore
from erag_ray.support.ownership import read_marker, write_marker

# query: (question, answer, gold page)
QUESTIONS = {
    "q1": ("who built the marn bridge", "Ada Brunner", "p1"),
    "q2": ("which river flows through tessel", "Orla", "p2"),
    "q3": ("when was the skerry lighthouse lit", "1874", "p3"),
    "q4": ("who led the graz choir", "Ida Holm", "p4"),
    "q5": ("what metal covers the dome", "copper", "p5"),
    "q6": ("where is the oldest mill", "Varn", None),
}
# document: (page, title, text)
PASSAGES = {
    "d1": ("p1", "Ada Brunner", "she built the marn bridge"),
    "d2": ("p1", "Marn", "who built the marn bridge is told here"),
    "d3": ("p2", "Orla", "the river flows through tessel"),
    "d4": ("p2", "Tessel", "a town by the orla"),
    "d5": ("p3", "1874", "the skerry lighthouse was lit"),
    "d6": ("p3", "Skerry", "lit in 1874"),
    "d7": ("p4", "Ida Holm", "she led the graz choir"),
    "d8": ("p4", "Graz", "a choir of ida holm"),
    "d9": ("p5", "Copper", "the metal of the dome"),
    "d10": ("p6", "Varn", "the oldest mill is here"),
    "d11": ("p7", "Elsewhere", "nothing to see"),
    "d12": ("p8", "Noise", "who which when what where"),
}
RUNS = {
    "good": {
        "q1": "d1 d2 d12 d5",
        "q2": "d3 d4",
        "q3": "d5 d6 d11 d1",
        "q4": "d7 d8",
        "q5": "d9",
        "q6": "d10 d11",
    },
    "bad": {"q1": "d2 d1 d11", "q2": "d4 d11 d3", "q3": "d6 d12", "q4": "d11 d8", "q5": "d11"},
    "third": {"q1": "d12 d1", "q2": "d3 d12", "q3": "d11", "q4": "d8 d7", "q5": "d12 d9", "q6": "d11"},
}
# what the echo reader makes of them, worked out by hand: the questions that each run gets right
RIGHT = {
    ("good", 1): {"q1", "q2", "q3", "q4", "q5", "q6"},
    ("good", 3): {"q2", "q3", "q4", "q5", "q6"},  # q1: d2 shares five words with the question, d1 four
    ("bad", 1): set(),
    ("bad", 3): {"q2"},
    ("third", 1): {"q2"},
    ("third", 3): {"q1", "q2", "q4", "q5"},
}
BM25 = {"bm25": RetrieverConfig(kind="bm25")}
BOTH = {**BM25, "bm25_lead": RetrieverConfig(kind="bm25", searches="title_and_first_sentence")}

RunJob = Callable[[str, "Tiny"], tuple[int, str]]
"""Runs a job by its name: its exit code, and what it said."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tiny:
    """The files of the comparison, to be changed at will, and a config that reads them."""

    folder: pathlib.Path
    config: JobConfig

    @property
    def queries(self) -> pathlib.Path:
        return self.folder / "queries.jsonl"

    @property
    def passages(self) -> pathlib.Path:
        return self.folder / "passages.jsonl"

    def run(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.trec"

    def with_config(self, **changes: object) -> Tiny:
        """The same files, another config."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, **changes))


def kilt_line(query_id: str, question: str, answer: str, page: str | None) -> str:
    output: dict[str, object] = {"answer": answer}
    if page:
        output["provenance"] = [{"wikipedia_id": page}]
    return json.dumps({"id": query_id, "input": question, "output": [output]}) + "\n"


def passage_line(doc_id: str, page_id: str, title: str, text: str) -> str:
    """A passage in our form."""
    return json.dumps({"doc_id": doc_id, "page_id": page_id, "title": title, "text": text}) + "\n"


def trec_lines(lists: dict[str, str]) -> str:
    """Ranked lists (documents between spaces) as a TREC run."""
    return "".join(
        f"{query} Q0 {doc} {rank} {100 - rank} tag\n"
        for query, docs in lists.items()
        for rank, doc in enumerate(docs.split(), 1)
    )


def write_tiny(folder: pathlib.Path) -> Tiny:
    folder.mkdir(exist_ok=True)
    tiny = Tiny(
        folder=folder,
        config=JobConfig(
            queries=[str(folder / "queries.jsonl")],
            dataset="tiny",
            passages=[str(folder / "passages.jsonl")],
            runs={name: str(folder / f"{name}.trec") for name in ("good", "bad")},
            reader=ReaderConfig(kind="echo"),
            depth=3,
            end_to_end_depths=[1, 3],
            cutoffs=[1, 3],
            num_resamples=200,
            out=str(folder / "out"),
            cache_dir=str(folder / "store"),
            progress=False,
        ),
    )
    tiny.queries.write_text("".join(kilt_line(name, *rest) for name, rest in QUESTIONS.items()))
    tiny.passages.write_text("".join(passage_line(name, *rest) for name, rest in PASSAGES.items()))
    for name, lists in RUNS.items():
        tiny.run(name).write_text(trec_lines(lists))
    return tiny


def config_of(tiny: Tiny, **changes: object) -> RetrieveConfig:
    """The config of a job that makes runs for the comparison, by two retrievers unless the changes say else."""
    given = {
        "queries": [str(tiny.queries)],
        "dataset": "tiny",
        "passages": [str(tiny.passages)],
        "retrievers": BOTH,
        "depth": 3,
        "out": str(tiny.folder / "retrieval"),
        "progress": False,
    }
    return RetrieveConfig(**{**given, **changes})  # type: ignore[arg-type]


def compare(tiny: Tiny) -> StagePlan:
    """What jobs/compare.py does, and what it had to read."""
    plan = make_tables(tiny)
    report(tiny.config, rich.console.Console(file=io.StringIO(), width=200))
    mark(tiny.config.out)
    return plan


def mark(out: str) -> None:
    """Make a folder a job's that steps alone have written, without what starts a job."""
    if read_marker(folder := Folder(out)) is None:
        files = (path for path in pathlib.Path(out).rglob("*") if path.is_file())
        write_marker(folder, [str(path.relative_to(out)) for path in files])


def make_tables(tiny: Tiny) -> StagePlan:
    """What jobs/compare.py does, without its report, which is half of the time."""
    inputs = prepare(tiny.config)
    more = further_lists(tiny.config, inputs)
    plan = plan_stage(tiny.config, inputs, "compare", single_document=True, end_to_end=True, more=more)
    finished = run_stage(tiny.config, plan)
    label(tiny.config, inputs, finished)
    score_end_to_end(tiny.config, inputs, finished)
    for extension in requested(tiny.config):
        extension.score(tiny.config, inputs, finished)
    assert evaluate(tiny.config, inputs) == []
    export(tiny.config, inputs)
    mark(tiny.config.out)
    return plan


def tables_text(tiny: Tiny) -> str:
    """Every table of the report as Markdown, made from the sealed tables."""
    results = load(tiny.config.out)
    made = build_report(results)
    assert not made.failures
    return parts_as_markdown(made.title, tables_of(made), made.notes)


def work_of(plan: StagePlan) -> dict[str, tuple[int, int, int]]:
    """Kind of list -> distinct, cached and new requests for answers."""
    return {
        row["lists"]: (row["distinct"], row["cached"], row["new"])
        for row in plan.counts
        if row["kind"] == ANSWER.name
    }


def num_reader_calls(tiny: Tiny) -> int:
    """Calls of the last job, as its COSTS have it."""
    costs = TableStore(f"{tiny.config.out}/compare").read(COSTS)
    return int(costs.filter(IS_LAST)["num_reader_calls"].sum())


def table(tiny: Tiny, schema: TableSchema, **equal: object) -> pl.DataFrame:
    """A sealed table, or those of its rows whose columns equal the given values."""
    rows = TableStore(tiny.config.out).read(schema)
    return rows.filter(pl.col(name) == value for name, value in equal.items()) if equal else rows


def results(tiny: Tiny) -> list[pl.DataFrame]:
    """What the reader's answers are sealed as, whatever they were read in."""
    return [table(tiny, schema).sort(pl.all()) for schema in (LABELS, UTILITY)]


def assert_same(found: list[pl.DataFrame], expected: list[pl.DataFrame]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert_frame_equal(one, other)


def job_command(config: Any, folder: pathlib.Path, job: str = "compare") -> list[str]:
    """The command of a job with this config, which is written to the folder."""
    path = folder / "config.yaml"
    path.write_text(json.dumps(dataclasses.asdict(config)))  # JSON is YAML
    return [sys.executable, f"jobs/{job}.py", "--config", str(path)]
