"""Handshake with a server: a few small requests before planning, which detect what it supports."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.base import Rendered
from erag_ray.models.budget import TokenCounts
from erag_ray.models.served.answers import counts_of, name_of, text_of
from erag_ray.models.served.client import RESUME_ADVICE, Client, RequestError
from erag_ray.support.errors import InputError, JobError

PROBE = "Name the capital of France. Then name five animals and five colours, with commas between them."
"""Short, so that equal weights give equal answers under any load; other weights rarely generate the same list."""
PROMPT = Rendered(text=PROBE, messages=({"role": "user", "content": PROBE},))
PROBE_TOKENS = 40
PROBE_COUNTS = TokenCounts(0, 0, PROBE_TOKENS)
TOP_LOGPROBS, TOP_LOGPROBS_OF_TEXT = 20, 5
"""The largest numbers that servers allow, for chats and for completions."""
MAX_RETRIES = 1
"""For requests of a handshake, since the user waits for it."""
LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""Names of the context length in the model lists of servers."""
STEADY = "equal requests get equal answers"
UNSTEADY = "Warning: equal requests get different answers: responses depend on more than the request"
EMPTY = "Warning: its answer to the probe is empty, so that no change of its weights would be noticed"
NO_COUNTS = (
    "; Warning: its answers have no token counts (usage): tokens and price are estimates, rather too high"
)


class Probe(NamedTuple):
    text: str
    model: str | None
    fingerprint: str | None
    counts_tokens: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handshake:
    """The result of a handshake."""

    answers: tuple[Probe, ...]
    """Of each server to the probe: text, model name, the server's ``system_fingerprint``, and whether it counts the
    tokens."""
    is_steady: bool
    """Two probes of each server, and those of all servers, had the same answer."""
    context_length: int | None
    """In tokens; None if the server does not report it."""
    token_field: str
    """The field that limits the output length, which has two names among APIs."""
    has_top_logprobs: bool
    """The server returns the log-probabilities of the most likely first tokens."""

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON values, for manifests."""
        return {**dataclasses.asdict(self), "answers": [answer._asdict() for answer in self.answers]}

    def notes(self, name: str) -> list[str]:
        length = f"{self.context_length:,} tokens" if self.context_length else "of unknown length"
        logprobs = f"log-probabilities: {'of first tokens' if self.has_top_logprobs else 'none'}"
        steady = STEADY if self.is_steady else UNSTEADY
        steady = steady if all(answer.text for answer in self.answers) else EMPTY
        models = {answer.model or name for answer in self.answers}
        names = "" if models == {name} else f" as {', '.join(sorted(models))}"
        parts = f"{len(self.answers)} server(s) answer{names}; context {length}; {logprobs}"
        counts = "" if all(answer.counts_tokens for answer in self.answers) else NO_COUNTS
        return [f"{name}: {parts}; {steady}{counts}"]

    def difference(self, first: Mapping[str, Any]) -> str:
        """Return how the answers differ from those of an earlier handshake; "" if they agree or are not steady."""
        earlier = {answer["text"] for answer in first["answers"]}
        current = {answer.text for answer in self.answers}
        if not (self.is_steady and first["is_steady"]) or current & earlier:
            return ""
        return f"its answer to the probe is {min(current)!r}, before {min(earlier)!r}"


def body_of(
    config: ReaderConfig,
    max_tokens: int,
    token_field: str,
    rendered: Rendered = PROMPT,
    more_seed: int = 0,
    *,
    has_logprobs: bool = False,
) -> dict[str, Any]:
    """Return the body of a request; ``more_seed`` is what its form adds to the seed, also to one in extra_body."""
    is_chat = config.api == "chat"
    of_chat, of_text = {"logprobs": True, "top_logprobs": TOP_LOGPROBS}, {"logprobs": TOP_LOGPROBS_OF_TEXT}
    logprobs = (of_chat if is_chat else of_text) if has_logprobs else {}
    prompt = {"messages": list(rendered.messages)} if is_chat else {"prompt": rendered.text}
    body = {**common_fields(config), **prompt, token_field: max_tokens, **logprobs, **config.extra_body}
    seed = body.get("seed")
    return {**body, "seed": seed + more_seed} if more_seed and isinstance(seed, int) else body


def common_fields(config: ReaderConfig) -> dict[str, Any]:
    """Return the fields of all requests."""
    seed = {} if config.request_seed is None else {"seed": config.request_seed}
    return {"model": config.model, "temperature": config.temperature, **seed}


async def shake_hands(client: Client) -> Handshake:
    """Detect what the servers of a model support.

    Raises:
        InputError: a server does not have the model, or rejects fields that every request has.
        JobError: a server cannot be reached, or does not answer.
    """
    length = _context_length(client.config, await client.models())
    token_field = await _token_field(client)
    servers = list(range(len(client.config.base_urls)))
    try:
        answers = [await probe(client, token_field, server, MAX_RETRIES) for server in servers * 2]
    except RequestError as error:
        raise JobError(f"{error}; {RESUME_ADVICE}") from error
    return Handshake(
        answers=tuple(answers[: len(servers)]),
        is_steady=len({answer.text for answer in answers}) == 1,
        context_length=length,
        token_field=token_field,
        has_top_logprobs=await _has_top_logprobs(client, token_field, answers[0].text),
    )


async def probe(
    client: Client,
    token_field: str,
    server: int,
    max_retries: int | None = None,
    *,
    is_exclusive: bool = False,
) -> Probe:
    """Send the probe to one server, by its index."""
    body = body_of(client.config, PROBE_TOKENS, token_field)
    answer = await client.post(
        body, PROBE_COUNTS, server=server, max_retries=max_retries, is_exclusive=is_exclusive
    )
    return Probe(
        text=text_of(answer),
        model=name_of(answer, "model"),
        fingerprint=name_of(answer, "system_fingerprint"),
        counts_tokens=not counts_of(answer, PROBE_COUNTS).is_estimated,
    )


def _context_length(config: ReaderConfig, lists: list[tuple[str, Any]]) -> int | None:
    lengths = []
    for url, answer in lists:
        entries = answer.get("data") if isinstance(answer, dict) else None
        objects = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
        models = {one["id"]: one for one in objects if isinstance(one.get("id"), str)}
        if models and config.model not in models:
            names = ", ".join(difflib.get_close_matches(str(config.model), models, 5, 0.0))
            text = f"the server at {url} has no model {config.model!r}; it has: {names}"
            advice = (
                "If it answers for more, as for Azure's deployments, name that one in reader.extra_body.model"
            )
            raise InputError([f"reader.model: {text}. {advice}"])
        lengths += [models.get(config.model, {}).get(name) for name in LENGTHS]
    return min((length for length in lengths if isinstance(length, int)), default=None)


async def _token_field(client: Client) -> str:
    """Return the field that limits the output length, by a request with all fields of the config."""
    texts = []
    for name in ("max_tokens", "max_completion_tokens"):
        try:
            await client.post(body_of(client.config, PROBE_TOKENS, name), max_retries=MAX_RETRIES)
            return name
        except RequestError as error:
            if error.failure.kind == "resource":
                raise JobError(f"{error}; {RESUME_ADVICE}") from error
            texts.append(str(error))
    raise InputError([f"reader: the server refuses a plain request: {'; '.join(dict.fromkeys(texts))}"])


async def _has_top_logprobs(client: Client, token_field: str, text: str) -> bool:
    """Return whether the server returns log-probabilities of first tokens that agree with its answer to the probe."""
    body = body_of(client.config, 1, token_field, has_logprobs=True)
    try:
        answer = await client.post(body, max_retries=MAX_RETRIES)
    except RequestError:
        return False
    logprobs = top_logprobs(answer)
    if len(set(logprobs.values())) < 2 or sum(map(math.exp, logprobs.values())) > 1.01:
        return False
    return text.strip().startswith(max(logprobs, key=lambda token: logprobs[token]).strip())


def top_logprobs(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the most likely first tokens of an answer and their log-probabilities; empty if it has none."""
    logprobs = answer["choices"][0].get("logprobs")
    try:
        if "content" in logprobs:
            first = logprobs["content"][0]["top_logprobs"]
            pairs = [(entry["token"], float(entry["logprob"])) for entry in first]
        else:
            pairs = [(token, float(value)) for token, value in logprobs["top_logprobs"][0].items()]
    except (TypeError, KeyError, IndexError, AttributeError, ValueError):
        return {}
    return {token: min(value, 0.0) for token, value in pairs if not math.isnan(value)}
