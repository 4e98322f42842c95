"""Reads requests with a reader of the user's own, so that one for which it raises does not keep the others unread.

A reader of this package that raises is broken, or its machine is: that passes, and is never the error of a request.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import polars as pl
import pyarrow as pa

from erag_ray.readers.base import Failure, Prompt, Reader, Request, failed
from erag_ray.readers.memory import is_gpu_lost
from erag_ray.schemas import InputError, JobError
from erag_ray.store import KEY_COLUMNS, as_frame
from erag_ray.user_code import KEPT, Fault, fault_of, is_user_code

ERRORS_IN_A_ROW = 10
"""So many requests that fail one after the other may be a fault of all, such as a wrong key: then others are tried."""
NUM_OTHERS = 3
"""Requests of so many other questions; where all of these fail too, the job ends."""


class Isolation:
    """Reads with one reader; what it raises becomes the error of the request for which it does."""

    def __init__(self, reader: Reader, name: str) -> None:
        self.reader = reader
        self.name = name
        self._failed_questions: list[int] = []
        """The question of each request that failed since the last one that did not."""

    def read(self, requests: pa.Table) -> Iterator[pa.Table]:
        """READINGS of a table of REQUESTS, a batch at a time, as `Reader.read` gives them.

        A batch for which user code raises is halved until each request for which it does stands alone: that becomes an
        error of kind ``code``. After `ERRORS_IN_A_ROW` of them requests of other questions are tried.

        Raises:
            JobError: those failed too, or the GPU cannot be used any more.
        """
        if not is_user_code(type(self.reader)):
            yield from self.reader.read(requests, self.name)
            return
        stack = [requests]
        while stack:
            left, fault = yield from self._read(stack.pop())
            if fault is None:
                continue
            batch = left if self.reader.batch is None else self.reader.batch
            stack.append(without(left, keys_of(batch)))
            if batch.num_rows > 1:
                half = batch.num_rows // 2
                stack += [batch.slice(half), batch.slice(0, half)]
            else:
                yield failed(batch, self.name, Failure("code", str(fault)))
                self._count(batch, requests, fault)

    def _read(self, requests: pa.Table) -> Generator[pa.Table, None, tuple[pa.Table, Fault | None]]:
        """Read until user code raises; returns the requests that are left then, and what was raised."""
        done = [keys_of(requests).clear()]
        try:
            for readings in self.reader.read(requests, self.name):
                self._failed_questions.clear()
                done.append(keys_of(readings))
                yield readings
        except (InputError, JobError):
            raise
        except Exception as error:
            fault = fault_of(error, type(self.reader))
            if is_gpu_lost(error):
                raise self._end(fault) from error
            return without(requests, pl.concat(done)), fault
        return requests.slice(0, 0), None

    def _count(self, request: pa.Table, block: pa.Table, fault: Fault) -> None:
        self._failed_questions.append(request.column("question_key")[0].as_py())
        count, num_questions = len(self._failed_questions), len(set(self._failed_questions))
        if count < ERRORS_IN_A_ROW:
            return
        others = others_of(request, block)
        works = any(list(self._read(other)) for other in others)
        if not works and (others or num_questions > NUM_OTHERS):
            raise self._end(fault, f"{count} requests in a row failed, and those of other questions do: ")

    def _end(self, fault: Fault, why: str = "") -> JobError:
        return JobError(f"reader {self.reader.config.kind}: {why}{fault}; {KEPT}")


def keys_of(table: pa.Table) -> pl.DataFrame:
    """The keys of REQUESTS or READINGS."""
    return as_frame(table.select(KEY_COLUMNS))


def without(requests: pa.Table, known: pl.DataFrame) -> pa.Table:
    """The requests that are not among these keys."""
    numbered = keys_of(requests).with_row_index("row")
    return requests.take(numbered.join(known, on=KEY_COLUMNS, how="anti")["row"].sort().to_arrow())


def others_of(one: pa.Table, block: pa.Table) -> list[pa.Table]:
    """At most `NUM_OTHERS` requests of a block, each of another question, spread over all that are of another."""
    questions = as_frame(block.select(["question_key"])).with_row_index("row")
    others = questions.filter(pl.col("question_key") != one.column("question_key")[0].as_py())
    firsts = others.unique("question_key", keep="first", maintain_order=True)["row"]
    step = max(1, len(firsts) // NUM_OTHERS)
    return [block.slice(row, 1) for row in firsts.gather_every(step)[:NUM_OTHERS]]


def encodable(reader: Reader, requests: Sequence[Request]) -> list[Prompt]:
    """The prompts of requests, without those for which user code cannot make one."""
    try:
        return reader.encode(requests)
    except (InputError, JobError):
        raise
    except Exception as error:
        if not is_user_code(type(reader)):
            raise
        fault_of(error, type(reader))
    if len(requests) == 1:
        return []
    return [prompt for request in requests for prompt in encodable(reader, [request])]
