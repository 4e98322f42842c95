"""How likely the gold answers are, and what documents gain: against a model's own numbers, by hand, in a job."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import models
import polars as pl
import pytest
import torch
from tiny import PASSAGES, QUESTIONS, Tiny, compare, table

from erag_ray.annotators import Evidence, annotate
from erag_ray.config import ReaderConfig
from erag_ray.measures import compute, own_ideal
from erag_ray.prompts import Passage
from erag_ray.readers import Request, likelihood_of, make_reader, reader_id
from erag_ray.readers.likelihood import Asked
from erag_ray.schemas import CORRELATIONS, LABELS, LIST_VALUES, InputError, JobError
from erag_ray.steps.inputs import prepare
from erag_ray.steps.planning import check_reader, plan_others, plan_stage
from erag_ray.steps.reading import alone, run_stage

GOLDS = ("whale oil", "Ada Brunner of Graz", "1874")
REQUESTS = [
    request._replace(golds=GOLDS[: 1 + place % 3])
    for place, request in enumerate(models.some_requests(12, seed=4))
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    t5 = models.t5_folder(tmp_path_factory.mktemp("t5"))
    causal = models.causal_folder(tmp_path_factory.mktemp("causal"))
    bloom = models.causal_folder(tmp_path_factory.mktemp("bloom"), kind="bloom", n_layer=2, n_head=4)
    return {"fid": t5, "ipa": t5, "causal": causal, "bloom": bloom}


def likelihood(kind: str, folder: str, **settings: Any) -> Any:
    return models.loaded(f"likelihood_{kind}", folder, **settings)


def by_hand(reader: Any, prompt: Any, gold: tuple[int, ...], ends: list[int]) -> float:
    """Exp of the mean log-probability, one gold and one prompt at a time, in double precision."""
    with torch.no_grad():
        if hasattr(reader.model, "get_encoder") and reader.settings.is_encoder_decoder:
            encoder = reader.model.get_encoder()
            states = [encoder(input_ids=torch.tensor([s])).last_hidden_state for s in prompt.segments]
            logits = reader.model(
                encoder_outputs=(torch.cat(states, dim=1),), decoder_input_ids=torch.tensor([[0, *gold]])
            ).logits[0]
        else:
            ids = torch.tensor([[*prompt.segments[0], *gold]])
            logits = reader.model(input_ids=ids).logits[0, len(prompt.segments[0]) - 1 :]
    chances = torch.softmax(logits.double(), dim=1)
    steps = [float(chances[step, id_]) for step, id_ in enumerate(gold)]
    if len(gold) < reader.max_new_tokens:
        steps.append(float(chances[len(gold), ends].sum()))
    return math.prod(steps) ** (1 / len(steps))


@pytest.mark.parametrize("name", ["fid", "ipa", "causal", "bloom"])
def test_the_likelihood_is_the_best_golds_geometric_mean_probability(
    folders: dict[str, str], name: str
) -> None:
    kind = "causal" if name == "bloom" else name
    reader = likelihood(kind, folders[name], batch_size=5)
    ends = sorted(reader._ends) if kind == "causal" else list(reader.end)
    prompts = reader.encode(REQUESTS)
    for prompt, output in zip(prompts, reader.generate(prompts), strict=True):
        wanted = max(by_hand(reader, prompt, gold, ends) for gold in prompt.golds)
        assert float(output.text) == pytest.approx(wanted, rel=2e-4)
        assert output.num_tokens == sum(map(len, prompt.golds))
    assert len({output.text for output in reader.generate(prompts)}) > 8


@pytest.mark.parametrize("kind", ["fid", "causal"])
def test_an_answer_longer_than_an_output_is_cut_and_has_no_end(folders: dict[str, str], kind: str) -> None:
    reader = likelihood(kind, folders[kind], max_new_tokens=2)
    (prompt,) = reader.encode([Request("Who?", (Passage("", "The sea."),), ("Ada Brunner of Graz",))])
    assert [len(gold) for gold in prompt.golds] == [2]
    (output,) = reader.generate([prompt])
    assert float(output.text) == pytest.approx(by_hand(reader, prompt, prompt.golds[0], []), rel=2e-4)


@pytest.mark.parametrize(("prompt", "blank"), [("plain", " "), ("chat", "")])
def test_an_answer_begins_as_the_reader_would_write_it(
    folders: dict[str, str], prompt: str, blank: str
) -> None:
    reader = likelihood("causal", folders["causal"], prompt=prompt)
    (made,) = reader.encode([Request("Who?", (), ("Ada Brunner",))])
    assert reader.tokenizer.decode(made.golds[0]) == f"{blank}Ada Brunner"


@pytest.mark.parametrize("kind", ["fid", "causal"])
def test_many_golds_of_a_long_prompt_are_no_larger_batch(folders: dict[str, str], kind: str) -> None:
    reader = likelihood(kind, folders[kind], batch_tokens=200)
    golds = tuple(f"{number}" for number in range(1000, 1040))
    request = Request("Who?", (Passage("", "The sea. " * 12),), golds)
    prompts = reader.encode([request])
    asked = [Asked(0, gold) for gold in prompts[0].golds]
    sizes = [len(rows) for rows in reader.batched(asked, prompts)]
    assert sum(sizes) == len(asked)
    assert max(sizes) * prompts[0].num_tokens <= 200
    (whole,) = likelihood(kind, folders[kind]).generate(prompts)
    assert float(reader.generate(prompts)[0].text) == pytest.approx(float(whole.text), rel=1e-4)


def test_golds_are_text_and_part_of_what_is_asked(folders: dict[str, str]) -> None:
    reader = likelihood("fid", folders["fid"])
    (prompt,) = reader.encode([Request("Who?", (), ("</s>",))])
    assert not set(prompt.golds[0]) & set(reader.pieces.control_ids)
    plain = make_reader(ReaderConfig(kind="fid", model=folders["fid"]))
    asked = make_reader(likelihood_of(plain.config))
    assert asked.sees_golds
    assert reader_id(plain) != reader_id(asked)


def test_what_cannot_say_how_likely_an_answer_is_is_told_before_anything_is_read(tiny: Tiny) -> None:
    some = tiny.with_config(annotators=["gold_likelihood"])
    with pytest.raises(InputError, match="echo cannot say how likely an answer is; fid, ipa, causal can"):
        prepare(some.config, check_reader)


def test_what_is_no_probability_is_no_likelihood(folders: dict[str, str]) -> None:
    reader = likelihood("fid", folders["fid"])
    with torch.no_grad():
        reader.model.get_output_embeddings().weight.fill_(math.nan)
    with pytest.raises(JobError, match="gives no probability in float32; choose another reader"):
        reader.generate(reader.encode(REQUESTS[:1]))


def evidence(**changes: Any) -> Evidence:
    """One question with documents that help (a), change nothing (b) and do harm (c) to an answer half right."""
    said = {"query_id": "q", "reader": "r"}
    readings = [("a", "one two"), ("b", "two"), ("c", "nine"), (None, "two")]
    given = {
        "pairs": pl.DataFrame({"query_id": ["q"] * 3, "doc_id": ["a", "b", "c"]}),
        "queries": pl.DataFrame({"query_id": ["q"], "score": ["token_f1"], "answers": [["one two"]]}),
        "corpus": pl.DataFrame(),
        "provenance": pl.DataFrame(schema={"query_id": pl.String, "page_id": pl.String}),
        "readings": pl.DataFrame([{**said, "doc_id": doc, "output": output} for doc, output in readings]),
        "likelihoods": pl.DataFrame(
            [("q", "a", 0.75), ("q", "b", 0.5), ("q", "c", None), ("q", None, 0.5)],
            schema=["query_id", "doc_id", "likelihood"],
            orient="row",
        ),
    }
    return Evidence(**{**given, **changes})


def labels_of(name: str, given: Evidence) -> dict[str, float | None]:
    made = pl.DataFrame(annotate(name, given))
    return dict(made.select("doc_id", "label").iter_rows())


def test_gains_are_over_the_closed_book_answer() -> None:
    assert labels_of("gain", evidence()) == pytest.approx({"a": 1 / 3, "b": 0.0, "c": -2 / 3})
    assert labels_of("gold_likelihood", evidence()) == {"a": 0.75, "b": 0.5, "c": None}
    assert labels_of("gain_likelihood", evidence()) == {"a": 0.25, "b": 0.0, "c": None}
    made = pl.DataFrame(annotate("gain", evidence()))
    assert made.select("reader", "score").unique().rows() == [("r", "token_f1")]
    assert pl.DataFrame(annotate("gold_likelihood", evidence()))["reader"].unique().to_list() == ["r"]


def test_a_closed_book_answer_that_failed_leaves_no_gain() -> None:
    given = evidence()
    assert given.readings is not None
    failed = given.readings.with_columns(output=pl.when(pl.col("doc_id").is_not_null()).then("output"))
    assert labels_of("gain", evidence(readings=failed)) == {"a": None, "b": None, "c": None}


@pytest.mark.parametrize(
    ("name", "frame", "message"),
    [
        ("gain", "readings", "query 'q' was not read without documents"),
        ("gain_likelihood", "likelihoods", "query 'q' was not read without documents"),
    ],
)
def test_a_gain_without_a_closed_book_answer_is_refused(name: str, frame: str, message: str) -> None:
    given = evidence()
    known = getattr(given, frame).filter(pl.col("doc_id").is_not_null())
    with pytest.raises(ValueError, match=message):
        annotate(name, evidence(**{frame: known}))
    with pytest.raises(ValueError, match=f"needs {frame}, and the evidence has none"):
        annotate(name, evidence(**{frame: None}))


def test_a_pair_without_likelihood_is_a_fault() -> None:
    given = evidence()
    assert given.likelihoods is not None
    with pytest.raises(ValueError, match=r"1 pairs lack a likelihood, such as .*'c'"):
        annotate("gold_likelihood", evidence(likelihoods=given.likelihoods.filter(pl.col("doc_id") != "c")))


def test_gains_fold_by_mean_largest_and_share_harmful() -> None:
    lists = own_ideal([[0.5, -0.25, 0.0], [-0.5, -0.25, 0.0], [0.0, 0.0, 0.0]], [3, 2, 0])  # type: ignore[arg-type]
    assert compute("P", lists, 2) == pytest.approx([0.125, -0.375, 0])
    assert compute("Success", lists, 2) == pytest.approx([0.5, -0.25, 0])
    # behind the end of a list there is no document: neither gain nor harm
    assert compute("Success", lists, 3) == pytest.approx([0.5, 0, 0])
    assert compute("Harmful", lists, 3) == pytest.approx([1 / 3, 2 / 3, 0])
    with pytest.raises(ValueError, match="the labels are signed, and nDCG have no meaning for them"):
        compute("nDCG", lists, 3)


def test_a_job_with_likelihoods_and_gains(tiny: Tiny, reads_here: list[int], tmp_path: pathlib.Path) -> None:
    reader = ReaderConfig(kind="fid", model=models.t5_folder(tmp_path / "t5"), max_new_tokens=6)
    names = ["erag", "gold_likelihood", "gain", "gain_likelihood"]
    some = tiny.with_config(annotators=names, reader=reader)
    compare(some)
    labels = table(some, LABELS)
    assert set(labels["annotator"]) == set(names)
    likely = {
        (row["query_id"], row["doc_id"]): row["label"]
        for row in table(some, LABELS, annotator="gold_likelihood").iter_rows(named=True)
    }
    asked = models.loaded("likelihood_fid", reader.model or "", max_new_tokens=6)
    question, answer, _ = QUESTIONS["q2"]
    _, title, text = PASSAGES["d3"]
    (output,) = asked.generate(asked.encode([Request(question, (Passage(title, text),), (answer,))]))
    assert likely["q2", "d3"] == pytest.approx(float(output.text), rel=1e-4)
    assert len(set(likely.values())) > 5
    gains = table(some, LABELS, annotator="gain_likelihood")["label"]
    assert gains.is_between(-1, 1).all()
    assert {*table(some, LIST_VALUES, annotator="gain")["measure"]} == {"P", "Success", "Harmful"}
    assert {*table(some, CORRELATIONS)["annotator"]} == set(names)
    (again,) = plan_others(some.config, prepare(some.config, check_reader))
    assert [row["new"] for row in again.counts] == [0, 0]


def test_other_golds_are_asked_again(tiny: Tiny, reads_here: list[int], tmp_path: pathlib.Path) -> None:
    reader = ReaderConfig(kind="fid", model=models.t5_folder(tmp_path / "t5"), max_new_tokens=6)
    some = tiny.with_config(annotators=["gold_likelihood"], reader=reader)
    inputs = prepare(some.config, check_reader)
    (plan,) = plan_others(some.config, inputs)
    run_stage(some.config, plan)
    text = some.queries.read_text()
    some.queries.write_text(text.replace("Ada Brunner", "Bea Brunner"))
    inputs = prepare(some.config, check_reader)
    (other,) = plan_others(some.config, inputs)
    of_q1 = other.asks.filter(query_id="q1").height
    assert [row["new"] for row in other.counts] == [of_q1]
    read = plan_stage(some.config, inputs, "annotate", alone=True, together=False)
    assert read.asks.height == other.asks.height
    assert alone(run_stage(some.config, other)).height == other.asks.height
