"""What a server can do and how it answers, found out by a few small requests before anything is planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from erag_ray.config import ReaderConfig
from erag_ray.models.served.client import Client, RequestError
from erag_ray.schemas import InputError, JobError

PROBE = "Name the capital of France. Answer with one word."
PROBE_TOKENS = 16
TOP_LOGPROBS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handshake:
    """What was found out.

    Attributes:
        answers: of each server, to the probe: its text, the model's name in it, and the server's own fingerprint.
        is_steady: two equal requests were answered alike.
        context_length: in tokens, where the server says it.
        token_field: which field bounds the length of an output: newer clouds have another name for it.
        has_top_logprobs: answers come with the log-probabilities of the likeliest first tokens.
    """

    answers: tuple[Probe, ...]
    is_steady: bool
    context_length: int | None
    token_field: str
    has_top_logprobs: bool

    def facts(self) -> dict[str, Any]:
        """Return it for manifests."""
        return {**dataclasses.asdict(self), "answers": [answer._asdict() for answer in self.answers]}

    def notes(self, name: str) -> list[str]:
        """Return lines for people."""
        length = (
            f"context of {self.context_length:,} tokens" if self.context_length else "context length unknown"
        )
        steady = (
            "equal requests are answered alike"
            if self.is_steady
            else (
                "Warning: two equal requests were answered differently: responses depend on more than the request"
            )
        )
        return [f"{name}: {len(self.answers)} server(s) answer; {length}; {steady}"]


class Probe(NamedTuple):
    """A server's answer to the probe."""

    text: str
    model: str
    fingerprint: str | None


def body_of(
    config: ReaderConfig, text: str, max_tokens: int, token_field: str, **fields: Any
) -> dict[str, Any]:
    """Return a request for one message, or one prompt."""
    prompt = {"messages": [{"role": "user", "content": text}]} if config.api == "chat" else {"prompt": text}
    return {**common_fields(config), **prompt, token_field: max_tokens, **fields, **config.extra_body}


def common_fields(config: ReaderConfig) -> dict[str, Any]:
    """Return what all requests have."""
    seed = {} if config.request_seed is None else {"seed": config.request_seed}
    return {"model": config.model, "temperature": config.temperature, **seed}


async def shake_hands(config: ReaderConfig) -> Handshake:
    """Find out what the servers of a model can do.

    Raises:
        InputError: a server does not have the model, or refuses what every request has.
        JobError: a server cannot be reached.
    """
    client = Client(config, max_retries=1)
    try:
        length = _context_length(config, await client.models())
        token_field = await _token_field(client)
        answers = [await probe(client, token_field, side) for side in range(len(config.base_urls))]
        again = await probe(client, token_field, 0)
        return Handshake(
            answers=tuple(answers),
            is_steady=all(answer.text == again.text for answer in answers),
            context_length=length,
            token_field=token_field,
            has_top_logprobs=await _has_top_logprobs(client, token_field),
        )
    finally:
        await client.close()


async def probe(client: Client, token_field: str, side: int) -> Probe:
    """Ask one server the probe."""
    answer = await client.ask(body_of(client.config, PROBE, PROBE_TOKENS, token_field), side=side)
    return Probe(text_of(answer) or "", str(answer.get("model")), answer.get("system_fingerprint"))


def text_of(answer: Mapping[str, Any]) -> str | None:
    """Return the text of an answer; None where there is none."""
    choices = answer.get("choices") or [{}]
    choice = choices[0] if isinstance(choices[0], dict) else {}
    text = (choice.get("message") or {}).get("content") if "message" in choice else choice.get("text")
    return text if isinstance(text, str) else None


def _context_length(config: ReaderConfig, lists: list[tuple[str, Any]]) -> int | None:
    lengths = []
    for url, answer in lists:
        known = {one.get("id"): one for one in answer.get("data", [])} if isinstance(answer, dict) else {}
        if known and config.model not in known:
            names = ", ".join(sorted(map(str, known))[:5])
            raise InputError(
                [f"reader.model: the server at {url} has no model {config.model!r}; it has: {names}"]
            )
        lengths.append(known.get(config.model, {}).get("max_model_len"))
    found = [length for length in lengths if isinstance(length, int)]
    return min(found, default=None)


async def _token_field(client: Client) -> str:
    """The field that bounds an output; a request with all fields of the config passes.

    Raises:
        InputError: it does not.
    """
    texts = []
    for name in ("max_tokens", "max_completion_tokens"):
        try:
            await client.ask(body_of(client.config, PROBE, PROBE_TOKENS, name))
        except RequestError as error:
            if error.failure.kind == "resource":
                raise JobError(str(error)) from error
            texts.append(str(error))
        else:
            return name
    raise InputError([f"reader: the server refuses a plain request: {texts[0]}"])


async def _has_top_logprobs(client: Client, token_field: str) -> bool:
    """Whether the likeliest first token of a known answer comes with its log-probability."""
    fields = (
        {"logprobs": True, "top_logprobs": TOP_LOGPROBS} if client.config.api == "chat" else {"logprobs": 5}
    )
    try:
        answer = await client.ask(body_of(client.config, PROBE, 1, token_field, **fields))
    except RequestError:
        return False
    return len(top_logprobs(answer)) > 1


def top_logprobs(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the likeliest first tokens of an answer and their log-probabilities; none where it has none."""
    choice = (answer.get("choices") or [{}])[0]
    found = choice.get("logprobs") or {}
    if found.get("content"):
        return {one["token"]: float(one["logprob"]) for one in found["content"][0].get("top_logprobs") or []}
    first = (found.get("top_logprobs") or [None])[0]
    return {token: float(value) for token, value in (first or {}).items()}
