"""Isolation of failures: a request for which a user's model raises does not affect the other requests.

If a model of this package raises, the model or the machine is broken: such exceptions pass through, and never become
the error of a request. Every response of every model is checked here (`_fault`), so that it can be stored.
"""

import dataclasses
import math
from collections.abc import Generator, Iterator, Sequence

import numpy as np

from erag_ray.models.base import Model, Rendered
from erag_ray.models.local.process import is_gpu_lost
from erag_ray.models.outputs import SURROGATE
from erag_ray.prompts.request import Failure, Request, Response
from erag_ray.store.schemas import ERROR_KINDS
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.user_code import RESUME_ADVICE, Fault, fault_of, is_user_code

ERRORS_IN_A_ROW = 10
"""Consecutive failures after which the cause may be general, such as a wrong key: then other questions are tried."""
NUM_OTHERS = 3
"""The number of other questions to try; if they all fail too, the job ends."""

COUNTS = [field.name for field in dataclasses.fields(Response) if field.type == "int"]
MAX_TOKENS = 1 << 31
ROUNDING = 1e-3
"""How far above 0 rounding can lift a log-probability."""
NUM_SHOWN = 80

Answer = tuple[int, Response]


class Isolation:
    """Runs one model, and turns an exception of user code into the error of the request that causes it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._failed_questions: list[str] = []
        """The questions of the failed requests since the last success."""

    def run(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Yield the index of each request and its response, as `Model.run`.

        Batches for which user code raises are bisected down to single requests, which become errors of kind ``code``.
        After `ERRORS_IN_A_ROW` of these, requests of other questions are tried.

        Raises:
            JobError: the other questions failed too.
            RuntimeError: the GPU cannot be used any more (`is_gpu_lost`).
        """
        if not is_user_code(self.model.code):
            for index, response in self.model.run(requests):
                what = _fault(requests[index], response)
                failure = Failure("resource", f"an answer with {what}")
                yield index, Response(failure=failure) if what else response
            return
        stack = [list(range(len(requests)))]
        while stack:
            rows = stack.pop()
            remaining, fault = yield from self._run(requests, rows)
            # an exception after the last response belongs to no request
            if fault is None or not remaining:
                continue
            if len(rows) == 1:
                yield remaining[0], Response(failure=Failure("code", str(fault)))
                self._count(requests, remaining[0], fault)
            else:
                # a model that works in order has raised for the first remaining request
                first, rest = remaining[:1], remaining[1:]
                half = len(rest) // 2
                stack += [group for group in (rest[half:], rest[:half], first) if group]

    def _run(
        self, requests: Sequence[Request], rows: Sequence[int]
    ) -> Generator[Answer, None, tuple[list[int], Fault | None]]:
        """Run until user code raises; return the rows without a response, and the fault."""
        batch = requests if len(rows) == len(requests) else [requests[row] for row in rows]
        open_rows = dict.fromkeys(rows)
        try:
            answers = run_checked(self.model, batch)
            # a single request counts as answered only after the model has finished
            for index, response in list(answers) if len(rows) == 1 else answers:
                self._failed_questions.clear()
                del open_rows[rows[index]]
                yield rows[index], response
        except (InputError, JobError):
            raise
        except Exception as error:
            if is_gpu_lost(error):
                raise
            return list(open_rows), fault_of(error, self.model.code)
        return [], None

    def _count(self, requests: Sequence[Request], row: int, fault: Fault) -> None:
        self._failed_questions.append(requests[row].question)
        count, num_questions = len(self._failed_questions), len(set(self._failed_questions))
        if self.model.may_all_fail or count < ERRORS_IN_A_ROW:
            return
        others = others_of(requests, row)
        works = any(list(self._run(requests, [other])) for other in others)
        if not works and (others or num_questions > NUM_OTHERS):
            why = f"{count} requests in a row failed, and those of other questions fail too"
            raise JobError(f"reader {self.model.config.kind}: {why}: {fault}; {RESUME_ADVICE}")


def run_checked(model: Model, requests: Sequence[Request]) -> Iterator[Answer]:
    """Yield (index in ``requests``, response) from `Model.run`, in the model's order, and check each response.

    Raises:
        TypeError: the model yields something other than a valid response to one of the requests, answers a request
            twice, or leaves one without a response. Valid responses before it have been yielded.
        Exception: whatever the model raises.
    """
    missing = set(range(len(requests)))
    for answer in model.run(requests):
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Response)):
            raise TypeError(f"run yielded {answer!r}, not a request's index and an erag_ray.models.Response")
        index, response = answer
        if index not in missing:
            raise TypeError(f"run yielded index {index!r} twice, or it is outside 0..{len(requests) - 1}")
        if fault := _fault(requests[index], response):
            raise TypeError(f"run yielded {fault}")
        missing.discard(index)
        yield index, response
    if missing:
        raise TypeError(f"run yielded no response to {len(missing)} of {len(requests)} requests")


def _fault(request: Request, response: Response) -> str:
    """Return what is wrong with a response; "" if nothing is."""
    invalid = [name for name in COUNTS if not _is_count(getattr(response, name))]
    if invalid:
        return f"{invalid[0]}={getattr(response, invalid[0])!r}"
    failure: object = response.failure
    if failure is not None:
        if isinstance(failure, Failure) and failure.kind in ERROR_KINDS and not _fault_of_text(failure.text):
            return ""
        return f"{failure!r}, not an erag_ray.models.Failure of kind {', '.join(ERROR_KINDS)}"
    if request.form.method == "generate":
        return _fault_of_text(response.text)
    return _fault_of_logprobs(response, len(request.answers))


def _fault_of_logprobs(response: Response, count: int) -> str:
    values, lengths = response.logprobs, response.num_answer_tokens
    if len(values) != count:
        return f"{len(values)} log-probabilities for {count} answers"
    if len(lengths) not in (0, count) or not all(map(_is_count, lengths)):
        return f"num_answer_tokens={lengths!r} for {count} answers"
    invalid = [
        value
        for value in values
        if not isinstance(value, int | float) or math.isnan(value) or value > ROUNDING
    ]
    return f"the log-probability {invalid[0]!r}" if invalid else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and 0 <= int(value) < MAX_TOKENS


def _fault_of_text(text: object) -> str:
    if not isinstance(text, str):
        return f"the text {text!r} for a request to generate"
    shown = f"half of a surrogate pair in {text[:NUM_SHOWN]!r}: surrogates cannot be stored"
    return shown if SURROGATE.search(text) else ""


def others_of(requests: Sequence[Request], row: int) -> list[int]:
    """Return at most `NUM_OTHERS` rows of other, distinct questions, spread over all of these."""
    first_rows: dict[str, int] = {}
    for index, request in enumerate(requests):
        first_rows.setdefault(request.question, index)
    first_rows.pop(requests[row].question)
    rows = sorted(first_rows.values())
    return rows[:: max(1, len(rows) // NUM_OTHERS)][:NUM_OTHERS]


def render_isolated(model: Model, requests: Sequence[Request]) -> list[Rendered]:
    """Return `Model.render` of requests, without those for which user code raises."""
    try:
        prompts = list(model.render(requests))
        invalid = [prompt for prompt in prompts if not isinstance(prompt, Rendered)]
        if invalid or len(prompts) != len(requests):
            what = f"{invalid[0]!r}" if invalid else f"{len(prompts)} results for {len(requests)} requests"
            raise TypeError(f"render returned {what}, not an erag_ray.models.Rendered for each request")
        return prompts
    except (InputError, JobError):
        raise
    except Exception as error:
        if not is_user_code(type(model)):
            raise
        fault_of(error, type(model))
    if len(requests) == 1:
        return []
    return [prompt for request in requests for prompt in render_isolated(model, [request])]
