"""Judges of relevance: probabilities against the model's own, grades as written, labels, and a job that asks one."""

import math
import pathlib
from typing import Any

import models
import polars as pl
import pytest
import torch
from tiny import Tiny, table

from erag_ray.annotators import Evidence, annotate
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.inference.planning.pending import Use
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.planning.uses import check_reader, use_of
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.labels.document_labels import label
from erag_ray.models import Model, load_model, make_model
from erag_ray.prompts.kinds.base import Case
from erag_ray.prompts.kinds.relevance import RELEVANCE, grade
from erag_ray.prompts.request import Passage, Request, Response
from erag_ray.store.schemas import LABELS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError

WORDS = ["yes", " yes", "no", " no", " Yes", "No"]


@pytest.fixture(scope="module")
def judge_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("judge")
    return models.causal_folder(folder, tokenizer=models.causal_tokenizer(WORDS))


def case_of(judge: JudgeConfig, family: Any = "question") -> Case:
    return Case(dataset=Dataset(family=family), reader=ReaderConfig(kind="echo"), judge=judge)


def loaded(judge: JudgeConfig) -> Any:
    model = make_model(judge.reader())
    load_model(model)
    return model


def used(tiny: Tiny, judge: JudgeConfig) -> tuple[Use, Model]:
    """How a job asks this judge."""
    return use_of(RELEVANCE, tiny.with_config(judge=judge).config, Dataset())


def relevance(request: Request, response: Response) -> Any:
    """What a response comes to."""
    return RELEVANCE.fold(request.answers, response)


def tokens_of(judge: Any, request: Request) -> tuple[list[int], list[int]]:
    """The tokens that are yes, and those that are no."""
    (made,) = judge.render([request])
    texts = {own[0]: judge.tokenizer.decode(own).strip().lower() for own in made.answer_ids if len(own) == 1}
    assert set(texts.values()) == {"yes", "no"}
    yes, no = ([id_ for id_, text in texts.items() if text == word] for word in ("yes", "no"))
    return yes, no


@pytest.mark.parametrize("prompt", ["plain", "chat"])
def test_the_probability_is_that_of_yes_against_no_as_the_first_token(judge_folder: str, prompt: Any) -> None:
    config = JudgeConfig(model=judge_folder, prompt=prompt, num_examples=1)
    judge, case = loaded(config), case_of(config)
    asked = [
        ("Who?", Passage("Short", "A text.")),
        ("Who wrote it, and when?", Passage("", "Another text, which is longer than the first. " * 4)),
        ("Where?", Passage("Third", "yes")),
    ]
    requests = [RELEVANCE.request(case, question, (passage,)) for question, passage in asked]
    found = dict(judge.run(requests))
    yes, no = tokens_of(judge, requests[0])
    values = []
    for place, made in enumerate(judge.render(requests)):
        with torch.no_grad():
            logits = judge.model(torch.tensor([made.segments[0]])).logits[0, -1]
        shares = torch.softmax(logits.double(), dim=0)
        wanted = float(shares[yes].sum() / (shares[yes].sum() + shares[no].sum()))
        values.append(relevance(requests[place], found[place]))
        assert values[-1] == pytest.approx(wanted, abs=1e-5)
    assert len(set(values)) == 3


def test_all_forms_of_yes_and_no_cost_one_pass_over_a_prompt(judge_folder: str) -> None:
    config = JudgeConfig(model=judge_folder)
    judge, rows = loaded(config), list[int]()
    judge.model.register_forward_hook(lambda *made: rows.append(len(made[-1].logits)))
    requests = [RELEVANCE.request(case_of(config), "Who?", (Passage("", text),)) for text in ("One.", "Two.")]
    assert all(len(request.answers) == 12 for request in requests)
    list(judge.run(requests))
    # the prefix is a pass of its own
    assert rows[-1] == 2
    assert sum(rows) <= 3


def test_tokens_that_are_equally_likely_all_count_and_one_token_counts_once(judge_folder: str) -> None:
    config = JudgeConfig(model=judge_folder)
    judge = loaded(config)
    request = RELEVANCE.request(case_of(config), "Who?", (Passage("", "A text."),))
    yes, no = tokens_of(judge, request)
    with torch.no_grad():
        weights = judge.model.get_output_embeddings().weight
        weights[[*yes, no[0]]] = weights[yes[0]].clone()
        weights[no[1:]] = weights[no[1]].clone()
        (made,) = judge.render([request])
        shares = judge.model(torch.tensor([made.segments[0]])).logits[0, -1].double().softmax(dim=0)
    wanted = float(shares[yes].sum() / (shares[yes].sum() + shares[no].sum()))
    ((_, response),) = judge.run([request])
    assert relevance(request, response) == pytest.approx(wanted, abs=1e-5)
    # a tokenizer may make one token of a word with and without a blank before it
    doubled = request._replace(answers=request.answers[:6] * 2 + request.answers[6:] * 2)
    ((_, response),) = judge.run([doubled])
    assert relevance(doubled, response) == pytest.approx(wanted, abs=1e-5)


def test_a_tokenizer_that_splits_yes_and_no_is_refused_before_weights_are_loaded(
    tmp_path: pathlib.Path, tiny: Tiny
) -> None:
    folder = models.causal_folder(tmp_path / "judge", tokenizer=models.causal_tokenizer(vocab_size=260))
    with pytest.raises(InputError, match=r"judge\.model: .*splits yes and no; use judge\.scale: grades"):
        used(tiny, JudgeConfig(model=folder))
    assert used(tiny, JudgeConfig(model=folder, scale="grades"))


@pytest.mark.parametrize(
    ("output", "wanted"),
    [("3", 1.0), ("0", 0.0), (" Grade: 2.", 2 / 3), ("1 of 3", 1 / 3), ("", None), ("none", None), ("4", None),
     ("7 or 2", None), ("30", None), ("-1", 1 / 3), ("2.5", None), ("2,5", None)],
)  # fmt: skip
def test_the_first_number_is_the_grade_if_it_is_one(output: str, wanted: float | None) -> None:
    assert grade(output) == wanted


def test_scales_have_forms_of_their_own_and_one_model(judge_folder: str, tiny: Tiny) -> None:
    judges = [
        JudgeConfig(model=judge_folder),
        JudgeConfig(model=judge_folder, scale="grades"),
        JudgeConfig(model=judge_folder, num_examples=0),
    ]
    uses = [used(tiny, judge)[0] for judge in judges]
    assert len({use.form.fingerprint for use in uses}) == 3
    assert len({use.model for use in uses}) == 1


def test_a_dialogue_keeps_its_end_and_all_else_its_start(judge_folder: str) -> None:
    config = JudgeConfig(model=judge_folder)
    judge: Any = make_model(config.reader())
    cases = {family: case_of(config, family) for family in ("question", "claim", "dialogue")}
    forms = {family: RELEVANCE.build(case) for family, case in cases.items()}
    assert forms["question"] == forms["claim"] != forms["dialogue"]
    long = " ".join(f"w{number}" for number in range(3000))
    shown = {}
    for family, case in cases.items():
        (made,) = judge.render([RELEVANCE.request(case, long, (Passage("", "text"),))])
        shown[family] = judge.tokenizer.decode(made.segments[0])
    assert "w2999" in shown["dialogue"]
    assert "w2999" not in shown["question"]
    assert " w1 " in shown["question"]


def test_what_is_no_probability_is_no_judgement(judge_folder: str) -> None:
    config = JudgeConfig(model=judge_folder)
    request = RELEVANCE.request(case_of(config), "Who?", (Passage("", "text"),))
    known = [0.0 if answer in ("yes", "no") else -math.inf for answer in request.answers]
    assert relevance(request, Response(logprobs=tuple(math.log(0.5) + value for value in known))) == 0.5
    assert relevance(request, Response(logprobs=(-math.inf,) * 12)) is None
    judge = loaded(config)
    with torch.no_grad():
        judge.model.get_output_embeddings().weight.fill_(math.nan)
    with pytest.raises(JobError, match="in float32 are NaN; choose another dtype"):
        list(judge.run([request]))


def evidence(**changes: Any) -> Evidence:
    judged = {"query_id": ["q", "q", "q"], "doc_id": ["a", "b", "c"], "value": [0.5, 0.499, None]}
    no_pages = {"query_id": pl.String, "page_id": pl.String}
    given = {
        "pairs": pl.DataFrame({"query_id": ["q"] * 4, "doc_id": ["a", "b", "c", "d"]}),
        "queries": pl.DataFrame({"query_id": ["q"], "score": ["exact_match"]}),
        "corpus": pl.DataFrame(),
        "provenance": pl.DataFrame(schema=no_pages),
        "values": {RELEVANCE: pl.DataFrame(judged).with_columns(reader=pl.lit("j"))},
    }
    return Evidence(**{**given, **changes})


def test_labels_of_judgements() -> None:
    binary = pl.DataFrame(annotate("llm_relevance", evidence()))
    assert binary.select("doc_id", "label").rows() == [("a", 1.0), ("b", 0.0), ("c", None), ("d", None)]
    graded = pl.DataFrame(annotate("llm_relevance_graded", evidence()))
    assert graded["label"].to_list() == [0.5, 0.499, None, None]
    strict = pl.DataFrame(annotate("llm_relevance", evidence(relevant_from=2 / 3)))
    assert strict["label"].to_list() == [0.0, 0.0, None, None]


def test_a_job_asks_its_judge_once_and_seals_what_it_said(
    tiny: Tiny, reads_here: list[int], judge_folder: str
) -> None:
    judge = JudgeConfig(model=judge_folder, depth=2, num_queries=3)
    some = tiny.with_config(annotators=["erag", "llm_relevance", "llm_relevance_graded"], judge=judge)
    inputs = prepare(some.config, check_reader)
    plan = plan_stage(some.config, inputs, "annotate", single_document=True, end_to_end=False)
    asked_of_judge = plan.requests.filter(kind=RELEVANCE.name)
    wanted = inputs.runs.filter(pl.col("rank") <= 2).select("query_id", "doc_id").unique()
    queries = asked_of_judge["query_id"].unique()
    asked = wanted.filter(pl.col("query_id").is_in(queries.implode())).height
    assert (len(queries), asked_of_judge.height) == (3, asked)
    label(some.config, inputs, run_stage(some.config, plan))
    labels = table(some, LABELS, annotator="llm_relevance_graded")
    assert labels["label"].count() == asked
    assert labels.height == table(some, LABELS, annotator="llm_relevance").height > asked
    assert labels["label"].drop_nulls().is_between(0, 1).all()
    notes = TableStore(some.config.out).manifest(LABELS)["config"]["notes"]
    assert notes[0].startswith(
        f"relevance was judged ({judge_folder}, yes_no) for {asked} of {labels.height} pairs, 3"
    )
    again = plan_stage(some.config, inputs, "annotate", single_document=True, end_to_end=False)
    assert {row["new"] for row in again.counts} == {0}


def test_an_annotator_without_its_judge_is_told_before_anything_is_read(tiny: Tiny) -> None:
    some = tiny.with_config(annotators=["llm_relevance"], judge=JudgeConfig())
    with pytest.raises(InputError, match=r"judge\.model"):
        prepare(some.config, check_reader)


def test_the_token_of_all_unknown_words_is_no_answer(judge_folder: str) -> None:
    model: Any = make_model(JudgeConfig(model=judge_folder).reader())
    request = RELEVANCE.request(case_of(JudgeConfig(model=judge_folder)), "Who?", [Passage("A", "b")])
    (prompt,) = model.render([request])
    model.pieces.unknown = prompt.answer_ids[0][0]
    (other,) = model.render([request])
    assert other.answer_ids[0] == ()
    assert other.answer_ids[1:] == prompt.answer_ids[1:]


@pytest.mark.parametrize("name", ["reader.model", "reader.kind/x", "my-reader.model", "reader.v2"])
def test_a_message_about_the_judge_names_its_keys_and_leaves_paths_alone(
    tiny: Tiny, tmp_path: pathlib.Path, name: str
) -> None:
    path = f"{tmp_path}/{name}"
    with pytest.raises(InputError) as refused:
        used(tiny, JudgeConfig(kind="causal", model=path))
    (problem,) = refused.value.problems
    assert problem.startswith("judge.model: ")
    assert path in problem
