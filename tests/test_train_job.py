"""jobs/train.py on a small local Ray: from files to a reader, by one worker and by two."""

import dataclasses
import pathlib
import runpy
import sys

import pytest
import torch
import yaml
from models import form_for, loaded, outputs
from trainings import ROOT, curve, result, run, tiny_training

from erag_ray.extras.train import workers
from erag_ray.extras.train.config import TrainConfig
from erag_ray.extras.train.stage import train
from erag_ray.extras.train.workers import full_path
from erag_ray.prompts.request import Passage, Request
from erag_ray.support.errors import JobError

pytestmark = pytest.mark.filterwarnings(r"ignore::UserWarning:ray\..*")


def job(monkeypatch: pytest.MonkeyPatch, config: TrainConfig, *arguments: str) -> None:
    """Run erag-ray train with a config file."""
    path = pathlib.Path(config.out).parent / "train.yaml"
    path.write_text(yaml.safe_dump(dataclasses.asdict(config)))
    monkeypatch.setattr(sys, "argv", ["train.py", "--config", str(path), *arguments])
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(ROOT / "jobs" / "train.py"), run_name="__main__")


@pytest.mark.long
def test_the_job_trains_a_reader_and_does_nothing_the_second_time(
    local_ray: None,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # workers start in a folder of their own: a relative out is the driver's
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(tiny_training(tmp_path / "ray", num_workers=2, progress=True), out="trained")
    job(monkeypatch, config)
    said = capfd.readouterr().err
    assert "training on 20 questions, 20 passages, 10 steps; 6 dev questions" in said
    assert "step 10/10: loss" in said
    assert f"reader: {config.out}/reader; dev score" in said
    alone = tiny_training(tmp_path / "alone")
    run(alone)
    for left, right in zip(curve(config), curve(alone), strict=True):
        numbers = [[float(value or 0) for value in row] for row in (left, right)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=1e-6)
    weights = result(alone)
    for name, value in result(config).items():
        torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=2e-4)
    model = loaded("fid", f"{config.out}/reader")
    form = form_for("fid", max_new_tokens=6)
    assert outputs(model, [Request(form, "who built mill 1", (Passage("", "Ada built it."),))])
    job(monkeypatch, config)
    assert "this training is done (10 steps; dev score" in capfd.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        job(monkeypatch, config, "--learning_rate", "0.5")
    assert "learning_rate: 0.003 there, 0.5 here" in capfd.readouterr().err


def test_a_hub_name_reaches_the_workers_as_it_is_and_a_folder_by_its_full_path(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert full_path("google-t5/t5-small") == "google-t5/t5-small"
    assert full_path("model") == str(tmp_path / "model")


@pytest.mark.cluster
def test_an_error_that_would_come_again_is_not_tried_again(local_ray: None, tmp_path: pathlib.Path) -> None:
    config = tiny_training(tmp_path, learning_rate=1e30, warmup_ratio=0.0)
    with pytest.raises(JobError, match="training has diverged"):
        train(config)
    assert not pathlib.Path(config.out, "manifest.json").exists()


@pytest.mark.cluster
def test_workers_that_get_no_cpus_end_the_job(
    other_job: object, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of a minute each
    monkeypatch.setattr(workers, "NUM_STARTS", 1)
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "1")
    with pytest.raises(
        JobError, match=r"1 workers with \{'CPU': \d\.?0?\} each do not start; the nodes have .*CPU 4"
    ):
        train(tiny_training(tmp_path))
