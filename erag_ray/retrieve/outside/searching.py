"""Ask a search all questions: retries, latencies, lists that are wrong, and what was retrieved before a stop."""

import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from erag_ray.data.files.documents import Document, ListIds
from erag_ray.data.runs.orders import rising_fault
from erag_ray.retrieve.lists import LIST_COLUMNS
from erag_ray.retrieve.outside.adapters import Search
from erag_ray.store.fingerprints import new_job_id
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import frame_schema
from erag_ray.store.sharded_tasks import read_whole_frames, write_frame
from erag_ray.support.errors import JobError
from erag_ray.support.logs import say
from erag_ray.support.progress import counted
from erag_ray.support.user_code import fault_of, is_raised_here

LIST_TEXT_COLUMNS = pl.Schema({**LIST_COLUMNS, **frame_schema("title text seconds")})
SEARCHED_COLUMNS = pl.Schema({**LIST_TEXT_COLUMNS, "question": pl.String(), "depth": pl.Int64()})
"""What is written while questions are asked; a question without documents has one row without doc_id."""
SEARCHED = "searched"
WRITE_SECONDS = 20.0
PAUSE_SECONDS = 0.25
"""Before the first retry; doubled for each later one."""
NUM_EARLY = 20
"""Questions after which the order of the scores is checked, and again at the end."""
MAX_IN_A_ROW = 10
"""Questions that fail one after the other before the others are not asked any more."""
NUM_SHOWN = 5


@dataclass(kw_only=True)
class Searching:
    """Asks a search all questions for ``depth`` documents each."""

    name: str
    """Of the retriever, for messages."""
    search: Search
    depth: int
    retries: int = 3
    """How often a question that fails is tried again, with growing pauses."""
    work: Folder | None = None
    """Keeps what was retrieved: the next one with the same folder, questions and depth asks only the others."""
    parts: list[pl.DataFrame] = field(default_factory=list)
    """Of `SEARCHED_COLUMNS`."""
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    """Of the next part."""
    failures: dict[str, str] = field(default_factory=dict)
    """Question -> what went wrong."""
    num_attempts: int = 0
    """Most attempts at a question that failed."""
    num_skipped: int = 0

    def lists(self, queries: pl.DataFrame, *, show: bool) -> pl.DataFrame:
        """Return the lists of all questions, in the order of ``queries``; columns as in `LIST_TEXT_COLUMNS`.

        A list that found nothing is one row of rank 0 without a document, for its latency.

        Longer lists are cut at ``depth``; shorter ones are counted in a note. ``seconds`` is the latency of the attempt
        that succeeded, the same in all rows of a list. Documents without an id are called by their title and text.

        Raises:
            JobError: questions failed; the first of them are named, and what was retrieved stays in ``work``. Or the
                scores rise from the best document to the worst in nearly all lists.
        """
        self._ask(queries.select("query_id", "question"), show=show)
        self._raise_failures(queries.height)
        self._raise_rising()
        order = queries.select("query_id").with_row_index("place")
        lists = pl.concat(self.parts).join(order, on="query_id").sort("place", "rank")
        documents = lists.filter(pl.col("rank") > 0)
        if num_short := queries.height - documents.filter(rank=self.depth).height:
            short = f"{num_short:,} of {queries.height:,} questions have fewer than {self.depth} documents"
            num_empty = queries.height - documents["query_id"].n_unique()
            say(f"{self.name}: {short}{f', {num_empty:,} of them none' if num_empty else ''}")
        return lists.select(LIST_TEXT_COLUMNS.names()).match_to_schema(LIST_TEXT_COLUMNS)

    def _ask(self, queries: pl.DataFrame, *, show: bool) -> None:
        """Ask the questions that the work folder does not have; what was retrieved is written, also after a stop."""
        self.parts = [pl.DataFrame(schema=SEARCHED_COLUMNS)]
        for frame in read_whole_frames(self.work, SEARCHED, SEARCHED_COLUMNS) if self.work else ():
            same = frame.filter(depth=self.depth)
            known = same.join(queries, on=["query_id", "question"], how="semi", maintain_order="left")
            self.parts.append(known)
        known = pl.concat([one.select("query_id", "question") for one in self.parts])
        pending = queries.join(known, on=["query_id", "question"], how="anti", maintain_order="left")
        num_known, in_a_row, written = queries.height - pending.height, 0, time.monotonic()
        try:
            with counted(f"questions by {self.name}", queries.height, show=show) as on_progress:
                for number, (query_id, question) in enumerate(pending.iter_rows(), 1):
                    in_a_row = 0 if self._is_answered(query_id, question) else in_a_row + 1
                    if in_a_row == MAX_IN_A_ROW:
                        self.num_skipped = pending.height - number
                        return
                    if number == NUM_EARLY:
                        self._raise_rising()
                    if time.monotonic() >= written + WRITE_SECONDS:
                        self._write()
                        written = time.monotonic()
                    on_progress(num_known + number)
        finally:
            self._write()

    def _is_answered(self, query_id: str, question: str) -> bool:
        """Ask one question, record its list or its failure, and return whether it succeeded."""
        try:
            documents, seconds = self._attempts(question)
        except Exception as error:
            self.failures[query_id] = str(fault_of(error, getattr(self.search, "retriever", self.search)))
            return False
        ends = (seconds, question, self.depth)
        rows = [
            (query_id, rank, doc_id, one.score, one.title, one.text, *ends)
            for rank, (doc_id, one) in enumerate(documents, 1)
        ]
        self.rows += rows or [(query_id, 0, None, None, None, None, *ends)]
        return True

    def _attempts(self, question: str) -> tuple[list[tuple[str, Document]], float]:
        """Search until it succeeds; return (doc_id, document) pairs and the seconds of the last attempt."""
        for attempt in itertools.count():
            try:
                start = time.perf_counter()
                documents = self.search(question, self.depth)
                seconds = time.perf_counter() - start
                ids = ListIds()
                return [(ids.next(document), document) for document in documents[: self.depth]], seconds
            except Exception as error:
                self.num_attempts = max(self.num_attempts, attempt + 1)
                # the call or the list has a wrong form
                is_wrong = isinstance(error, TypeError | ValueError) and is_raised_here(error)
                if attempt == self.retries or getattr(error, "is_final", is_wrong):
                    raise
                pause = PAUSE_SECONDS * 2**attempt * random.uniform(0.75, 1.25)
                requested: float | None = getattr(error, "pause_seconds", None)
                time.sleep(pause if requested is None else requested)
        raise AssertionError("unreachable")

    def _write(self) -> None:
        if not self.rows:
            return
        frame = pl.DataFrame(self.rows, schema=SEARCHED_COLUMNS, orient="row")
        self.rows = []
        self.parts.append(frame)
        if self.work:
            write_frame(frame, self.work, SEARCHED, f"{new_job_id()}.parquet")

    def _raise_rising(self) -> None:
        """Raise a `JobError` if the scores of nearly all lists rise from the first document to the last."""
        rows = pl.DataFrame(self.rows, schema=SEARCHED_COLUMNS, orient="row")
        if fault := rising_fault(pl.concat([*self.parts, rows]), self.name):
            raise JobError(f"{fault} Then change revision, so that all questions are asked again")

    def _raise_failures(self, num_queries: int) -> None:
        """Raise a `JobError` that names the questions that failed, if there are any."""
        if not self.failures:
            return
        named = [f"query {query_id!r}: {fault}" for query_id, fault in [*self.failures.items()][:NUM_SHOWN]]
        more = len(self.failures) - len(named)
        attempts = f"{self.num_attempts} attempts" if self.num_attempts > 1 else "one attempt"
        skipped = f"; {self.num_skipped:,} more were not asked" if self.num_skipped else ""
        resume = "; what was retrieved is kept: start the same command again" if self.work else ""
        raise JobError(
            f"{self.name}: {len(self.failures):,} of {num_queries:,} questions failed after {attempts}{skipped}: "
            f"{'; '.join(named)}{f'; ... and {more:,} more' if more else ''}{resume}"
        )
