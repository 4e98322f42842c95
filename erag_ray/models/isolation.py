"""Runs requests with a model of the user's own, so that one for which it raises does not keep the others unanswered.

A model of this package that raises is broken, or its machine is: that passes, and is never the error of a request.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence

import numpy as np

from erag_ray.errors import InputError, JobError
from erag_ray.models.base import Model, Rendered
from erag_ray.models.local.memory import is_gpu_lost
from erag_ray.requests import Failure, Request, Response
from erag_ray.schemas import ERROR_KINDS
from erag_ray.user_code import KEPT, Fault, fault_of, is_user_code

ERRORS_IN_A_ROW = 10
"""So many requests that fail one after the other may be a fault of all, such as a wrong key: then others are tried."""
NUM_OTHERS = 3
"""Requests of so many other questions; where all of these fail too, the job ends."""

COUNTS = (
    "num_prompt_tokens",
    "num_output_tokens",
    "num_truncated_question_tokens",
    "num_truncated_passage_tokens",
    "num_cached_prompt_tokens",
)
MOST_TOKENS = 1 << 31

Answer = tuple[int, Response]


class Isolation:
    """Runs one model; what it raises becomes the error of the request for which it does."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._failed_questions: list[str] = []
        """The question of each request that failed since the last one that did not."""

    def run(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """The place of each request, and its response, as `Model.run` gives them.

        Requests for which user code raises are taken apart until each of them stands alone: that becomes an error of
        kind ``code``. After `ERRORS_IN_A_ROW` of them requests of other questions are tried.

        Raises:
            JobError: those failed too.
            RuntimeError: the GPU cannot be used any more (`is_gpu_lost`).
        """
        if not is_user_code(type(self.model)):
            yield from self.model.run(requests)
            return
        stack = [list(range(len(requests)))]
        while stack:
            rows = stack.pop()
            left, fault = yield from self._run(requests, rows)
            # what is raised after the last response concerns no request
            if fault is None or not left:
                continue
            if len(rows) == 1:
                yield left[0], Response(failure=Failure("code", str(fault)))
                self._count(requests, left[0], fault)
            else:
                # a model that goes on in order has raised for the first one
                first, rest = left[:1], left[1:]
                half = len(rest) // 2
                stack += [part for part in (rest[half:], rest[:half], first) if part]

    def _run(
        self, requests: Sequence[Request], rows: Sequence[int]
    ) -> Generator[Answer, None, tuple[list[int], Fault | None]]:
        """Run until user code raises; returns the rows that are left then, and what was raised."""
        part = requests if len(rows) == len(requests) else [requests[row] for row in rows]
        open_rows = dict.fromkeys(rows)
        try:
            answers = checked(self.model, part)
            # one that is alone has no response until nothing more comes
            for place, response in list(answers) if len(rows) == 1 else answers:
                self._failed_questions.clear()
                del open_rows[rows[place]]
                yield rows[place], response
        except (InputError, JobError):
            raise
        except Exception as error:
            if is_gpu_lost(error):
                raise
            return list(open_rows), fault_of(error, type(self.model))
        return [], None

    def _count(self, requests: Sequence[Request], row: int, fault: Fault) -> None:
        self._failed_questions.append(requests[row].question)
        count, num_questions = len(self._failed_questions), len(set(self._failed_questions))
        if count < ERRORS_IN_A_ROW:
            return
        others = others_of(requests, row)
        works = any(list(self._run(requests, [other])) for other in others)
        if not works and (others or num_questions > NUM_OTHERS):
            raise self._end(fault, f"{count} requests in a row failed, and those of other questions do: ")

    def _end(self, fault: Fault, why: str = "") -> JobError:
        return JobError(f"reader {self.model.config.kind}: {why}{fault}; {KEPT}")


def checked(model: Model, requests: Sequence[Request]) -> Iterator[Answer]:
    """`Model.run` of a model that may be wrong.

    Raises:
        TypeError: it gives what is no response, or no response to one of these requests, or answers one twice or none.
    """
    missing = set(range(len(requests)))
    for answer in model.run(requests):
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Response)):
            raise TypeError(f"run gave {answer!r}, not a request's place and an erag_ray.models.Response")
        place, response = answer
        if place not in missing:
            raise TypeError(f"run answered request {place!r}, of {len(requests)} from 0, twice or unasked")
        if fault := _fault(requests[place], response):
            raise TypeError(f"run gave {fault}")
        missing.discard(place)
        yield place, response
    if missing:
        raise TypeError(f"run left {len(missing)} of {len(requests)} requests unanswered")


def _fault(request: Request, response: Response) -> str:
    """What is wrong with a response; "" if nothing is."""
    wrong = [name for name in COUNTS if not _is_count(getattr(response, name))]
    if wrong:
        return f"{wrong[0]}={getattr(response, wrong[0])!r}"
    if response.failure is not None:
        return _fault_of_failure(response.failure)
    if request.form.method == "generate":
        is_text = _is_text(response.text)
        return "" if is_text else f"the text {response.text!r} for a request to generate"
    return _fault_of_logprobs(response, len(request.answers))


def _fault_of_failure(failure: object) -> str:
    is_one = isinstance(failure, Failure) and failure.kind in ERROR_KINDS and _is_text(failure.text)
    return "" if is_one else f"{failure!r}, not an erag_ray.models.Failure of kind {', '.join(ERROR_KINDS)}"


def _fault_of_logprobs(response: Response, count: int) -> str:
    values, lengths = response.logprobs, response.num_answer_tokens
    if len(values) != count:
        return f"{len(values)} log-probabilities for {count} answers"
    if len(lengths) not in (0, count) or not all(map(_is_count, lengths)):
        return f"num_answer_tokens={lengths!r} for {count} answers"
    wrong = [
        value for value in values if not isinstance(value, int | float) or math.isnan(value) or value > 0
    ]
    return f"the log-probability {wrong[0]!r}" if wrong else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and 0 <= int(value) < MOST_TOKENS


def _is_text(value: object) -> bool:
    """Whether it is a text; one with half a character raises UnicodeEncodeError."""
    return isinstance(value, str) and value.encode() is not None


def others_of(requests: Sequence[Request], row: int) -> list[int]:
    """At most `NUM_OTHERS` requests, each of another question, spread over all that are of another."""
    firsts: dict[str, int] = {}
    for place, request in enumerate(requests):
        firsts.setdefault(request.question, place)
    firsts.pop(requests[row].question)
    rows = sorted(firsts.values())
    return rows[:: max(1, len(rows) // NUM_OTHERS)][:NUM_OTHERS]


def rendered(model: Model, requests: Sequence[Request]) -> list[Rendered]:
    """What requests become, without those for which user code cannot say it."""
    try:
        found = list(model.render(requests))
        others = [one for one in found if not isinstance(one, Rendered)]
        if others or len(found) != len(requests):
            what = f"{others[0]!r}" if others else f"{len(found)} results for {len(requests)} requests"
            raise TypeError(f"render gave {what}, not an erag_ray.models.Rendered for each request")
        return found
    except (InputError, JobError):
        raise
    except Exception as error:
        if not is_user_code(type(model)):
            raise
        fault_of(error, type(model))
    if len(requests) == 1:
        return []
    return [one for request in requests for one in rendered(model, [request])]
