"""Judges of relevance: probabilities against the model's own, grades as written, labels, and a job that asks one."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any

import models
import polars as pl
import pytest
import torch
from tiny import Tiny, table

from erag_ray.annotators import Evidence, annotate
from erag_ray.annotators.judged import grade, share
from erag_ray.config import JudgeConfig
from erag_ray.prompts import Passage
from erag_ray.readers import Request, make_reader, reader_id
from erag_ray.schemas import LABELS, InputError, JobError
from erag_ray.steps.inputs import prepare
from erag_ray.steps.judging import label
from erag_ray.steps.planning import check_reader, plan_others, plan_stage
from erag_ray.steps.reading import alone, run_stage
from erag_ray.store import TableStore

WORDS = ["yes", " yes", "no", " no", " Yes", "No"]


@pytest.fixture(scope="module")
def judge_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("judge")
    return models.causal_folder(folder, tokenizer=models.causal_tokenizer(WORDS))


@pytest.mark.parametrize("prompt", ["plain", "chat"])
def test_the_probability_is_that_of_yes_against_no_as_the_first_token(judge_folder: str, prompt: Any) -> None:
    judge: Any = make_reader(JudgeConfig(model=judge_folder, prompt=prompt, num_examples=1).reader())
    judge.load()
    requests = [
        Request("Who?", (Passage("Short", "A text."),)),
        Request(
            "Who wrote it, and when?", (Passage("", "Another text, which is longer than the first. " * 4),)
        ),
        Request("Where?", (Passage("Third", "yes"),)),
    ]
    prompts = judge.encode(requests)
    outputs = judge.generate(prompts)
    yes, no = judge.answer_ids
    assert {judge.tokenizer.decode([id_]).strip().lower() for id_ in yes} == {"yes"}
    assert {judge.tokenizer.decode([id_]).strip().lower() for id_ in no} == {"no"}
    for made, output in zip(prompts, outputs, strict=True):
        with torch.no_grad():
            logits = judge.model(torch.tensor([made.segments[0]])).logits[0, -1]
        shares = torch.softmax(logits.double(), dim=0)
        wanted = float(shares[yes].sum() / (shares[yes].sum() + shares[no].sum()))
        assert float(output.text) == pytest.approx(wanted, abs=1e-5)
        assert output.num_tokens == 1
    assert len({output.text for output in outputs}) == 3


def test_a_tokenizer_that_splits_yes_and_no_is_refused_before_weights_are_loaded(
    tmp_path: pathlib.Path,
) -> None:
    folder = models.causal_folder(tmp_path, tokenizer=models.causal_tokenizer(vocab_size=260))
    with pytest.raises(InputError, match=r"splits yes and no; use judge\.scale: grades"):
        make_reader(JudgeConfig(model=folder).reader())
    assert make_reader(JudgeConfig(model=folder, scale="grades").reader())


@pytest.mark.parametrize(
    ("output", "wanted"),
    [("3", 1.0), ("0", 0.0), (" Grade: 2.", 2 / 3), ("1 of 3", 1 / 3), ("", None), ("none", None), ("4", None),
     ("7 or 2", None), ("30", None), ("-1", 1 / 3)],
)  # fmt: skip
def test_the_first_number_is_the_grade_if_it_is_one(output: str, wanted: float | None) -> None:
    assert grade(output) == wanted


def test_scales_have_prompts_and_fingerprints_of_their_own(judge_folder: str) -> None:
    made = [
        make_reader(JudgeConfig(model=judge_folder, scale=scale).reader()) for scale in ("yes_no", "grades")
    ]
    first, second = (judge.identity()["probes"] for judge in made)
    assert first != second
    assert make_reader(JudgeConfig(model=judge_folder, num_examples=0).reader()).identity()["probes"] != first


def test_a_dialogue_keeps_its_end_and_all_else_its_start(judge_folder: str) -> None:
    made = {
        family: make_reader(dataclasses.replace(JudgeConfig(model=judge_folder).reader(), family=family))
        for family in ("question", "claim", "dialogue")
    }
    names = {family: reader_id(judge) for family, judge in made.items()}
    assert names["question"] == names["claim"] != names["dialogue"]
    long = Request(" ".join(f"w{number}" for number in range(3000)), (Passage("", "text"),))
    shown = {
        family: judge.tokenizer.decode(judge.encode([long])[0].segments[0]) for family, judge in made.items()
    }
    assert "w2999" in shown["dialogue"]
    assert "w2999" not in shown["question"]
    assert " w1 " in shown["question"]


def test_what_is_no_probability_is_no_judgement(judge_folder: str) -> None:
    assert share("0.25") == 0.25
    assert share("nan") is None
    judge: Any = make_reader(JudgeConfig(model=judge_folder).reader())
    judge.load()
    with torch.no_grad():
        judge.model.get_output_embeddings().weight.fill_(math.nan)
    with pytest.raises(JobError, match="gives no probability in float32; choose another judge"):
        judge.generate(judge.encode([Request("Who?", (Passage("", "text"),))]))


def evidence(**changes: Any) -> Evidence:
    judged = {"query_id": ["q", "q", "q"], "doc_id": ["a", "b", "c"], "relevance": [0.5, 0.499, None]}
    no_pages = {"query_id": pl.String, "page_id": pl.String}
    given = {
        "pairs": pl.DataFrame({"query_id": ["q"] * 4, "doc_id": ["a", "b", "c", "d"]}),
        "queries": pl.DataFrame({"query_id": ["q"], "score": ["exact_match"]}),
        "corpus": pl.DataFrame(),
        "provenance": pl.DataFrame(schema=no_pages),
        "judgements": pl.DataFrame(judged),
    }
    return Evidence(**{**given, **changes})


def test_labels_of_judgements() -> None:
    binary = pl.DataFrame(annotate("llm_relevance", evidence()))
    assert binary.select("doc_id", "label").rows() == [("a", 1.0), ("b", 0.0), ("c", None), ("d", None)]
    graded = pl.DataFrame(annotate("llm_relevance_graded", evidence()))
    assert graded["label"].to_list() == [0.5, 0.499, None, None]
    strict = pl.DataFrame(annotate("llm_relevance", evidence(relevant_from=2 / 3)))
    assert strict["label"].to_list() == [0.0, 0.0, None, None]
    with pytest.raises(ValueError, match="needs judgements, and the evidence has none"):
        annotate("llm_relevance", evidence(judgements=None))


def test_a_job_asks_its_judge_once_and_seals_what_it_said(
    tiny: Tiny, reads_here: list[int], judge_folder: str
) -> None:
    judge = JudgeConfig(model=judge_folder, depth=2, num_queries=3)
    some = tiny.with_config(annotators=["erag", "llm_relevance", "llm_relevance_graded"], judge=judge)
    inputs = prepare(some.config, check_reader)
    done = run_stage(some.config, plan_stage(some.config, inputs, "annotate", alone=True, together=False))
    (plan,) = plan_others(some.config, inputs)
    wanted = inputs.runs.filter(pl.col("rank") <= 2).select("query_id", "doc_id").unique()
    queries = plan.asks["query_id"].unique()
    asked = wanted.filter(pl.col("query_id").is_in(queries.implode())).height
    assert (len(queries), plan.asks.height) == (3, asked)
    judged = alone(run_stage(some.config, plan))
    label(some.config, inputs, alone(done), {plan.stage: judged})
    labels = table(some, LABELS, annotator="llm_relevance_graded")
    assert labels["label"].count() == asked
    assert labels.height == table(some, LABELS, annotator="llm_relevance").height > asked
    assert labels["label"].drop_nulls().is_between(0, 1).all()
    notes = TableStore(some.config.out).manifest(LABELS)["config"]["notes"]
    assert notes[0].startswith(
        f"relevance was judged ({judge_folder}, yes_no) for {asked} of {labels.height} pairs, 3"
    )
    (again,) = plan_others(some.config, inputs)
    assert [row["new"] for row in again.counts] == [0]


def test_an_annotator_without_its_judge_is_told_before_anything_is_read(tiny: Tiny) -> None:
    some = tiny.with_config(annotators=["llm_relevance"], judge=JudgeConfig())
    with pytest.raises(InputError, match=r"judge\.model"):
        prepare(some.config, check_reader)
    assert plan_others(tiny.config, prepare(tiny.config, check_reader)) == []
