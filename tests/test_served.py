"""Models behind servers: what is asked how often, what becomes of each fault, and what a job says and keeps."""

import asyncio
import base64
import contextlib
import dataclasses
import gc
import json
import math
import pathlib
import queue
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import psutil
import pytest
from crashes import NUM_REQUESTS, finish, kill_midway, stored, write_larger
from misbehaving_server import KEY, MODEL, RETRY_NOW, Asked, MisbehavingServer, Reply, error_reply, serving
from served_jobs import (
    FORM,
    PRICES,
    config_of,
    judge_of,
    model_of,
    requests_of,
    row_of,
    runs_here,
    server,
    short_pauses,
    titles,
)
from tiny import RunJob, Tiny, num_reader_calls, table

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.models import Model, make_model, model_id
from erag_ray.models.served import client as client_module
from erag_ray.models.served import handshake as handshake_module
from erag_ray.models.served import limits
from erag_ray.models.served import model as model_module
from erag_ray.prompts.kinds.base import Case
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.prompts.prompt import prompt_named
from erag_ray.prompts.request import Form, Passage, Prompt, Request, Response
from erag_ray.store.responses import ResponseStore
from erag_ray.store.schemas import COSTS, LABELS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError

# fixtures
__all__ = ["runs_here", "server", "short_pauses"]


def run(model: Model, count: int) -> list[Response]:
    """The responses to so many requests, in their order; each place comes once."""
    found = list(model.run(requests_of(count)))
    assert sorted(place for place, _ in found) == list(range(count))
    return [response for _, response in sorted(found, key=lambda pair: pair[0])]


def kinds(responses: list[Response]) -> set[str]:
    """Of their errors; "" where there is none."""
    return {response.failure.kind if response.failure else "" for response in responses}


# --- answers ---


def test_every_request_gets_its_own_answer_though_they_come_out_of_order(server: MisbehavingServer) -> None:
    server.behave = lambda asked: Reply(text=f" {row_of(asked)} ", delay=0.002 * (20 - row_of(asked) % 20))
    model = model_of(server)
    found = list(model.run(requests_of(60)))
    assert [place for place, _ in found] != sorted(place for place, _ in found)
    assert {place: response.text for place, response in found} == {row: str(row) for row in range(60)}
    assert set(server.times.values()) == {1}
    assert 8 < server.most_in_flight <= 16
    response = found[0][1]
    assert (response.num_cached_prompt_tokens, response.num_output_tokens) == (5, 1)
    assert response.num_prompt_tokens > 20
    sent = {"model": MODEL, "temperature": 0.0, "seed": 0, "max_tokens": 8}
    assert sent.items() <= server.asked[0].body.items()


def test_answers_that_have_come_are_yielded_before_an_interrupt(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(queue.SimpleQueue):  # type: ignore[type-arg]
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            # the main thread gets no turn until all 20 answers, and the end of the run, are there
            while timeout and self.qsize() < 21:
                time.sleep(0.01)
            if timeout:
                raise KeyboardInterrupt
            return super().get(block, timeout)

    monkeypatch.setattr(model_module.queue, "SimpleQueue", Interrupted)
    responses = model_of(server).run(requests_of(20))
    assert sorted(next(responses)[0] for _ in range(20)) == list(range(20))
    with pytest.raises(KeyboardInterrupt):
        next(responses)


FAULTS = {
    # reply, how often it is asked for where it always comes, kind and words of the error
    "429": (error_reply(429, retry_after="0.001"), 21, "resource", "429"),
    "429 without Retry-After": (error_reply(429), 21, "resource", "429"),
    "500": (error_reply(500, "out of memory"), 7, "resource",
        "out of memory, 7 times|out of memory'}}, 7 times|500"),
    "cut": (Reply(cut=True), 7, "resource", "7 times"),
    "half of a body": (Reply(raw='{"choices": [{"mess'), 7, "resource", "7 times"),
    "no JSON object": (Reply(raw="[]"), 7, "resource", "7 times"),
    "no choice": (Reply(choice=None), 7, "resource", "the answer has no choice, 7 times"),
    "error with status 200": (Reply(raw='{"error": "overloaded"}'), 7, "resource", "overloaded, 7 times"),
    "nothing": (Reply(delay=math.inf), 3, "resource", "no answer within 1 s, 3 times"),
    "too slowly": (Reply(drops=True), 3, "resource", "no answer within 1 s, 3 times"),
    "too long": (error_reply(400, "maximum context length is 8 tokens"), 1, "input",
        "maximum context length"),
    "too large": (error_reply(413, "too large"), 1, "input", "too large"),
    "cannot be read": (error_reply(422, "no such field"), 1, "input", "no such field"),
    "filter": (error_reply(400, "filtered", "content_filter"), 1, "refused", "filtered"),
    "filter by 403": (error_reply(403, "It requires moderation; your input was flagged"), 1, "refused", "flagged"),
    "filter in the answer": (Reply(choice={"finish_reason": "content_filter"}), 1, "refused",
        "content filter"),
    "an error in the choice": (
        Reply(text="an", choice={"finish_reason": "error", "error": {"code": 502, "message": "gone"}}),
        7,
        "resource",
        "the answer is an error: gone, 7 times",
    ),
    "a refusal": (Reply(choice={"message": {"content": None, "refusal": "I will not."}}), 1, "refused",
        "I will not."),
    "a tool": (Reply(choice={"finish_reason": "tool_calls"}), 1, "input", "turn tools off"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_may_pass_is_tried_again_and_one_that_does_not_is_an_error_of_its_kind(
    server: MisbehavingServer, fault: str
) -> None:
    reply, times, kind, text = FAULTS[fault]
    passing = {0, 4, 8} if times > 1 else set()

    def behave(asked: Asked) -> Reply | None:
        row = row_of(asked)
        return reply if row == 3 or (row in passing and asked.times == 1) else None

    server.behave = behave
    seconds = 1.0 if reply.delay or reply.drops else 30.0
    responses = run(model_of(server, timeout_seconds=seconds), 12)
    failure = responses.pop(3).failure
    assert failure is not None
    assert failure.kind == kind
    assert any(part in failure.text for part in text.split("|"))
    assert {(response.text, response.failure) for response in responses} == {("an answer", None)}
    counts = {row_of(asked): asked.times for asked in server.asked}
    assert counts.pop(3) == times
    assert {row for row, count in counts.items() if count > 1} == passing
    assert max(counts.values()) <= 2


NOTED = {
    "length": (Reply(text="half an", choice={"finish_reason": "length"}), "half an", ("cut",)),
    "empty": (Reply(text=""), "", ("empty",)),
    "null": (Reply(choice={"message": {"content": None}}), "", ("empty",)),
    "parts in place of a text": (Reply(choice={"message": {"content": [{"text": "a"}]}}), "a", ()),
    "control tokens": (Reply(text="Orla<|eot_id|></s>"), "Orla", ("control",)),
    "thinking": (Reply(text="<think>hm,\nwell</think>\n\nOrla"), "Orla", ("thinking",)),
    "thinking, opened by the template": (Reply(text="hm,\nwell</think>\nOrla"), "Orla", ("thinking",)),
    "thinking to the end": (Reply(text="<think>hm", choice={"finish_reason": "length"}), "",
        ("thinking", "cut", "empty")),
    "thinking apart": (Reply(choice={"message": {"content": "Orla", "reasoning_content": "hm"}}), "Orla",
        ("thinking",)),
    "a sign that is no thinking": (Reply(text="a <think> b"), "a <think> b", ()),
    "counts that are none": (Reply(fields={"usage": {"prompt_tokens": "many"}}), "an answer", ("estimated",)),
    "no counts": (Reply(fields={"usage": None}), "an answer", ("estimated",)),
    "a cut prompt": (Reply(fields={"usage": {"prompt_tokens": 9, "completion_tokens": 2}}), "an answer", ("short",)),
}  # fmt: skip


@pytest.mark.parametrize("answer", NOTED)
def test_unusual_answers_are_outputs_and_noted(server: MisbehavingServer, answer: str) -> None:
    reply, text, notes = NOTED[answer]
    server.behave = lambda asked: reply
    (response,) = run(model_of(server), 1)
    assert (response.failure, response.text, response.notes) == (None, text, notes)
    assert response.num_prompt_tokens >= 0


# --- what ends a job ---


def ends(model: Model, count: int) -> tuple[str, list[Response]]:
    """How a run ends, and what was answered before."""
    found = []
    with pytest.raises(JobError) as ended:
        found.extend(response for _, response in model.run(requests_of(count)))
    return str(ended.value), found


ENDS = {
    "401": (error_reply(401, "bad key"), "api_key_env must name a variable that holds a valid key"),
    "402": (error_reply(402, "pay"), "no credit"),
    "403": (error_reply(403, "no"), "the key may not use this model"),
    "404": (error_reply(404, "no such model"), "reader.model must be a name that it lists"),
    "quota": (error_reply(429, "pay", "insufficient_quota"), "no credit"),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", ENDS)
def test_what_holds_for_all_requests_ends_the_job_and_nothing_more_is_sent(
    server: MisbehavingServer, fault: str
) -> None:
    reply, advice = ENDS[fault]

    def behave(asked: Asked) -> Reply:
        # what is under way when the first one is refused is answered later
        return reply if asked.number > 100 else Reply(delay=0.2 if asked.number > 90 else 0.001)

    server.behave = behave
    # more of them than the limit lets in
    text, found = ends(model_of(server, concurrency=64), 1000)
    assert advice in text
    assert "responses so far are kept" in text
    assert len(found) == 100
    # those that were under way
    assert len(server.asked) <= 100 + 30
    assert set(server.times.values()) == {1}


def test_many_failures_in_a_row_end_the_job(server: MisbehavingServer) -> None:
    server.behave = lambda asked: error_reply(500, "broken") if row_of(asked) >= 40 else None
    text, found = ends(model_of(server, concurrency=4), 400)
    assert text.startswith("20 requests in a row failed, the last one: ")
    assert "broken" in text
    assert sum(response.failure is None for response in found) == 40
    assert len(server.asked) <= 40 + 7 * (20 + 4)
    # the rest of a job whose max_error_fraction allows all of it to fail
    rest = model_of(server, concurrency=4)
    rest.may_all_fail = True
    assert sum(response.failure is not None for response in run(rest, 70)) == 30


@pytest.mark.long
def test_an_answer_between_failures_keeps_the_job_alive(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_RETRY_SECONDS", 0.005)
    server.behave = lambda asked: error_reply(500) if row_of(asked) % 10 else None
    responses = run(model_of(server, concurrency=1), 50)
    assert [response.failure is None for response in responses] == [not row % 10 for row in range(50)]


@pytest.mark.parametrize("change", ["fingerprint", "name"])
def test_other_weights_by_name_or_fingerprint_end_the_job_before_an_answer_of_theirs_counts(
    server: MisbehavingServer, change: str
) -> None:
    server.fingerprint = "fp-1"

    def behave(asked: Asked) -> Reply:
        fields = {"system_fingerprint": "fp-2"} if change == "fingerprint" else {"model": "another"}
        server.weights = "Paris, emu" if change == "fingerprint" and asked.number > 50 else server.weights
        return Reply(text="new", fields=fields) if asked.number > 50 else Reply(text="old")

    server.behave = behave
    text, found = ends(model_of(server), 300)
    assert "the server has changed since the start" in text
    assert ("now 'Paris, emu'" if change == "fingerprint" else f"model {MODEL}, now another") in text
    assert {response.text for response in found} == {"old"}
    assert len(found) == 50
    assert len(server.asked) < 50 + 2 * 16


def test_a_cloud_may_list_other_names_limit_by_another_field_and_have_several_fingerprints(
    server: MisbehavingServer,
) -> None:
    server.models, server.refuses_fields = [{"id": "gpt"}], ("max_tokens",)
    server.behave = lambda asked: Reply(fields={"system_fingerprint": f"fp-{asked.number % 7}"})
    assert kinds(run(model_of(server, model="gpt", extra_body={"model": MODEL}), 100)) == {""}
    sent = {(asked.body["model"], asked.body["max_completion_tokens"]) for asked in server.asked}
    assert sent == {(MODEL, 8)}
    assert server.num_probes == 4 + 7 + 1  # the handshake, each new fingerprint, and the end


@pytest.mark.parametrize(("count", "change_at"), [(5000, 101), (20, 20)])
def test_other_weights_by_the_probe_end_the_job_while_it_runs_or_at_its_end(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch, count: int, change_at: int
) -> None:
    monkeypatch.setattr(model_module, "PROBE_SECONDS", 0.2)

    def behave(asked: Asked) -> Reply:
        server.weights = "Paris, emu, yak" if asked.number >= change_at else server.weights
        return Reply(delay=0.01)

    server.behave = behave
    text, found = ends(model_of(server), count)
    assert "the probe 'Paris, cat, dog', now 'Paris, emu, yak'" in text
    assert "another reader.revision" in text
    assert len(found) == 20 if count == 20 else 100 <= len(found) < 2000


def test_a_probe_that_differs_under_load_alone_is_no_change(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As batches change outputs on some servers."""
    monkeypatch.setattr(model_module, "PROBE_SECONDS", 0.05)
    answer, looks = server._answer, list[tuple[bool, int]]()

    def differently(body: Any, prompt: str, reply: Reply) -> dict[str, Any]:
        is_probe, is_busy = prompt == handshake_module.PROBE, server._in_flight > 0
        if is_probe and server.asked:
            looks.append((is_busy, len(server.asked)))
        return answer(body, prompt, Reply(text="Paris, eel") if is_probe and is_busy else reply)

    monkeypatch.setattr(server, "_answer", differently)
    server.behave = lambda asked: Reply(delay=0.02)
    assert kinds(run(model_of(server), 300)) == {""}
    # a look while others were under way, and one more, alone, after it
    first = [is_busy for is_busy, _ in looks].index(True)
    is_busy, num_asked = looks[first + 1]
    assert not is_busy
    assert num_asked < 300


# --- the handshake ---


def refusal(server: MisbehavingServer, form: Form = FORM, **settings: Any) -> str:
    """Why a model is refused before anything is planned."""
    with pytest.raises(InputError) as refused:
        model_of(server, **settings).check(form)
    return "\n".join(refused.value.problems)


def test_the_handshake_finds_out_what_a_server_can_do(server: MisbehavingServer) -> None:
    model = model_of(server)
    model.check(FORM)
    found = model.facts()
    assert found["base_url"] == [server.url]
    assert found["handshake"] == {
        "answers": [{"text": "Paris, cat, dog", "model": MODEL, "fingerprint": None, "counts_tokens": True}],
        "is_steady": True,
        "context_length": 4096,
        "token_field": "max_tokens",
        "has_top_logprobs": True,
    }
    assert model.notes() == [
        f"{MODEL}: 1 server(s) answer; context 4,096 tokens; log-probabilities: of first tokens; "
        "equal requests get equal answers"
    ]
    model.check(FORM)
    assert server.num_probes == 4
    # as some gateways
    server.models = []
    assert "context of unknown length; log-prob" in model_of(server).notes()[0]


@pytest.mark.parametrize(
    "logprobs",
    [None, {"Paris": 0.0, "Lyon": 0.0}, {"Lyon": -0.1, "Paris": -3.0}],
    ids=["none", "zeros", "of another token"],
)
def test_log_probabilities_that_a_probe_does_not_confirm_are_not_used(
    server: MisbehavingServer, logprobs: dict[str, float] | None
) -> None:
    server.logprobs = logprobs
    form = dataclasses.replace(FORM, method="loglikelihood", next_token=True)
    assert "use judge.scale: grades" in refusal(server, form)


def test_what_a_served_model_cannot_do_is_refused_by_name(server: MisbehavingServer) -> None:
    gold = dataclasses.replace(FORM, method="loglikelihood")
    assert "gold_likelihood" in refusal(server, gold)
    plain = prompt_named("plain", "question", num_examples=0, titles=True)
    assert "set prompt: question_first, or api: completions" in refusal(
        server, dataclasses.replace(FORM, prompt=plain)
    )
    assert "api: chat" in refusal(server, api="completions")
    long = dataclasses.replace(FORM, max_prompt_tokens=4090)
    assert "are 4,098 together, the server's context is 4,096" in refusal(server, long)
    server.refuses_fields = ("max_tokens", "seed")
    assert re.search("refuses a plain request: .*parameter: max_tokens.*; .*parameter: seed", refusal(server))


def test_answers_that_differ_are_said(server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, texts = server._answer, iter(range(100))
    monkeypatch.setattr(
        server, "_answer", lambda body, prompt, reply: answer(body, prompt, Reply(text=f"{next(texts)}"))
    )
    model = model_of(server)
    assert "Warning: equal requests get different answers" in model.notes()[0]
    # and no later probe is held against the first
    assert kinds(run(model, 3)) == {""}
    reply = Reply(text="", fields={"model": "another", "usage": None})
    monkeypatch.setattr(server, "_answer", lambda body, prompt, _: answer(body, prompt, reply))
    notes = "answer as another; .* to the probe is empty, .*; Warning: its answers have no token counts"
    assert re.search(notes, model_of(server).notes()[0])


def test_bad_addresses_keys_and_names_are_one_message_each(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = refusal(server, base_url="http://127.0.0.1:9/v1")
    assert nowhere.startswith("reader.base_url: http://127.0.0.1:9/v1: Cannot connect")
    assert "is the server up" in nowhere
    assert "\n" not in nowhere
    assert "mostly in /v1" in refusal(server, base_url=server.url.removesuffix("/v1"))
    other = refusal(server, model="tiny-modle")
    assert f"has no model 'tiny-modle'; it has: {MODEL}" in other
    server.key = KEY
    assert "must name a variable that holds a valid key" in refusal(server)
    monkeypatch.setenv("TINY_KEY", "sk-another")
    wrong = refusal(server, api_key_env="TINY_KEY")
    assert "401" in wrong
    assert "sk-another" not in wrong
    monkeypatch.delenv("TINY_KEY")
    missing = refusal(server, api_key_env="TINY_KEY")
    assert "the environment variable TINY_KEY is not set on node " in missing
    monkeypatch.setenv("TINY_KEY", KEY)
    model_of(server, api_key_env="TINY_KEY").check(FORM)


def test_a_server_that_is_not_reached_is_tried_once(server: MisbehavingServer) -> None:
    model = model_of(server, model="other")
    for _ in range(3):
        with pytest.raises(InputError, match="has no model"):
            model.check(FORM)
    assert server.num_probes == 0


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer):
        await asyncio.sleep(3600)


async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer):
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()


@pytest.mark.parametrize(("handle", "text"), [(silent, "no answer within 0.3 s. "), (babble, "")])
def test_a_server_that_never_answers_or_speaks_no_http_is_told_of_in_time(
    server: MisbehavingServer, handle: Any, text: str
) -> None:
    with listening(handle) as port:
        start = time.monotonic()
        shown = refusal(server, base_url=f"http://127.0.0.1:{port}/v1", timeout_seconds=0.3)
        assert time.monotonic() - start < 5
    assert f"{text}is the server up" in shown


@contextlib.contextmanager
def listening(handle: Callable[..., Any]) -> Iterator[int]:
    """While open, something listens at this port."""
    made = model_module.LoopThread()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(handle, "127.0.0.1", 0)

    async def end() -> None:
        listener.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.01)

    listener = made.result(start())
    yield listener.sockets[0].getsockname()[1]
    made.finish(end)


def test_a_certificate_that_nobody_signed_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, certificate = signed_by_itself(tmp_path)
    with serving(MisbehavingServer(), context) as server:
        text = refusal(server)
        assert "set SSL_CERT_FILE" in text
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert kinds(run(model_of(server), 3)) == {""}


def signed_by_itself(folder: pathlib.Path) -> tuple[Any, pathlib.Path]:
    """A server's TLS with a certificate of its own, and that certificate."""
    import ssl

    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"base_url": "localhost:8000"}, "localhost:8000 is no http:// or https:// address"),
        ({"base_url": f"http://me:{KEY}@host/v1"}, "without a name, a password or a query"),
        ({"base_url": f"http://host/v1?key={KEY}"}, "without a name, a password or a query"),
        ({"base_url": None, "revision": None}, "reader.base_url: kind served needs it"),
        ({"revision": None}, "reader.revision: kind served needs it"),
        ({"model": None}, "reader.model: kind served needs it"),
        ({"extra_body": {"stream": True}}, "reader.extra_body: must not have stream"),
        ({"price_per_million": {"input": math.nan, "output": 1.0}},
         "price_per_million.input: expected a number, got nan"),
        ({"price_per_million": {"input": 1.0}}, "must have a price for output"),
        ({"price_per_million": {"inputs": 1.0}}, "has the keys input, output, cached_input, not inputs"),
        ({"api_key_env": KEY}, "never the key itself"),
        ({"api_key_env": "gsk_abc"}, "never the key itself"),
    ],
)  # fmt: skip
def test_missing_and_wrong_settings_are_refused_and_no_key_is_repeated(
    settings: dict[str, Any], text: str
) -> None:
    known = {"kind": "served", "model": MODEL, "base_url": "http://host/v1", "revision": "1"}
    with pytest.raises(InputError) as refused:
        make_model(ReaderConfig(**{**known, **settings}))
    assert text in str(refused.value)
    assert KEY not in str(refused.value)
    assert "gsk_abc" not in str(refused.value)
    with pytest.raises(ValueError, match=r"max_cost needs reader\.price_per_million"):
        JobConfig(reader=ReaderConfig(kind="served"), max_cost=1.0)


# --- how many are under way ---


def test_fewer_are_under_way_after_a_429_and_slowly_more_after_answers() -> None:
    limit = limits.AdaptiveLimit(64)
    assert limit.limit == 20
    for _ in range(20):
        limit.count_good()
    assert limit.limit == 21
    for _ in range(21):
        # sent together, refused together
        limit.count_refused(0.0)
    assert limit.limit == 16
    time.sleep(0.02)
    limit.count_refused(None)
    assert limit.limit == 12
    for _ in range(11):
        limit.count_good()
    limit.count_failed()
    limit.count_good()
    assert limit.limit == 12
    for _ in range(3000):
        limit.count_good()
    assert limit.limit == 64


def test_after_a_429_nothing_is_sent_before_the_server_says(server: MisbehavingServer) -> None:
    sent: list[float] = []

    def behave(asked: Asked) -> Reply | None:
        sent.append(time.monotonic())
        return error_reply(429, retry_after="0.5") if asked.number == 30 else Reply(delay=0.002)

    server.behave = behave
    assert kinds(run(model_of(server), 60)) == {""}
    after = [at - sent[29] for at in sent[30:]]
    # those that were under way already come at once
    assert sum(0.05 < one < 0.45 for one in after) == 0
    assert sum(one >= 0.45 for one in after) >= 60 - 30 - 16


def test_a_retry_after_is_read_as_seconds_milliseconds_or_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    read = client_module._retry_after
    assert read({"retry-after": "1.5"}) == 1.5
    assert read({"retry-after": "9", "retry-after-ms": "20"}) == 0.02
    monkeypatch.setattr(client_module.time, "time", lambda: 1_700_000_000.0)
    assert read({"retry-after": "Tue, 14 Nov 2023 22:13:30 GMT"}) == 10.0
    bad = [{"retry-after": text} for text in ("", "soon", "nan", "inf", "-3")]
    assert [*map(read, [*bad, {}])] == [None] * 6


@pytest.mark.long
@pytest.mark.parametrize("settings", [{"requests_per_minute": 1200}, {"tokens_per_minute": 40_000}])
def test_requests_and_tokens_of_a_minute_are_bounded(
    server: MisbehavingServer, settings: dict[str, int]
) -> None:
    model = model_of(server, **settings)
    _ = model.handshake
    start = time.monotonic()
    run(model, 20)
    seconds = time.monotonic() - start
    tokens = sum(len(asked.prompt) // 4 + 2 for asked in server.asked)
    rate = 20 / 20 if "requests_per_minute" in settings else tokens / 40_000 * 60
    assert 0.6 * rate < seconds < 3 * rate + 1


def test_several_servers_share_the_requests_evenly_and_one_that_fails_is_passed_over() -> None:
    with serving(MisbehavingServer()) as one, serving(MisbehavingServer()) as other:
        model = model_of(one, base_url=[one.url, other.url])
        assert model.resources().in_flight == 32
        run(model, 100)
        assert (len(one.asked), len(other.asked)) == (50, 50)
        other.behave = lambda asked: error_reply(500)
        assert kinds(run(model_of(one, base_url=[one.url, other.url]), 40)) == {""}
        assert kinds(run(model, 40)) == {""}


# --- many ---


@pytest.mark.cluster
def test_of_ten_thousand_requests_to_a_server_that_fails_often_none_is_lost(
    server: MisbehavingServer,
) -> None:
    def behave(asked: Asked) -> Reply | None:
        share = hash((asked.prompt, asked.times)) % 100
        if share < 5:
            return error_reply(429, **{name.replace("-", "_"): value for name, value in RETRY_NOW.items()})
        return error_reply(500) if share == 5 else None

    server.behave = behave
    model, process = model_of(server, concurrency=64), psutil.Process()
    found, memory = 0, []
    for start in range(0, 10_000, 2500):
        requests = requests_of(10_000)[start : start + 2500]
        places = {place for place, response in model.run(requests) if response.text == "an answer"}
        found += len(places)
        server.asked.clear()
        del requests, places
        gc.collect()
        memory.append(process.memory_info().rss)
    assert found == 10_000
    again = sum(server.times.values()) - len(server.times)
    assert len(server.times) == 10_000
    assert 300 < again < 1200
    # after the first quarter: less than a quarter of the requests' own texts
    assert memory[-1] - memory[1] < 20e6


# --- prompts ---


def test_prompts_are_cut_at_the_limit_with_all_messages_and_the_question_last() -> None:
    long = Request.of(
        dataclasses.replace(FORM, max_prompt_tokens=100),
        "who is it",
        [Passage("T", "word " * 400), Passage("", "short")],
    )
    rendered = model_module._rendered(long)
    text = "".join(message["content"] for message in rendered.messages)
    assert len(text) <= 400
    assert rendered.num_tokens == math.ceil(len(text) / 4)
    assert "who is it" in text
    assert "short" in text
    assert rendered.num_truncated_passage_tokens > 300
    assert rendered.num_truncated_question_tokens == 0


@pytest.mark.parametrize("keep_end", [False, True])
def test_a_system_message_counts_and_a_long_question_loses_one_end(keep_end: bool) -> None:
    prompt = Prompt(
        template="{question} | {passages} | {question}",
        without_passages="{question}",
        passage="{text}",
        untitled="{text}",
        separator=" ",
        system="s" * 100,
        is_chat=True,
    )
    form = dataclasses.replace(FORM, prompt=prompt, max_prompt_tokens=50, keep_question_end=keep_end)
    rendered = model_module._rendered(Request.of(form, "a" * 300 + "z" * 300, [Passage("", "p" * 20)]))
    assert sum(len(message["content"]) for message in rendered.messages) <= 200
    kept = {letter for letter in rendered.messages[-1]["content"] if letter in "az"}
    assert kept == ({"z"} if keep_end else {"a"})
    assert rendered.num_truncated_question_tokens > 130


def test_all_prompts_of_a_question_start_alike_up_to_the_passage() -> None:
    one, other = (
        model_module._rendered(Request.of(FORM, "who built it", [Passage("T", text)])).messages[-1]["content"]
        for text in ("first", "second")
    )
    assert one.index("who built it") < one.index("first")
    assert one[: one.index("first")] == other[: other.index("second")]


# --- the judge ---


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_served_judge_gives_the_probability_of_yes_against_no(server: MisbehavingServer, api: Any) -> None:
    judge = judge_of(server, api=api)
    case = Case(dataset=Dataset(), reader=ReaderConfig(kind="echo"), judge=judge)
    model = make_model(judge.reader())
    request = RELEVANCE.request(case, "who", (Passage("T", "text"),))
    model.check(request.form)
    server.logprobs = {
        "Yes": math.log(0.3),
        " yes": math.log(0.15),
        "no": math.log(0.15),
        "and": math.log(0.1),
    }
    ((_, response),) = model.run([request])
    assert RELEVANCE.fold is not None
    assert RELEVANCE.fold(request.answers, response) == pytest.approx(0.75)
    assert server.asked[0].body["max_tokens"] == 1
    server.logprobs = None
    ((_, response),) = model.run([request])
    assert response.failure is not None
    assert (response.failure.kind, response.failure.text) == (
        "resource",
        "the answer has no log-probabilities",
    )


# --- a job ---


@pytest.fixture
def tiny_served(tiny: Tiny, server: MisbehavingServer) -> Tiny:
    server.behave = titles
    # a sample that is asked again would count among what is asked
    return tiny.with_config(reader=config_of(server), recheck_fraction=0.0)


@pytest.mark.long
def test_a_job_asks_once_and_a_second_one_nothing(
    tiny_served: Tiny, server: MisbehavingServer, job: RunJob, runs_here: None
) -> None:
    priced = tiny_served.with_config(
        reader=dataclasses.replace(tiny_served.config.reader, price_per_million=PRICES)
    )
    code, said = job("compare", priced)
    assert code == 0, said
    assert set(server.times.values()) == {1}
    # d1, of q1, is called as the answer is; d2 is not
    labels = {
        (row["query_id"], row["doc_id"]): row["label"]
        for row in table(priced, LABELS, annotator="erag").to_dicts()
    }
    assert (labels["q1", "d1"], labels["q1", "d2"]) == (1.0, 0.0)
    costs = TableStore(f"{priced.config.out}/compare").read(COSTS).row(0, named=True)
    count = costs["num_reader_calls"]
    assert count == len(server.asked)
    assert costs["num_cached_prompt_tokens"] == 5 * count
    paid = (
        (costs["num_prompt_tokens"] - 5 * count) * 1000 + 5 * count * 100 + costs["num_output_tokens"] * 2000
    )
    assert costs["price"] == pytest.approx(paid / 1e6)
    manifest = json.loads(pathlib.Path(priced.config.out, "compare", "manifest.json").read_text())
    (facts,) = manifest["models"].values()
    assert facts["handshake"]["context_length"] == 4096
    assert "context 4,096 tokens" in pathlib.Path(priced.config.out, "report.md").read_text()
    server.asked.clear()
    assert job("compare", priced)[0] == 0
    assert server.asked == []
    assert num_reader_calls(priced) == count  # of the job that asked


@pytest.mark.parametrize(("longest", "is_cut"), [(1050, True), (9999, False), (999, False)])
def test_a_server_that_cuts_long_prompts_is_named(
    tiny_served: Tiny, server: MisbehavingServer, job: RunJob, runs_here: None, longest: int, is_cut: bool
) -> None:
    def behave(asked: Asked) -> Reply:
        count = min(900 + len(asked.prompt), longest)
        return Reply(fields={"usage": {"prompt_tokens": count, "completion_tokens": 1}})

    server.behave = behave
    code, said = job("compare", tiny_served)
    assert code == 0, said
    named = f"the longest prompts to 5 questions all have 1,050 tokens: the server of {MODEL} may cut them"
    report = pathlib.Path(tiny_served.config.out, "report.md").read_text()
    assert [named in text for text in (said, report)] == [is_cut, is_cut]


@pytest.mark.long
def test_errors_of_a_server_fail_the_job_and_are_final_or_asked_again_by_their_kind(
    tiny_served: Tiny, server: MisbehavingServer, job: RunJob, runs_here: None
) -> None:
    replies = {
        1: error_reply(400, "context too long"),
        2: error_reply(400, "no", "content_filter"),
        3: Reply(choice=None),
    }
    chosen: dict[str, Reply] = {}

    def behave(asked: Asked) -> Reply:
        if asked.times == 1 and len(server.times) in replies:
            chosen[asked.prompt] = replies[len(server.times)]
        return chosen.get(asked.prompt) or titles(asked)

    def name_of(reply: Reply) -> str:
        return next((name for name in ("context", "content_filter") if name in str(reply.raw)), "no choice")

    server.behave = behave
    code, said = job("compare", tiny_served)
    assert code == 1
    assert "3 of " in said
    assert "requests are errors" in said
    assert all(text in said for text in ("input: ", "refused: ", "resource: "))
    server.asked.clear()
    tolerant = tiny_served.with_config(max_error_fraction=0.5)
    assert job("compare", tolerant)[0] == 0
    # only what another try can change
    assert {name_of(chosen[asked.prompt]) for asked in server.asked} == {"no choice"}
    server.asked.clear()
    assert job("compare", tolerant.with_config(retry_failed=True))[0] == 0
    assert {name_of(chosen[asked.prompt]) for asked in server.asked} == {
        "context",
        "content_filter",
        "no choice",
    }


@pytest.mark.long
def test_no_more_is_spent_than_max_cost_and_all_that_was_paid_for_is_kept(
    tiny_served: Tiny, server: MisbehavingServer, job: RunJob, runs_here: None
) -> None:
    settings = {"price_per_million": {"input": 1e6, "output": 0.0}, "concurrency": 2}
    reader = dataclasses.replace(tiny_served.config.reader, **settings)
    bounded = tiny_served.with_config(reader=reader, max_cost=200.0)
    code, said = job("compare", bounded)
    assert code == 1
    assert "max_cost: " in said
    (store,) = pathlib.Path(bounded.config.cache_dir, "responses").iterdir()
    stored = ResponseStore(bounded.config.cache_dir, store.name).keys().height
    assert stored == len(server.asked)
    spent = sum(len(asked.prompt) // 4 for asked in server.asked)
    assert 200 <= spent < 200 + 3 * 100
    over_all = bounded.with_config(max_cost_over="attempts")
    code, said = job("compare", over_all)
    assert (code, len(server.asked)) == (1, stored)
    assert "max_cost: all of 200.0000 is spent before these requests" in said
    assert "set a higher max_cost to go on" in said
    assert job("compare", over_all.with_config(max_cost=spent + 200.0))[0] == 1
    assert spent + 200 <= sum(len(asked.prompt) // 4 for asked in server.asked) < spent + 200 + 3 * 100
    code, said = job("compare", bounded.with_config(max_cost=1e9))
    assert code == 0, said
    assert set(server.times.values()) == {1}


@pytest.mark.long
def test_a_server_with_other_weights_is_refused_before_anything_is_asked(
    tiny_served: Tiny, server: MisbehavingServer, job: RunJob, runs_here: None
) -> None:
    assert job("compare", tiny_served)[0] == 0
    server.weights = "Paris, emu, yak"
    server.asked.clear()
    deeper = tiny_served.with_config(end_to_end_depths=[2])
    code, said = job("compare", deeper)
    assert code == 2
    assert "reader.revision: the server has changed since responses of revision 1" in said
    assert server.asked == []
    reader = dataclasses.replace(deeper.config.reader, revision="2")
    assert job("compare", deeper.with_config(reader=reader))[0] == 0
    assert len(server.asked) > 20


@pytest.mark.long
def test_thinking_and_cut_outputs_are_counted_in_the_report(
    tiny_served: Tiny, server: MisbehavingServer, job: RunJob, runs_here: None
) -> None:
    def behave(asked: Asked) -> Reply:
        if asked.number == 1:
            return Reply(text="half", choice={"finish_reason": "length"})
        return Reply(text=f"<think>hm</think>{titles(asked).text}")

    server.behave = behave
    assert job("compare", tiny_served)[0] == 0
    report = pathlib.Path(tiny_served.config.out, "report.md").read_text().replace("\\_", "_")
    assert f"cut by max_new_tokens 1, thinking stripped from {len(server.asked) - 1}." in report


def test_a_dry_run_says_what_the_requests_will_cost(
    tiny_served: Tiny, server: MisbehavingServer, job: RunJob, no_reader: None
) -> None:
    reader = dataclasses.replace(tiny_served.config.reader, price_per_million=PRICES, max_new_tokens=10)
    code, said = job("compare", tiny_served.with_config(reader=reader, dry_run=True))
    assert code == 0, said
    (line,) = [line for line in said.splitlines() if "price at most" in line]
    count, num_in, num_out, price = map(float, re.findall(r" ([\d.]+)\b", line.replace(",", "")))
    assert server.asked == []
    assert num_out == 10 * count
    assert 20 * count < num_in < 100 * count
    # whatever the server may have cached
    assert price == pytest.approx((num_in * 1000 + num_out * 2000) / 1e6, rel=1e-3)


def forms(key: str) -> dict[str, str]:
    """A key in the encodings in which servers repeat it, and the longest part that each shows of it."""
    basic = base64.b64encode(f"me:{key}".encode()).decode()
    percent = "".join(f"%{ord(one):02x}" for one in key)
    return {key: key, basic: basic[4:-4], percent: percent, key.encode().hex(): key.encode().hex()}


def test_a_key_is_in_no_message_answer_or_file(
    tiny_served: Tiny,
    server: MisbehavingServer,
    job: RunJob,
    runs_here: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.key = KEY
    server.fingerprint = f"fp of {KEY}"
    monkeypatch.setenv("TINY_KEY", KEY)
    reader = dataclasses.replace(tiny_served.config.reader, api_key_env="TINY_KEY")
    text = f"I am called with {' and '.join(forms(KEY))}."

    # a server that repeats the key in what it says and answers, and breaks in the middle
    def behave(asked: Asked) -> Reply:
        return error_reply(400, f"no: Bearer {KEY}") if asked.number == 3 else Reply(text=text)

    server.behave = behave
    config = tiny_served.with_config(reader=reader)
    code, said = job("compare", config)
    assert code == 1
    assert "no: Bearer ***" in said
    written = [path for path in tiny_served.folder.rglob("*") if path.is_file()]
    assert len(written) > 3
    tables = [pl.read_parquet(path) for path in written if path.suffix == ".parquet"]
    (output,) = {
        one for table in tables if "error_kind" in table.columns for one in table["output"].drop_nulls()
    }
    assert re.fullmatch(r"I am called with \*\*\* and \S+\*\*\*\S* and \*\*\* and \*\*\*\.", output)
    for shown in forms(KEY).values():
        assert shown not in said
        assert not [path for path in written if shown.encode() in path.read_bytes()]
    # the second start compares the server with what was kept of the first
    server.behave = lambda asked: Reply(text=text)
    code, said = job("compare", config.with_config(retry_failed=True, max_error_fraction=0.0))
    assert code == 0, said


def test_model_ids_depend_on_weights_and_not_on_the_way_to_them(server: MisbehavingServer) -> None:
    first = model_id(model_of(server))
    same = {"base_url": "http://elsewhere/v1", "concurrency": 3, "timeout_seconds": 9.0, "api_key_env": "KEY"}
    assert model_id(model_of(server, **same)) == first
    others = [{"revision": "2"}, {"temperature": 0.5}, {"extra_body": {"top_k": 1}}, {"request_seed": None}]
    assert len({first, *(model_id(model_of(server, **other)) for other in others)}) == 5


@pytest.mark.cluster
def test_a_key_that_is_missing_on_a_node_is_one_message(
    tiny_served: Tiny,
    server: MisbehavingServer,
    local_ray: None,
    job: RunJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This process has it; the workers of the Ray that runs already do not."""
    server.key = KEY
    monkeypatch.setenv("KEY_OF_ONE_NODE", KEY)
    reader = dataclasses.replace(tiny_served.config.reader, api_key_env="KEY_OF_ONE_NODE")
    code, said = job("compare", tiny_served.with_config(reader=reader))
    assert code == 2
    assert "the environment variable KEY_OF_ONE_NODE is not set on node " in said
    assert "Traceback" not in said
    assert server.asked == []


@pytest.mark.cluster
def test_a_job_that_is_killed_asks_only_the_rest(tmp_path: pathlib.Path, server: MisbehavingServer) -> None:
    server.behave = lambda asked: Reply(delay=0.1)
    reader = config_of(server, concurrency=4)
    settings = {"reader": reader, "out": str(tmp_path / "out"), "recheck_fraction": 0.0}
    config = dataclasses.replace(write_larger(tmp_path), **settings)
    kill_midway(config, tmp_path)
    known = stored(config).height
    first = len(server.asked)
    assert NUM_REQUESTS // 5 <= known <= first < NUM_REQUESTS
    server.behave = lambda asked: None
    finish(dataclasses.replace(config, num_readers=0), tmp_path)
    # nothing that was written; what was under way, or not yet written, once more
    assert len(server.asked) - first == NUM_REQUESTS - known
    assert len(server.times) == NUM_REQUESTS
    assert max(server.times.values()) <= 2
