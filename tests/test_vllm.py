"""The vllm reader without vLLM: what it refuses, what it asks for, and what it makes of answers."""

import dataclasses
import math
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types
from typing import Any

import models
import pytest
from bench import run as benchmark
from bench.config import BenchmarkConfig
from bench.readers import vllm as benchmark_vllm
from bench.tables import vllm_table
from tiny import RUNS, Tiny, job_command

from erag_ray.config.reader import JudgeConfig, ReaderConfig, output_settings
from erag_ray.inference.cluster.gpus import process_environment
from erag_ray.inference.pool import Pool
from erag_ray.models import make_model
from erag_ray.models.local.process import EngineLost
from erag_ray.models.vllm import model as vllm
from erag_ray.models.vllm.engine import MAX_NEXT, Completed, Engine, EngineRequest, arguments_of, sampling
from erag_ray.prompts.prompt import FAMILIES, family_prompt, question_first_prompt
from erag_ray.prompts.request import Form, Request
from erag_ray.support.errors import InputError, JobError

PLAIN = family_prompt(FAMILIES["question"], is_chat=False, num_examples=2)
CHAT = question_first_prompt(FAMILIES["question"])


@pytest.fixture
def has_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "installed_version", lambda: "0.32.0")


def config(folder: str, **keys: Any) -> ReaderConfig:
    return ReaderConfig(kind="vllm", model=folder, **keys)


def test_without_the_package_it_says_what_to_install(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"vllm needs the package vllm.*pip install 'erag-ray\[vllm\]'.*kind: causal"
    ):
        make_model(config(llama))


@pytest.mark.usefixtures("has_vllm")
def test_a_t5_a_gguf_file_and_a_chat_without_a_template_are_refused_with_what_to_do(
    tmp_path: pathlib.Path,
) -> None:
    with pytest.raises(InputError, match="vLLM has no T5; use kind: fid or ipa"):
        make_model(config(models.t5_folder(tmp_path / "t5")))
    tokenizer = models.causal_tokenizer()
    tokenizer.chat_template = None
    model = make_model(config(models.causal_folder(tmp_path / "base", tokenizer=tokenizer)))
    with pytest.raises(InputError, match=r"has no chat template; use a plain prompt"):
        model.check(Form(method="generate", prompt=CHAT, max_new_tokens=8))


@pytest.mark.usefixtures("has_vllm")
def test_its_prompts_are_those_of_the_causal_reader(llama: str) -> None:
    for prompt in (PLAIN, CHAT):
        form = Form(method="generate", prompt=prompt, max_new_tokens=8, max_prompt_tokens=200)
        requests = models.some_requests(form, 20, longest=120)
        expected = make_model(ReaderConfig(kind="causal", model=llama)).render(requests)
        assert make_model(config(llama)).render(requests) == expected


@pytest.mark.usefixtures("has_vllm")
def test_its_fingerprint_has_weights_precision_version_and_arguments_and_not_what_changes_its_speed(
    llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity(**keys: Any) -> dict[str, object]:
        return make_model(config(llama, **keys)).fingerprint_fields()

    base = identity()
    assert base["files"]
    assert identity(engine_args={"gpu_memory_utilization": 0.5}, tensor_parallel_size=2, batch_size=3) == base
    assert identity(engine_process="child") == base
    assert identity(engine_args={"quantization": "fp8"}) != base
    assert identity(dtype="bfloat16") != base
    monkeypatch.setattr(vllm, "installed_version", lambda: "0.33.0")
    assert identity() != base


@pytest.mark.usefixtures("has_vllm")
def test_tensor_parallelism_asks_ray_for_gpus(llama: str) -> None:
    assert make_model(config(llama, tensor_parallel_size=4)).resources().num_gpus == 4
    pool = Pool(size=1, num_cpus=8, num_gpus=4)
    assert pool.described([{"GPU": 8.0}]) == "readers: 1, each on 4 GPUs of 8, 4 idle, 8 CPU threads each"
    assert process_environment(4) == {}


def test_arguments_that_have_a_key_or_would_run_code_are_refused() -> None:
    for name, hint in (("dtype", "use the key dtype"), ("trust_remote_code", "trust_remote_code")):
        for kind in (ReaderConfig, JudgeConfig):
            with pytest.raises(ValueError, match=hint):
                kind(engine_args={name: True})
    assert "engine_args" not in output_settings(ReaderConfig())


@pytest.mark.usefixtures("has_vllm")
def test_the_engine_gets_the_keys_of_the_config(llama: str) -> None:
    keys = {"batch_size": 7, "batch_tokens": 99, "engine_args": {"quantization": "fp8", "max_model_len": 128}}
    found = arguments_of(config(llama, dtype="bfloat16", **keys), llama, 128, 1.0)
    wanted = {"model": llama, "dtype": "bfloat16", "max_num_seqs": 7, "max_num_batched_tokens": 99}
    assert found.items() >= {**wanted, "quantization": "fp8", "max_model_len": 128}.items()
    assert found["kv_cache_memory_bytes"] > 0


class FakeEngine:
    """Half of the log of a token's id, for every token at every place; writes the end at once."""

    finish_reason = "stop"

    def __init__(self, **arguments: Any) -> None:
        self.llm_engine, self.waiting, self.most = self, list[tuple[str, Any, Any]](), 0

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        self.waiting.append((name, prompt["prompt_token_ids"], params))
        self.most = max(self.most, len(self.waiting))

    def abort_request(self, names: list[str]) -> None:
        self.waiting = [one for one in self.waiting if one[0] not in names]

    def step(self) -> list[Any]:
        name, ids, params = self.waiting.pop()
        return [self.answer(name, ids, params)]

    def answer(self, name: str, ids: list[int], params: Any) -> Any:
        own = [{id_: logprob(id_)} for id_ in ids] if getattr(params, "prompt_logprobs", None) == 0 else None
        wanted = {id_: logprob(id_) for id_ in getattr(params, "logprob_token_ids", [])}
        output = types.SimpleNamespace(token_ids=[params.stop_token_ids[0]] if params.stop_token_ids else [5])
        output.logprobs, output.finish_reason = [wanted], self.finish_reason
        fields = {"request_id": name, "finished": True, "prompt_logprobs": own, "outputs": [output]}
        return types.SimpleNamespace(**fields, num_cached_tokens=3)

    def reset_prefix_cache(self) -> None:
        pass

    def generate(self, prompts: list[Any], params: list[Any], *, use_tqdm: bool) -> list[Any]:
        asked = zip(prompts, params, strict=True)
        return [self.answer("", prompt["prompt_token_ids"], own) for prompt, own in asked]


def logprob(id_: int) -> Any:
    return types.SimpleNamespace(logprob=-math.log(id_ + 2) / 2)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"LLM": FakeEngine, "SamplingParams": lambda **keys: types.SimpleNamespace(**keys)}
    monkeypatch.setitem(sys.modules, "vllm", types.SimpleNamespace(**fields))
    kind = types.SimpleNamespace(FINAL_ONLY=2)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", types.SimpleNamespace(RequestOutputKind=kind))
    dead = types.SimpleNamespace(EngineDeadError=type("EngineDeadError", (Exception,), {}))
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.exceptions", dead)
    monkeypatch.setattr(
        "erag_ray.models.vllm.engine.sampling", sampling.__wrapped__
    )  # kept ones would be real


@pytest.mark.usefixtures("has_vllm", "fake")
def test_answers_are_scored_with_their_ends_however_many_there_are(llama: str) -> None:
    model: Any = make_model(config(llama))
    assert isinstance(model, vllm.VllmModel)
    model.load()
    form = Form(method="loglikelihood", prompt=PLAIN, max_new_tokens=8)
    request = Request(form, "Who?", (), ("Ada", "Graz", "Ada"))
    ((_, response),) = model.run([request])
    (prompt,) = model.render([request])
    ends = math.log(sum(math.exp(logprob(id_).logprob) for id_ in model.ends(form)))
    expected = [min(0.0, sum(logprob(id_).logprob for id_ in ids) + ends) for ids in prompt.answer_ids]
    assert response.logprobs == pytest.approx(expected)
    assert response.num_cached_prompt_tokens == 3
    model.ends = lambda form: range(300)
    assert [part.next_ids for part in model.engine_requests(prompt)] == [
        tuple(range(MAX_NEXT)),
        tuple(range(MAX_NEXT, 2 * MAX_NEXT)),
        tuple(range(2 * MAX_NEXT, 300)),
    ] * 2


@pytest.mark.usefixtures("has_vllm", "fake")
@pytest.mark.parametrize("reason", ["stop", "length", "abort", "error"])
def test_a_request_that_vllm_gives_up_is_an_error(
    llama: str, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(FakeEngine, "finish_reason", reason)
    model = make_model(config(llama))
    model.load()
    ((_, response),) = model.run([Request(Form(method="generate", prompt=PLAIN, max_new_tokens=8), "Who?")])
    assert (response.failure is None) == (reason in ("stop", "length"))
    assert response.failure is None or (response.failure.kind, response.text) == ("resource", None)


@pytest.mark.usefixtures("has_vllm", "fake")
def test_where_memory_for_keys_and_values_is_missing_the_message_names_the_key(
    llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**arguments: Any) -> None:
        raise ValueError("Available memory on node 0 (2.58 GiB) is less. Decrease --kv-cache-memory-bytes.")

    monkeypatch.setattr(sys.modules["vllm"], "LLM", fail)
    with pytest.raises(JobError, match=r"cannot load.*\(2\.58 GiB\).*engine_args: \{kv_cache_memory_bytes: "):
        Engine(config(llama), llama, 100, 1.0)


@pytest.mark.usefixtures("has_vllm", "fake")
def test_next_tokens_are_scored_once_each(llama: str) -> None:
    model = make_model(config(llama))
    model.load()
    form = Form(method="loglikelihood", prompt=PLAIN, max_new_tokens=1, next_token=True)
    request = Request(form, "Who?", (), ("A", "B", "A", "the lighthouse"))
    ((_, response),) = model.run([request])
    first, second, again, several = response.logprobs
    assert -math.inf < first < 0 > second > -math.inf
    assert again == several == -math.inf


@pytest.mark.usefixtures("has_vllm", "fake")
def test_requests_are_fed_as_the_engine_has_room_and_dropped_when_nobody_waits(
    llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erag_ray.models.vllm.engine.MAX_WAITING", 4)
    engine = Engine(config(llama), llama, 100, 1.0)
    parts = ((number, EngineRequest((number,))) for number in range(50))
    answers = engine.run(parts)
    assert next(answers)[0] == 3
    answers.close()
    fake_engine: Any = engine._engine
    assert fake_engine.waiting == []
    assert sorted(key for key, _, _ in engine.run((n, EngineRequest((n,))) for n in range(50))) == list(
        range(50)
    )
    assert fake_engine.most == 4


class FakeChild(FakeEngine):
    """Starts a process, which it waits for without a limit, as vLLM does."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
        self.process.start()

    def step(self) -> list[Any]:
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
        os.kill(self.process.pid or 0, signal.SIGKILL)
        return [threading.Event().wait()]


@pytest.mark.usefixtures("has_vllm", "fake")
def test_an_engine_whose_process_has_ended_is_lost(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["vllm"], "LLM", FakeChild)
    model = make_model(config(llama, engine_process="child"))
    model.load()
    with pytest.raises(EngineLost, match="vLLM's process has ended"):
        list(model.run([Request(Form(method="generate", prompt=PLAIN, max_new_tokens=8), "Who?")]))


@pytest.mark.parametrize("while_starting", [True, False])
def test_a_killed_process_takes_its_children(tmp_path: pathlib.Path, while_starting: bool) -> None:
    (tmp_path / "parent.py").write_text(
        "import multiprocessing, os, signal, time\n"
        "from erag_ray.models.vllm import children\n"
        "children.LOOK_SECONDS = 0.1\n"
        "def start():\n"
        "    child = multiprocessing.get_context('spawn').Process(target=time.sleep, args=(60,))\n"
        "    child.start()\n"
        "    print(child.pid, flush=True)\n"
        f"    time.sleep(2 if {while_starting} else 0)\n"
        f"    os.kill(os.getpid(), signal.SIGKILL if {while_starting} else 0)\n"
        "if __name__ == '__main__':\n"
        "    children.with_children(start)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, timeout=60)
    deadline = time.monotonic() + 20
    while pathlib.Path(f"/proc/{int(done.stdout)}/exe").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.usefixtures("has_vllm", "fake")
def test_the_benchmark_has_both_sides_of_each_round_and_every_order(
    llama: str, tmp_path: pathlib.Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "in_own_process", benchmark.in_this_process)
    job_command(dataclasses.replace(tiny.config, reader=config(llama)), tmp_path)
    keys: dict[str, Any] = {"job": str(tmp_path / "config.yaml"), "run": "good", "num_questions": 6}
    own = BenchmarkConfig(parts=["vllm"], repeats=2, out=str(tmp_path / "out"), **keys)
    table = benchmark.run_all(own, lambda line: None)
    assert table["by"].to_list()[:4] == [benchmark_vllm.ONE, benchmark_vllm.BARE] * 2
    num_pairs = sum(len(docs.split()[:3]) for docs in RUNS["good"].values())
    assert set(table["count"]) == {num_pairs}
    # both sides read the same tokens, of which the fake has three of each prompt
    assert table["num_prompt_tokens"][:4].n_unique() == 1
    assert set(table["num_cached_prompt_tokens"]) == {3 * num_pairs}
    assert table["least_ratio"].null_count() == 2
    assert table["most_ratio"][-1] == 1
    assert vllm_table(table).rows[0][0].value == "vllm, round 1"
    assert benchmark.costs_of(table, "job").is_empty()


def test_the_benchmark_needs_a_job_with_a_reader_of_this_kind(tmp_path: pathlib.Path, tiny: Tiny) -> None:
    job_command(tiny.config, tmp_path)
    own = BenchmarkConfig(out=str(tmp_path / "out"), job=str(tmp_path / "config.yaml"))
    with pytest.raises(InputError, match=r"job: this part measures reader\.kind: vllm, and the job has echo"):
        list(benchmark_vllm.vllm(own, 1))


def test_an_output_of_no_answers_is_none() -> None:
    output = FakeEngine().answer("0", [1], types.SimpleNamespace(stop_token_ids=[]))
    prompt = types.SimpleNamespace(
        segments=((1,),), form=Form(method="loglikelihood", prompt=PLAIN, max_new_tokens=1), answer_ids=()
    )
    found: Any = vllm.logprobs_of(prompt, [Completed(EngineRequest((1,)), output)])  # type: ignore[arg-type]
    assert found == []
