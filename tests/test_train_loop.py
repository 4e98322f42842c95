"""Training: going on after a kill, several workers, micro-batches, what is kept and what is refused."""

import dataclasses
import errno
import json
import os
import pathlib
import re
import shutil
import signal
from typing import Any

import pytest
import torch
import trainings
import transformers
from models import t5_folder

from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.train import loop
from erag_ray.extras.train.config import ExamplesConfig, TrainConfig
from erag_ray.extras.train.data.batches import Batches, Sample, tokenised
from erag_ray.extras.train.log import read_log
from erag_ray.extras.train.stage import check_same, prepare
from erag_ray.models import make_model
from erag_ray.models.local.model import Output, PromptTokens
from erag_ray.prompts.request import Passage, Request
from erag_ray.support.errors import InputError, JobError


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Bit by bit."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.long
def test_a_killed_training_goes_on_and_ends_at_the_same_weights_and_log(tmp_path: pathlib.Path) -> None:
    killed = trainings.tiny_training(tmp_path / "killed", dropout=0.2)
    process = trainings.in_process(trainings.run_killed, tmp_path / "killed", 7, 0.2)
    assert trainings.code_of(process) == -signal.SIGKILL
    left = sorted(path.name for path in pathlib.Path(killed.out, "checkpoints").glob("step-*"))
    assert left == ["step-00000003", "step-00000006"]
    assert len(trainings.curve(killed)) == 7
    whole = trainings.tiny_training(tmp_path / "whole", dropout=0.2)
    ended = trainings.run(whole)
    assert trainings.run(killed) == ended
    assert ended.step == 10
    assert same(trainings.result(killed), trainings.result(whole))
    assert trainings.curve(killed) == trainings.curve(whole)
    for name in ("reader/model.safetensors", "reader/config.json"):
        assert pathlib.Path(killed.out, name).read_bytes() == pathlib.Path(whole.out, name).read_bytes()
    lines = pathlib.Path(killed.out, "messages.txt").read_text().splitlines()
    assert lines == ["resuming after step 6 of 10"]


def test_dropout_is_at_work_while_training(tmp_path: pathlib.Path) -> None:
    configs = [trainings.tiny_training(tmp_path / str(dropout), dropout=dropout) for dropout in (0.0, 0.5)]
    for config in configs:
        trainings.run(config)
    # the first step has the same weights and the same questions
    without, with_dropout = (float(trainings.curve(config)[0][2]) for config in configs)
    assert without != pytest.approx(with_dropout, rel=1e-3)


@pytest.mark.long
def test_two_workers_learn_what_one_learns(tmp_path: pathlib.Path) -> None:
    ones, twos = (
        [
            trainings.tiny_training(tmp_path / name / str(size), batch_size=size)
            for size in trainings.WORKER_BATCHES
        ]
        for name in ("one", "two")
    )
    for config in twos:
        prepare(config)
    workers = [trainings.in_process(trainings.run_worker, tmp_path / "two", rank, 2) for rank in range(2)]
    for config in ones:
        trainings.run(config)
    assert list(map(trainings.code_of, workers)) == [0, 0]
    for one, two in zip(ones, twos, strict=True):
        for left, right in zip(trainings.curve(one), trainings.curve(two), strict=True):
            numbers = [[float(value or 0) for value in row] for row in (left, right)]
            assert numbers[1] == pytest.approx(numbers[0], rel=1e-4, abs=1e-6)
        weights = trainings.result(one), trainings.result(two)
        for name, value in weights[0].items():
            # AdamW divides by the root of tiny squares, which makes rounding larger
            torch.testing.assert_close(weights[1][name], value, rtol=1e-3, atol=2e-4)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> loop.Trainer:
    """A trainer that has not begun."""
    return trainings.trainer(trainings.tiny_training(tmp_path_factory.mktemp("fresh")))


def gradients(own: loop.Trainer, samples: list[Sample], **changes: Any) -> torch.Tensor:
    own.config = dataclasses.replace(own.config, **changes)
    totals = own._backward(samples)
    return own.gradients / totals.num_targets


def test_the_split_into_micro_batches_does_not_change_the_gradient(fresh: loop.Trainer) -> None:
    samples = fresh.batches.share(5, 0, 1)
    whole = gradients(fresh, samples, micro_batch_tokens=10**6)
    assert whole.norm() > 0.01
    for size in (1, 100, 250):
        split = gradients(fresh, samples, micro_batch_tokens=size)
        torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-6)


def test_the_loss_is_the_one_of_the_model_library(fresh: loop.Trainer) -> None:
    for sample in fresh.batches.share(5, 0, 1):
        fresh.model.eval()
        with torch.no_grad():
            own = loop.loss_sum(fresh.model, [sample], 10**6) / len(sample.target)
            (segment,) = sample.prompt.segments
            other = fresh.model(input_ids=torch.tensor([segment]), labels=torch.tensor([sample.target])).loss
        assert float(own) == pytest.approx(float(other), rel=1e-5)


def test_checkpointing_the_encoder_does_not_change_the_gradient(tmp_path: pathlib.Path) -> None:
    plain, saving = (
        trainings.trainer(trainings.tiny_training(tmp_path / str(flag), gradient_checkpointing=flag))
        for flag in (False, True)
    )
    samples = plain.batches.share(0, 0, 1)
    assert saving.model.encoder.is_activation_checkpointing
    torch.testing.assert_close(gradients(saving, samples), gradients(plain, samples), rtol=1e-5, atol=1e-7)


def test_bfloat16_products_leave_the_weights_in_float32(tmp_path: pathlib.Path) -> None:
    config = trainings.tiny_training(tmp_path, bf16=True)
    assert trainings.run(config).step == 10
    assert {value.dtype for value in trainings.result(config).values()} == {torch.float32}


def test_the_loss_falls_and_the_best_weights_are_kept(tmp_path: pathlib.Path) -> None:
    config = trainings.tiny_training(tmp_path, eval_steps=1)
    state = trainings.run(config)
    losses = [float(row[2]) for row in trainings.curve(config)]
    assert losses[-1] < losses[0] - 0.5
    dev = [float(row[6]) for row in trainings.curve(config)]
    assert state.best_score == max(dev)
    assert state.best_step == max(step for step, score in enumerate(dev, 1) if score == max(dev))


def answered(own: loop.Trainer, requests: list[Request]) -> tuple[list[PromptTokens], list[Output]]:
    """What the model in training makes of requests: their prompts and its outputs."""
    own.model.eval()
    model = own.reader.model
    prompts = model.render(requests)
    return prompts, model.generate(prompts)


@pytest.mark.parametrize("kind", ["fid", "ipa"])
def test_the_result_loads_anywhere_and_answers_alike(tmp_path: pathlib.Path, kind: str) -> None:
    reader = ReaderConfig(kind=kind, max_prompt_tokens=64, max_new_tokens=6)
    own = trainings.trainer(trainings.tiny_training(tmp_path, reader=reader, dev=ExamplesConfig()))
    own.run()
    folder = f"{own.config.out}/reader"
    form = next(iter(own.reader.forms.values()))
    requests = [
        Request(form, f"who built mill {n}", (Passage("", f"Ada built mill {n}."),)) for n in range(4)
    ]
    made = make_model(dataclasses.replace(reader, model=folder))
    made.load()
    prompts, trained = answered(own, requests)
    assert made.generate(prompts) == trained
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, use_safetensors=True)
    for prompt, output in zip(prompts, trained, strict=True):
        ids = model.generate(torch.tensor([prompt.segments[0]]), max_new_tokens=6)
        assert tokenizer.decode(ids[0], skip_special_tokens=True).strip() == output.text


# T5 (scaled outputs) and T5 1.1 (not scaled, output embeddings of its own)
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_that_training_starts_from_stays_what_it_is(tmp_path: pathlib.Path, tied: bool) -> None:
    folder = t5_folder(tmp_path / "model", tie_word_embeddings=tied, dropout_rate=0.0)
    reader = ReaderConfig(kind="fid", model=folder, max_prompt_tokens=64, max_new_tokens=6)
    changes = {"reader": reader, "scratch": None, "dev": ExamplesConfig(), "learning_rate": 1e-3}
    own = trainings.trainer(trainings.tiny_training(tmp_path / "run", **changes))
    own.run()
    made = make_model(dataclasses.replace(reader, model=f"{own.config.out}/reader"))
    made.load()
    (form,) = own.reader.forms.values()
    request = Request(form, "who built mill 3", (Passage("Marn", "Ada built mill 3."),))
    prompts, trained = answered(own, [request])
    assert made.generate(prompts) == trained
    own_loss, made_loss = (
        float(loop.loss_sum(model, own.batches.share(0, 0, 1), 10**6).detach())
        for model in (own.model, made.model)
    )
    assert made_loss == pytest.approx(own_loss, rel=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_can_be_saved_in_half_the_size(tmp_path: pathlib.Path, dtype: str) -> None:
    small = trainings.tiny_training(tmp_path, scratch=dataclasses.replace(trainings.TINY, dtype=dtype))
    trainings.run(small)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(f"{small.out}/reader")
    assert model.dtype == getattr(torch, dtype)
    start = transformers.AutoModelForSeq2SeqLM.from_pretrained(small.start_reader.model)
    assert start.dtype == torch.float32


def test_a_torn_checkpoint_is_passed_over(tmp_path: pathlib.Path) -> None:
    config = trainings.tiny_training(tmp_path)
    trainings.run(config)
    newest = max(pathlib.Path(config.out, "checkpoints").glob("step-*"))
    weights = trainings.result(config)
    (newest / "tensors.pt").write_bytes((newest / "tensors.pt").read_bytes()[:-100])
    assert trainings.run(config).step == 10
    assert same(trainings.result(config), weights)
    said = pathlib.Path(config.out, "messages.txt").read_text()
    assert "step-00000010: this checkpoint is damaged (tensors.pt is not what was saved)" in said
    assert "resuming after step 9 of 10" in said


def test_a_checkpoint_of_another_form_is_refused(tmp_path: pathlib.Path) -> None:
    config = trainings.tiny_training(tmp_path)
    trainings.run(config)
    larger = trainings.tiny_training(
        tmp_path, scratch=dataclasses.replace(trainings.TINY, d_ff=96), out=f"{tmp_path}/other"
    )
    # a start of another model, by a job that ended before its settings were sealed, is not used
    shutil.copytree(str(config.start_reader.model), str(larger.start_reader.model))
    prepare(larger)
    shutil.copytree(f"{config.out}/checkpoints", f"{larger.out}/checkpoints")
    text = r"other shapes \(size mismatch for .*\.wi\.weight: .*\[64, 32\]\) from checkpoint, .*\[96, 32\]\)"
    with pytest.raises(InputError, match=text):
        trainings.run(larger)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 0.5}, "learning_rate: 0.003 there, 0.5 here"),
        ({"reader": {"kind": "ipa"}}, 'reader.kind: "fid" there'),
        ({"reader": {"titles": False}}, "reader.titles: null there, false here"),
    ],
)
def test_other_settings_are_refused_by_name(
    tmp_path: pathlib.Path, changes: dict[str, Any], named: str
) -> None:
    config = trainings.tiny_training(tmp_path)
    prepare(config)
    if "reader" in changes:
        changes = {"reader": dataclasses.replace(config.reader, **changes["reader"])}
    with pytest.raises(InputError) as caught:
        check_same(dataclasses.replace(config, **changes))
    assert named in str(caught.value)
    assert str(caught.value).count(" there, ") == 1


def test_examples_are_read_again_only_if_they_are_damaged(tmp_path: pathlib.Path) -> None:
    config = trainings.tiny_training(tmp_path)
    prepare(config)
    file = pathlib.Path(config.out, "data", "train", "examples.arrow")
    content, written = file.read_bytes(), file.stat().st_mtime_ns
    prepare(config)
    assert file.stat().st_mtime_ns == written
    file.write_bytes(content[:100])
    assert prepare(config)["train"].table.num_rows == 20


def test_what_concerns_speed_alone_may_change_and_no_training_file(tmp_path: pathlib.Path) -> None:
    config = trainings.tiny_training(tmp_path)
    prepare(config)
    check_same(dataclasses.replace(config, micro_batch_tokens=7, num_workers=2, save_steps=1))
    trainings.write_given(tmp_path / "train.jsonl", trainings.given_lines(21))
    with pytest.raises(InputError, match="files of train"):
        check_same(config)


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trainings.tiny_training(tmp_path)
    own = trainings.trainer(config)
    one_step = own._step

    def poisoned(step: int, samples: list[Sample]) -> dict[str, object]:
        if step == 7:
            with torch.no_grad():
                own.model.shared.weight[5] = float("inf")
        return one_step(step, samples)

    monkeypatch.setattr(own, "_step", poisoned)
    text = r"(?s)step 8: the loss is nan.*step-00000006.*lower learning_rate"
    with pytest.raises(JobError, match=text) as caught:
        own.run()
    assert "\n" in str(caught.value)
    assert all(value.isfinite().all() for value in trainings.result(config).values())


OUT_OF_MEMORY = r"step 2: out of memory with micro-batches of 200 tokens\. Set a smaller micro_batch_tokens"


def test_a_step_without_memory_names_the_key_to_change(tmp_path: pathlib.Path) -> None:
    own = trainings.trainer(trainings.tiny_training(tmp_path))
    trainings.run_out_of_memory(own, step=1)
    with pytest.raises(JobError, match=OUT_OF_MEMORY):
        own.run()


@pytest.mark.long
def test_a_worker_without_memory_ends_all_of_them(tmp_path: pathlib.Path) -> None:
    prepare(trainings.tiny_training(tmp_path))
    workers = [
        trainings.in_process(trainings.run_worker_without_memory, tmp_path, rank, 2) for rank in range(2)
    ]
    assert list(map(trainings.code_of, workers)) == [0, 0]
    for rank in range(2):
        assert re.match(OUT_OF_MEMORY, (tmp_path / f"why-{rank}").read_text())


def test_a_full_disk_stops_and_keeps_the_last_checkpoint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trainings.tiny_training(tmp_path)
    save = torch.save

    def full(tensors: Any, path: pathlib.Path) -> None:
        if "step-00000006" in str(path):
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(tensors, path)

    monkeypatch.setattr(torch, "save", full)
    text = r"step-00000006 could not be written: .*No space left.*\n.*is kept\. Make room"
    with pytest.raises(JobError, match=text):
        trainings.run(config)
    monkeypatch.undo()
    assert [path.name for path in pathlib.Path(config.out, "checkpoints").iterdir()] == ["step-00000003"]
    assert trainings.run(config).step == 10


def test_a_reader_is_replaced_and_files_of_others_beside_it_stay(tmp_path: pathlib.Path) -> None:
    config = trainings.tiny_training(tmp_path)
    trainings.run(config)
    reader = pathlib.Path(config.out, "reader")
    weights = (reader / "model.safetensors").read_bytes()
    for name in ("model.safetensors", "notes.txt"):
        (reader / name).write_bytes(b"mine")
    shutil.rmtree(f"{config.out}/checkpoints")
    assert trainings.run(config).step == 10
    assert (reader / "model.safetensors").read_bytes() == weights
    assert (reader / "notes.txt").read_bytes() == b"mine"


def test_batches_are_the_same_every_time(fresh: loop.Trainer) -> None:
    again = Batches(fresh.batches.examples, fresh.curriculum, fresh.reader)
    for step in (0, 3, 4, 9):
        assert again.draw(step) == fresh.batches.draw(step)
    first, second = (
        {one.question: one for step in steps for one in fresh.batches.draw(step)}
        for steps in (range(4, 7), range(7, 10))
    )
    assert first.keys() == second.keys()
    assert len(first) == 20
    assert any(first[question].answer != second[question].answer for question in first)


def test_workers_share_every_question_once(fresh: loop.Trainer) -> None:
    whole = tokenised(fresh.batches.draw(1), fresh.reader)
    parts = [fresh.batches.share(1, rank, 3) for rank in range(3)]
    assert [len(part) for part in parts] == [3, 3, 2]
    assert [whole[rank::3] for rank in range(3)] == parts


def test_the_log_is_a_table_with_dev_scores(tmp_path: pathlib.Path) -> None:
    config: TrainConfig = trainings.tiny_training(tmp_path)
    trainings.run(config)
    header, *rows = pathlib.Path(config.out, "log.csv").read_text().splitlines()
    assert header == "step,stage,loss,gradient_norm,learning_rate,tokens,seconds,dev,dev_dev"
    assert [row.split(",")[1] for row in rows] == ["1"] * 4 + ["2"] * 6
    assert [row.split(",")[-1] != "" for row in rows] == [step in (5, 10) for step in range(1, 11)]
    assert json.loads(pathlib.Path(config.out, "training.json").read_text())["learning_rate"] == 3e-3


def test_a_line_that_a_full_disk_cut_is_left_out_of_the_log(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log.csv"
    lines = ["step,stage,loss,seconds,dev", "1,1,0.5,2.0,", "2,1,0.3,1,0.4,3.0,", "4,1,0.2,4.0,0.1", "5,1,0."]
    log.write_text("\n".join(lines))
    assert [row["step"] for row in read_log(log)] == ["1", "4"]
