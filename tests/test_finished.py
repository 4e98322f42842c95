"""A second start of a finished job: nothing to do, unless something that a result depends on has changed."""

import dataclasses
import io
import os
import pathlib
from collections.abc import Callable

import pytest
import rich.console
from tiny import Tiny

from erag_ray.cli.job import job_folder
from erag_ray.comparison import compare, is_finished, mark_finished
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import JudgeConfig
from erag_ray.models.echo import EchoModel
from erag_ray.prompts.request import Failure, Response


def printed(config: JobConfig) -> str:
    """What a comparison prints on standard output."""
    text = io.StringIO()
    with job_folder(config):
        compare(config, rich.console.Console(file=text, width=100))
    return text.getvalue()


def touch(path: str | pathlib.Path) -> None:
    times = os.stat(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))


CHANGES: dict[str, Callable[[Tiny], object]] = {
    "questions": lambda tiny: touch(tiny.queries),
    "passages": lambda tiny: touch(tiny.passages),
    "run": lambda tiny: touch(tiny.run("good")),
    "table": lambda tiny: touch(f"{tiny.config.out}/means/manifest.json"),
    "outputs": lambda tiny: touch(f"{tiny.config.out}/compare/manifest.json"),
    "page": lambda tiny: touch(f"{tiny.config.out}/report/index.html"),
    "report": lambda tiny: os.remove(f"{tiny.config.out}/report.md"),
    "another key": lambda tiny: tiny.with_config(num_resamples=201),
    "another annotator": lambda tiny: tiny.with_config(annotators=["erag"]),
    "another judge": lambda tiny: tiny.with_config(judge=JudgeConfig(kind="echo", depth=2)),
    "format outside": lambda tiny: tiny.with_config(query_format="my_formats:PLAIN"),
    "code outside": lambda tiny: tiny.with_config(annotators=["erag", "my_annotators:SHORT"]),
    "a hub's model": lambda tiny: tiny.with_config(judge=JudgeConfig(kind="causal", model="org/name")),
    "runs to make": lambda tiny: tiny.with_config(retrievers={"bm25": {"kind": "bm25"}}),
}


def test_a_finished_job_prints_its_verdict_again_until_something_changes(
    tiny: Tiny, caplog: pytest.LogCaptureFixture
) -> None:
    tiny = tiny.with_config(num_readers=0)
    first, page = printed(tiny.config), pathlib.Path(tiny.config.out, "report", "index.html")
    written = page.stat().st_mtime_ns
    caplog.clear()
    with caplog.at_level("INFO"):
        again = printed(dataclasses.replace(tiny.config, verbose=False))
    assert again == first
    assert page.stat().st_mtime_ns == written
    assert [record.getMessage() for record in caplog.records if record.name.startswith("erag_ray")] == [
        "nothing to do: finished before, with the same config, files and code"
    ]
    for name, change in CHANGES.items():
        changed = change(tiny)
        assert not is_finished(changed.config if isinstance(changed, Tiny) else tiny.config), name
        mark_finished(tiny.config)
        assert is_finished(tiny.config), name


def test_a_job_with_an_error_among_its_responses_is_started_again(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EchoModel, "answer", lambda *_: Response(failure=Failure("input", "too long")))
    config = dataclasses.replace(tiny.config, num_readers=0, max_error_fraction=1.0)
    printed(config)
    assert not is_finished(config)
