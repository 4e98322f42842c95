"""Stages that take long are named, quick ones are not."""

import re
import sys
import time

import pytest
from tiny import RunJob, Tiny

from erag_ray.support import progress
from erag_ray.support.progress import stage_progress

STAGES = [
    "loading questions", "loading runs", "loading passages", "checking the inputs", "sealing the inputs",
    "planning requests", "counting prompt tokens", "starting Ray", "writing requests", "looking up responses",
    "outputs", "labels", "end-to-end scores", "per_query", "means", "correlations", "comparisons", "contrasts",
    "report", "TREC files",
]  # fmt: skip


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second is long, and two tenths are the time for another line."""
    monkeypatch.setattr(progress, "QUICK_SECONDS", 0.1)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.2)


def test_a_quick_stage_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with stage_progress("labels") as at:
        assert list(at.each([1, 2], "annotators")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_a_long_stage_says_its_name_how_far_it_is_and_how_long_it_took(
    hurried: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with stage_progress("labels") as at:
        for name in at.each(["erag", "provenance", "gain"], "annotators"):
            time.sleep(0.4 if name == "provenance" else 0)
    *during, last = capsys.readouterr().err.splitlines()
    assert len(during) >= 2
    assert all(line.startswith("labels: 1/3 annotators, ") for line in during[:2])
    assert last.startswith("labels: done in ")


def test_what_has_no_known_end_is_counted(hurried: None, capsys: pytest.CaptureFixture[str]) -> None:
    with stage_progress("per_query") as at:
        for number in at.each(iter(range(2)), "parts"):
            time.sleep(0.3 * number)
    assert "per_query: 1 parts, 0 s so far\n" in capsys.readouterr().err


@pytest.mark.parametrize("is_terminal", [False, True])
def test_work_that_is_counted_says_how_far_it_is(
    hurried: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with progress.counted("questions", 4_000) as at:
        at(1_000)
        time.sleep(0.15)
    assert re.search(r"1,000/4,000 questions, [\d,.]+ a second", capsys.readouterr().err)


def test_progress_false_is_silent(hurried: None, capsys: pytest.CaptureFixture[str]) -> None:
    with stage_progress("labels", show=False) as stage, progress.counted("questions", 2, show=False) as at:
        at(len(list(stage.each([1], "annotators"))))
        time.sleep(0.3)
    assert capsys.readouterr().err == ""


def failing() -> None:
    with stage_progress("labels"):
        time.sleep(0.15)
        raise ValueError("nothing there")


def test_a_stage_that_fails_is_not_said_to_be_done(hurried: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="nothing there"):
        failing()
    assert "done" not in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("shown", [True, False])
def test_every_stage_of_a_job_is_named_when_it_takes_long(
    tiny: Tiny, job: RunJob, reads_here: list[int], monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    monkeypatch.setattr(progress, "QUICK_SECONDS", 0.0)
    code, told = job("compare", tiny.with_config(progress=shown))
    assert code == 0
    done = [line.split(": done in ")[0] for line in told.splitlines() if ": done in " in line]
    assert [name for name in STAGES if name not in done] == ([] if shown else STAGES)


def test_a_second_start_names_what_it_looks_at(
    compared: Tiny, job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUICK_SECONDS", 0.0)
    _, told = job("compare", compared.with_config(progress=True))
    assert "loading sealed inputs: done in " in told
    assert "per_query: done in " in told
    assert "loading passages" not in told
