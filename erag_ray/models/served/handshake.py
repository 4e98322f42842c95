"""What a server can do and how it answers, found out by a few small requests before anything is planned."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError, JobError
from erag_ray.models.served.client import KEPT, Client, RequestError

PROBE = "Name the capital of France. Then name five animals and five colours, with commas between them."
"""Short, so that equal weights answer alike whatever else a server does; other weights seldom write the same list."""
PROBE_TOKENS = 40
TOP_LOGPROBS, TOP_LOGPROBS_OF_TEXT = 20, 5
"""The most that servers give of a chat, and of plain text."""
MAX_RETRIES = 1
"""Of each request of a handshake: the user waits."""
LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""What servers call the context length in their lists of models."""


class Probe(NamedTuple):
    """A server's answer to the probe."""

    text: str
    model: str
    fingerprint: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handshake:
    """What was found out.

    Attributes:
        answers: of each server, to the probe: its text, the model's name in it, and the server's own fingerprint.
        is_steady: two equal requests were answered alike, by each server and by all of them.
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
        length = f"{self.context_length:,} tokens" if self.context_length else "of unknown length"
        logprobs = "of first tokens" if self.has_top_logprobs else "none"
        steady = "equal requests are answered alike"
        if not self.is_steady:
            steady = (
                "Warning: equal requests are answered differently: responses depend on more than the request"
            )
        parts = f"{len(self.answers)} server(s) answer; context {length}; log-probabilities: {logprobs}"
        return [f"{name}: {parts}; {steady}"]

    def difference(self, first: Mapping[str, Any]) -> str:
        """Return how the answers differ from those of an earlier handshake; "" where they need not.

        Args:
            first: `facts` of that one.
        """
        before = {answer["text"] for answer in first["answers"]}
        now = {answer.text for answer in self.answers}
        if not (self.is_steady and first["is_steady"]) or now & before:
            return ""
        return f"it answers the probe by {min(now)!r}, before by {min(before)!r}"


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


def logprob_fields(config: ReaderConfig) -> dict[str, Any]:
    """Return what a request for log-probabilities of first tokens has besides."""
    if config.api == "chat":
        return {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
    return {"logprobs": TOP_LOGPROBS_OF_TEXT}


async def shake_hands(client: Client) -> Handshake:
    """Find out what the servers of a model can do.

    Raises:
        InputError: a server does not have the model, or refuses what every request has.
        JobError: a server cannot be reached, or does not answer.
    """
    length = _context_length(client.config, await client.models())
    token_field = await _token_field(client)
    places = range(len(client.config.base_urls))
    try:
        answers = [await probe(client, token_field, place, MAX_RETRIES) for place in places]
        again = [await probe(client, token_field, place, MAX_RETRIES) for place in places]
    except RequestError as error:
        raise JobError(f"{error}; {KEPT}") from error
    return Handshake(
        answers=tuple(answers),
        is_steady=len({answer.text for answer in (*answers, *again)}) == 1,
        context_length=length,
        token_field=token_field,
        has_top_logprobs=await _has_top_logprobs(client, token_field, answers[0].text),
    )


async def probe(
    client: Client, token_field: str, place: int, max_retries: int | None = None, *, is_alone: bool = False
) -> Probe:
    """Ask one server the probe."""
    body = body_of(client.config, PROBE, PROBE_TOKENS, token_field)
    answer = await client.ask(body, PROBE_TOKENS, place=place, max_retries=max_retries, is_alone=is_alone)
    return Probe(text_of(answer), str(answer.get("model")), answer.get("system_fingerprint"))


def text_of(answer: Mapping[str, Any]) -> str:
    """Return the text of an answer; "" where there is none."""
    choice = answer["choices"][0]
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def _context_length(config: ReaderConfig, lists: list[tuple[str, Any]]) -> int | None:
    lengths = []
    for url, answer in lists:
        known = dict(_models_of(answer))
        if known and config.model not in known:
            names = ", ".join(difflib.get_close_matches(str(config.model), known, 5, 0.0))
            text = f"the server at {url} has no model {config.model!r}; it has: {names}"
            raise InputError([f"reader.model: {text}"])
        lengths += [known.get(config.model, {}).get(name) for name in LENGTHS]
    return min((length for length in lengths if isinstance(length, int)), default=None)


def _models_of(answer: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Name and description of each model in a list of models; nothing where it is no such list."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    for one in entries if isinstance(entries, list) else []:
        if isinstance(one, dict) and isinstance(one.get("id"), str):
            yield one["id"], one


async def _token_field(client: Client) -> str:
    """The field that bounds an output; a request with all fields of the config passes.

    Raises:
        InputError: it does not.
        JobError: there is no answer.
    """
    texts = []
    for name in ("max_tokens", "max_completion_tokens"):
        try:
            await client.ask(body_of(client.config, PROBE, PROBE_TOKENS, name), max_retries=MAX_RETRIES)
        except RequestError as error:
            if error.failure.kind == "resource":
                raise JobError(f"{error}; {KEPT}") from error
            texts.append(str(error))
        else:
            return name
    raise InputError([f"reader: the server refuses a plain request: {texts[0]}"])


async def _has_top_logprobs(client: Client, token_field: str, text: str) -> bool:
    """Whether the likeliest first tokens come with their log-probabilities: by a request whose answer is known.

    Args:
        client: of the servers.
        token_field: that bounds an output.
        text: the answer to the probe.
    """
    fields = logprob_fields(client.config)
    try:
        answer = await client.ask(
            body_of(client.config, PROBE, 1, token_field, **fields), max_retries=MAX_RETRIES
        )
    except RequestError:
        return False
    found = top_logprobs(answer)
    if len(set(found.values())) < 2 or sum(map(math.exp, found.values())) > 1.01:
        return False
    return text.strip().startswith(max(found, key=lambda token: found[token]).strip())


def top_logprobs(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the likeliest first tokens of an answer and their log-probabilities; none where it has none."""
    found = answer["choices"][0].get("logprobs")
    try:
        if "content" in found:
            first = found["content"][0]["top_logprobs"]
            pairs = [(one["token"], float(one["logprob"])) for one in first]
        else:
            pairs = [(token, float(value)) for token, value in found["top_logprobs"][0].items()]
    except (TypeError, KeyError, IndexError, AttributeError, ValueError):
        return {}
    return {token: min(value, 0.0) for token, value in pairs if not math.isnan(value)}
