"""Servers that do one odd thing: no paid answer is lost, budgets hold, and no wait is without end."""

import contextlib
import dataclasses
import gzip
import json
import math
import pathlib
import threading
import time
from typing import Any

import numpy as np
import polars as pl
import pytest
from misbehaving_server import MODEL, Asked, MisbehavingServer, Reply, error_reply, serving
from pending_requests import FORM as ECHO_FORM
from pending_requests import actor_of, as_pending, pending
from served_jobs import (
    FORM,
    config_of,
    model_of,
    requests_of,
    row_of,
    runs_here,
    server,
    short_pauses,
    titles,
)
from tiny import Tiny

import erag_ray as er
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference import writer as writer_module
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.models import Isolation, make_model, model_id
from erag_ray.models.budget import Budget
from erag_ray.models.echo import EchoModel
from erag_ray.models.served import bounded, limits
from erag_ray.models.served import client as client_module
from erag_ray.models.served.model import ServedModel
from erag_ray.prompts.request import Request, Response
from erag_ray.store.responses import ResponseStore
from erag_ray.store.schemas import COSTS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import JobError

# fixtures
__all__ = ["runs_here", "server", "short_pauses"]

PRICE = {"price_per_million": {"input": 0.0, "output": 1e6}}
"""Each token that is written costs 1."""


def run(model: ServedModel, count: int) -> list[Response]:
    """The responses as they reach the store, in the order of the requests."""
    answers = dict(Isolation(model).run(requests_of(count)))
    assert sorted(answers) == list(range(count))
    return [answers[row] for row in range(count)]


def stored(folder: pathlib.Path) -> pl.DataFrame:
    """All responses in a store."""
    names = [path.parent.name for path in folder.glob("responses/*/*.parquet")]
    store = ResponseStore(str(folder), names[0] if names else "none")
    tables = [pl.DataFrame(store.folder.read_parquet(name)) for name in store.folder.names(suffix=".parquet")]
    return pl.concat(tables) if tables else pl.DataFrame({"output": []})


# --- odd answers ---

DEEP = '{"model": "%s", "choices": [{"message": {"content": %s}}]}'
UNREADABLE = {
    "half of a surrogate pair": Reply(raw='{"choices": [{"message": {"content": "Town \\ud800 x"}}]}'),
    "nested deeper than Python goes": Reply(raw=DEEP % (MODEL, "[" * 100_000 + "]" * 100_000)),
    "a number of 5,000 digits": Reply(raw='{"choices": [], "usage": {"prompt_tokens": %s}}' % ("9" * 5000)),
    "no UTF-8": Reply(raw=b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "too large": Reply(raw=b'{"choices": [' + b" " * bounded.MAX_BYTES + b"]}"),
    "large once unpacked": Reply(
        headers={"Content-Encoding": "gzip"}, raw=gzip.compress(b'{"choices": [' + b" " * (64 << 20) + b"]}")
    ),
    "an unknown compression": Reply(headers={"Content-Encoding": "br"}, raw=b"\x00\x01"),
    "cut compression": Reply(headers={"Content-Encoding": "gzip"}, raw=gzip.compress(b"{}")[:12]),
    "an error as a surrogate": Reply(500, raw='{"error": {"message": "\\udfff"}}'),
    "an error that is large once unpacked": Reply(
        500, headers={"Content-Encoding": "gzip"}, raw=gzip.compress(b" " * (64 << 20))
    ),
}


@pytest.mark.parametrize("fault", UNREADABLE)
def test_an_answer_that_cannot_be_read_is_asked_again_and_then_an_error_row(
    server: MisbehavingServer, fault: str
) -> None:
    odd = {3: 1, 9: 99}
    server.behave = lambda asked: UNREADABLE[fault] if asked.times <= odd.get(row_of(asked), 0) else None
    responses = run(model_of(server), 12)
    failed = {row: response.failure for row, response in enumerate(responses) if response.failure}
    assert {row: failure.kind for row, failure in failed.items()} == {9: "resource"}
    failed[9].text.encode()
    assert {response.text for row, response in enumerate(responses) if row != 9} == {"an answer"}


READABLE: dict[str, dict[str, Any]] = {
    "2**64 tokens": {"usage": {"prompt_tokens": 2**64, "completion_tokens": 5}},
    "no fingerprint": {"system_fingerprint": None},
    "a list as fingerprint": {"system_fingerprint": ["a"]},
    "a mapping as fingerprint": {"system_fingerprint": {"a": 1}},
    "a list as model": {"model": [MODEL]},
    "no model": {"model": None},
    "another case": {"model": MODEL.upper()},
    "usage as a text": {"usage": "many"},
    "cached tokens as a list": {
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": []}
    },
    "no finish_reason": {"choices": [{"message": {"content": "an answer"}, "finish_reason": None}]},
}


@pytest.mark.parametrize("fault", READABLE)
def test_an_odd_field_beside_the_answer_ends_nothing(server: MisbehavingServer, fault: str) -> None:
    server.fingerprint = "fp"
    server.behave = lambda asked: Reply(fields=READABLE[fault] if row_of(asked) % 3 == 0 else {})
    responses = run(model_of(server), 12)
    assert {(response.text, response.failure) for response in responses} == {("an answer", None)}
    assert set(server.times.values()) == {1}


# --- rows in hand ---


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit, JobError, RuntimeError])
def test_what_was_answered_is_stored_whatever_is_raised(
    error: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = EchoModel.answer

    def breaks(model: EchoModel, request: Request) -> Response:
        if request.question == "question 7":
            raise error("odd")
        return answer(model, request)

    monkeypatch.setattr(EchoModel, "answer", breaks)
    actor = actor_of(ReaderConfig(kind="echo"), tmp_path, ECHO_FORM)
    with pytest.raises(error):
        list(actor(pending(*(f"question {number}" for number in range(20)))))
    assert stored(tmp_path).height == actor.num_responses == 7


def test_rows_are_stored_and_counted_while_the_server_is_silent(
    server: MisbehavingServer, tmp_path: pathlib.Path
) -> None:
    server.behave = lambda asked: Reply(delay=math.inf if row_of(asked) >= 10 else 0.0)
    actor = actor_of(config_of(server, timeout_seconds=60.0), tmp_path, FORM, seconds=0.2)

    def read() -> None:
        with contextlib.suppress(JobError):
            list(actor(as_pending(requests_of(16))))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while stored(tmp_path).height < 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert thread.is_alive()
    assert stored(tmp_path).height == actor.num_responses == 10
    # the rest fails at once, so that the thread ends
    actor.isolation.model._client.ended = JobError("over")  # type: ignore[attr-defined]


def test_a_write_that_fails_ends_the_job_and_rows_that_were_interrupted_are_written_again() -> None:
    written, faults = list[int](), [KeyboardInterrupt(), None]

    def write(rows: list[int], seconds: float) -> None:
        if fault := faults.pop(0):
            raise fault
        written.extend(rows)

    def use(seconds: float, *, forever: bool) -> None:
        with writer_module.Writer(write if not forever else fails, seconds) as writer:
            writer.add(1)
            writer.write()
            while forever:
                writer.add(1)
                time.sleep(0.01)

    def fails(rows: list[int], seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread() or len(rows) > 1:
            raise OSError("full")

    with pytest.raises(KeyboardInterrupt):
        use(3600.0, forever=False)
    assert written == [1]
    with pytest.raises(OSError, match="full"):
        use(0.0, forever=True)


# --- budgets ---

USAGE: dict[str, Any] = {
    "counted": {},
    "missing": {"usage": None},
    "zero": {"usage": {"prompt_tokens": 0, "completion_tokens": 0}},
    "negative": {"usage": {"prompt_tokens": -5, "completion_tokens": -1}},
    "not a number": {"usage": {"prompt_tokens": math.nan, "completion_tokens": math.inf}},
    "texts": {"usage": {"prompt_tokens": "50", "completion_tokens": True}},
    "huge": {"usage": {"prompt_tokens": 2**64, "completion_tokens": 2**64}},
    "a float": {"usage": {"prompt_tokens": 50.0, "completion_tokens": 2.0}},
}


@pytest.mark.parametrize("name", USAGE)
def test_a_budget_holds_with_all_requests_at_once_however_usage_is_written(
    server: MisbehavingServer, tmp_path: pathlib.Path, name: str
) -> None:
    """One answer costs 2 by its own count, and 8, all that it may have, by the estimate."""
    server.behave = lambda asked: Reply(fields=USAGE[name], delay=0.02)
    config = config_of(server, concurrency=64, **PRICE)
    actor = actor_of(config, tmp_path, FORM)
    actor._budget.limit = 100.0
    with pytest.raises(JobError, match="max_cost: "):
        list(actor(as_pending(requests_of(240))))
    each = 2 if name in ("counted", "a float") else 8
    assert 100 <= each * len(server.asked) <= 100 + each
    rows = stored(tmp_path)
    assert rows.height == len(server.asked)
    assert set(rows["num_output_tokens"]) == {each}
    assert actor._notes["estimated"] == (rows.height if each == 8 else 0)


def test_answers_that_are_thrown_away_are_paid_too(server: MisbehavingServer) -> None:
    server.behave = lambda asked: Reply(text="two tokens", choice={"finish_reason": "abort"})
    model = model_of(server, concurrency=4, **PRICE)
    model.budget = Budget(model.config, 20.0)
    assert list(model.run(requests_of(50))) == []
    assert 20 <= 2 * len(server.asked) <= 20 + 2


def test_requests_that_are_sent_again_and_later_stages_count_under_max_cost(
    tiny: Tiny, server: MisbehavingServer, runs_here: None
) -> None:
    """As the looks of a sequential test, each of which runs a stage."""
    server.behave = lambda asked: dataclasses.replace(titles(asked), fields={"usage": None})
    reader = config_of(server, max_new_tokens=4, **PRICE)
    some = tiny.with_config(reader=reader, recheck_fraction=1.0, num_readers=0)
    inputs = prepare(some.config)
    plan = plan_stage(some.config, inputs, "compare", single_document=True, end_to_end=False)
    count = sum(model_plan.new.height for model_plan in plan.plans)
    limited = dataclasses.replace(some.config, max_cost=4.0 * count + 8.0)
    done = run_stage(limited, plan)
    assert len(server.asked) == count + 2
    assert done.costs["price"].to_list() == [4.0 * count + 8.0]
    manifest = pathlib.Path(limited.out, "compare", "manifest.json").read_text()
    assert f"{count - 2:,} more were not sent again: max_cost is spent." in manifest
    # a later look: nothing is left for what is new in it, and the costs of all looks are sealed
    later = plan_stage(limited, inputs, "compare", single_document=True, end_to_end=True)
    with pytest.raises(JobError, match=r"max_cost: all of .* is spent before these requests"):
        run_stage(limited, later, done.costs)
    assert len(server.asked) == count + 2
    looked = dataclasses.replace(limited, max_cost=1e6, recheck_fraction=0.0)
    more = sum(model_plan.new.height for model_plan in later.plans)
    assert more > 0
    assert run_stage(looked, later, done.costs).costs["price"].to_list() == [4.0 * count + 8.0, 4.0 * more]
    sealed = TableStore(f"{limited.out}/compare").read(COSTS)
    assert sealed["price"].sum() == 4.0 * (count + more) + 8.0


# --- waits ---


def test_a_server_that_is_away_for_a_while_ends_no_job(server: MisbehavingServer) -> None:
    """By its gateway, and without a connection; longer than all retries by count take."""
    back = [math.inf]

    def behave(asked: Asked) -> Reply | None:
        back[0] = min(back[0], time.monotonic() + 1.5)
        return error_reply([502, 503, 504][asked.number % 3]) if time.monotonic() < back[0] else None

    server.behave = behave
    assert {response.failure for response in run(model_of(server, concurrency=4), 24)} == {None}
    assert max(server.times.values()) > client_module.RETRIES["away"] + 1


def test_a_connection_that_is_refused_for_a_while_ends_no_job() -> None:
    with serving(MisbehavingServer()) as server:
        model = model_of(server, concurrency=4)
        assert run(model, 4)
        port = int(server.url.rpartition(":")[2].partition("/")[0])
    answers = list[Response]()
    thread = threading.Thread(target=lambda: answers.extend(run(model, 24)), daemon=True)
    thread.start()
    time.sleep(2.0)
    assert thread.is_alive()
    with serving(server, port=port):
        thread.join(60)
    assert {response.failure for response in answers} == {None}
    assert len(answers) == 24


def test_a_server_that_stays_away_ends_the_job_after_its_patience() -> None:
    with serving(MisbehavingServer()) as server:
        model = model_of(server, concurrency=4, patience_seconds=1.0)
        assert run(model, 4)
    start = time.monotonic()
    with pytest.raises(JobError, match="20 requests in a row failed"):
        run(model, 60)
    assert 1.0 < time.monotonic() - start < 40.0


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("wait", ["86400", "1000000000", "Fri, 01 Jan 2100 00:00:00 GMT"])
def test_a_wait_that_a_server_asks_for_is_bounded_and_said(
    server: MisbehavingServer,
    status: int,
    wait: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(client_module, "LONG_PAUSE_SECONDS", 0.1)
    for module in (client_module, limits):
        monkeypatch.setattr(module, "MAX_PAUSE_SECONDS", 0.2)
    odd = error_reply(status, retry_after=wait)
    server.behave = lambda asked: odd if asked.times == 1 and row_of(asked) == 3 else None
    assert {response.failure for response in run(model_of(server), 12)} == {None}
    assert "sent again in 0 s (it asks for " in capsys.readouterr().err


@pytest.mark.parametrize("status", [400, 405, 418])
def test_a_status_for_every_request_ends_the_job_and_is_stored_for_none(
    server: MisbehavingServer, status: int
) -> None:
    server.behave = lambda asked: error_reply(status, "no such field")
    answers = []
    with pytest.raises(
        JobError, match=r"requests in a row were refused, the last one: .*no such field"
    ) as ended:
        answers.extend(model_of(server, concurrency=8).run(requests_of(800, num_questions=50)))
    assert "reader.extra_body" in str(ended.value)
    assert (answers, len(server.asked) < 60) == ([], True)


def test_a_status_of_the_first_and_longest_requests_is_their_own(server: MisbehavingServer) -> None:
    server.behave = lambda asked: error_reply(400, "too long") if row_of(asked) < 40 else None
    responses = run(model_of(server, concurrency=8), 200)
    assert [row for row, response in enumerate(responses) if response.failure] == list(range(40))
    # 425 passes
    server.behave = lambda asked: error_reply(425) if asked.times == 1 else None
    assert {response.failure for response in run(model_of(server, revision="2"), 8)} == {None}


# --- one model, one cache ---


@pytest.mark.parametrize(
    "keys",
    [
        {"temperature": 0, "revision": 1},
        {"temperature": -0.0, "revision": np.int64(1)},
        {"temperature": np.float32(0), "request_seed": np.int64(0)},
        {"temperature": np.int64(0), "max_new_tokens": np.int64(50)},
    ],
)
def test_equal_values_of_keys_are_one_model_and_jobs_keep_their_caches(keys: dict[str, Any]) -> None:
    given = {"base_url": "http://x/v1", "model": "m", "revision": "1", **keys}
    config = er.Served(**given)
    # the id that a job of version 0.1 wrote
    assert model_id(make_model(config)) == "served-e56a69ce925f967c"
    plain = ReaderConfig(kind="served", base_url="http://x/v1", model="m", revision="1")
    changed = dataclasses.replace(plain, max_new_tokens=config.max_new_tokens)
    assert json.dumps(dataclasses.asdict(config)) == json.dumps(dataclasses.asdict(changed))


def test_a_function_is_found_whatever_its_revision_is_written_as() -> None:
    function = er.Function(lambda prompts: prompts, name="mine", revision=1)  # type: ignore[arg-type]
    config = function.config()
    assert config.revision == "1"
    assert model_id(make_model(config)) == model_id(make_model(dataclasses.replace(config, revision="1")))
