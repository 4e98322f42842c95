"""An OpenAI-compatible server in a thread of the test's process that misbehaves as it is told, and counts requests."""

import asyncio
import contextlib
import json
import math
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from erag_ray.models.served.handshake import PROBE

MODEL, KEY = "tiny-model", "sk-secret-of-the-tests"
RETRY_NOW = {"retry-after": "0.002"}
TOKENS_OF_CACHE = 5


@dataclass(frozen=True)
class Asked:
    """One request as the server got it.

    Attributes:
        body: its JSON.
        prompt: the text of all its messages, or its prompt.
        number: of requests so far, from 1; probes do not count.
        times: how often this prompt was asked so far, from 1.
    """

    body: Mapping[str, Any]
    prompt: str
    number: int
    times: int


@dataclass(frozen=True)
class Reply:
    """What the server does: fields of an answer, or a fault.

    Attributes:
        status: of HTTP.
        headers: of HTTP.
        text: that the model writes.
        choice: fields of the answer's choice in place of the usual ones; None: the answer has no choice.
        fields: of the answer in place of the usual ones.
        raw: the whole body in place of an answer; bytes as they are.
        delay: seconds before it; infinity: it never comes.
        cut: the connection is cut in the middle of the body.
        drops: the body comes byte by byte, ten a second.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = "an answer"
    choice: Mapping[str, Any] | None = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    raw: str | bytes | None = None
    delay: float = 0.0
    cut: bool = False
    drops: bool = False


Behaviour = Callable[[Asked], Reply | None]


def error_reply(status: int, message: str = "no", code: str | None = None, **headers: str) -> Reply:
    """An error as servers write it."""
    body = {"error": {"message": message, "code": code}}
    return Reply(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, raw=json.dumps(body)
    )


class MisbehavingServer:
    """A server, and what was asked of it.

    Attributes:
        behave: what it does with a request; None: it answers as it should.
        weights: what it answers to the probe.
        fingerprint: what it calls its own state.
        models: what it lists; none: it has no list.
        key: that it wants.
        asked: every request but probes, in their order.
        num_probes: of handshakes and looks.
        most_in_flight: requests under way at once.
    """

    def __init__(self) -> None:
        self.behave: Behaviour = lambda asked: None
        self.weights = "Paris, cat, dog"
        self.fingerprint: str | None = None
        self.models: list[dict[str, Any]] = [{"id": MODEL, "max_model_len": 4096}]
        self.key: str | None = None
        self.asked: list[Asked] = []
        self.num_probes = 0
        self.refuses_fields: Sequence[str] = ()
        self.logprobs: dict[str, float] | None = {"Paris": math.log(0.5), "Lyon": math.log(0.25)}
        self._times = Counter[str]()
        self._in_flight, self.most_in_flight = 0, 0
        self.url = ""

    @property
    def times(self) -> Counter[str]:
        """Prompt -> how often it was asked."""
        return self._times

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        """Answer GET /models."""
        if not self._may(request):
            return _as_json(401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
        if not self.models:
            return _as_json(404, {"detail": "Not Found"})
        return _as_json(200, {"object": "list", "data": self.models})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer a POST."""
        if not self._may(request):
            sent = request.headers.get("Authorization", "")
            return _as_json(
                401, {"error": {"message": f"Incorrect API key: {sent}", "code": "invalid_api_key"}}
            )
        body = await request.json()
        refused = [name for name in self.refuses_fields if name in body]
        if refused:
            return _as_json(400, {"error": {"message": f"Unsupported parameter: {refused[0]}"}})
        prompt = body.get("prompt") or "\n".join(message["content"] for message in body["messages"])
        if prompt == PROBE:
            self.num_probes += 1
            return _as_json(200, self._answer(body, prompt, Reply(text=self.weights)))
        self._times[prompt] += 1
        self.asked.append(Asked(body, prompt, len(self.asked) + 1, self._times[prompt]))
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            return await self._reply(request, body, prompt, self.behave(self.asked[-1]) or Reply())
        finally:
            self._in_flight -= 1

    async def _reply(
        self, request: web.Request, body: Mapping[str, Any], prompt: str, reply: Reply
    ) -> web.StreamResponse:
        await asyncio.sleep(min(reply.delay, 3600.0))
        content = json.dumps(self._answer(body, prompt, reply)) if reply.raw is None else reply.raw
        if isinstance(content, bytes):
            return web.Response(status=reply.status, headers=dict(reply.headers), body=content)
        if not (reply.cut or reply.drops):
            return web.Response(
                status=reply.status,
                headers=dict(reply.headers),
                text=content,
                content_type="application/json",
            )
        headers = {"Content-Length": str(len(content)), "Content-Type": "application/json"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for letter in content if reply.drops else "":
            await response.write(letter.encode())
            await asyncio.sleep(0.1)
        await response.write(content[: len(content) // 2].encode())
        assert request.transport is not None
        request.transport.close()
        return response

    def _answer(self, body: Mapping[str, Any], prompt: str, reply: Reply) -> dict[str, Any]:
        is_chat = "messages" in body
        own = {"message": {"role": "assistant", "content": reply.text}} if is_chat else {"text": reply.text}
        choice = {"index": 0, "finish_reason": "stop", **own, **self._logprobs(body)}
        num_prompt, num_output = len(prompt) // 4, len(reply.text.split())
        usage = {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_output,
            "total_tokens": num_prompt + num_output,
            "prompt_tokens_details": {"cached_tokens": TOKENS_OF_CACHE},
        }
        return {
            "id": "1",
            "model": MODEL,
            "system_fingerprint": self.fingerprint,
            "choices": [] if reply.choice is None else [{**choice, **reply.choice}],
            "usage": usage,
            **reply.fields,
        }

    def _logprobs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if not body.get("logprobs") or self.logprobs is None:
            return {}
        if "messages" not in body:
            return {"logprobs": {"top_logprobs": [self.logprobs]}}
        top = [{"token": token, "logprob": value} for token, value in self.logprobs.items()]
        return {"logprobs": {"content": [{"token": top[0]["token"], "top_logprobs": top}]}}

    def _may(self, request: web.Request) -> bool:
        return self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}"


def _as_json(status: int, body: Mapping[str, Any]) -> web.Response:
    return web.json_response(body, status=status)


@contextlib.contextmanager
def serving(
    server: MisbehavingServer, certificate: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[MisbehavingServer]:
    """While open, the server answers at its ``url``."""
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_get("/v1/models", server.list_models)
    for path in ("/v1/chat/completions", "/v1/completions"):
        app.router.add_post(path, server.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.0, access_log=None)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=certificate)
        await site.start()
        return int(runner.addresses[0][1])

    async def end() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await runner.cleanup()

    chosen = asyncio.run_coroutine_threadsafe(start(), loop).result()
    server.url = f"{'https' if certificate else 'http'}://127.0.0.1:{chosen}/v1"
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
