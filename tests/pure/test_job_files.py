"""Every YAML file of ``jobs/`` gives a job the values that it had: by digest, made again as those of the tables are."""

import dataclasses
import os

import pytest
from guides import ROOT

from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.papers.config import DualLabelsConfig, PapersConfig
from erag_ray.extras.train.config import TrainConfig
from erag_ray.extras.world.config import WorldConfig
from erag_ray.store.fingerprints import fingerprint

FILE = ROOT / "tests" / "golden" / "configs.tsv"
NO_JOB = ("cluster/", "gate/github-actions.yaml")
KINDS = {
    "world.yaml": WorldConfig,
    "runs.yaml": RetrieveConfig,
    "training_runs.yaml": RetrieveConfig,
    "dual_labels.yaml": DualLabelsConfig,
    "gate.yaml": GateConfig,
    "papers.yaml": PapersConfig,
    "papers/runs.yaml": DualLabelsConfig,
    "reader/quality.yaml": JobConfig,
}
TRAININGS = ("reader/", "study/abstaining_reader.yaml")
LAID_OVER = {
    "papers/ipa.yaml": "papers/fid.yaml",
    "papers/large.yaml": "papers/fid.yaml",
    "reader/ipa.yaml": "reader/train.yaml",
    "reader/large.yaml": "reader/train.yaml",
}
NAMES = sorted(str(file.relative_to(ROOT / "jobs")) for file in (ROOT / "jobs").rglob("*.yaml"))


def digest(name: str) -> str:
    kind = KINDS.get(name) or KINDS.get(name.rpartition("/")[2])
    kind = kind or (TrainConfig if name.startswith(TRAININGS) else JobConfig)
    files = [LAID_OVER[name], name] if name in LAID_OVER else [name]
    config = parse(kind, "", [option for file in files for option in ("--config", f"jobs/{file}")])
    return fingerprint(dataclasses.asdict(config))[:16]


def test_every_file_gives_the_values_that_it_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("ERAG_RAY_DATA", "/data")
    monkeypatch.setenv("ERAG_RAY_CHAT", "chat")
    monkeypatch.setenv("HOME", "/home")
    digests = {name: digest(name) for name in NAMES if not name.startswith(NO_JOB)}
    if os.environ.get("ERAG_RAY_DIGESTS") == "write":
        FILE.write_text("".join(f"{name}\t{value}\n" for name, value in digests.items()))
    assert digests == dict(line.split("\t") for line in FILE.read_text().splitlines())
