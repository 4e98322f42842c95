"""A sample of requests asked again: what has changed is counted."""

import dataclasses
import pathlib
import re
from collections.abc import Callable

import pytest
from tiny import Tiny

from erag_ray.inference.cluster import nodes
from erag_ray.inference.planning.plan import StagePlan, plan_stage
from erag_ray.inference.recheck import recheck, sample_of
from erag_ray.inference.stage import Finished, are_on_gpus, run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.models import Resources, model_class
from erag_ray.models.echo import EchoModel
from erag_ray.prompts.request import Failure, Request, Response
from erag_ray.store.responses import ResponseStore
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


def rechecked(tiny: Tiny, fraction: float) -> tuple[StagePlan, str, Finished]:
    """A stage that is run with a sample, whose answers are compared."""
    some = tiny.with_config(recheck_fraction=fraction)
    plan = planned(some)
    done = run_stage(some.config, plan)
    (part,) = plan.plans
    sample = sample_of(part, fraction, some.config.seed)
    assert sample is not None
    return plan, recheck(sample, ResponseStore(some.config.cache_dir, part.id), done.responses, plan), done


def numbers_in(text: str) -> list[int]:
    return list(map(int, re.findall(r"\d+", text)))


def answers(again: Callable[[EchoModel, Request], Response]) -> Callable[[EchoModel, Request], Response]:
    """The echo reader's answers, and others where it is asked for again."""
    return lambda self, request: (again if request.form.repeat < 0 else answer)(self, request)


def test_outputs_and_scores_that_changed_are_counted(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(EchoModel, "is_repeatable", False)
    plan, again, done = rechecked(tiny, 1.0)
    count = plan.plans[0].new.height
    assert again == f"Rechecked: {count} requests; 0 outputs and 0 scores differ."
    assert done.costs["num_prompt_tokens"].sum() == 2 * done.responses["num_prompt_tokens"].sum() > 0
    manifest = (tiny.folder / "out" / plan.stage / "manifest.json").read_text()
    assert again in manifest
    # costs have the requests that were sent again
    costs = TableStore(f"{tiny.config.out}/{plan.stage}").read(COSTS)
    assert costs["num_reader_calls"].to_list() == costs["num_requests"].to_list() == [2 * count]
    monkeypatch.setattr(EchoModel, "answer", answers(changed))
    _, found, _ = rechecked(tiny.with_config(cache_dir=str(tmp_path / "one")), 1.0)
    num_requests, num_outputs, num_labels = numbers_in(found)
    assert 0 < num_labels < num_outputs < num_requests == count
    _, sample, _ = rechecked(tiny.with_config(cache_dir=str(tmp_path / "two")), 0.1)
    assert numbers_in(sample)[0] == -(-count // 10)


def test_readers_that_repeat_themselves_are_not_asked_again(tiny: Tiny, reads_here: list[int]) -> None:
    everything = tiny.with_config(recheck_fraction=1.0)
    plan = planned(everything)
    done = run_stage(everything.config, plan)
    assert done.costs["num_reader_calls"].sum() == plan.plans[0].new.height
    manifest = (tiny.folder / "out" / plan.stage / "manifest.json").read_text()
    assert "Rechecked" not in manifest


@pytest.mark.parametrize(("with_gpu", "in_ray"), [(False, False), (True, False), (False, True), (True, True)])
def test_models_on_gpus_are_asked_again(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch, with_gpu: bool, in_ray: bool
) -> None:
    everything = tiny.with_config(num_readers=None if in_ray else 0, recheck_fraction=1.0)
    (plan,) = planned(everything).plans
    monkeypatch.setattr("torch.cuda.is_available", lambda: with_gpu and not in_ray)
    monkeypatch.setattr("ray.is_initialized", lambda: in_ray)
    monkeypatch.setattr(nodes, "nodes_alive", lambda: [{"CPU": 4.0}, {"GPU": float(with_gpu)}])
    needs, spares = (dataclasses.replace(plan, resources=Resources(num_gpus=count)) for count in (1.0, 0.0))
    assert are_on_gpus(everything.config, needs) is with_gpu
    assert not are_on_gpus(everything.config, spares)


def test_engines_and_servers_are_always_asked_again() -> None:
    assert {kind: model_class(kind).is_repeatable for kind in ("vllm", "served", "causal", "fid")} == {
        "vllm": False,
        "served": False,
        "causal": True,
        "fid": True,
    }


def failing(self: EchoModel, request: Request) -> Response:
    """An error for every question about a river."""
    if "river" in request.question.lower():
        return Response(failure=Failure("resource", "no answer"))
    return answer(self, request)


def test_a_request_that_fails_is_not_a_changed_output(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EchoModel, "is_repeatable", False)
    monkeypatch.setattr(EchoModel, "answer", answers(failing))
    _, found, done = rechecked(tiny, 1.0)
    assert done.responses["error"].null_count() == done.responses.height
    num_requests, num_outputs, num_labels, num_errors = numbers_in(found)
    assert (num_outputs, num_labels) == (0, 0)
    assert 0 < num_errors < num_requests
    assert found.endswith(f"{num_errors} of the requests are errors, and are not compared.")
