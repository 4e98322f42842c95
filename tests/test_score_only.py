"""Models asked for a score alone: the same scores from fewer tokens, the likelier verdict, and whole jobs of them."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import models
import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tiny import PASSAGES, QUESTIONS, RUNS, Tiny, assert_same, compare, kilt_line, make_tables, results, table

from erag_ray.analyses.evaluation import evaluate
from erag_ray.config.job import JobConfig
from erag_ray.config.judge import JudgeConfig
from erag_ray.config.reader import ReaderConfig, output_settings
from erag_ray.data.datasets.tasks import DATASETS, Dataset
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.inference.planning.plan import StagePlan, plan_labels, plan_stage
from erag_ray.inference.planning.uses import check_reader, label_kind, reader_id, use_of
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.labels.document_labels import label
from erag_ray.measures.scores import SCORES, score_outputs
from erag_ray.models import make_model
from erag_ray.models.local.early_stopping import UNFINISHED, Stop, up_to_stop
from erag_ray.models.t5 import engine as t5_engine
from erag_ray.prompts.kinds.answer import ANSWER, EARLY_STOPPED
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.prompts.kinds.verdict import VERDICT
from erag_ray.prompts.prompt import VERDICTS
from erag_ray.prompts.request import Form, Passage, Request
from erag_ray.store.responses import KEY_COLUMNS, ResponseStore
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.support.errors import InputError

KINDS = ("fid", "ipa", "causal")


@pytest.fixture(scope="module")
def folders(t5: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    causal = models.causal_folder(tmp_path_factory.mktemp("causal"), seed=8)
    of_bytes = models.causal_folder(tmp_path_factory.mktemp("bytes"), tokenizer=byte_tokenizer())
    return {"fid": t5, "ipa": t5, "causal": causal, "bytes": of_bytes}


def byte_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """As Llama 2 has it: some pieces, and every other character in bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁the", "▁a", "▁New", "York", *"abehntTNY.,' -"]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    blank = tokenizers.decoders.Replace("▁", " ")
    made.decoder = tokenizers.decoders.Sequence(
        [blank, tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


# --- the property: the same score for any tokens and gold_answers ---


def some_tokens(tokenizer: Any) -> st.SearchStrategy[list[int]]:
    """Any tokens, most of them such as are text alone; and characters in bytes."""
    every = range(len(tokenizer))
    plain = [[id_] for id_ in every if UNFINISHED not in tokenizer.decode([id_])]
    whole = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("서", "é", "the", "Σ")]
    chunks = st.sampled_from(plain) | st.sampled_from(whole) | st.sampled_from(every).map(lambda id_: [id_])
    return st.lists(chunks, max_size=8).map(lambda found: [id_ for chunk in found for id_ in chunk])


def stop_of(model: Any, form: Form, gold_answers: Sequence[str]) -> Stop:
    stop: Stop | None = model.stopping.stop(model.render([Request(form, "Who?", (), tuple(gold_answers))]))
    assert stop is not None
    return stop


def text_of(model: Any, form: Form, ids: list[int]) -> str:
    """What tokens say."""
    output = model.output(ids) if form.prompt == models.form_for("fid").prompt else model.output(form, ids)
    return str(output.text)


def form_of(kind: str, score: str) -> Form:
    """Of answers that are written only as far as this score needs."""
    return models.form_for(kind, EARLY_STOPPED, score=score)


@pytest.mark.long
@pytest.mark.parametrize("score", ["exact_match", "accuracy"])
@pytest.mark.parametrize("name", ["fid", "causal", "bytes"])
def test_any_tokens_keep_their_score(folders: dict[str, str], name: str, score: str) -> None:
    kind = "causal" if name == "bytes" else name
    model: Any = make_model(ReaderConfig(kind=kind, model=folders[name]))
    form = form_of(kind, score)
    tokens = some_tokens(model.tokenizer)
    amounts = {"right": 0, "cut": 0}

    @settings(max_examples=300)
    @given(tokens, tokens, st.integers(0, 6), st.sampled_from(["", "The ", "é", " - "]), st.text(max_size=5))
    def holds(ids: list[int], others: list[int], shared: int, mark: str, text: str) -> None:
        whole = text_of(model, form, ids)
        gold_answers = [mark + whole, text_of(model, form, ids[:shared] + others), text, "é서ς"]
        # a gold with what is no character is never given up
        gold_answers = [
            gold
            for gold in gold_answers[shared % 2 :]
            if gold.strip() and (shared > 4 or UNFINISHED not in gold)
        ]
        kept = up_to_stop(0, ids, stop_of(model, form, gold_answers))
        texts = (whole, text_of(model, form, kept))
        found, cut = (score_outputs([text], [gold_answers], SCORES[score]) for text in texts)
        assert found == cut
        amounts["right"] += found == [1.0]
        amounts["cut"] += len(kept) < len(ids)

    holds()
    assert min(amounts.values()) > 3, amounts


def test_a_character_may_take_several_tokens(folders: dict[str, str]) -> None:
    model: Any = make_model(ReaderConfig(kind="causal", model=folders["bytes"]))
    form = form_of("causal", "exact_match")
    ids = model.tokenizer.convert_tokens_to_ids(["<0xEC>", "<0x84>", "<0x9C>"])  # 서
    assert not any(stop_of(model, form, ["서"])(0, ids[:length]) for length in range(4))
    stop = stop_of(model, form, ["é"])
    assert [stop(0, ids[:length]) for length in range(4)] == [False, False, False, True]
    # what cannot be told from a character that is not complete is never given up
    assert not stop_of(model, form, ["\N{REPLACEMENT CHARACTER}"])(0, ids)


def test_a_tokenizer_that_takes_blanks_back_is_read_to_the_end(folders: dict[str, str]) -> None:
    model: Any = make_model(ReaderConfig(kind="fid", model=folders["fid"]))
    prompts = model.render([Request(form_of("fid", "accuracy"), "Who?", (), ("Ada",))])
    assert model.stopping.stop(prompts) is not None
    model.tokenizer.clean_up_tokenization_spaces = True
    assert model.stopping.stop(prompts) is None


# --- real models ---


def golds_for(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """For a third of the outputs themselves, for a third how they start, for a third what another request gave."""
    halves = [" ".join(text.split()[:1]) for text in texts]
    choices = [texts, halves, [*texts[7:], *texts[:7]]]
    return [(choices[place % 3][place] or "x", "whale oil") for place in range(len(texts))]


@pytest.mark.long
@pytest.mark.parametrize("score", ["exact_match", "accuracy"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_those_of_whole_outputs(folders: dict[str, str], kind: str, score: str) -> None:
    requests = models.some_requests(models.form_for(kind), 60)
    model = models.loaded(kind, folders[kind])
    whole = models.outputs(model, requests)
    gold_answers = golds_for([text for text, _ in whole])
    form = form_of(kind, score)
    asked = [
        request._replace(form=form, answers=own) for request, own in zip(requests, gold_answers, strict=True)
    ]
    found = models.outputs(model, asked)
    labels, own = (
        score_outputs([text for text, _ in o], gold_answers, SCORES[score]) for o in (whole, found)
    )
    assert labels == own
    assert 10 < sum(filter(None, labels)) < 50
    assert sum(count for _, count in found) < 0.8 * sum(count for _, count in whole)
    # what a row gives does not hang on the rows beside it
    alone = models.outputs(models.loaded(kind, folders[kind], batch_size=1), asked)
    assert alone == found


@pytest.mark.parametrize("kind", ["fid", "causal"])
def test_steps_are_saved(folders: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    step = t5_engine._Run.step
    monkeypatch.setattr(
        t5_engine._Run, "step", lambda run, number: (steps.append(run.engine.kind), step(run, number))
    )
    for name, form in (("whole", models.form_for(kind)), ("stopped", form_of(kind, "accuracy"))):
        model: Any = models.loaded(kind, folders[kind], batch_size=8)
        output = model.model.get_output_embeddings()
        output.register_forward_hook(lambda *_, name=name: steps.append(name))
        if kind == "fid":
            model.engine.kind = name
        requests = models.some_requests(form, 16)
        models.outputs(model, [request._replace(answers=("no output starts so",)) for request in requests])
    assert 0 < steps.count("stopped") < steps.count("whole") / 2


def by_hand(model: Any, prompt: Any, answer: tuple[int, ...]) -> float:
    """The log-probability of a verdict and its end, by the model's own forward pass."""
    ends, chances = sorted(model.ends(prompt.form)), models.chances_by_hand(model, prompt, answer)
    return float(
        sum(chances[i, id_] for i, id_ in enumerate(answer)) + chances[len(answer), ends].logsumexp(0)
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_is_the_likelier_one(folders: dict[str, str], kind: str) -> None:
    case = case_of(kind, Dataset(family="claim"), max_new_tokens=30)
    model, form = models.loaded(kind, folders[kind], batch_size=5), VERDICT.build(case)
    requests = [
        VERDICT.request(case, request.question, request.passages, ("a gold answer",))
        for request in models.some_requests(form, 30)
    ]
    responses, found = dict(model.run(requests)), []
    for place, prompt in enumerate(model.render(requests)):
        sums = [by_hand(model, prompt, answer) for answer in prompt.answer_ids]
        assert len(sums) == 2
        assert not math.isclose(*sums, abs_tol=1e-3)
        assert VERDICT.fold is not None
        found.append(VERDICT.fold(requests[place].answers, responses[place]))
        assert found[-1] == VERDICTS["claim"][sums.index(max(sums))]
    assert set(found) == {*VERDICTS["claim"]}


def case_of(kind: str, dataset: Dataset, **changes: Any) -> Case:
    """A dataset that a reader of this kind answers."""
    default = "plain" if kind == "causal" else "t5"
    reader = ReaderConfig(kind=kind, **changes)
    return Case(dataset=dataset, reader=reader, judge=JudgeConfig(), default_prompt=default)


# --- who is asked ---


def job_of(reader: ReaderConfig, how: Any) -> JobConfig:
    return JobConfig(reader=reader, score_only=how)


def test_a_score_alone_is_another_kind_of_question(folders: dict[str, str]) -> None:
    config = ReaderConfig(kind="fid", model=folders["fid"])
    kinds = {
        (name, how): label_kind(job_of(config, how), DATASETS[name])
        for name in ("nq", "fever", "wow")
        for how in (None, "early_stop", "classification")
    }
    assert {how for (_, how), kind in kinds.items() if kind is ANSWER} == {
        None,
        "early_stop",
        "classification",
    }
    assert kinds["nq", "early_stop"] is kinds["nq", "classification"] is EARLY_STOPPED
    assert kinds["fever", "early_stop"] is EARLY_STOPPED
    assert kinds["fever", "classification"] is VERDICT
    assert {kinds["wow", how] for how in (None, "early_stop", "classification")} == {ANSWER}
    uses = {
        (name, how): use_of(kind, job_of(config, how), DATASETS[name])[0]
        for (name, how), kind in kinds.items()
    }
    # the score is the dataset's
    assert uses["nq", "early_stop"].form.early_stop == "exact_match"
    assert uses["fever", "early_stop"].form.early_stop == "accuracy"
    own = [
        uses["nq", None],
        uses["nq", "early_stop"],
        *(uses["fever", h] for h in ("early_stop", "classification")),
    ]
    assert len({use.form.fingerprint for use in own}) == 4
    # what is stopped hangs on the gold_answers, what is chosen does not
    assert [use.answers(["gold"]) for use in own] == [(), ("gold",), ("gold",), (" SUPPORTS", " REFUTES")]
    # the same model, and labels of the same reader
    assert len({use.model for use in uses.values()}) == 1
    assert all(uses[name, how].reader == uses[name, None].reader for name, how in uses)


@pytest.mark.parametrize("score", ["token_f1", "rouge_l_kilt", "judged"])
def test_what_cannot_be_told_before_an_output_is_whole_is_read_in_whole(score: str) -> None:
    config = job_of(ReaderConfig(kind="fid"), "early_stop")
    assert label_kind(config, Dataset(score=score)) is ANSWER
    chosen = job_of(ReaderConfig(kind="fid"), "classification")
    # there are no verdicts to choose from
    assert label_kind(chosen, Dataset(score=score, family="dialogue")) is ANSWER
    with pytest.raises(ValueError, match="unknown score 'typo'"):
        label_kind(config, Dataset(score="typo"))


def test_verdicts_that_start_alike_need_room(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERDICTS, "claim", ("yes yes", "yes no"))
    config = job_of(ReaderConfig(kind="fid", model=folders["fid"], max_new_tokens=1), "classification")
    with pytest.raises(InputError, match="max_new_tokens: 1 are too few to tell the answers apart"):
        use_of(VERDICT, config, DATASETS["fever"])
    room = dataclasses.replace(config, reader=dataclasses.replace(config.reader, max_new_tokens=9))
    assert use_of(VERDICT, room, DATASETS["fever"])


def test_a_reader_that_cannot_is_told_before_anything_is_read(tiny: Tiny) -> None:
    message = "the kind early_stopped needs early_stop, which echo does not support; fid, ipa, causal can"
    with pytest.raises(InputError, match=message):
        prepare(tiny.with_config(score_only="early_stop").config, check_reader)


def test_an_unknown_score_is_one_message(tiny: Tiny, tmp_path: pathlib.Path) -> None:
    reader = ReaderConfig(kind="fid", model=models.t5_folder(tmp_path / "t5"))
    with pytest.raises(InputError, match="unknown score 'typo'"):
        prepare(tiny.with_config(score_only="early_stop", score="typo", reader=reader).config, check_reader)


# --- whole jobs ---


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


def stored(some: Tiny, plan: StagePlan, kind: Kind) -> int:
    """Responses in the store to what a stage asked of this kind."""
    asked = plan.requests.filter(kind=kind.name)
    names = asked["model"].unique()
    known = [ResponseStore(some.config.cache_dir, name).keys() for name in names]
    return sum(keys.join(asked, on=KEY_COLUMNS, how="semi").height for keys in known)


@pytest.mark.long
def test_a_job_by_early_stop_has_the_same_tables(
    real: Tiny, reads_here: list[int], tmp_path: pathlib.Path
) -> None:
    whole = make_tables(real)
    other = real.with_config(
        score_only="early_stop", out=str(tmp_path / "other"), cache_dir=str(tmp_path / "others")
    )
    plan = make_tables(other)
    assert_frame_equal(table(real, LABELS), table(other, LABELS))
    assert_frame_equal(table(real, UTILITY), table(other, UTILITY))
    assert 0 < table(real, LABELS, annotator="erag")["label"].sum() < 12
    num_labels = table(other, LABELS, annotator="erag").height
    assert stored(other, plan, EARLY_STOPPED) == num_labels + len(QUESTIONS)
    assert 0 < stored(other, plan, ANSWER) < stored(real, whole, ANSWER)
    assert stored(real, whole, EARLY_STOPPED) == 0
    inputs = prepare(other.config, check_reader)
    again = plan_stage(other.config, inputs, "compare", single_document=True, end_to_end=True)
    assert {row["new"] for row in again.counts} == {0}


@pytest.mark.long
def test_labels_alone_need_no_whole_output(real: Tiny, reads_here: list[int], tmp_path: pathlib.Path) -> None:
    some = real.with_config(score_only="early_stop")
    inputs = prepare(some.config, check_reader)
    plan = plan_stage(some.config, inputs, "annotate", single_document=True, end_to_end=False)
    label(some.config, inputs, run_stage(some.config, plan))
    found = table(some, LABELS)
    assert plan.requests["kind"].unique().to_list() == [EARLY_STOPPED.name]
    whole = real.with_config(out=str(tmp_path / "other"))
    make_tables(whole)
    assert_frame_equal(table(whole, LABELS), found)
    asked = inputs.runs.select("query_id", "doc_id").unique()
    (settling,) = plan_labels(some.config, inputs, "settle", asked).plans
    assert settling.requests["kind"].unique().to_list() == [EARLY_STOPPED.name]
    assert settling.requests.height == asked.height
    assert settling.new.is_empty()


@pytest.mark.long
def test_labels_made_in_another_way_are_not_evaluated(real: Tiny, reads_here: list[int]) -> None:
    make_tables(real)
    with pytest.raises(InputError, match="labels were made with another score_only"):
        evaluate(real.with_config(score_only="early_stop").config, prepared(real.config))


def test_a_dataset_whose_score_needs_whole_outputs_is_read_as_ever(real: Tiny, reads_here: list[int]) -> None:
    some = real.with_config(score="token_f1", score_only="early_stop", threshold=0.5)
    inputs = prepare(some.config, check_reader)
    requests = plan_stage(some.config, inputs, "annotate", single_document=True, end_to_end=False).requests
    assert requests["kind"].unique().to_list() == [ANSWER.name]
    assert requests.height == inputs.runs.select("query_id", "doc_id").n_unique() + len(QUESTIONS)


@pytest.mark.long
def test_claims_get_a_label_each_by_the_likelier_verdict(
    real: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = real.with_config(dataset="fever", annotators=["erag"])
    answers = prepare(real.config).queries["answers"].list.first().unique(maintain_order=True)
    monkeypatch.setitem(VERDICTS, "claim", tuple(answers[:2]))
    compare(claims)
    whole = table(claims, LABELS)
    chosen = claims.with_config(score_only="classification")
    plan = compare(chosen)
    found = table(chosen, LABELS)
    assert found["reader"].unique().to_list() == whole["reader"].unique().to_list()
    assert found.height == whole.height == stored(chosen, plan, VERDICT)


# --- titles ---


def titles_of(plan: StagePlan) -> dict[str, set[str]]:
    """Kind of question -> the titles in everything that a stage asks."""
    seen: dict[str, set[str]] = {}
    for part in plan.plans:
        requests = PendingRequests(part.make_requests(part.new), part.forms)
        for kind, request in zip(part.new["kind"], requests, strict=True):
            seen.setdefault(kind, set()).update(passage.title for passage in request.passages)
    return seen


@pytest.mark.parametrize("score_only", [None, "early_stop"])
def test_hidden_titles_are_hidden_in_every_request_but_the_judges(
    real: Tiny, folders: dict[str, str], score_only: Any
) -> None:
    judged = real.with_config(
        annotators=["erag", "gold_likelihood", "gain", "llm_relevance_graded"],
        score_only=score_only,
        judge=JudgeConfig(model=folders["causal"], scale="grades"),
    )
    hidden = judged.with_config(reader=dataclasses.replace(real.config.reader, titles=False))
    seen, forms = {}, {}
    for name, some in (("shown", judged), ("hidden", hidden)):
        inputs = prepare(some.config, check_reader)
        plan = plan_stage(some.config, inputs, "compare", single_document=True, end_to_end=True)
        seen[name] = titles_of(plan)
        forms[name] = {use.form for use in plan.uses.values() if use.kind is not RELEVANCE}
    kinds = {"answer", "gold_likelihood", "relevance", *(["early_stopped"] if score_only else [])}
    assert set(seen["shown"]) == set(seen["hidden"]) == kinds
    assert "" not in set().union(*seen["shown"].values())
    everything = seen["shown"]["relevance"]
    assert seen["hidden"] == {kind: everything if kind == "relevance" else {""} for kind in kinds}
    assert len(forms["shown"]) == len(kinds) - 1
    assert len(forms["shown"] | forms["hidden"]) == 2 * len(forms["shown"])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
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
    responses, _ = ResponseStore(hidden.config.cache_dir, part.id).lookup(part.requests)
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
    shown, hidden = (job_of(ReaderConfig(kind="echo", titles=titles), None) for titles in (True, False))
    assert reader_id(shown, Dataset()) != reader_id(hidden, Dataset())
    assert use_of(ANSWER, shown, Dataset())[0].model == use_of(ANSWER, hidden, Dataset())[0].model
    # tables that are older than this key stay valid
    assert "titles" not in output_settings(ReaderConfig())
    assert output_settings(ReaderConfig(titles=False))["titles"] is False
