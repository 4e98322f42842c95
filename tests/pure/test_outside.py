"""Models and kinds of question from outside the package: written once, they work with all that is inside it."""

import dataclasses
import math
import pathlib

import failing
import models
import pytest
from outside_kind import ABSTENTION, ANSWERABLE
from tiny import Tiny, compare, table

from erag_ray.annotators import RequestSpec, every_pair
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.inference.planning.uses import check_reader
from erag_ray.inputs.stage import prepare
from erag_ray.models import Isolation, make_model, model_id
from erag_ray.models.isolation import run_checked
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.prompts.request import Form, Passage, Request, Response
from erag_ray.store.schemas import LABELS
from erag_ray.support.errors import InputError

MODEL, KIND = "outside_model:Words", "outside_kind:ANSWERABLE"
ANNOTATORS = ["erag", "gain", "gold_likelihood", "llm_relevance", "llm_relevance_graded", KIND]


def test_an_outside_model_reads_judges_gives_likelihoods_and_is_asked_an_outside_kind(
    tiny: Tiny, reads_here: list[int]
) -> None:
    reader, judge = (
        ReaderConfig(kind=MODEL, options={"floor": 0.02}),
        JudgeConfig(kind=MODEL, options={"floor": 0.02}),
    )
    changed = tiny.with_config(reader=reader, judge=judge, annotators=ANNOTATORS)
    plan = compare(changed)
    # the judge is the reader's own model: one plan, one pool
    assert [part.id for part in plan.plans] == [plan.plans[0].id]
    assert len(reads_here) == 1
    assert {use.kind for use in plan.uses.values()} == {ANSWER, GOLD_LIKELIHOOD, RELEVANCE, ABSTENTION}
    labels = {name: table(changed, LABELS, annotator=name) for name in ANNOTATORS}
    assert {frame.height for frame in labels.values()} == {18}
    # it writes the title of the document that it gets alone
    right = labels["erag"].filter(label=1.0).select("query_id", "doc_id").rows()
    assert set(right) == {("q1", "d1"), ("q2", "d3"), ("q3", "d5"), ("q4", "d7"), ("q5", "d9"), ("q6", "d10")}
    # the words of "Ida Holm" stand in the text of d8; in that of d7 they have brackets around them
    likelihood = dict(labels["gold_likelihood"].filter(query_id="q4").select("doc_id", "label").rows())
    assert likelihood["d8"] > likelihood["d7"]
    # "I do not know": of these words the prompt holds none
    assert labels[KIND]["label"].to_list() == pytest.approx([1 - 0.02**4] * 18)


def test_an_outside_kind_is_asked_of_a_model_of_this_package(
    tiny: Tiny, reads_here: list[int], tmp_path: pathlib.Path
) -> None:
    folder = models.t5_folder(tmp_path / "t5")
    reader = ReaderConfig(kind="fid", model=folder, max_new_tokens=8)
    changed = tiny.with_config(reader=reader, annotators=["erag", KIND])
    plan = compare(changed)
    assert [row["kind"] for row in plan.counts if row["lists"] == "pairs"] == ["abstention", "answer"]
    found = table(changed, LABELS, annotator=KIND).sort("query_id", "doc_id")
    model = models.loaded("fid", folder)
    form = models.form_for("fid", ABSTENTION, max_new_tokens=8)
    inputs = prepare(changed.config)
    rows = found.join(inputs.queries, on="query_id").join(inputs.corpus, on="doc_id")
    for row in rows.head(4).iter_rows(named=True):
        request = Request(form, row["question"], (Passage(row["title"], row["text"]),), (" I do not know",))
        ((_, response),) = model.run([request])
        assert row["label"] == pytest.approx(1 - math.exp(response.logprobs[0]), abs=1e-6)


def test_options_belong_to_the_model_and_are_part_of_what_it_is(tiny: Tiny) -> None:
    with pytest.raises(
        InputError, match="outside_model:Words: ValueError: it takes the option floor, not flor"
    ):
        make_model(ReaderConfig(kind=MODEL, options={"flor": 1}))
    with pytest.raises(InputError, match="echo takes none, got floor"):
        make_model(ReaderConfig(kind="echo", options={"floor": 1}))
    one, other = (make_model(ReaderConfig(kind=MODEL, options={"floor": floor})) for floor in (0.1, 0.2))
    assert one.fingerprint_fields() != other.fingerprint_fields()
    # and so is any other key that it may read
    keys: list[dict[str, str]] = [{}, {"model": "a"}, {"model": "b"}, {"dtype": "bfloat16"}]
    assert len({model_id(make_model(ReaderConfig(kind=MODEL, **one))) for one in keys}) == 4


def test_what_a_model_cannot_do_is_said_before_any_is_loaded(tiny: Tiny) -> None:
    inputs = prepare(tiny.config)
    texts, judge = "fid, ipa, causal, vllm", JudgeConfig(kind="echo")
    for role, annotator, kind, able in (
        ("reader", "gold_likelihood", "gold_likelihood", texts),
        ("reader", "usable", "no_response", f"{texts}, served"),
        ("judge", "llm_relevance", "relevance", f"{texts}, served"),
    ):
        (problem,) = check_reader(
            tiny.with_config(annotators=[annotator], judge=judge).config, inputs.datasets
        )
        needs = f"{role}.kind: the kind {kind} needs loglikelihood, which echo does not support"
        assert problem == f"{needs}; {able} can"


# --- models that answer wrongly ---


class Wrong(failing.Wrong):
    """Gives log-probabilities, and what a test says for the requests whose question says so."""

    supports = frozenset({"loglikelihood"})

    def answer(self, request: Request) -> Response:
        return Response(logprobs=(-1.0,) * len(request.answers))


def requests_to(form: Form, *questions: str) -> list[Request]:
    return [Request(form, question, (), ("yes", "no")) for question in questions]


@pytest.mark.parametrize(
    ("logprobs", "message"),
    [
        ((math.nan, -1.0), "the log-probability nan"),
        ((-1.0, 0.5), "the log-probability 0.5"),
        ((-1.0,), "1 log-probabilities for 2 answers"),
        ((), "0 log-probabilities for 2 answers"),
    ],
)
def test_log_probabilities_are_checked(logprobs: tuple[float, ...], message: str) -> None:
    model = Wrong(ReaderConfig(kind="test_outside:Wrong"))
    model.results = [(0, Response(logprobs=logprobs))]
    form = models.form_for("fid", GOLD_LIKELIHOOD)
    found = dict(Isolation(model).run(requests_to(form, "first", "wrong")))
    assert found[0].logprobs == (-1.0, -1.0)
    assert message in found[1].failure.text
    with pytest.raises(TypeError, match="run yielded"):
        list(run_checked(model, requests_to(form, "wrong")))


def test_a_kind_that_raises_is_named(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(ABSTENTION, build=lambda case: case.nothing)  # type: ignore[attr-defined]
    spec = RequestSpec(broken, every_pair)
    monkeypatch.setattr("outside_kind.ANSWERABLE", dataclasses.replace(ANSWERABLE, requests=(spec,)))
    some = tiny.with_config(annotators=[KIND], reader=ReaderConfig(kind=MODEL))
    (problem,) = check_reader(some.config, prepare(tiny.config).datasets)
    told = "kind abstention: build: AttributeError: 'Case' object has no attribute 'nothing'"
    assert problem.startswith(told)
