"""Abstention: its prompt, its probability against transformers, and what annotators and measures make of it."""

import dataclasses
import math

import models
import polars as pl
import pytest
import torch
import transformers
from tiny import Tiny, make_tables, table

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.contrasts import CONTRASTS
from erag_ray.analyses.means import MEANS
from erag_ray.annotators import Evidence, annotate
from erag_ray.config.reader import ReaderConfig, output_settings
from erag_ray.inference.planning.uses import check_reader
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.no_response import ABSTAINS, INSTRUCTION, NO_RESPONSE, instructed
from erag_ray.prompts.prompt import as_messages, as_text, prompt_named
from erag_ray.prompts.request import Passage, Response
from erag_ray.store.schemas import LABELS, PROVENANCE, RUNS

SEA = Passage("Sea", "The sea is wide.")


# --- the prompt ---


@pytest.mark.parametrize("name", ["plain", "chat", "question_first", "t5"])
def test_the_instruction_stands_once_before_passages_and_question(name: str) -> None:
    prompt = prompt_named(name, "question", num_examples=2, titles=True)
    content = as_text(instructed(prompt), "Who built it?", [SEA])
    texts = [content]
    if prompt.is_chat:
        texts = [
            message["content"] for message in as_messages(instructed(prompt), content, has_passages=True)
        ]
    whole = "\n".join(texts)
    assert whole.count(INSTRUCTION) == 1
    assert whole.index(INSTRUCTION) < whole.index("Who built it?")
    assert whole.replace(INSTRUCTION, "").split() == as_text(prompt, "Who built it?", [SEA]).split()


def test_a_system_message_gets_the_instruction() -> None:
    prompt = dataclasses.replace(
        prompt_named("chat", "question", num_examples=0, titles=True), system="Be brief."
    )
    assert instructed(prompt).system == f"Be brief. {INSTRUCTION}"


def test_a_reader_that_was_trained_to_abstain_is_asked_in_its_own_prompt() -> None:
    case = models.case_for("fid")
    trained = dataclasses.replace(case, reader=dataclasses.replace(case.reader, ask_to_abstain=False))
    told, untold = NO_RESPONSE.build(case), NO_RESPONSE.build(trained)
    assert told.prompt == instructed(untold.prompt)
    assert untold.prompt == ANSWER.build(case).prompt
    assert output_settings(trained.reader) == {**output_settings(case.reader), "ask_to_abstain": False}


# --- the probability ---


def value_of(kind: str, folder: str) -> float:
    reader, case = models.loaded(kind, folder), models.case_for(kind)
    request = NO_RESPONSE.request(case, "Who built it?", [SEA])
    ((_, response),) = reader.run([request])
    assert NO_RESPONSE.fold is not None
    return float(str(NO_RESPONSE.fold(request.answers, response)))


def test_the_probability_of_a_causal_model_is_that_of_transformers(llama: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(llama)
    model = transformers.AutoModelForCausalLM.from_pretrained(llama)
    text = as_text(models.form_for("causal", NO_RESPONSE).prompt, "Who built it?", [SEA])
    first, *rest = tokenizer(f" {ABSTAINS}", add_special_tokens=False).input_ids
    assert rest
    with torch.inference_mode():
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        start = torch.tensor([[tokenizer.bos_token_id]])
        expected = [
            model(prompt).logits[0, -1].softmax(dim=-1)[first].item()
            for prompt in (ids, torch.cat([start, ids], dim=1))
        ]
    # whether a prompt begins with the start token is the model's own affair
    assert min(abs(value_of("causal", llama) - value) for value in expected) < 1e-5 * max(expected)


@pytest.mark.parametrize("kind", ["fid", "ipa"])
def test_the_probability_of_a_t5_model_is_that_of_transformers(t5: str, kind: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(t5)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(t5)
    text = as_text(models.form_for(kind, NO_RESPONSE).prompt, "Who built it?", [SEA])
    first = tokenizer(ABSTAINS, add_special_tokens=False).input_ids[0]
    with torch.inference_mode():
        inputs = tokenizer(text, return_tensors="pt")
        logits = model(**inputs, decoder_input_ids=torch.tensor([[0]])).logits
    assert value_of(kind, t5) == pytest.approx(logits[0, -1].softmax(dim=-1)[first].item(), rel=1e-4)


def test_of_a_served_model_all_shown_texts_that_begin_it_count() -> None:
    answers = NO_RESPONSE.request(models.case_for("served"), "Who?", [SEA]).answers
    assert {"NO", " NO", "NO-", " NO-RESPONSE"} <= {*answers}
    assert "N" not in answers
    shown = {"NO": math.log(0.5), " NO": math.log(0.25)}
    response = Response(logprobs=tuple(shown.get(text, -math.inf) for text in answers))
    assert NO_RESPONSE.fold is not None
    assert NO_RESPONSE.fold(answers, response) == 0.75


def test_a_model_without_log_probabilities_is_refused_by_name(tiny: Tiny) -> None:
    problems = check_reader(tiny.with_config(annotators=["usable"]).config, {})
    assert any("no_response needs loglikelihood, which echo does not support" in text for text in problems)


# --- annotators ---

PAIRS = pl.DataFrame({"query_id": ["q"] * 4, "doc_id": ["d1", "d2", "d3", "d4"]})
EVIDENCE = Evidence(
    pairs=PAIRS,
    queries=pl.DataFrame(
        [("q", "nq", "who", ["Ann"], "exact_match")],
        schema=["query_id", "dataset", "question", "answers", "score"],
        orient="row",
    ),
    corpus=PAIRS.select("doc_id", page_id=pl.lit("p"), title=pl.lit(""), text=pl.lit("")),
    provenance=PROVENANCE.empty(),
    values={
        ANSWER: PAIRS.with_columns(reader=pl.lit("m"), value=pl.Series(["Ann", "Bob", "Eve", None])),
        NO_RESPONSE: PAIRS.with_columns(reader=pl.lit("m"), value=pl.Series([0.1, 0.4, 0.1, 0.2])),
    },
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("usable", [0.9, 0.6, 0.9, 0.8]),
        # d1 is relevant, d2 and d3 are not, d4 was not judged
        ("udcg", [0.9, -0.2, -0.3, None]),
        # d2 is usable by .6 only
        ("distracting", [0, 0, 1, None]),
    ],
)
def test_labels_by_hand(name: str, expected: list[float | None]) -> None:
    labels = annotate(name, EVIDENCE).column("label").to_pylist()
    assert labels == [None if value is None else pytest.approx(value) for value in expected]


def test_graded_relevance_begins_at_the_threshold() -> None:
    queries = EVIDENCE.queries.with_columns(score=pl.lit("token_f1"))
    answers = PAIRS.with_columns(reader=pl.lit("m"), value=pl.lit("Ann was here once"))  # token F1 is .4
    evidence = dataclasses.replace(EVIDENCE, queries=queries, values={**EVIDENCE.values, ANSWER: answers})
    for threshold, expected in ((None, -0.3), (0.3, 0.9)):
        labels = (
            annotate("udcg", dataclasses.replace(evidence, threshold=threshold)).column("label").to_pylist()
        )
        assert labels[0] == pytest.approx(expected)


def test_a_pair_without_a_response_is_an_error() -> None:
    values = {NO_RESPONSE: EVIDENCE.values[NO_RESPONSE].head(3)}
    with pytest.raises(ValueError, match=r"1 pairs lack a response of the kind no_response, such as .*'d4'"):
        annotate("usable", dataclasses.replace(EVIDENCE, values=values))


# --- a whole comparison ---


def test_abstention_in_a_comparison(tiny: Tiny, reads_here: list[int]) -> None:
    annotators = ["erag", "usable", "udcg", "udcg_provenance", "distracting"]
    tiny = tiny.with_config(
        reader=ReaderConfig(kind="outside_model:Words"), annotators=annotators, score="token_f1"
    )
    make_tables(tiny)
    # UDCG of every list, from the labels and the runs
    terms = table(tiny, RUNS).join(table(tiny, LABELS, annotator="udcg"), on=["query_id", "doc_id"])
    expected = terms.group_by("run_id", "query_id").agg(udcg=1 / (1 + (-pl.col("label").mean()).exp()))
    values = table(tiny, PER_QUERY, annotator="udcg", measure="UDCG", depth=3, cutoff=3)
    joined = values.join(expected, on=["run_id", "query_id"])
    assert joined.height
    assert joined["value"].to_list() == pytest.approx(joined["udcg"].to_list())
    measures = {name: set(table(tiny, MEANS, annotator=name)["measure"]) for name in annotators}
    assert measures["udcg"] == measures["udcg_provenance"] == {"UDCG"}
    assert measures["distracting"] == {"P"}
    assert "UDCG" not in measures["erag"]
    contrasts = table(tiny, CONTRASTS, annotator_a="erag", annotator_b="udcg", statistic="kendall_tau_b")
    assert {"P / UDCG", "nDCG / UDCG"} <= set(contrasts["measure"])
