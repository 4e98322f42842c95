"""Titles of passages that the reader is not shown: in no request but the judge's, and in responses of their own."""

import dataclasses
import pathlib
from typing import Any

import models
import pytest
from tiny import PASSAGES, QUESTIONS, RUNS, Tiny, assert_same, compare, kilt_line, results

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import JudgeConfig, ReaderConfig, output_settings
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.inference.planning.plan import StagePlan, plan_stage
from erag_ray.inference.planning.uses import check_reader, reader_id, use_of
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.models import make_model
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.prompts.request import Passage, Request
from erag_ray.store.responses import KEY_COLUMNS, ResponseStore


@pytest.fixture
def real(tiny: Tiny, tmp_path: pathlib.Path) -> Tiny:
    """The tiny comparison by a real reader, whose answers to some documents are the gold_answers."""
    reader = ReaderConfig(kind="fid", model=models.t5_folder(tmp_path / "t5"), max_new_tokens=6)
    loaded, form = models.loaded("fid", reader.model or ""), models.form_for("fid", max_new_tokens=6)
    documents = ["d1", "d4", "d5", "d7", "d9", "d10"]
    requests = [
        Request(form, question, (Passage(*PASSAGES[doc][1:]),))
        for (question, _, _), doc in zip(QUESTIONS.values(), documents, strict=True)
    ]
    gold_answers = [text for text, _ in models.outputs(loaded, requests)]
    rows = zip(QUESTIONS.items(), gold_answers, strict=True)
    tiny.queries.write_text(
        "".join(kilt_line(name, question, gold, page) for (name, (question, _, page)), gold in rows)
    )
    return tiny.with_config(reader=reader, annotators=["erag", "gain", "provenance"])


def titles_of(plan: StagePlan) -> dict[str, set[str]]:
    """Kind of question -> the titles in everything that a stage asks."""
    seen: dict[str, set[str]] = {}
    for part in plan.plans:
        requests = PendingRequests(part.make_requests(part.new), part.forms)
        for kind, request in zip(part.new["kind"], requests, strict=True):
            seen.setdefault(kind, set()).update(passage.title for passage in request.passages)
    return seen


def test_hidden_titles_are_hidden_in_every_request_but_the_judges(
    real: Tiny, folders: dict[str, str]
) -> None:
    judged = real.with_config(
        annotators=["erag", "gold_likelihood", "gain", "llm_relevance_graded"],
        judge=JudgeConfig(model=folders["causal"], scale="grades"),
    )
    hidden = judged.with_config(reader=dataclasses.replace(real.config.reader, titles=False))
    seen, forms = {}, {}
    for name, some in (("shown", judged), ("hidden", hidden)):
        inputs = prepare(some.config, check_reader)
        plan = plan_stage(some.config, inputs, "compare", single_document=True, end_to_end=True)
        seen[name] = titles_of(plan)
        forms[name] = {use.form for use in plan.uses.values() if use.kind is not RELEVANCE}
    kinds = {"answer", "gold_likelihood", "relevance"}
    assert set(seen["shown"]) == set(seen["hidden"]) == kinds
    assert "" not in set().union(*seen["shown"].values())
    everything = seen["shown"]["relevance"]
    assert seen["hidden"] == {kind: everything if kind == "relevance" else {""} for kind in kinds}
    assert len(forms["shown"]) == len(kinds) - 1
    assert len(forms["shown"] | forms["hidden"]) == 2 * len(forms["shown"])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fid", "ipa", "causal"])
def test_responses_with_and_without_titles_never_mix(
    real: Tiny, folders: dict[str, str], reads_here: list[int], kind: str
) -> None:
    config = ReaderConfig(kind=kind, model=folders[kind], max_new_tokens=6)
    shown = real.with_config(reader=config)
    compare(shown)
    before = results(shown)
    num_before = sum(reads_here)
    hidden = shown.with_config(reader=dataclasses.replace(config, titles=False))
    compare(hidden)
    # as many as before: not one is taken from those with titles
    assert sum(reads_here) == 2 * num_before
    assert "without titles" in pathlib.Path(hidden.config.out, "report.md").read_text()
    model, form = models.loaded(kind, folders[kind]), models.form_for(kind, max_new_tokens=6, titles=False)
    documents = RUNS["good"]["q2"].split()
    requests = [
        *(Request(form, QUESTIONS["q2"][0], (Passage("", PASSAGES[doc][2]),)) for doc in documents),
        Request(form, QUESTIONS["q2"][0], tuple(Passage("", PASSAGES[doc][2]) for doc in documents)),
    ]
    plan = plan_stage(
        hidden.config, prepared(hidden.config), "compare", single_document=True, end_to_end=True
    )
    (part,) = plan.plans
    keys = part.requests.filter(query_id="q2").select("doc_ids", *KEY_COLUMNS).rows()
    key_of = {tuple(doc_ids): tuple(key) for doc_ids, *key in keys}
    responses = ResponseStore(hidden.config.cache_dir, part.id).lookup(part.requests)
    texts = {row[:2]: row[2] for row in responses.select(*KEY_COLUMNS, "output").rows()}
    lists = [*((doc,) for doc in documents), tuple(documents)]
    assert [texts[key_of[one]] for one in lists] == [text for text, _ in models.outputs(model, requests)]
    # and back: nothing is read again, nothing changes
    compare(shown)
    assert sum(reads_here) == 2 * num_before
    assert_same(results(shown), before)


def test_worked_examples_have_no_titles_either(folders: dict[str, str]) -> None:
    model: Any = make_model(ReaderConfig(kind="causal", model=folders["causal"]))
    prompts = {}
    for titles in (True, False):
        form = models.form_for("causal", titles=titles)
        (prompt,) = model.render([Request.of(form, "Who?", (Passage("", "A text."),))])
        prompts[titles] = model.tokenizer.decode(prompt.segments[0])
    assert prompts[True].count("Passage: (") == 2
    assert prompts[False].count("Passage: ") == 3
    assert "Passage: (" not in prompts[False]


def test_hidden_titles_make_another_reader_of_the_same_model() -> None:
    shown, hidden = (JobConfig(reader=ReaderConfig(kind="echo", titles=titles)) for titles in (True, False))
    assert reader_id(shown, Dataset()) != reader_id(hidden, Dataset())
    assert use_of(ANSWER, shown, Dataset())[0].model == use_of(ANSWER, hidden, Dataset())[0].model
    # tables that are older than this key stay valid
    assert "titles" not in output_settings(ReaderConfig())
    assert output_settings(ReaderConfig(titles=False))["titles"] is False
