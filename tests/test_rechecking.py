"""A sample of requests asked again: what has changed is counted."""

from __future__ import annotations

import dataclasses

import pytest
from tiny import Tiny

from erag_ray.inference.planning.plan import StagePlan, plan_stage
from erag_ray.inference.recheck import recheck
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.models.echo import EchoModel
from erag_ray.prompts.request import Failure, Request, Response
from erag_ray.store.schemas import COSTS
from erag_ray.store.tables import TableStore

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
    monkeypatch.setattr(EchoModel, "is_repeatable", False)
    count = part.new.height
    again = recheck(everything.config, part, done.responses, queries)
    assert again is not None
    assert again[:5] == (count, 0, 0, 0, 0)
    assert again.done.num_prompt_tokens == done.responses["num_prompt_tokens"].sum() > 0
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
    monkeypatch.setattr(EchoModel, "is_repeatable", False)
    everything = tiny.with_config(recheck_fraction=1.0)
    plan = planned(everything)
    run_stage(everything.config, plan)
    manifest = (tiny.folder / "out" / plan.stage / "manifest.json").read_text()
    assert f"Rechecked: {plan.plans[0].new.height} requests; 0 outputs and 0 scores differ." in manifest


def failing(self: EchoModel, request: Request) -> Response:
    """An error for every question about a river."""
    if "river" in request.question.lower():
        return Response(failure=Failure("resource", "no answer"))
    return answer(self, request)


def test_a_request_that_fails_is_not_a_changed_output(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = tiny.with_config(recheck_fraction=1.0, max_error_fraction=1.0)
    plan = planned(everything)
    done = run_stage(everything.config, plan)
    (part,) = plan.plans
    assert plan.answered is not None
    monkeypatch.setattr(EchoModel, "is_repeatable", False)
    monkeypatch.setattr(EchoModel, "answer", failing)
    found = recheck(everything.config, part, done.responses, plan.answered.queries)
    assert found is not None
    assert (found.num_outputs, found.num_labels) == (0, 0)
    assert 0 < found.num_errors < found.num_requests
    assert str(found).endswith(f"{found.num_errors} of the requests are errors, and are not compared.")


def test_costs_have_the_requests_that_were_sent_again(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EchoModel, "is_repeatable", False)
    everything = tiny.with_config(recheck_fraction=1.0)
    plan = planned(everything)
    run_stage(everything.config, plan)
    costs = TableStore(f"{tiny.config.out}/{plan.stage}").read(COSTS)
    first, again = costs.sort("stage").iter_rows(named=True)
    assert (first["stage"], again["stage"]) == (plan.stage, f"{plan.stage} recheck")
    assert again["num_reader_calls"] == first["num_reader_calls"] == plan.plans[0].new.height
    assert again["num_prompt_tokens"] == first["num_prompt_tokens"] > 0
