"""The job that makes runs: questions, passages or pages, and the retrievers to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from erag_ray.config.check import require


@dataclass(frozen=True, kw_only=True)
class RetrieveConfig:
    """Questions, passages or the pages to make them from, and the retrievers to run."""

    PATHS: ClassVar = ("queries", "triviaqa_questions", "passages", "knowledge_source", "out")

    queries: list[str] = field(default_factory=list)
    """Question files: KILT task files (.jsonl, .jsonl.gz) or BEIR queries.jsonl with answers in its metadata."""

    query_format: str = "auto"
    """Form of the question files: auto, kilt or beir."""

    triviaqa_questions: list[str] = field(default_factory=list)
    """TriviaQA's original JSON files: KILT's TriviaQA files hold ids without questions."""

    dataset: str | None = None
    """Name of the dataset, for files that do not say it."""

    where: list[str] = field(default_factory=list)
    """Only questions whose record holds these values: path=value, or dataset:path=value for one dataset alone."""

    passages: list[str] = field(default_factory=list)
    """Passage files: JSONL (.gz) or Parquet with doc_id, page_id, title, text; BEIR corpus.jsonl; or a corpus
    folder that this job has made."""

    knowledge_source: list[str] = field(default_factory=list)
    """Instead of passages: KILT's knowledge source (one page a line, .gz too), split into <out>/corpus."""

    splitter: str = "whitespace100"
    """How pages become passages: whitespace100, or package.module:name."""

    retrievers: list[str] = field(default_factory=lambda: ["bm25"])
    """bm25, bm25_lead (titles and first sentences only), random (the floor), or package.module:name."""

    depth: int = 50
    """Length of the lists."""

    out: str = "results/retrieval"
    """Folder of <out>/runs/NAME.parquet and, from pages, <out>/corpus; not the out of another job."""

    progress: bool = True
    """Show a progress bar."""

    def __post_init__(self) -> None:
        require(self.depth >= 1, f"depth must be at least 1, got {self.depth}")
        require(
            not (self.passages and self.knowledge_source),
            "passages: give either passages or a knowledge_source, not both",
        )
        require(bool(self.retrievers), "retrievers: name at least one")
        names = [run_name(retriever) for retriever in self.retrievers]
        require(len(set(names)) == len(names), f"retrievers: two would write the same run: {names}")


def run_name(retriever: str) -> str:
    """The name of a retriever's run: its own, without the module of outside code."""
    return retriever.rpartition(":")[2]
