"""Readers asked for a score alone: the same scores from fewer tokens, the likelier verdict, and whole jobs of them."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import models
import polars as pl
import pytest
import tokenizers
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tiny import PASSAGES, QUESTIONS, RUNS, Tiny, assert_same, compare, kilt_line, results, table

from erag_ray.config import JudgeConfig, ReaderConfig, output_settings
from erag_ray.datasets.known import DATASETS
from erag_ray.prompts import VERDICTS, Passage
from erag_ray.readers import Request, make_reader, reader_id, score_only_of, t5_engine
from erag_ray.readers.stopping import UNFINISHED
from erag_ray.readers.t5_engine import Stop, up_to_stop
from erag_ray.schemas import LABELS, UTILITY, InputError
from erag_ray.scores import SCORES, score_outputs
from erag_ray.steps.inputs import prepare, prepared
from erag_ray.steps.judging import evaluate, label
from erag_ray.steps.planning import StagePlan, check_reader, plan_labels, plan_others, plan_stage
from erag_ray.steps.reading import alone, run_others, run_stage
from erag_ray.store import ReadingStore, TableStore

KINDS = ("fid", "ipa", "causal")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    t5 = models.t5_folder(tmp_path_factory.mktemp("t5"))
    causal = models.causal_folder(tmp_path_factory.mktemp("causal"), seed=6)
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


# --- the property: the same score for any tokens and golds ---


def some_tokens(tokenizer: Any) -> st.SearchStrategy[list[int]]:
    """Any tokens, most of them such as are text alone; and characters in bytes."""
    every = range(len(tokenizer))
    plain = [[id_] for id_ in every if UNFINISHED not in tokenizer.decode([id_])]
    whole = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("서", "é", "the", "Σ")]
    chunks = st.sampled_from(plain) | st.sampled_from(whole) | st.sampled_from(every).map(lambda id_: [id_])
    return st.lists(chunks, max_size=8).map(lambda found: [id_ for chunk in found for id_ in chunk])


def stop_of(reader: Any, golds: Sequence[str]) -> Stop:
    (prompt,) = reader.encode([Request("Who?", (), tuple(golds))])
    stop: Stop | None = reader.stop([prompt])
    assert stop is not None
    return stop


@pytest.mark.parametrize("score", ["exact_match", "accuracy"])
@pytest.mark.parametrize("name", ["fid", "causal", "bytes"])
def test_any_tokens_keep_their_score(folders: dict[str, str], name: str, score: str) -> None:
    kind = "causal" if name == "bytes" else name
    made = make_reader(ReaderConfig(kind=f"stop_{kind}", model=folders[name], score=score))
    reader: Any = made
    tokens = some_tokens(reader.tokenizer)
    amounts = {"right": 0, "cut": 0}

    @settings(deadline=None, max_examples=300)
    @given(tokens, tokens, st.integers(0, 6), st.sampled_from(["", "The ", "é", " - "]), st.text(max_size=5))
    def holds(ids: list[int], others: list[int], shared: int, mark: str, text: str) -> None:
        whole = reader._output(ids).text
        golds = [mark + whole, reader._output(ids[:shared] + others).text, text, "é서ς"]
        # a gold with what is no character is never given up
        golds = [
            gold for gold in golds[shared % 2 :] if gold.strip() and (shared > 4 or UNFINISHED not in gold)
        ]
        kept = up_to_stop(0, ids, stop_of(reader, golds))
        found, cut = (score_outputs([o], [golds], SCORES[score]) for o in (whole, reader._output(kept).text))
        assert found == cut
        amounts["right"] += found == [1.0]
        amounts["cut"] += len(kept) < len(ids)

    holds()
    assert min(amounts.values()) > 3, amounts


def test_a_character_may_take_several_tokens(folders: dict[str, str]) -> None:
    reader: Any = make_reader(ReaderConfig(kind="stop_causal", model=folders["bytes"], score="exact_match"))
    ids = reader.tokenizer.convert_tokens_to_ids(["<0xEC>", "<0x84>", "<0x9C>"])  # 서
    assert not any(stop_of(reader, ["서"])(0, ids[:length]) for length in range(4))
    stop = stop_of(reader, ["é"])
    assert [stop(0, ids[:length]) for length in range(4)] == [False, False, False, True]
    # what cannot be told from a character that is not complete is never given up
    assert not stop_of(reader, ["\N{REPLACEMENT CHARACTER}"])(0, ids)


def test_a_tokenizer_that_takes_blanks_back_is_read_to_the_end(folders: dict[str, str]) -> None:
    reader: Any = make_reader(ReaderConfig(kind="stop_fid", model=folders["fid"], score="accuracy"))
    assert reader.stop([]) is not None
    reader.tokenizer.clean_up_tokenization_spaces = True
    assert reader.stop([]) is None


# --- real models ---


def golds_for(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """For a third of the outputs themselves, for a third how they start, for a third what another request gave."""
    halves = [" ".join(text.split()[:1]) for text in texts]
    choices = [texts, halves, [*texts[7:], *texts[:7]]]
    return [(choices[place % 3][place] or "x", "whale oil") for place in range(len(texts))]


@pytest.mark.parametrize("score", ["exact_match", "accuracy"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_those_of_whole_outputs(folders: dict[str, str], kind: str, score: str) -> None:
    requests = models.some_requests(60)
    whole = models.outputs(models.loaded(kind, folders[kind]), requests)
    golds = golds_for([text for text, _ in whole])
    asked = [request._replace(golds=own) for request, own in zip(requests, golds, strict=True)]
    found = models.outputs(models.loaded(f"stop_{kind}", folders[kind], score=score), asked)
    labels, own = (score_outputs([text for text, _ in o], golds, SCORES[score]) for o in (whole, found))
    assert labels == own
    assert 10 < sum(filter(None, labels)) < 50
    assert sum(count for _, count in found) < 0.8 * sum(count for _, count in whole)
    # what a row gives does not hang on the rows beside it
    alone = models.outputs(models.loaded(f"stop_{kind}", folders[kind], score=score, batch_size=1), asked)
    assert alone == found


@pytest.mark.parametrize("kind", ["fid", "causal"])
def test_steps_are_saved(folders: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [request._replace(golds=("no output starts so",)) for request in models.some_requests(16)]
    steps: list[str] = []
    step = t5_engine._Run.step
    monkeypatch.setattr(
        t5_engine._Run, "step", lambda run, number: (steps.append(run.engine.kind), step(run, number))
    )
    for name in (kind, f"stop_{kind}"):
        reader: Any = models.loaded(name, folders[kind], score="accuracy", batch_size=8)
        output = reader.model.get_output_embeddings()
        output.register_forward_hook(lambda *_, name=name: steps.append(name))
        if kind == "fid":
            reader.engine.kind = name
        models.outputs(reader, requests)
    assert 0 < steps.count(f"stop_{kind}") < steps.count(kind) / 2


def by_hand(reader: Any, prompt: Any, gold: tuple[int, ...]) -> float:
    """The log-probability of a verdict and its end, by the model's own forward pass."""
    with torch.no_grad():
        if reader.settings.is_encoder_decoder:
            states = [
                reader.model.encoder(input_ids=torch.tensor([segment])).last_hidden_state
                for segment in prompt.segments
            ]
            inputs = torch.tensor([[0, *gold]])
            logits = reader.model(encoder_outputs=(torch.cat(states, 1),), decoder_input_ids=inputs).logits[0]
            ends = list(reader.end)
        else:
            ids = torch.tensor([[*prompt.segments[0], *gold]])
            logits = reader.model(input_ids=ids).logits[0, len(prompt.segments[0]) - 1 :]
            ends = sorted(reader._ends)
    chances = logits.double().log_softmax(dim=1)
    return float(sum(chances[i, id_] for i, id_ in enumerate(gold)) + chances[len(gold), ends].logsumexp(0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_is_the_likelier_one(folders: dict[str, str], kind: str) -> None:
    reader = models.loaded(f"classify_{kind}", folders[kind], family="claim", batch_size=5, max_new_tokens=30)
    prompts = reader.encode(models.some_requests(30))
    found = [output.text for output in reader.generate(prompts)]
    for prompt, verdict in zip(prompts, found, strict=True):
        sums = [by_hand(reader, prompt, gold) for gold in prompt.golds]
        assert len(sums) == 2
        assert not math.isclose(*sums, abs_tol=1e-3)
        assert verdict == VERDICTS["claim"][sums.index(max(sums))]
    assert set(found) == {*VERDICTS["claim"]}


# --- who is asked ---


def test_the_reader_for_a_score_alone_is_another_one(folders: dict[str, str]) -> None:
    # the score is the dataset's, whatever a config says
    config = ReaderConfig(kind="fid", model=folders["fid"], score="rouge_l_kilt")
    asked: dict[tuple[str, str], ReaderConfig | None] = {
        (name, how): score_only_of(config, DATASETS[name], how)
        for name in ("nq", "fever", "wow")
        for how in ("early_stop", "classification")
    }
    kinds = {key: own and (own.kind, own.score) for key, own in asked.items()}
    assert kinds["nq", "early_stop"] == kinds["nq", "classification"] == ("stop_fid", "exact_match")
    assert kinds["fever", "early_stop"] == ("stop_fid", "accuracy")
    assert kinds["fever", "classification"] == ("classify_fid", "accuracy")
    assert kinds["wow", "early_stop"] is kinds["wow", "classification"] is None
    readers = [make_reader(own) for own in (config, *asked.values()) if own]
    assert len({reader_id(reader) for reader in readers}) == 4
    assert [reader.sees_golds for reader in readers] == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "stop_fid", "score": "token_f1"}, "token_f1 cannot be told before the output is whole"),
        ({"kind": "stop_fid", "score": "typo"}, "unknown score 'typo'"),
        ({"kind": "stop_fid"}, "unknown score ''"),
        ({"kind": "classify_fid", "family": "dialogue"}, "is for questions of family claim, not dialogue"),
        ({"kind": "classify_fid", "family": "claim", "max_new_tokens": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_read_for_a_score_alone_is_refused(
    folders: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        make_reader(ReaderConfig(model=folders["fid"], **changes))


def test_verdicts_that_start_alike_need_room(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERDICTS, "claim", ("yes yes", "yes no"))
    config = ReaderConfig(kind="classify_fid", model=folders["fid"], family="claim", max_new_tokens=1)
    with pytest.raises(InputError, match="max_new_tokens: 1 are too few to tell answers apart"):
        make_reader(config)
    assert make_reader(dataclasses.replace(config, max_new_tokens=9))


def test_a_reader_that_cannot_is_told_before_anything_is_read(tiny: Tiny) -> None:
    with pytest.raises(
        InputError, match="score_only: echo cannot read for a score alone; fid, ipa, causal can"
    ):
        prepare(tiny.with_config(score_only="early_stop").config, check_reader)


def test_an_unknown_score_is_one_message(tiny: Tiny, tmp_path: pathlib.Path) -> None:
    reader = ReaderConfig(kind="fid", model=models.t5_folder(tmp_path / "t5"))
    with pytest.raises(InputError, match="unknown score 'typo'"):
        prepare(tiny.with_config(score_only="early_stop", score="typo", reader=reader).config, check_reader)


# --- whole jobs ---


@pytest.fixture
def real(tiny: Tiny, tmp_path: pathlib.Path) -> Tiny:
    """The tiny comparison by a real reader, whose answers to some documents are the golds."""
    reader = ReaderConfig(kind="fid", model=models.t5_folder(tmp_path / "t5"), max_new_tokens=6)
    loaded = models.loaded("fid", reader.model or "", max_new_tokens=6)
    documents = ["d1", "d4", "d5", "d7", "d9", "d10"]
    requests = [
        Request(question, (Passage(*PASSAGES[doc][1:]),))
        for (question, _, _), doc in zip(QUESTIONS.values(), documents, strict=True)
    ]
    golds = [text for text, _ in models.outputs(loaded, requests)]
    rows = zip(QUESTIONS.items(), golds, strict=True)
    tiny.queries.write_text(
        "".join(kilt_line(name, question, gold, page) for (name, (question, _, page)), gold in rows)
    )
    return tiny.with_config(reader=reader, annotators=["erag", "gain", "provenance"])


def stored(some: Tiny, kind: str) -> int:
    """Readings in the store by readers of a kind."""
    names = {path.name for path in pathlib.Path(some.config.store).rglob(f"{kind}-*") if path.is_dir()}
    return sum(ReadingStore(some.config.store, name).keys().height for name in names)


def test_a_job_by_early_stop_has_the_same_tables(
    real: Tiny, reads_here: list[int], tmp_path: pathlib.Path
) -> None:
    compare(real)
    other = real.with_config(
        score_only="early_stop", out=str(tmp_path / "other"), store=str(tmp_path / "others")
    )
    compare(other)
    assert_frame_equal(table(real, LABELS), table(other, LABELS))
    assert_frame_equal(table(real, UTILITY), table(other, UTILITY))
    assert 0 < table(real, LABELS, annotator="erag")["label"].sum() < 12
    assert stored(other, "stop_fid") == table(other, LABELS, annotator="erag").height + len(QUESTIONS)
    assert stored(other, "fid") < stored(real, "fid")
    assert stored(real, "stop_fid") == 0
    inputs = prepare(other.config, check_reader)
    assert [row["new"] for plan in plan_others(other.config, inputs) for row in plan.counts] == [0, 0]


def test_labels_alone_need_no_whole_output(real: Tiny, reads_here: list[int], tmp_path: pathlib.Path) -> None:
    some = real.with_config(score_only="early_stop")
    inputs = prepare(some.config, check_reader)
    plan = plan_stage(some.config, inputs, "annotate", alone=True, together=False)
    done = run_stage(some.config, plan)
    label(some.config, inputs, alone(done), run_others(some.config, plan_others(some.config, inputs)))
    found = table(some, LABELS)
    assert stored(some, "fid") == 0
    whole = real.with_config(out=str(tmp_path / "other"))
    compare(whole)
    assert_frame_equal(table(whole, LABELS), found)
    pairs = inputs.runs.select("query_id", doc_ids=pl.concat_list("doc_id")).unique()
    (settling,) = plan_labels(some.config, inputs, "settle", pairs).plans
    assert settling.id.startswith("stop_fid-")
    assert settling.new.is_empty()


def test_labels_made_in_another_way_are_not_evaluated(real: Tiny, reads_here: list[int]) -> None:
    compare(real)
    with pytest.raises(InputError, match="labels were made with another score_only"):
        evaluate(real.with_config(score_only="early_stop").config, prepared(real.config))


def test_a_dataset_whose_score_needs_whole_outputs_is_read_as_ever(real: Tiny, reads_here: list[int]) -> None:
    some = real.with_config(score="token_f1", score_only="early_stop", threshold=0.5)
    inputs = prepare(some.config, check_reader)
    assert plan_others(some.config, inputs) == []
    asks = plan_stage(some.config, inputs, "annotate", alone=True, together=False).asks
    assert asks.height == inputs.runs.select("query_id", "doc_id").n_unique() + len(QUESTIONS)


def test_a_job_of_claims_says_how_often_the_verdict_is_what_the_reader_writes(
    real: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = real.with_config(dataset="fever", annotators=["erag"])
    monkeypatch.setitem(VERDICTS, "claim", tuple(gold_texts(real)[:2]))
    compare(claims)
    whole = table(claims, LABELS)
    chosen = claims.with_config(score_only="classification")
    compare(chosen)
    found = table(chosen, LABELS)
    assert found["reader"].unique().to_list() == whole["reader"].unique().to_list()
    assert found.height == whole.height == stored(chosen, "classify_fid")
    summary = TableStore(f"{chosen.config.out}").folder.read_bytes("score_only", "manifest.json").decode()
    assert f" of {whole.height} readings known of both" in summary
    assert "chose what the reader writes in" in pathlib.Path(chosen.config.out, "report.md").read_text()


def gold_texts(some: Tiny) -> list[str]:
    queries = prepare(some.config).queries
    return queries["answers"].list.first().unique(maintain_order=True).to_list()


# --- titles ---


def titles_of(plan: StagePlan) -> set[str]:
    """The titles in everything that a stage reads."""
    requests = [part.make_requests(part.new) for part in plan.plans]
    return {title for table in requests for titles in table.column("titles").to_pylist() for title in titles}


@pytest.mark.parametrize("score_only", [None, "early_stop"])
def test_hidden_titles_are_hidden_in_every_stage_but_the_judges(
    real: Tiny, folders: dict[str, str], score_only: Any
) -> None:
    judged = real.with_config(
        annotators=["erag", "gold_likelihood", "gain", "llm_relevance_graded"],
        score_only=score_only,
        judge=JudgeConfig(model=folders["causal"], scale="grades"),
    )
    hidden = judged.with_config(reader=dataclasses.replace(real.config.reader, titles=False))
    seen, readers = {}, {}
    for name, some in (("shown", judged), ("hidden", hidden)):
        inputs = prepare(some.config, check_reader)
        plans = [plan_stage(some.config, inputs, "compare", alone=True, together=True)]
        plans += plan_others(some.config, inputs)
        seen[name] = {plan.stage: titles_of(plan) for plan in plans}
        readers[name] = {part.id for plan in plans if plan.stage != "judge" for part in plan.plans}
    stages = ["compare", "judge", "likelihood", *(["score_only"] if score_only else [])]
    assert list(seen["shown"]) == list(seen["hidden"]) == stages
    assert "" not in set().union(*seen["shown"].values())
    everything = seen["shown"]["judge"]
    assert seen["hidden"] == {stage: everything if stage == "judge" else {""} for stage in stages}
    assert len(readers["shown"] | readers["hidden"]) == 2 * len(readers["shown"])


@pytest.mark.parametrize("kind", KINDS)
def test_readings_with_and_without_titles_never_mix(
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
    (name,) = table(hidden, LABELS, annotator="erag")["reader"].unique()
    reader = models.loaded(kind, folders[kind], max_new_tokens=6, titles=False)
    documents = RUNS["good"]["q2"].split()
    requests = [
        *(Request(QUESTIONS["q2"][0], (Passage("", PASSAGES[doc][2]),)) for doc in documents),
        Request(QUESTIONS["q2"][0], tuple(Passage("", PASSAGES[doc][2]) for doc in documents)),
    ]
    asks = plan_stage(hidden.config, prepared(hidden.config), "compare", alone=True, together=True).asks
    keys = asks.filter(query_id="q2").select("doc_ids", "question_key", "passages_key").rows()
    key_of = {tuple(doc_ids): tuple(key) for doc_ids, *key in keys}
    readings, _ = ReadingStore(hidden.config.store, name).lookup(asks.select("question_key", "passages_key"))
    texts = {row[:2]: row[2] for row in readings.select("question_key", "passages_key", "output").rows()}
    lists = [*((doc,) for doc in documents), tuple(documents)]
    assert [texts[key_of[one]] for one in lists] == [text for text, _ in models.outputs(reader, requests)]
    # and back: nothing is read again, nothing changes
    compare(shown)
    assert sum(reads_here) == 2 * num_before
    assert_same(results(shown), before)


def test_worked_examples_have_no_titles_either(folders: dict[str, str]) -> None:
    request = Request("Who?", (Passage("", "A text."),))
    prompts = {}
    for titles in (True, False):
        reader: Any = make_reader(ReaderConfig(kind="causal", model=folders["causal"], titles=titles))
        (prompt,) = reader.encode([request])
        prompts[titles] = reader.tokenizer.decode(prompt.segments[0])
    assert prompts[True].count("Passage: (") == 2
    assert prompts[False].count("Passage: ") == 3
    assert "Passage: (" not in prompts[False]


def test_shown_titles_leave_the_fingerprint_as_it_was() -> None:
    # the id of this reader before there was the key
    assert reader_id(make_reader(ReaderConfig(kind="echo"))) == "echo-885b8b709d5697ea"
    assert reader_id(make_reader(ReaderConfig(kind="echo", titles=False))) != "echo-885b8b709d5697ea"
    assert "titles" not in output_settings(ReaderConfig())
    assert output_settings(ReaderConfig(titles=False))["titles"] is False
