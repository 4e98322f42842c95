"""Jobs whose reader is behind a server of the tests."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from misbehaving_server import MODEL, Asked, MisbehavingServer, Reply, serving

from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.inference import stage as reading
from erag_ray.inference.in_process import run_in_process
from erag_ray.models import make_model
from erag_ray.models.served import client as client_module
from erag_ray.models.served import limits
from erag_ray.models.served import model as model_module
from erag_ray.prompts.prompt import prompt_named
from erag_ray.prompts.request import Form, Passage, Request

CHAT = prompt_named("question_first", "question", num_examples=0, titles=True)
FORM = Form(method="generate", prompt=CHAT, max_new_tokens=8)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pauses are a hundredth of what they are."""
    monkeypatch.setattr(client_module, "FIRST_RETRY_SECONDS", 0.005)
    monkeypatch.setattr(client_module, "MAX_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(limits, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(limits, "ROUND_SECONDS", 0.01)
    monkeypatch.setattr(model_module, "GRACE_SECONDS", 1.0)


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with serving(MisbehavingServer()) as server:
        yield server


def config_of(server: MisbehavingServer, **settings: Any) -> ReaderConfig:
    known = {"kind": "served", "model": MODEL, "base_url": server.url, "revision": "1", "concurrency": 16}
    return ReaderConfig(**{**known, **settings})


def judge_of(server: MisbehavingServer, **settings: Any) -> JudgeConfig:
    """A judge behind the server."""
    return JudgeConfig(kind="served", model=MODEL, base_url=server.url, revision="1", **settings)


def model_of(server: MisbehavingServer, **settings: Any) -> model_module.ServedModel:
    model = make_model(config_of(server, **settings))
    assert isinstance(model, model_module.ServedModel)
    return model


def requests_of(count: int, *, num_questions: int | None = None) -> list[Request]:
    """All different; about so many questions, each about another by default."""
    names = [f"who is {row % (num_questions or count):05}" for row in range(count)]
    return [Request.of(FORM, name, [Passage("T", f"text {row:05}")]) for row, name in enumerate(names)]


def row_of(asked: Asked) -> int:
    """Which of `requests_of` it is."""
    return int(asked.prompt.rpartition("text ")[2][:5])


@pytest.fixture
def runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are run by an actor in this process, without Ray."""
    monkeypatch.setattr(reading, "run", run_in_process)
    monkeypatch.setattr(reading, "ray_session", lambda address: contextlib.nullcontext())


def titles(asked: Asked) -> Reply:
    """The reader of these tests answers with the title of the first passage."""
    _, found, rest = asked.prompt.partition("Passage: (")
    return Reply(text=rest.partition(")")[0] if found else "nothing")


PRICES = {"input": 1000.0, "output": 2000.0, "cached_input": 100.0}
