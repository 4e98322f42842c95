"""A sample of requests asked again: what has changed is counted."""

from __future__ import annotations

import dataclasses

import pytest
from tiny import Tiny

from erag_ray.inference import recheck as rechecking
from erag_ray.inference.recheck import Recheck, recheck
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.models.echo import EchoModel
from erag_ray.planning.plan import StagePlan, plan_stage
from erag_ray.requests import Request, Response

answer = EchoModel.answer


def changed(self: EchoModel, request: Request) -> Response:
    """Another answer to one question, the same in other letters to another."""
    found = answer(self, request)
    if "river" in request.question.lower():
        return dataclasses.replace(found, text=(found.text or "").upper())
    return dataclasses.replace(found, text="something else") if "lit" in request.question else found


def planned(tiny: Tiny) -> StagePlan:
    return plan_stage(tiny.config, prepare(tiny.config), "compare", single_document=True, end_to_end=True)


def test_outputs_and_scores_that_changed_are_counted(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = tiny.with_config(recheck_fraction=1.0)
    plan = planned(everything)
    done = run_stage(everything.config, plan)
    (part,) = plan.plans
    assert plan.answered is not None
    queries = plan.answered.queries
    assert recheck(everything.config, part, done.responses, queries) is None
    monkeypatch.setattr(rechecking, "KINDS", ("echo",))
    count = part.new.height
    assert recheck(everything.config, part, done.responses, queries) == Recheck(count, 0, 0)
    monkeypatch.setattr(EchoModel, "answer", changed)
    found = recheck(everything.config, part, done.responses, queries)
    assert found is not None
    assert 0 < found.num_labels < found.num_outputs < found.num_requests == count
    tenth = dataclasses.replace(everything.config, recheck_fraction=0.1)
    sample = recheck(tenth, part, done.responses, queries)
    assert sample is not None
    assert sample.num_requests == -(-count // 10)


def test_the_summary_tells_what_came_of_it(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rechecking, "KINDS", ("echo",))
    everything = tiny.with_config(recheck_fraction=1.0)
    plan = planned(everything)
    run_stage(everything.config, plan)
    manifest = (tiny.folder / "out" / plan.stage / "manifest.json").read_text()
    assert f"Rechecked: {plan.plans[0].new.height} requests; 0 outputs and 0 scores differ." in manifest
