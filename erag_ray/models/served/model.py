"""Models behind OpenAI-compatible servers: many requests under way at once, answers as they come."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib.util
import itertools
import math
import queue
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from erag_ray.config import ReaderConfig
from erag_ray.models.base import Model, Rendered, Resources
from erag_ray.models.served.client import KEPT, Client, RequestError, key_of
from erag_ray.models.served.handshake import (
    TOP_LOGPROBS,
    Handshake,
    common_fields,
    probe,
    shake_hands,
    text_of,
    top_logprobs,
)
from erag_ray.models.served.loop import LoopThread
from erag_ray.prompts import as_messages, fit, pieces
from erag_ray.requests import Failure, Form, Need, Request, Response
from erag_ray.schemas import InputError, JobError

TOKEN_CHARACTERS = 4
"""Of text in most languages that are written in letters; what is cut and what is foreseen goes by it."""
PROBE_SECONDS = 60.0
"""Between two looks at whether a server is still the one that it was."""
GRACE_SECONDS = 10.0
"""How long requests under way are waited for when the job ends."""
THINKING = re.compile(r"\A\s*<think>.*?(?:</think>\s*|\Z)", re.DOTALL)

Answer = tuple[int, Response]


class ServedModel(Model):
    """A model behind one or several servers.

    A response has ``notes``: ``thinking`` (stripped from the output), ``cut`` (by ``max_new_tokens``), ``empty``.
    """

    supports: ClassVar[frozenset[Need]] = frozenset({"generate", "loglikelihood"})
    default_prompt: ClassVar[str] = "question_first"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        needed = {"base_url": config.base_urls, "model": config.model, "revision": config.revision}
        missing = [f"reader.{name}: kind served needs it" for name, value in needed.items() if not value]
        wrong = [
            f"reader.base_url: {url} is no http:// or https:// address" for url in _not_http(config.base_urls)
        ]
        if importlib.util.find_spec("openai") is None:
            missing.append("reader.kind: served needs openai: pip install -c constraints.txt -e '.[served]'")
        if missing or wrong:
            raise InputError([*missing, *wrong])
        self._client: Client | None = None

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
    def handshake(self) -> Handshake:
        """What the servers can do.

        Raises:
            InputError: they do not have the model, or refuse what every request has.
            JobError: they cannot be reached.
        """
        key_of(self.config)
        return self._loop.result(shake_hands(self.config))

    def check(self, form: Form) -> None:
        if form.prompt.is_chat != (self.config.api == "chat"):
            text = f"api: {self.config.api} takes no {'chat' if form.prompt.is_chat else 'plain'} prompt"
            other = ("plain", "chat") if form.prompt.is_chat else ("question_first", "completions")
            raise InputError([f"reader.{text}; set prompt: {other[0]}, or api: {other[1]}"])
        try:
            handshake = self.handshake
        except JobError as error:
            raise InputError([f"reader.base_url: {error}"]) from error
        if form.method == "loglikelihood" and not form.next_token:
            text = "a served model gives no log-probability of a given text that could be relied on"
            raise InputError([f"reader.kind: {text}; leave out the annotators that need gold_likelihood"])
        if form.method == "loglikelihood" and not handshake.has_top_logprobs:
            text = "the server gives no log-probabilities of first tokens; use judge.scale: grades"
            raise InputError([f"reader.kind: {text}"])

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
        running = self._loop.start(self._run(requests, results))
        running.add_done_callback(results.put)
        try:
            while not isinstance(result := results.get(), Future):
                yield result
            result.result()
        finally:
            running.cancel()

    async def _run(self, requests: Sequence[Request], results: queue.SimpleQueue[Any]) -> None:
        """Answer requests into a queue.

        Raises:
            JobError: the server cannot be used any more; what is under way is waited for a little.
        """
        client, places = Client(self.config), iter(range(len(requests)))

        async def work() -> None:
            for place in places:
                results.put((place, await self._respond(client, requests[place])))

        workers = [asyncio.create_task(work()) for _ in range(min(len(requests), self.resources().in_flight))]
        watch = asyncio.create_task(self._watch(client))
        try:
            await _first_error(workers, watch)
        except JobError:
            for _ in places:
                pass  # nothing more is sent
            await asyncio.wait(workers, timeout=GRACE_SECONDS)
            raise
        finally:
            for task in (*workers, watch):
                task.cancel()
            await client.close()

    async def _watch(self, client: Client) -> None:
        """Look from time to time whether each server still answers the probe as at first.

        Raises:
            JobError: it does not, twice.
        """
        for side in itertools.cycle(range(len(self.config.base_urls))):
            await asyncio.sleep(PROBE_SECONDS / len(self.config.base_urls))
            expected, changed = self.handshake.answers[side], list[str]()
            while len(changed) < 2:
                try:
                    answer = await probe(client, self.handshake.token_field, side)
                except RequestError:
                    break
                if not self.handshake.is_steady or answer.text == expected.text:
                    break
                changed.append(answer.text)
            else:
                self._end(self.config.base_urls[side], f"the probe {expected.text!r}, now {changed[-1]!r}")

    def _end(self, url: str, what: str) -> None:
        raise JobError(
            f"{url}: the server is not what it was at the start: {what}. Does it have other weights? They need another "
            f"reader.revision; {KEPT}"
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
        found = str(answer.get("model")), answer.get("system_fingerprint")
        for name, value, expected in (
            ("model", found[0], {one.model for one in known}),
            ("system_fingerprint", found[1], {one.fingerprint for one in known}),
        ):
            if value not in expected:
                self._end(
                    ", ".join(self.config.base_urls), f"{name} {', '.join(map(str, expected))}, now {value}"
                )

    def _body(self, request: Request, rendered: Rendered) -> dict[str, Any]:
        form, api = request.form, self.config.api
        prompt = {"messages": list(rendered.messages)} if api == "chat" else {"prompt": rendered.text}
        body = {**common_fields(self.config), **prompt, self.handshake.token_field: form.max_new_tokens}
        if form.method == "loglikelihood":
            wanted = {"logprobs": True, "top_logprobs": TOP_LOGPROBS} if api == "chat" else {"logprobs": 5}
            body |= {self.handshake.token_field: 1, **wanted}
        return {**body, **self.config.extra_body}


async def _first_error(workers: Sequence[asyncio.Task[None]], watch: asyncio.Task[None]) -> None:
    """Wait until all workers are done, or one of them, or the watch, raises; raise it."""
    left: set[asyncio.Task[None]] = {*workers, watch}
    while left != {watch}:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


def _not_http(urls: Sequence[str]) -> list[str]:
    return [url for url in urls if not re.match(r"https?://\S+", url)]


def _rendered(request: Request) -> Rendered:
    """A request as a server gets it; passages are cut, then the question, where there is a limit."""
    prompt = request.form.prompt
    parts = pieces(prompt, request.question, request.passages)
    texts, num_question, num_passages = [part.text for part in parts], 0, 0
    if request.form.max_prompt_tokens is not None:
        room = request.form.max_prompt_tokens * TOKEN_CHARACTERS
        texts, num_question, num_passages = _cut(parts, room, keep_end=request.form.keep_question_end)
    text = "".join(texts)
    messages = as_messages(prompt, text, has_passages=bool(request.passages)) if prompt.is_chat else ()
    return Rendered(
        text="" if prompt.is_chat else text,
        messages=tuple(messages),
        num_tokens=math.ceil(sum(map(len, _contents(text, messages))) / TOKEN_CHARACTERS),
        num_truncated_question_tokens=math.ceil(num_question / TOKEN_CHARACTERS),
        num_truncated_passage_tokens=math.ceil(num_passages / TOKEN_CHARACTERS),
    )


def _contents(text: str, messages: Sequence[Mapping[str, str]]) -> list[str]:
    return [message["content"] for message in messages] if messages else [text]


def _cut(parts: Sequence[Any], room: int, *, keep_end: bool) -> tuple[list[str], int, int]:
    """Texts of so many characters together, and how many were cut from the question and the passages."""
    lengths = {
        kind: [len(p.text) for p in parts if p.kind == kind] for kind in ("template", "question", "passage")
    }
    num_question = sum(lengths["question"])
    kept, shares = fit(
        num_question, lengths["passage"], room=room - sum(lengths["template"]), keep_question=False
    )
    rest, texts = iter(shares), []
    for part in parts:
        if part.kind == "question":
            texts.append(part.text[len(part.text) - kept :] if keep_end else part.text[:kept])
        else:
            texts.append(part.text[: next(rest)] if part.kind == "passage" else part.text)
    return texts, num_question - kept, sum(lengths["passage"]) - sum(shares)


def _response(request: Request, rendered: Rendered, answer: Mapping[str, Any]) -> Response:
    usage = answer.get("usage") or {}
    return dataclasses.replace(
        _content(request, answer),
        num_prompt_tokens=usage.get("prompt_tokens") or 0,
        num_output_tokens=usage.get("completion_tokens") or 0,
        num_cached_prompt_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        num_truncated_question_tokens=rendered.num_truncated_question_tokens,
        num_truncated_passage_tokens=rendered.num_truncated_passage_tokens,
    )


def _content(request: Request, answer: Mapping[str, Any]) -> Response:
    """The text or the log-probabilities of an answer, or why there are none."""
    choices = answer.get("choices") or []
    if not choices or not isinstance(choices[0], dict):
        return Response(failure=Failure("resource", "the answer has no choice"))
    reason = choices[0].get("finish_reason")
    if reason == "content_filter":
        return Response(failure=Failure("refused", "the server's content filter ended the answer"))
    if request.form.method == "loglikelihood":
        found = top_logprobs(answer)
        return Response(logprobs=tuple(found.get(own, -math.inf) for own in request.answers))
    whole = text_of(answer) or ""
    text = THINKING.sub("", whole).strip()
    is_noted = {"thinking": text != whole.strip(), "cut": reason == "length", "empty": not text}
    return Response(text=text, notes=tuple(name for name, holds in is_noted.items() if holds))
