"""Readers by vLLM on a small real model: in the actor, and behind a real server.

Run: make test-vllm
"""

import os
import pathlib
import random
import re
import signal
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import polars as pl
import psutil
import pytest
from models import some_requests
from real_vllm import BLOCK_TOKENS, comparison, run_job, serving, write_smollm2

from erag_ray.config.reader import ReaderConfig
from erag_ray.models import load_model, make_model
from erag_ray.prompts.prompt import FAMILIES, family_prompt, question_first_prompt
from erag_ray.prompts.request import Form, Request, Response

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500), pytest.mark.filterwarnings("default")]

FAMILY = FAMILIES["question"]
CHAT, PLAIN = question_first_prompt(FAMILY), family_prompt(FAMILY, is_chat=False, num_examples=2)
ANSWERS = ("1874", "Ada Brunner", "Graz and the river", "1874", "")
WORDS = ("yes", "no", "The", "yes", "the lighthouse")
# memory for keys and values that a small machine has beside other work
ENGINE = {"enforce_eager": True, "block_size": BLOCK_TOKENS, "kv_cache_memory_bytes": 500_000_000}


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_smollm2(tmp_path_factory.mktemp("smollm2"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return comparison(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def server(smollm2: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(smollm2, tmp_path_factory.mktemp("server") / "log") as url:
        yield url


def requests() -> list[Request]:
    """Every kind of request: cut prompts, chats and plain ones, answers with and without an end, next tokens."""
    short = Form(method="generate", prompt=CHAT, max_new_tokens=16, max_prompt_tokens=120)
    free = Form(method="generate", prompt=PLAIN, max_new_tokens=16, stop_at_newline=False)
    ended = Form(method="loglikelihood", prompt=CHAT, max_new_tokens=16)
    cut = Form(method="loglikelihood", prompt=PLAIN, max_new_tokens=4, with_end=False)
    following = Form(method="loglikelihood", prompt=PLAIN, max_new_tokens=1, next_token=True)
    written = [*some_requests(short, 12, longest=120), *some_requests(free, 6, seed=1)]
    scored = [(ended, ANSWERS), (cut, ANSWERS), (following, WORDS)]
    return written + [
        request._replace(answers=answers)
        for form, answers in scored
        for request in some_requests(form, 6, seed=2)
    ]


@pytest.mark.parametrize("place", ["actor", "child"])
def test_vllm_gives_what_transformers_gives_in_any_order(smollm2: str, place: str) -> None:
    asked = requests()
    answers = {}
    for kind, keys in (("causal", {}), ("vllm", {"engine_process": place, "engine_args": ENGINE})):
        model = make_model(ReaderConfig(kind=kind, model=smollm2, **keys))
        load_model(model)
        answers[kind] = dict(model.run(asked))
    order = random.Random(0).sample(range(len(asked)), len(asked))
    shuffled = {order[place]: response for place, response in model.run([asked[i] for i in order])}
    for place in range(len(asked)):
        expected = answers["causal"][place]
        assert_equal(answers["vllm"][place], expected)
        assert_equal(shuffled[place], expected)
    # the second time the prefix cache had most prompts
    assert sum(response.num_cached_prompt_tokens for response in shuffled.values()) > 0


def assert_equal(response: Response, expected: Response) -> None:
    assert response.text == expected.text
    assert response.logprobs == pytest.approx(expected.logprobs, abs=1e-2)
    for name in ("prompt", "output", "truncated_passage", "truncated_question"):
        assert getattr(response, f"num_{name}_tokens") == getattr(expected, f"num_{name}_tokens")
    assert response.num_answer_tokens == expected.num_answer_tokens


def test_the_actor_and_a_real_server_give_the_same_labels(
    smollm2: str, server: str, base: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    own = {"kind": "vllm", "model": smollm2, "dtype": "float32", "engine_args": ENGINE}
    served = {"kind": "served", "model": "smol", "base_url": server, "revision": "Q4_1"}
    labels, outputs = {}, {}
    for reader in (own, served):
        kind = str(reader["kind"])
        # a server does not end an output at its first line break
        reader |= {"max_new_tokens": 32, "stop_at_newline": False}
        config = {**base, "reader": reader, "cache_dir": str(tmp_path / "store")}
        config["out"] = str(tmp_path / kind)
        run_job("compare", config, tmp_path)
        costs = pl.read_parquet(tmp_path / kind / "compare" / "costs" / "*.parquet")
        assert costs["num_cached_prompt_tokens"].sum() > 0
        labels[kind] = pl.read_parquet(tmp_path / kind / "labels" / "**/*.parquet").filter(annotator="erag")
        outputs[kind] = answers_of(tmp_path / "store", kind)
        again = run_job("compare", {**config, "out": str(tmp_path / f"{kind}-again")}, tmp_path)
        assert set(re.findall(r", (\d+) new", again)) == {"0"}
    assert_alike(labels["vllm"], labels["served"], ["query_id", "doc_id"], "label", least=200)
    # vLLM's sums depend on what it computes together: in bfloat16 96 % of the labels were equal, so this is in float32
    keys = ["question_key", "passages_key"]
    assert_alike(outputs["vllm"], outputs["served"], keys, "output", least=200, fraction=0.95)
    assert labels["vllm"]["label"].max() > 0


def test_a_killed_engine_loses_no_answer(smollm2: str, base: dict[str, Any], tmp_path: pathlib.Path) -> None:
    reader = {"kind": "vllm", "model": smollm2, "engine_process": "child", "engine_args": ENGINE}
    config = {**base, "reader": reader, "write_every_seconds": 1}
    config |= {"out": str(tmp_path / "out"), "cache_dir": str(tmp_path / "store")}
    others = engines()
    with futures.ThreadPoolExecutor() as threads:
        job = threads.submit(run_job, "compare", config, tmp_path)
        while not list((tmp_path / "store" / "responses").glob("vllm-*/*.parquet")):
            assert not job.done(), job.result()
            time.sleep(0.1)
        (engine,) = engines() - others
        os.kill(engine, signal.SIGKILL)
        job.result()
    assert answers_of(tmp_path / "store", "vllm").height >= 200
    assert engines() == others


def engines() -> set[int]:
    """The processes of vLLM's engines on this machine, such as that of the server."""
    return {
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].startswith("VLLM::EngineCore")
    }


def answers_of(store: pathlib.Path, kind: str) -> pl.DataFrame:
    responses = pl.concat(
        [pl.read_parquet(file) for file in (store / "responses").glob(f"{kind}-*/*.parquet")]
    )
    assert responses["error"].null_count() == responses.height
    assert (responses["output"].str.len_chars() > 0).mean() > 0.95
    return responses


def assert_alike(
    first: pl.DataFrame,
    second: pl.DataFrame,
    on: list[str],
    column: str,
    *,
    least: int,
    fraction: float = 0.99,
) -> None:
    """Compare a column of two tables: it is equal in at least this fraction of the rows."""
    both = first.join(second, on=on)
    assert both.height == first.height == second.height >= least
    assert (both[column] == both[f"{column}_right"]).mean() >= fraction
