"""The guides' commands run as written, on small files under the names that they give them.

Only what a test machine lacks is replaced (`REPLACED`): models of a hub, paths of a cluster, its GPUs, and the sizes
of worlds and benchmarks. Commands of other tools (pip, make, ray up, kubectl) are not run here: `make`'s targets are
what CI and `tests/test_submission.py` call.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import polars as pl
import pytest
from encoders import bert_folder
from guides import ROOT, blocks, files_of, job_commands
from misbehaving_server import KEY, MisbehavingServer, serving
from models import causal_folder, t5_folder
from quiet_ray import ENVIRONMENT
from tiny import PASSAGES, QUESTIONS, RUNS, kilt_line, trec_lines

from erag_ray.store.digests import CACHE
from erag_ray.store.schemas import CORPUS
from erag_ray.store.tables import TableStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
# what a small machine without a hub, a cluster and a GPU has in its place
REPLACED = {
    "/models/t5-small-fid-nq": "jobs/demo/reader",
    "/models/t5-tiny-fid-nq": "models/t5",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "models/chat",
    "facebook/contriever": "models/contriever",
    "cross-encoder/ms-marco-MiniLM-L6-v2": "models/cross-encoder",
    "mistralai/Mistral-7B-Instruct-v0.2": "models/chat",
    # vLLM has an environment of its own
    "--reader.kind vllm --reader.model Qwen/Qwen3-8B": "--reader.kind causal --reader.model models/chat",
    "google-t5/t5-small": "models/t5",
    "/shared/": "shared/",
    "s3://bucket/": "shared/",
    "--wait_for_gpus 16": "",
    "--search.gpus_per_actor 1": "",
    "--search.num_actors 8": "--search.num_actors 1",
    "--num_passages 100000": "--num_passages 1000",
    "--bf16 true": "",
}
# hours, an exit code that depends on the data, or labels above 0, which a small reader lacks: only keys are checked
TOO_LONG = ("dual_labels", "export", "gate")


def replaced(text: str) -> str:
    for written, small in REPLACED.items():
        text = text.replace(written, small)
    return text


@pytest.fixture(scope="module")
def model_server() -> Iterator[None]:
    """A server in place of those that the guides name; it has every model that is requested."""
    server = MisbehavingServer()
    server.models = []
    with serving(server), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        for url in ("http://localhost:8000/v1", "https://api.openai.com/v1"):
            patch.setitem(REPLACED, url, server.url)
        yield


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, model_server: None) -> pathlib.Path:
    """The jobs of the repository, and the files that the guides' commands name."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    _write_inputs(folder)
    _write_models(folder / "models")
    for name, body in files_of("yaml").items():
        (folder / name).write_text(replaced(body))
    for name, body in files_of("python").items():
        (folder / name).write_text(body)
    return folder


def _write_inputs(folder: pathlib.Path) -> None:
    questions = "".join(kilt_line(name, *rest) for name, rest in QUESTIONS.items())
    for name in ("nq-dev-kilt.jsonl", "nq-train-kilt.jsonl"):
        (folder / name).write_text(questions)
    passages = pl.DataFrame(
        [(doc_id, *rest) for doc_id, rest in PASSAGES.items()],
        schema=["doc_id", "page_id", "title", "text"],
        orient="row",
    )
    passages.write_parquet(folder / "passages.parquet")
    passages.write_ndjson(folder / "passages.jsonl")
    (folder / "questions.jsonl").write_text(questions)
    facts = [{"id": name, "question": rest[0], "answers_all": [rest[1]]} for name, rest in QUESTIONS.items()]
    (folder / "lists.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    for name, run in (("bm25", "good"), ("dense", "bad")):
        (folder / f"{name}.trec").write_text(trec_lines(RUNS[run]))
    (folder / "runs").mkdir()
    for name, run in (("bm25", "good"), ("contriever", "bad"), ("splade", "third")):
        (folder / "runs" / f"{name}.trec").write_text(trec_lines(RUNS[run]))
        subprocess.run(["gzip", folder / "runs" / f"{name}.trec"], check=True)
    _write_training(folder / "shared", passages)
    _write_published(folder, questions)


def _write_training(shared: pathlib.Path, passages: pl.DataFrame) -> None:
    TableStore(str(shared / "kilt")).write(passages, CORPUS)
    lists = [
        (query, rank, doc) for query, docs in RUNS["good"].items() for rank, doc in enumerate(docs.split(), 1)
    ]
    run = pl.DataFrame(lists, schema=["query_id", "rank", "doc_id"], orient="row")
    for part in ("train", "dev"):
        run.write_parquet(shared / f"nq-{part}-bm25.parquet")


def _write_published(folder: pathlib.Path, questions: str) -> None:
    """Files of KILT."""
    titles = {page: title for page, title, _ in reversed(PASSAGES.values())}
    pages = [
        {
            "wikipedia_id": page,
            "wikipedia_title": title,
            "text": [title, *(f"{text}.\n" for other, _, text in PASSAGES.values() if other == page)],
        }
        for page, title in titles.items()
    ]
    claims = questions.replace('"id": "q', '"id": "f')
    claims = re.sub(r'"answer": "[^"]*"', '"answer": "SUPPORTS"', claims)
    files = {
        "fever-dev-kilt.jsonl": claims,
        "kilt_knowledgesource.json": "".join(json.dumps(page) + "\n" for page in pages),
    }
    for name, text in files.items():
        (folder / name).write_text(text)


def _write_models(folder: pathlib.Path) -> None:
    folder.mkdir()
    bert_folder(folder / "contriever")
    bert_folder(folder / "cross-encoder", num_labels=1)
    causal_folder(folder / "chat")
    t5_folder(folder / "t5")


def run(command: str, clone: pathlib.Path) -> str:
    """What a command prints; it must succeed."""
    words = shlex.split(replaced(command), comments=True)
    environment = {
        **os.environ,
        **ENVIRONMENT,
        CACHE: str(clone / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    environment.pop("RAY_ADDRESS", None)
    words[0] = str(pathlib.Path(sys.executable).with_name(words[0]))
    done = subprocess.run(words, cwd=clone, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def test_the_guides_have_commands_and_all_make_targets_exist() -> None:
    assert len(job_commands()) > 25
    names = ("mine", "nq", "retrieval", "brief", "squad", "chunks", "systems")
    assert set(files_of("yaml")) == {f"{name}.yaml" for name in names}
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^make ([\w-]+)", "\n".join(blocks("bash")), re.MULTILINE)
    assert named
    assert set(named) <= set(targets)


@pytest.mark.parametrize("command", [c for c in job_commands() if c.split()[1] not in TOO_LONG])
def test_a_command_runs_as_written(clone: pathlib.Path, command: str) -> None:
    assert run(command, clone)


@pytest.mark.parametrize("command", [c for c in job_commands() if c.split()[1] in TOO_LONG])
def test_the_keys_of_a_long_command_exist(clone: pathlib.Path, command: str) -> None:
    assert run(command.partition("  #")[0] + " --print_config", clone)
