"""Models behind OpenAI-compatible servers, with many requests in flight and responses in the order of completion."""

import asyncio
import dataclasses
import functools
import importlib.util
import math
import queue
import re
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.base import TOKEN_CHARACTERS, Model, Rendered, Resources, render_text
from erag_ray.models.budget import SpentError, TokenCounts
from erag_ray.models.loop import WAKE_SECONDS, LoopThread
from erag_ray.models.outputs import answer_in
from erag_ray.models.served.answers import UNREADABLE, counts_of, has_thinking_apart, is_cut, name_of, text_of
from erag_ray.models.served.client import MAX_FAILED_IN_A_ROW, RESUME_ADVICE, Client, RequestError, key_of
from erag_ray.models.served.handshake import (
    Handshake,
    body_of,
    common_fields,
    probe,
    shake_hands,
    top_logprobs,
)
from erag_ray.prompts.prompt import cut, pieces
from erag_ray.prompts.request import Failure, Form, Method, Request, Response
from erag_ray.support.errors import InputError, JobError

PROBE_SECONDS = 60.0
"""After it the next answer is followed by probes, which detect whether a server has changed; `run` also ends so."""
GRACE_SECONDS = 10.0
"""How long the end of a job waits for requests in flight."""
MAX_FINGERPRINTS = 30
"""With more new ones of a server, each answer might have its own, and no further one sends a probe."""
NUM_REFUSED_QUESTIONS = 4
"""The job ends once more than `MAX_FAILED_IN_A_ROW` consecutive requests of so many questions were refused."""
REFUSED_ADVICE = (
    "Correct reader.model, reader.extra_body or reader.max_prompt_tokens; these requests have no response and are sent "
    "again"
)
REFUSED_FIELDS = ("messages", "prompt", "stream")
"""Fields of a request that a config must not set: each has its own prompt, and an answer is one JSON object."""
SHORT = 0.6
"""A server that counts a smaller share of a prompt's tokens, at 4 characters each, has not read all of it."""
ADDRESS = re.compile(r"https?://[^\s@?#]+")

Answer = tuple[int, Response]


class ServedModel(Model):
    """A model behind one or several servers.

    Notes of its responses: ``thinking`` and ``control`` tokens (removed from the output), ``cut`` (by
    ``max_new_tokens``), ``empty``, ``estimated`` (its token counts, which the server did not return), ``short`` (far
    fewer prompt tokens by the server's count than were sent).
    """

    charges_budget: ClassVar[bool] = True
    has_timeouts: ClassVar[bool] = True

    revision: ClassVar[int] = 2
    supports: ClassVar[frozenset[Method]] = frozenset({"generate", "loglikelihood"})
    scores_texts: ClassVar[bool] = False
    is_repeatable: ClassVar[bool] = False
    default_prompt: ClassVar[str] = "question_first"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        needed = {"base_url": config.base_urls, "model": config.model, "revision": config.revision}
        problems = [f"reader.{name}: kind served needs it" for name, value in needed.items() if not value]
        problems += [f"reader.base_url: {fault}" for fault in _faults_of(config.base_urls)]
        refused = (name for name in REFUSED_FIELDS if config.extra_body.get(name))
        problems += [f"reader.extra_body: must not have {name}" for name in refused]
        if importlib.util.find_spec("openai") is None:
            problems.append("reader.kind: served needs openai: pip install 'erag-ray[served]'")
        if problems:
            raise InputError(problems)
        self._client: Client | None = None
        self._fault: InputError | JobError | None = None
        self._probed_at = 0.0
        self._fingerprints = {""}

    def fingerprint_fields(self) -> dict[str, object]:
        return {
            **super().fingerprint_fields(),
            **common_fields(self.config),
            "api": self.config.api,
            "weights": self.config.revision,
            "extra_body": self.config.extra_body,
        }

    def resources(self) -> Resources:
        in_flight = self.config.concurrency * len(self.config.base_urls)
        return Resources(num_gpus=0, num_cpus=1, in_flight=in_flight)

    @functools.cached_property
    def _loop(self) -> LoopThread:
        return LoopThread()

    async def _shake_hands(self) -> Handshake:
        client = await self._get_client()
        self._probed_at = time.monotonic()
        handshake = await shake_hands(client)
        self._fingerprints |= {(first.fingerprint or "").casefold() for first in handshake.answers}
        return handshake

    async def _get_client(self) -> Client:
        """Return the client of this process, which is created in the event loop."""
        if self._client is None:
            self._client = Client(self.config)
            weakref.finalize(self, self._loop.finish, self._client.close)
        return self._client

    @functools.cached_property
    def handshake(self) -> Handshake:
        """Return what the servers support; the handshake runs once, also if it fails.

        Raises:
            InputError: they do not have the model or reject fields that every request has, or there is no key.
            JobError: they cannot be reached.
        """
        if self._fault:
            raise self._fault
        try:
            key_of(self.config)
            return self._loop.result(self._shake_hands())
        except (InputError, JobError) as error:
            self._fault = error
            raise

    def check(self, form: Form) -> None:
        if form.prompt.is_chat != (self.config.api == "chat"):
            text = f"api: {self.config.api} takes no {'chat' if form.prompt.is_chat else 'plain'} prompt"
            other = ("plain", "chat") if form.prompt.is_chat else ("question_first", "completions")
            raise InputError([f"reader.{text}; set prompt: {other[0]}, or api: {other[1]}"])
        try:
            handshake = self.handshake
        except JobError as error:
            text = str(error).removesuffix(f"; {RESUME_ADVICE}")
            raise InputError([f"reader.base_url: {text}"]) from error
        if form.method == "loglikelihood" and not form.next_token:
            text = "a served model gives no log-probability of a given text that could be relied on"
            raise InputError([f"reader.kind: {text}; leave out the annotators that need gold_likelihood"])
        if form.method == "loglikelihood" and not handshake.has_top_logprobs:
            text = "the server gives no log-probabilities of first tokens; use judge.scale: grades"
            advice = "leave out the annotators that need no_response"
            raise InputError([f"reader.kind: {text}, or {advice}"])
        length, most = (form.max_prompt_tokens or 0) + form.max_new_tokens, handshake.context_length
        if most is not None and length > most:
            text = f"max_prompt_tokens and max_new_tokens are {length:,} together, the server's context is"
            raise InputError([f"reader.model: {text} {most:,}"])

    def check_facts(self, first: Mapping[str, Any]) -> None:
        difference = self.handshake.difference(first["handshake"])
        if difference:
            text = f"the server has changed since responses of revision {self.config.revision}: {difference}"
            advice = "if it has other weights, set another revision, which has responses of its own"
            raise InputError([f"reader.revision: {text}; {advice}"])

    def load(self) -> None:
        """Connect; raise JobError if a server cannot be reached."""
        _ = self.handshake

    def facts(self) -> dict[str, object]:
        return {"base_url": self.config.base_urls, "handshake": self.handshake.facts()}

    def notes(self) -> list[str]:
        return self.handshake.notes(f"{self.config.model}")

    # --- prompts ---

    def render(self, requests: Sequence[Request]) -> list[Rendered]:
        return [_rendered(request) for request in requests]

    # --- answers ---

    def run(self, requests: Sequence[Request]) -> Iterator[Answer]:
        results: queue.SimpleQueue[Answer | Future[None]] = queue.SimpleQueue()
        _ = self.handshake  # inside the event loop it would deadlock
        running = self._loop.start(self._run(requests, results))
        running.add_done_callback(results.put)
        try:
            while True:
                try:
                    result = results.get(timeout=WAKE_SECONDS)
                except queue.Empty:
                    continue
                except KeyboardInterrupt:
                    # answers that have come are paid
                    while not results.empty():
                        if not isinstance(result := results.get(), Future):
                            yield result
                    raise
                if isinstance(result, Future):
                    result.result()
                    return
                yield result
        finally:
            running.cancel()

    async def _run(self, requests: Sequence[Request], results: queue.SimpleQueue[Any]) -> None:
        """Run requests, and put indices and responses into a queue.

        Raises:
            JobError: the server cannot be used any more; after up to `GRACE_SECONDS` for requests in flight.
        """
        if not requests:
            return
        client, rows = await self._get_client(), deque(range(len(requests)))
        client.may_all_fail = self.may_all_fail
        refusals = _Refusals(results, rows, self.resources().in_flight)

        async def work() -> None:
            while rows:
                request = requests[index := rows.popleft()]
                try:
                    refusals.put(index, request, await self._respond(client, request))
                except SpentError:
                    return  # and so do the others, once those in flight have ended
                if time.monotonic() >= self._probed_at + PROBE_SECONDS:
                    await self._probe_all(client)

        workers = [asyncio.create_task(work()) for _ in range(min(len(requests), self.resources().in_flight))]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            refusals.end()
            await self._probe_all(client)
        except JobError as error:
            client.ended = error
            await asyncio.wait(workers, timeout=GRACE_SECONDS)
            raise
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _probe_all(self, client: Client) -> None:
        self._probed_at = time.monotonic()
        for server in range(len(self.config.base_urls)) if self.handshake.is_steady else ():
            if await self._changed_answer(client, server):
                async with client.limit.exclusive():
                    answer = await self._changed_answer(client, server, is_exclusive=True)
                    answer = answer and await self._changed_answer(client, server, is_exclusive=True)
                if answer:
                    first = self.handshake.answers[server].text
                    self._raise_changed(server, f"the probe {first!r}, now {answer!r}")

    async def _changed_answer(self, client: Client, server: int, *, is_exclusive: bool = False) -> str:
        """Return the answer to the probe if it differs from the handshake's; "" if it does not, or there is none."""
        try:
            answer = await probe(client, self.handshake.token_field, server, is_exclusive=is_exclusive)
        except RequestError:
            return ""
        return "" if answer.text == self.handshake.answers[server].text else answer.text or "(empty)"

    def _raise_changed(self, server: int | None, change: str) -> None:
        urls = self.config.base_urls if server is None else [self.config.base_urls[server]]
        raise JobError(
            f"{', '.join(urls)}: the server has changed since the start: {change}. If it has other weights, set "
            f"another reader.revision, which has responses of its own; responses of the last {PROBE_SECONDS:g} s "
            f"may be from the other weights. {RESUME_ADVICE}"
        )

    async def _respond(self, client: Client, request: Request) -> Response:
        rendered, form = _rendered(request), request.form
        token_field, is_token = self.handshake.token_field, form.method == "loglikelihood"
        num_output = 1 if is_token else form.max_new_tokens
        body = body_of(self.config, num_output, token_field, rendered, form.seed, has_logprobs=is_token)
        estimate = TokenCounts(rendered.num_tokens or 0, 0, num_output)
        try:
            answer = await client.post(body, estimate, budget=self.budget)
        except RequestError as error:
            return Response(failure=error.failure)
        await self._check_same(client, answer)
        try:
            return _response(request, rendered, answer, counts_of(answer, estimate))
        except UNREADABLE as error:
            return Response(failure=Failure("resource", f"the answer cannot be read: {type(error).__name__}"))

    async def _check_same(self, client: Client, answer: Mapping[str, Any]) -> None:
        """Check the model name, and probe the servers at a new ``system_fingerprint``, of which clouds have several.

        Some servers return them only in some answers, or in letters of another case.
        """
        model = (name_of(answer, "model") or "").casefold()
        fingerprint = (name_of(answer, "system_fingerprint") or "").casefold()
        models = {first.model.casefold() for first in self.handshake.answers if first.model}
        if model and models and model not in models:
            self._raise_changed(None, f"model {', '.join(models)}, now {model}")
        if fingerprint in self._fingerprints:
            return
        async with client.checking:  # other new ones wait for the probe
            if fingerprint not in self._fingerprints and len(self._fingerprints) <= MAX_FINGERPRINTS:
                await self._probe_all(client)
                self._fingerprints.add(fingerprint)


class _Refusals:
    """Passes responses on; refused requests once another one is answered, so that no refusal of all is stored."""

    def __init__(self, results: queue.SimpleQueue[Any], rows: deque[int], in_flight: int) -> None:
        self._results, self._rows, self._is_answered = results, rows, False
        self._most = MAX_FAILED_IN_A_ROW + in_flight + NUM_REFUSED_QUESTIONS
        self._refusals: list[tuple[Answer, str]] = []
        """Refusals in a row, and their questions."""

    def put(self, index: int, request: Request, response: Response) -> None:
        """Pass on a response, or hold it; raise JobError if too many requests in a row were refused."""
        if response.failure is not None and response.failure.kind == "input":
            self._refusals.append(((index, response), request.question))
            if len(self._refusals) == MAX_FAILED_IN_A_ROW:
                self._send_others_next()
            if len({question for _, question in self._refusals}) >= NUM_REFUSED_QUESTIONS:
                self._check(self._most)
            return
        if response.failure is None:
            self._is_answered = True
            self._pass_on()
        self._results.put((index, response))

    def end(self) -> None:
        """Pass on what is held; raises as `put` if no request was answered."""
        if not self._is_answered:
            self._check(MAX_FAILED_IN_A_ROW)
        self._pass_on()

    def _send_others_next(self) -> None:
        """Put requests from all over the rest first: the longest, which come in a row, may be refused by themselves."""
        step = max(1, len(self._rows) // NUM_REFUSED_QUESTIONS)
        for row in list(self._rows)[step - 1 :: step]:
            self._rows.remove(row)
            self._rows.appendleft(row)

    def _check(self, most: int) -> None:
        if len(self._refusals) >= most:
            failure = self._refusals[-1][0][1].failure
            text = f"{len(self._refusals)} requests in a row were refused, the last one: {failure and failure.text}"
            raise JobError(f"{text}. {REFUSED_ADVICE}; {RESUME_ADVICE}")

    def _pass_on(self) -> None:
        for answer, _ in self._refusals:
            self._results.put(answer)
        self._refusals.clear()


def _faults_of(urls: Sequence[str]) -> Iterator[str]:
    for url in urls:
        if any(sign in url for sign in "@?#"):
            # the URL may contain a key, which must not appear in a message
            yield "must be an address without a name, a password or a query; for a key set reader.api_key_env"
        elif not ADDRESS.fullmatch(url):
            yield f"{url} is no http:// or https:// address"


def _rendered(request: Request) -> Rendered:
    """Return text or messages for a server, truncated by characters if there is a limit."""
    form = request.form
    parts = pieces(form.prompt, request.question, request.passages)
    texts, num_question, num_passages = [part.text for part in parts], 0, 0
    if form.max_prompt_tokens is not None:
        room = form.max_prompt_tokens * TOKEN_CHARACTERS - _num_characters(render_text(request, ""))
        texts, num_question, num_passages = cut(parts, texts, room=room, keep_end=form.keep_question_end)
    rendered = render_text(request, "".join(texts))
    return dataclasses.replace(
        rendered,
        num_tokens=math.ceil(_num_characters(rendered) / TOKEN_CHARACTERS),
        num_truncated_question_tokens=math.ceil(num_question / TOKEN_CHARACTERS),
        num_truncated_passage_tokens=math.ceil(num_passages / TOKEN_CHARACTERS),
    )


def _num_characters(rendered: Rendered) -> int:
    return len(rendered.text) + sum(len(message["content"]) for message in rendered.messages)


def _response(
    request: Request, rendered: Rendered, answer: Mapping[str, Any], counts: TokenCounts
) -> Response:
    """Return the text or the log-probabilities of an answer, or the failure, with its token counts."""
    is_short = counts.num_prompt < SHORT * (rendered.num_tokens or 0)
    flags = {"estimated": counts.is_estimated, "short": is_short}
    if request.form.method == "loglikelihood":
        logprobs = top_logprobs(answer)
        content = Response(failure=Failure("resource", "the answer has no log-probabilities"))
        if logprobs:
            content = Response(logprobs=tuple(logprobs.get(token, -math.inf) for token in request.answers))
    else:
        text, notes = answer_in(text_of(answer))
        content = Response(text=text)
        flags |= {
            "thinking": "thinking" in notes or has_thinking_apart(answer),
            "control": "control" in notes,
            "cut": is_cut(answer),
            "empty": not text,
        }
    return dataclasses.replace(
        content,
        num_prompt_tokens=counts.num_prompt,
        num_output_tokens=counts.num_output,
        num_cached_prompt_tokens=counts.num_cached,
        notes=tuple(name for name, is_set in flags.items() if is_set),
        num_truncated_question_tokens=rendered.num_truncated_question_tokens,
        num_truncated_passage_tokens=rendered.num_truncated_passage_tokens,
    )
