"""Outputs of a submitted job: refused where they would lie in Ray's copy of the source tree. Needs no Ray cluster."""

import pathlib
import re
import runpy
import shlex

import pytest
from guides import guides
from ray._private.ray_constants import DEFAULT_RUNTIME_ENV_DIR_NAME
from ray._private.runtime_env.packaging import get_local_dir_from_uri
from ray._private.runtime_env.working_dir import WorkingDirPlugin

from erag_ray.cli.job import check_outputs
from erag_ray.cli.run import run_job
from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.extras.world.config import WorldConfig
from erag_ray.support.errors import InputError

ROOT = pathlib.Path(__file__).parents[2]
JOBS = sorted(path.stem for path in (ROOT / "jobs").glob("*.py"))
REQUIRED = {name: ["--retrievers", "{bm25: {kind: bm25}}"] for name in ("retrieve", "dual_labels")}
REQUIRED["readers"] = ["--readers", "{a: {kind: echo}, b: {kind: causal, model: m}}"]
WITH_STORE = {"annotate", "compare", "end_to_end", "evaluate", "prepare", "readers", "settle"}
COMMAND = re.compile(r"^[ #]*ray job submit (?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


@pytest.fixture
def submitted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """This process stands where Ray starts a job: in the folder, named by Ray itself, of an unpacked working_dir."""
    plugin = WorkingDirPlugin(str(tmp_path / "session" / DEFAULT_RUNTIME_ENV_DIR_NAME), None)
    folder = get_local_dir_from_uri("gcs://_ray_pkg_0123456789abcdef.zip", plugin._resources_dir)
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    monkeypatch.setenv("SHARED", "/shared")
    return folder


@pytest.mark.parametrize("job", JOBS)
def test_every_job_refuses_its_default_outputs(
    job: str, submitted: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "jobs" / f"{job}.py")
    monkeypatch.setattr("sys.argv", [file, *REQUIRED.get(job, [])])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(file, run_name="__main__")
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert message.count("  - ") == 1
    assert re.search(r"out \(results/\w+", message)
    assert ("cache_dir (results/store)" in message) == (job in WITH_STORE)
    assert "paths that all nodes see" in message
    assert not list(submitted.iterdir())


@pytest.mark.parametrize("out", ["results", "./results", "../results", "$PWD/results", "sub/../results"])
def test_an_output_in_the_copy_is_refused_however_it_is_written(out: str, submitted: pathlib.Path) -> None:
    with pytest.raises(InputError, match="out "):
        check_outputs(parse(WorldConfig, "", ["--out", out]))


@pytest.mark.parametrize("out", ["/shared/nq", "~/nq", "$SHARED/nq", "s3://bucket/nq", "gs://bucket/nq"])
def test_outputs_elsewhere_are_taken_and_relative_inputs_stay(out: str, submitted: pathlib.Path) -> None:
    inputs = ["--queries", "[nq.jsonl]", "--passages", "[passages.jsonl]", "--runs.bm25", "bm25.trec"]
    model = ["--reader.model", "jobs/demo/reader"]
    check_outputs(parse(JobConfig, "", [*inputs, *model, "--out", out, "--cache_dir", out]))


def test_a_relative_output_outside_of_the_copy_is_taken(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what Ray sets for a job without a working_dir, which starts in the folder where Ray was started
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {}, "metadata": {}}')
    monkeypatch.chdir(tmp_path)
    check_outputs(JobConfig())


def test_a_relative_cache_of_downloads_is_refused(
    submitted: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = WorldConfig(out="/shared/world")
    monkeypatch.setenv("ERAG_RAY_CACHE", "~/cache")
    check_outputs(config)
    monkeypatch.setenv("ERAG_RAY_CACHE", "cache")
    with pytest.raises(InputError, match=r"ERAG_RAY_CACHE \(cache\)"):
        check_outputs(config)


def test_the_refusal_comes_before_a_bucket_is_asked(
    submitted: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreached(*_: object) -> None:
        raise AssertionError("something was looked at before the outputs were refused")

    for name in ("check_access", "locked"):
        monkeypatch.setattr(f"erag_ray.cli.job.{name}", unreached)
    monkeypatch.setattr("sys.argv", ["job", "--queries", "[s3://bucket/nq.jsonl]"])
    with pytest.raises(SystemExit) as ended:
        run_job(JobConfig, unreached, "")
    assert ended.value.code == 2


def submissions() -> list[tuple[str, list[str]]]:
    """Every ``ray job submit`` of the guides, the jobs and the cluster files: its file, and its job with arguments."""
    files = [*guides(), ROOT / "cluster.yaml", *sorted((ROOT / "jobs").rglob("*.*"))]
    texts = {
        path: path.read_text() for path in dict.fromkeys(files) if path.suffix in (".md", ".py", ".yaml")
    }
    found = []
    for path, text in texts.items():
        for command in COMMAND.findall(text):
            words = shlex.split(re.sub(r"\\\n#?", " ", command))
            entrypoint = words[words.index("--") + 1 :] if "--" in words else []
            if entrypoint:
                found.append((str(path.relative_to(ROOT)), entrypoint))
    return found


@pytest.mark.parametrize(("file", "entrypoint"), submissions(), ids=lambda value: str(value)[:40])
def test_the_documented_submissions_name_outputs_that_all_nodes_see(file: str, entrypoint: list[str]) -> None:
    python, job, *arguments = entrypoint
    assert python == "python"
    assert (ROOT / job).is_file()
    outputs = ["--out", "--cache_dir"] if pathlib.Path(job).stem in WITH_STORE else ["--out"]
    values = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert all(re.match(r"/|\w+://", values[name]) for name in outputs)
