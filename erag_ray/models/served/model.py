"""Models behind OpenAI-compatible servers: many requests under way at once, answers as they come."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib.util
import math
import queue
import re
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError, JobError
from erag_ray.models.base import Model, Rendered, Resources
from erag_ray.models.served.client import KEPT, Client, RequestError, key_of, usage_of
from erag_ray.models.served.handshake import (
    Handshake,
    common_fields,
    logprob_fields,
    probe,
    shake_hands,
    text_of,
    top_logprobs,
)
from erag_ray.models.served.loop import LoopThread
from erag_ray.requests import (
    Failure,
    Form,
    Need,
    Piece,
    Prompt,
    Request,
    Response,
    as_messages,
    fit,
    pieces,
)

TOKEN_CHARACTERS = 4
"""Of text in most languages that are written in letters; what is cut and what is foreseen goes by it."""
PROBE_SECONDS = 60.0
"""Between two looks at whether a server is still the one that it was; each run of requests ends with one too."""
GRACE_SECONDS = 10.0
"""How long requests under way are waited for when the job ends."""
THINKING = re.compile(r"\A(?:.*?</think>\s*|\s*<think>.*\Z)", re.DOTALL)
"""Its start is part of some chat templates, and then not of the output; its end is missing where it was cut."""
THINKING_FIELDS = ("reasoning_content", "reasoning")
"""Of a message: where servers put thinking that they have taken out of the text themselves."""
ADDRESS = re.compile(r"https?://[^\s@?#]+")

Answer = tuple[int, Response]


class ServedModel(Model):
    """A model behind one or several servers.

    A response has ``notes``: ``thinking`` (stripped from the output), ``cut`` (by ``max_new_tokens``), ``empty``.
    """

    supports: ClassVar[frozenset[Need]] = frozenset({"generate", "loglikelihood"})
    scores_texts: ClassVar[bool] = False
    default_prompt: ClassVar[str] = "question_first"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        needed = {"base_url": config.base_urls, "model": config.model, "revision": config.revision}
        problems = [f"reader.{name}: kind served needs it" for name, value in needed.items() if not value]
        problems += [f"reader.base_url: {fault}" for fault in _faults_of(config.base_urls)]
        if importlib.util.find_spec("openai") is None:
            problems.append("reader.kind: served needs openai: pip install -c constraints.txt -e '.[served]'")
        if problems:
            raise InputError(problems)
        self._client: Client | None = None
        self._fault: InputError | JobError | None = None
        self._stops = False
        self._looked_at = 0.0

    def identity(self) -> dict[str, object]:
        return {
            **super().identity(),
            **common_fields(self.config),
            "api": self.config.api,
            "weights": self.config.revision,
            "extra_body": self.config.extra_body,
        }

    def resources(self) -> Resources:
        in_flight = self.config.concurrency * len(self.config.base_urls)
        return Resources(num_gpus=0, num_cpus=1, in_flight=in_flight)

    def batch_rows(self, form: Form) -> int:
        return self.resources().in_flight

    @functools.cached_property
    def _loop(self) -> LoopThread:
        return LoopThread()

    @functools.cached_property
    def _handshake(self) -> Handshake:
        return self._loop.result(self._shake_hands())

    async def _shake_hands(self) -> Handshake:
        client = await self._opened()
        self._looked_at = time.monotonic()
        return await shake_hands(client)

    async def _opened(self) -> Client:
        """The client of this process."""
        if self._client is None:
            self._client = Client(self.config)
            weakref.finalize(self, self._loop.finish, self._client.close)
        return self._client

    @property
    def handshake(self) -> Handshake:
        """What the servers can do; asked once.

        Raises:
            InputError: they do not have the model, refuse what every request has, or there is no key.
            JobError: they cannot be reached.
        """
        if self._fault:
            raise self._fault
        try:
            key_of(self.config)
            return self._handshake
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
            text = str(error).removesuffix(f"; {KEPT}")
            raise InputError([f"reader.base_url: {text}"]) from error
        if form.method == "loglikelihood" and not form.next_token:
            text = "a served model gives no log-probability of a given text that could be relied on"
            raise InputError([f"reader.kind: {text}; leave out the annotators that need gold_likelihood"])
        if form.method == "loglikelihood" and not handshake.has_top_logprobs:
            text = "the server gives no log-probabilities of first tokens; use judge.scale: grades"
            raise InputError([f"reader.kind: {text}"])
        self._check_length(form, handshake.context_length)

    def _check_length(self, form: Form, context_length: int | None) -> None:
        length = (form.max_prompt_tokens or 0) + form.max_new_tokens
        if context_length is not None and length > context_length:
            text = f"max_prompt_tokens and max_new_tokens are {length:,} together, the server's context is"
            raise InputError([f"reader.model: {text} {context_length:,}"])

    def check_facts(self, first: Mapping[str, Any]) -> None:
        difference = self.handshake.difference(first["handshake"])
        if difference:
            text = f"the server is not what it was when the responses of revision {self.config.revision} were made: "
            advice = "if it has other weights, set another revision: their responses are kept apart"
            raise InputError([f"reader.revision: {text}{difference}; {advice}"])

    def load(self) -> None:
        """Connect.

        Raises:
            JobError: a server cannot be reached, or is not what it was.
        """
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
        self._stops = False
        _ = self.handshake  # within the loop nothing could wait for it
        running = self._loop.start(self._run, requests, results)
        running.add_done_callback(results.put)
        try:
            while not isinstance(result := results.get(), Future):
                yield result
            result.result()
        finally:
            running.cancel()

    def stop_sending(self) -> bool:
        self._stops = True
        return True

    async def _run(self, requests: Sequence[Request], results: queue.SimpleQueue[Any]) -> None:
        """Answer requests into a queue.

        Raises:
            JobError: the server cannot be used any more; what is under way is waited for a little.
        """
        if not requests:
            return
        client, places = await self._opened(), iter(range(len(requests)))

        async def work() -> None:
            for place in places:
                if self._stops:
                    return
                results.put((place, await self._respond(client, requests[place])))

        workers = [asyncio.create_task(work()) for _ in range(min(len(requests), self.resources().in_flight))]
        watch = asyncio.create_task(self._watch(client))
        try:
            await _first_error(workers, watch)
            await self._look_at_all(client)
        except JobError as error:
            client.ended = error
            await asyncio.wait(workers, timeout=GRACE_SECONDS)
            raise
        finally:
            await _cancel(*workers, watch)

    async def _watch(self, client: Client) -> None:
        """Look from time to time whether the servers still answer the probe as at first.

        Raises:
            JobError: one does not.
        """
        while True:
            await asyncio.sleep(max(0.0, self._looked_at + PROBE_SECONDS - time.monotonic()))
            await self._look_at_all(client)

    async def _look_at_all(self, client: Client) -> None:
        """Ask each server the probe.

        Raises:
            JobError: one answers it in another way than at first, also while nothing else is under way.
        """
        for place in range(len(self.config.base_urls)) if self.handshake.is_steady else ():
            if await self._has_changed(client, place):
                async with client.alone():
                    answer = await self._has_changed(client, place, is_alone=True)
                    answer = answer and await self._has_changed(client, place, is_alone=True)
                if answer:
                    self._end(place, f"the probe {self.handshake.answers[place].text!r}, now {answer!r}")
        self._looked_at = time.monotonic()

    async def _has_changed(self, client: Client, place: int, *, is_alone: bool = False) -> str:
        """The answer to the probe, where it is another than at first; "" where it is not, or there is none."""
        try:
            answer = await probe(client, self.handshake.token_field, place, is_alone=is_alone)
        except RequestError:
            return ""
        return "" if answer.text == self.handshake.answers[place].text else answer.text or "(empty)"

    def _end(self, place: int | None, what: str) -> None:
        urls = self.config.base_urls if place is None else [self.config.base_urls[place]]
        raise JobError(
            f"{', '.join(urls)}: the server is not what it was at the start: {what}. If it has other weights, set "
            f"another reader.revision, which keeps their responses apart; responses of the last {PROBE_SECONDS:g} s "
            f"may be theirs. {KEPT}"
        )

    async def _respond(self, client: Client, request: Request) -> Response:
        rendered = _rendered(request)
        body = self._body(request, rendered)
        try:
            answer = await client.ask(body, (rendered.num_tokens or 0) + request.form.max_new_tokens)
        except RequestError as error:
            return Response(failure=error.failure)
        self._check_same(answer)
        return _response(request, rendered, answer)

    def _check_same(self, answer: Mapping[str, Any]) -> None:
        """Refuse an answer of another model, or of a server that says that it is another.

        Raises:
            JobError: it is one.
        """
        known = self.handshake.answers
        for name, value, expected in (
            ("model", str(answer.get("model")), {one.model for one in known}),
            ("system_fingerprint", answer.get("system_fingerprint"), {one.fingerprint for one in known}),
        ):
            # some servers name their fingerprint in a part of their answers only
            if value is not None and value not in expected and expected != {None}:
                self._end(None, f"{name} {', '.join(map(str, expected))}, now {value}")

    def _body(self, request: Request, rendered: Rendered) -> dict[str, Any]:
        form, api = request.form, self.config.api
        prompt = {"messages": list(rendered.messages)} if api == "chat" else {"prompt": rendered.text}
        body = {**common_fields(self.config), **prompt, self.handshake.token_field: form.max_new_tokens}
        if form.method == "loglikelihood":
            body |= {self.handshake.token_field: 1, **logprob_fields(self.config)}
        return {**body, **self.config.extra_body}


async def _first_error(workers: Sequence[asyncio.Task[None]], watch: asyncio.Task[None]) -> None:
    """Wait until all workers are done, or one of them, or the watch, raises; raise it."""
    left: set[asyncio.Task[None]] = {*workers, watch}
    while left != {watch}:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait until they have ended, in whatever way."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _faults_of(urls: Sequence[str]) -> Iterator[str]:
    for url in urls:
        if any(sign in url for sign in "@?#"):
            # it may hold a key, which must not stand in a message
            yield "must be an address without a name, a password or a query; keys are named by reader.api_key_env"
        elif not ADDRESS.fullmatch(url):
            yield f"{url} is no http:// or https:// address"


def _rendered(request: Request) -> Rendered:
    """A request as a server gets it; passages are cut, then the question, where there is a limit."""
    prompt, limit = request.form.prompt, request.form.max_prompt_tokens
    parts = pieces(prompt, request.question, request.passages)
    texts, num_question, num_passages = [part.text for part in parts], 0, 0
    if limit is not None:
        around = _messages(prompt, "", request) if prompt.is_chat else []
        room = limit * TOKEN_CHARACTERS - _length(around)
        texts, num_question, num_passages = _cut(parts, room, keep_end=request.form.keep_question_end)
    text = "".join(texts)
    messages = _messages(prompt, text, request) if prompt.is_chat else []
    return Rendered(
        text="" if prompt.is_chat else text,
        messages=tuple(messages),
        num_tokens=math.ceil((_length(messages) if prompt.is_chat else len(text)) / TOKEN_CHARACTERS),
        num_truncated_question_tokens=math.ceil(num_question / TOKEN_CHARACTERS),
        num_truncated_passage_tokens=math.ceil(num_passages / TOKEN_CHARACTERS),
    )


def _messages(prompt: Prompt, text: str, request: Request) -> list[dict[str, str]]:
    return as_messages(prompt, text, has_passages=bool(request.passages))


def _length(messages: Sequence[Mapping[str, str]]) -> int:
    """Characters of messages."""
    return sum(len(message["content"]) for message in messages)


def _cut(parts: Sequence[Piece], room: int, *, keep_end: bool) -> tuple[list[str], int, int]:
    """Texts of so many characters together, and how many were cut from the question and the passages."""
    lengths = {
        kind: [len(part.text) for part in parts if part.kind == kind]
        for kind in ("template", "question", "passage")
    }
    num_question, num_times = max(lengths["question"], default=0), len(lengths["question"])
    room -= sum(lengths["template"])
    kept, shares = fit(num_question * num_times, lengths["passage"], room=room, keep_question=False)
    kept //= max(num_times, 1)
    rest, texts = iter(shares), []
    for part in parts:
        if part.kind == "question":
            texts.append(part.text[max(len(part.text) - kept, 0) :] if keep_end else part.text[:kept])
        else:
            texts.append(part.text[: next(rest)] if part.kind == "passage" else part.text)
    return texts, num_question - kept, sum(lengths["passage"]) - sum(shares)


def _response(request: Request, rendered: Rendered, answer: Mapping[str, Any]) -> Response:
    num_prompt = usage_of(answer, "prompt_tokens")
    return dataclasses.replace(
        _content(request, answer),
        num_prompt_tokens=num_prompt,
        num_output_tokens=usage_of(answer, "completion_tokens"),
        num_cached_prompt_tokens=min(usage_of(answer, "prompt_tokens_details.cached_tokens"), num_prompt),
        num_truncated_question_tokens=rendered.num_truncated_question_tokens,
        num_truncated_passage_tokens=rendered.num_truncated_passage_tokens,
    )


def _content(request: Request, answer: Mapping[str, Any]) -> Response:
    """The text or the log-probabilities of an answer, or why there are none."""
    choice = answer["choices"][0]
    reason, message = choice.get("finish_reason"), choice.get("message")
    message = message if isinstance(message, dict) else {}
    if reason == "content_filter":
        return Response(failure=Failure("refused", "the server's content filter ended the answer"))
    if request.form.method == "loglikelihood":
        found = top_logprobs(answer)
        if not found:
            return Response(failure=Failure("resource", "the answer has no log-probabilities"))
        return Response(logprobs=tuple(found.get(own, -math.inf) for own in request.answers))
    whole = text_of(answer)
    text = THINKING.sub("", whole).strip()
    has_thought = any(message.get(name) for name in THINKING_FIELDS) or text != whole.strip()
    is_noted = {"thinking": has_thought, "cut": reason == "length", "empty": not text}
    return Response(text=text, notes=tuple(name for name, holds in is_noted.items() if holds))
