"""How likely the gold answers are, and what documents gain: against a model's own numbers, by hand, in a job."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import models
import polars as pl
import pytest
import torch
from gold import gold_of
from tiny import PASSAGES, QUESTIONS, Tiny, compare, table

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.useful_documents import harm_notes, harm_warnings
from erag_ray.annotators import Evidence, annotate, closed_book_answers, likelihood_noise, unrelated_pairs
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.planning.uses import check_reader
from erag_ray.inputs.evidence import evidence_of
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.measures.lists import compute, list_ideal
from erag_ray.models import Model
from erag_ray.models.local.likelihood import batched, rows_of
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Case
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.prompts.request import Passage, Request, question_key
from erag_ray.store.schemas import LABELS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError

GOLDS = ("whale oil", "Ada Brunner of Graz", "1874")


def some_requests(case: Case, num: int = 12) -> list[Request]:
    """How likely one, two or three gold answers are, after varied prompts."""
    made = models.some_requests(GOLD_LIKELIHOOD.build(case), num, seed=4)
    return [
        GOLD_LIKELIHOOD.request(case, request.question, request.passages, GOLDS[: 1 + place % 3])
        for place, request in enumerate(made)
    ]


def likelihoods(model: Model, requests: Sequence[Request]) -> list[float]:
    """What the model's responses come to, in the order of the requests."""
    assert GOLD_LIKELIHOOD.fold is not None
    found = dict(model.run(requests))
    values = [GOLD_LIKELIHOOD.fold(request.answers, found[place]) for place, request in enumerate(requests)]
    return [float(value) for value in values if value is not None]


@pytest.fixture(scope="module")
def folders(folders: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    bloom = models.causal_folder(tmp_path_factory.mktemp("bloom"), kind="bloom", n_layer=2, n_head=4)
    return {**folders, "bloom": bloom}


def chances_by_hand(model: Any, prompt: Any, answer: Sequence[int]) -> torch.Tensor:
    """Log-probabilities of all tokens after each start of an answer, [len(answer) + 1, vocab], in double precision."""
    with torch.no_grad():
        if model.settings.is_encoder_decoder:
            encoder = model.model.get_encoder()
            states = [encoder(input_ids=torch.tensor([s])).last_hidden_state for s in prompt.segments]
            inputs = torch.tensor([[0, *answer]])
            logits = model.model(
                encoder_outputs=(torch.cat(states, dim=1),), decoder_input_ids=inputs
            ).logits[0]
        else:
            ids = torch.tensor([[*prompt.segments[0], *answer]])
            logits = model.model(input_ids=ids).logits[0, len(prompt.segments[0]) - 1 :]
    return logits.double().log_softmax(dim=1)


def by_hand(model: Any, prompt: Any, answer: tuple[int, ...], ends: Sequence[int]) -> float:
    """Exp of the mean log-probability, one answer and one prompt at a time, in double precision."""
    chances = chances_by_hand(model, prompt, answer).exp()
    steps = [float(chances[step, id_]) for step, id_ in enumerate(answer)]
    if len(answer) < prompt.form.max_new_tokens:
        steps.append(float(chances[len(answer), ends].sum()))
    return math.prod(steps) ** (1 / len(steps))


@pytest.mark.parametrize("name", ["fid", "ipa", "causal", "bloom"])
def test_the_likelihood_is_the_best_golds_geometric_mean_probability(
    folders: dict[str, str], name: str
) -> None:
    kind = "causal" if name == "bloom" else name
    model, requests = models.loaded(kind, folders[name], batch_size=5), some_requests(models.case_for(kind))
    ends = sorted(model.ends(requests[0].form))
    found, responses = likelihoods(model, requests), dict(model.run(requests))
    for place, prompt in enumerate(model.render(requests)):
        wanted = max(by_hand(model, prompt, answer, ends) for answer in prompt.answer_ids)
        assert found[place] == pytest.approx(wanted, rel=2e-4)
        assert responses[place].num_output_tokens == sum(map(len, prompt.answer_ids))
    assert len(set(found)) > 8


@pytest.mark.parametrize("kind", ["fid", "causal"])
def test_an_answer_longer_than_an_output_is_cut_and_has_no_end(folders: dict[str, str], kind: str) -> None:
    model, case = models.loaded(kind, folders[kind]), models.case_for(kind, max_new_tokens=2)
    request = GOLD_LIKELIHOOD.request(case, "Who?", (Passage("", "The sea."),), ("Ada Brunner of Graz",))
    (prompt,) = model.render([request])
    assert [len(answer) for answer in prompt.answer_ids] == [2]
    (found,) = likelihoods(model, [request])
    assert found == pytest.approx(by_hand(model, prompt, prompt.answer_ids[0], []), rel=2e-4)


@pytest.mark.parametrize(("prompt", "blank"), [("plain", " "), ("chat", "")])
def test_an_answer_begins_as_the_reader_would_write_it(
    folders: dict[str, str], prompt: str, blank: str
) -> None:
    model = models.loaded("causal", folders["causal"])
    request = GOLD_LIKELIHOOD.request(models.case_for("causal", prompt=prompt), "Who?", (), ("Ada Brunner",))
    (made,) = model.render([request])
    assert model.tokenizer.decode(made.answer_ids[0]) == f"{blank}Ada Brunner"


@pytest.mark.parametrize("kind", ["fid", "causal"])
def test_many_golds_of_a_long_prompt_are_no_larger_batch(folders: dict[str, str], kind: str) -> None:
    model, case = models.loaded(kind, folders[kind], batch_tokens=200), models.case_for(kind)
    gold_answers = tuple(f"{number}" for number in range(1000, 1040))
    request = GOLD_LIKELIHOOD.request(case, "Who?", (Passage("", "The sea. " * 12),), gold_answers)
    prompts = model.render([request])
    rows = rows_of(prompts)
    assert len(rows) == len(gold_answers)
    sizes = [len(part) for part in batched(rows, prompts, model.limits(request.form))]
    assert sum(sizes) == len(rows)
    assert max(sizes) * prompts[0].num_tokens <= 200
    (whole,) = likelihoods(models.loaded(kind, folders[kind]), [request])
    assert likelihoods(model, [request]) == pytest.approx([whole], rel=1e-4)


def test_golds_are_text_and_part_of_what_is_asked(folders: dict[str, str]) -> None:
    model, case = models.loaded("fid", folders["fid"]), models.case_for("fid")
    request = GOLD_LIKELIHOOD.request(case, "Who?", (), ("</s>",))
    (prompt,) = model.render([request])
    assert not set(prompt.answer_ids[0]) & set(model.pieces.control_ids)
    other = GOLD_LIKELIHOOD.request(case, "Who?", (), ("Ada",))
    plain = [ANSWER.request(case, "Who?", (), gold_answers) for gold_answers in (("</s>",), ("Ada",))]
    assert plain[0] == plain[1]
    keys = {question_key(one.form, one.question, one.answers) for one in (request, other, *plain)}
    assert len(keys) == 3


def test_what_is_no_probability_is_no_likelihood(folders: dict[str, str]) -> None:
    model = models.loaded("fid", folders["fid"])
    with torch.no_grad():
        model.model.get_output_embeddings().weight.fill_(math.nan)
    with pytest.raises(JobError, match="in float32 are NaN; choose another dtype"):
        likelihoods(model, some_requests(models.case_for("fid"), 1))


LIKELIHOODS = {"a": 0.75, "b": 0.2, "c": 0.03, "d": None, None: 0.5, "u1": 0.05, "u2": 0.1, "u3": 0.2}
UNRELATED = pl.DataFrame({"query_id": ["q"] * 3, "doc_id": ["u1", "u2", "u3"]})
ANSWERS = {"a": "one two", "b": "two", "c": "nine", "d": None, None: "two"}
Unrelated = Callable[[pl.DataFrame], None]


@pytest.fixture
def are_unrelated(monkeypatch: pytest.MonkeyPatch) -> Unrelated:
    """Says which documents are unrelated to which question, where gains are counted from evidence made here."""

    def say(found: pl.DataFrame) -> None:
        monkeypatch.setattr("erag_ray.annotators.gains.unrelated_pairs", lambda evidence: found)

    return say


def values_of(rows: Sequence[tuple[str, str | None, Any]], value: Any) -> pl.DataFrame:
    """What was folded, of one reader."""
    schema = {"query_id": pl.String, "doc_id": pl.String, "value": value}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(reader=pl.lit("r"))


def evidence(**changes: Any) -> Evidence:
    """One question with documents that help (a), change nothing (b) and do harm (c), and one that failed (d)."""
    given = {
        "pairs": pl.DataFrame({"query_id": ["q"] * 4, "doc_id": ["a", "b", "c", "d"]}),
        "queries": pl.DataFrame(
            {"query_id": ["q"], "dataset": ["set"], "score": ["token_f1"], "answers": [["one two"]]}
        ),
        "corpus": pl.DataFrame(),
        "provenance": gold_of(),
        "values": {
            ANSWER: values_of([("q", *row) for row in ANSWERS.items()], pl.String),
            GOLD_LIKELIHOOD: values_of([("q", *row) for row in LIKELIHOODS.items()], pl.Float64),
        },
    }
    return Evidence(**{**given, **changes})


def labels_of(name: str, given: Evidence) -> dict[str, float | None]:
    made = pl.DataFrame(annotate(name, given))
    return dict(made.select("doc_id", "label").iter_rows())


def test_gains_are_over_the_closed_book_answer() -> None:
    assert labels_of("gain", evidence()) == pytest.approx({"a": 1 / 3, "b": 0.0, "c": -2 / 3, "d": None})
    assert labels_of("gold_likelihood", evidence()) == {"a": 0.75, "b": 0.2, "c": 0.03, "d": None}
    made = pl.DataFrame(annotate("gain", evidence()))
    assert made.select("reader", "score").unique().rows() == [("r", "token_f1")]
    assert pl.DataFrame(annotate("gold_likelihood", evidence()))["reader"].unique().to_list() == ["r"]


def test_a_gain_of_likelihood_is_over_unrelated_documents_and_0_within_their_spread(
    are_unrelated: Unrelated,
) -> None:
    """u1, u2, u3: usually 0.1, and a factor of 2 apart.

    A fourth document lies farther from the mean of three than each of them does, in variance by (1 + 1/3) / (1 - 1/3):
    so the noise is 2 ** -sqrt(2) to 2 ** sqrt(2) times 0.1, from 0.0375 to 0.267.
    """
    factor = 2 ** math.sqrt(2)
    are_unrelated(UNRELATED)
    (noise,) = likelihood_noise(evidence()).to_dicts()
    assert noise == pytest.approx(
        {"dataset": "set", "low": -math.log(factor), "high": math.log(factor), "num_pairs": 3}
    )
    assert labels_of("gain_likelihood", evidence()) == pytest.approx(
        {"a": 0.65, "b": 0.0, "c": -0.07, "d": None}
    )
    # nothing is asked without documents
    without = evidence().of(GOLD_LIKELIHOOD).drop_nulls("doc_id")
    assert labels_of("gain_likelihood", evidence(values={GOLD_LIKELIHOOD: without}))["c"] == pytest.approx(
        -0.07
    )


def many(num_questions: int, spread: float, dataset: str = "set") -> dict[str, pl.DataFrame]:
    """Questions with two unrelated documents each, the second likelier by e ** (spread * number of the question)."""
    names = [f"{dataset}{number}" for number in range(1, num_questions + 1)]
    rows = [
        (name, doc, 0.001 * math.exp(spread * number * (doc == "v")))
        for number, name in enumerate(names, 1)
        for doc in ("u", "v")
    ]
    values = values_of(rows, pl.Float64)
    queries = pl.DataFrame({"query_id": names}).with_columns(
        dataset=pl.lit(dataset), score=pl.lit("exact_match"), answers=pl.lit([""], pl.List(pl.String))
    )
    return {"queries": queries, "values": values, "pairs": values.select("query_id", "doc_id")}


def noise_of(*parts: dict[str, pl.DataFrame], are_unrelated: Unrelated) -> pl.DataFrame:
    """The noise of some questions, all of whose documents are unrelated."""
    queries, values, found = (
        pl.concat([part[name] for part in parts]) for name in ("queries", "values", "pairs")
    )
    are_unrelated(found)
    return likelihood_noise(evidence(queries=queries, pairs=found, values={GOLD_LIKELIHOOD: values}))


@pytest.mark.parametrize(("num_questions", "outside"), [(1, 1), (19, 1), (39, 1), (40, 2), (100, 5)])
def test_the_noise_leaves_out_one_in_forty_at_either_end(
    num_questions: int, outside: int, are_unrelated: Unrelated
) -> None:
    noise = noise_of(many(num_questions, 0.01), are_unrelated=are_unrelated)
    # of two documents each lies half of their difference from the mean, a third one sqrt(3) times as far
    most = 0.01 * (num_questions + 1 - outside) / 2 * math.sqrt(3)
    assert noise.select("low", "high", "num_pairs").row(0) == pytest.approx((-most, most, 2 * num_questions))


def test_every_dataset_has_a_noise_of_its_own(are_unrelated: Unrelated) -> None:
    parts = [many(5, 0.01, "calm"), many(4, 0.5, "loud")]
    noise = noise_of(*parts, are_unrelated=are_unrelated)
    high = dict(noise.select("dataset", "high").iter_rows())
    assert high == pytest.approx({"calm": 0.025 * math.sqrt(3), "loud": math.sqrt(3)})


def test_without_unrelated_documents_there_is_no_gain_of_likelihood(are_unrelated: Unrelated) -> None:
    are_unrelated(UNRELATED.clear())
    assert labels_of("gain_likelihood", evidence()) == dict.fromkeys("abcd")
    noise = likelihood_noise(evidence())
    assert noise.rows() == [("set", None, None, 0)]
    (warning,) = harm_warnings([], noise.to_dicts())
    assert warning.startswith("set: gain_likelihood: there are no documents unrelated to a question")


QUERIES = pl.DataFrame(
    [(f"{dataset}{number}", dataset, [f"answer{number}"]) for dataset in "ab" for number in range(20)],
    schema=["query_id", "dataset", "answers"],
    orient="row",
)
"""Of each question five documents are retrieved, the first of them of its gold page; each tells its answer."""
RETRIEVED = QUERIES.select(
    "query_id",
    doc_id=pl.concat_list([pl.col("query_id") + f"/{number}" for number in range(5)]),
    text=pl.lit("it is ") + pl.col("answers").list.first(),
).explode("doc_id")


def drawn(pairs: pl.DataFrame, **changes: Any) -> pl.DataFrame:
    corpus = RETRIEVED.select("doc_id", "text", title=pl.lit(""), page_id=pl.col("doc_id"))
    gold = gold_of(pages=RETRIEVED.unique("query_id", keep="first").select("query_id", "doc_id").rows())
    known = {
        "corpus": corpus,
        "provenance": gold,
        "queries": QUERIES.with_columns(score=pl.lit("exact_match")),
    }
    return unrelated_pairs(Evidence(**{"pairs": pairs, **known, **changes}))


def test_unrelated_documents_are_those_of_other_questions_of_the_dataset() -> None:
    pairs = RETRIEVED.select("query_id", "doc_id")
    found = drawn(pairs)
    assert found["query_id"].value_counts()["count"].unique().to_list() == [3]
    assert found.height == found.unique().height == 3 * QUERIES.height
    assert (found["query_id"].str.head(1) == found["doc_id"].str.head(1)).all()
    assert found.join(pairs, on=["query_id", "doc_id"], how="semi").is_empty()
    # drawn evenly: 60 draws of 100 documents, none of which comes more than a few times
    assert found["doc_id"].n_unique() > 60
    assert drawn(pairs.sample(fraction=1, shuffle=True, seed=1)).equals(found)
    # one more run: most of them stay
    more = drawn(pairs.filter(pl.col("doc_id").str.ends_with("/4").not_()))
    assert more.join(found, on=["query_id", "doc_id"], how="semi").height > 60
    # one question has none
    assert drawn(pairs.filter(query_id="a0")).is_empty()


@pytest.mark.parametrize("kind", ["pages", "documents"])
def test_a_gold_document_or_one_of_a_gold_page_or_with_an_answer_is_not_unrelated(kind: str) -> None:
    pairs = RETRIEVED.select("query_id", "doc_id")
    ids = QUERIES.select("query_id").join(RETRIEVED.select(gold="doc_id"), how="cross")
    gold = ids.filter(pl.col("gold").str.contains(r"/[0-3]$"))
    found = drawn(pairs, provenance=gold_of(**{kind: gold.rows()}))
    assert found.height > 20
    assert found["doc_id"].str.ends_with("/4").all()
    same = QUERIES.with_columns(score=pl.lit("exact_match"), answers=pl.lit(["is"], pl.List(pl.String)))
    assert drawn(pairs, queries=same).is_empty()


def test_a_closed_book_answer_that_failed_leaves_no_gain() -> None:
    value = pl.when(pl.col("doc_id").is_not_null()).then("value")
    failed = evidence(values={ANSWER: evidence().of(ANSWER).with_columns(value)})
    assert labels_of("gain", failed) == dict.fromkeys("abcd")
    assert closed_book_answers(failed).rows() == [("set", "r", 1, 0)]


def test_a_gain_without_a_closed_book_answer_is_refused() -> None:
    without = evidence().of(ANSWER).drop_nulls("doc_id")
    with pytest.raises(ValueError, match="query 'q' has no closed-book answer"):
        annotate("gain", evidence(values={ANSWER: without}))
    for name, kind in {"gain": "answer", "gain_likelihood": "gold_likelihood"}.items():
        with pytest.raises(ValueError, match=f"needs responses of the kind {kind}"):
            annotate(name, evidence(values={}))


@pytest.mark.parametrize(
    ("num_questions", "num_answered", "is_low"),
    [(300, 5, True), (300, 29, True), (300, 30, False), (100, 19, True), (100, 20, False), (20, 20, False)],
)
def test_a_closed_book_too_low_for_gain_to_show_harm_gets_a_warning(
    num_questions: int, num_answered: int, is_low: bool
) -> None:
    row = {"dataset": "nq", "reader": "r", "num_questions": num_questions, "num_answered": num_answered}
    share = f"{num_answered} of {num_questions} questions ({num_answered / num_questions:.1%})"
    (note,) = harm_notes([row], [])
    assert (
        note
        == f"nq: gain can fall below 0 only on the questions that the reader answers without documents, {share}"
    )
    warnings = list(harm_warnings([row], []))
    assert len(warnings) == is_low
    for warning in warnings:
        assert warning.startswith(f"nq: gain can show harm on {share} only")


def test_a_noise_from_few_documents_gets_a_warning() -> None:
    row = {"dataset": "nq", "low": math.log(0.5), "high": math.log(4), "num_pairs": 38}
    assert list(harm_notes([], [row])) == [
        "nq: gain_likelihood is 0 where the gold answers are 0.500 to 4.00 times as likely as is usual with documents "
        "unrelated to the question: the noise of 38 such documents"
    ]
    (warning,) = harm_warnings([], [row])
    assert "from 38 unrelated documents" in warning
    assert "fewer than 39" in warning
    assert not list(harm_warnings([], [{**row, "num_pairs": 39}]))


def test_a_pair_without_likelihood_is_a_fault() -> None:
    without = evidence().of(GOLD_LIKELIHOOD).filter(pl.col("doc_id") != "c")
    with pytest.raises(
        ValueError, match=r"1 pairs lack a response of the kind gold_likelihood, such as .*'c'"
    ):
        annotate("gold_likelihood", evidence(values={GOLD_LIKELIHOOD: without}))


def test_gains_fold_by_mean_largest_and_share_harmful() -> None:
    lists = list_ideal([[0.5, -0.25, 0.0], [-0.5, -0.25, 0.0], [0.0, 0.0, 0.0]], [3, 2, 0])  # type: ignore[arg-type]
    assert compute("P", lists, 2) == pytest.approx([0.125, -0.375, 0])
    assert compute("Success", lists, 2) == pytest.approx([0.5, -0.25, 0])
    # behind the end of a list there is no document: neither gain nor harm
    assert compute("Success", lists, 3) == pytest.approx([0.5, 0, 0])
    assert compute("Harmful", lists, 3) == pytest.approx([1 / 3, 2 / 3, 0])
    with pytest.raises(ValueError, match="the labels are signed, and nDCG are not defined"):
        compute("nDCG", lists, 3)


@pytest.fixture
def tiny_fid(tiny: Tiny, tmp_path: pathlib.Path) -> Tiny:
    """The tiny comparison with a FiD reader."""
    folder = models.t5_folder(tmp_path / "t5")
    return tiny.with_config(reader=ReaderConfig(kind="fid", model=folder, max_new_tokens=6))


def test_a_job_with_likelihoods_and_gains(tiny_fid: Tiny, reads_here: list[int]) -> None:
    names = ["erag", "gold_likelihood", "gain", "gain_likelihood"]
    some = tiny_fid.with_config(annotators=names)
    compare(some)
    labels = table(some, LABELS)
    assert set(labels["annotator"]) == set(names)
    likely = {
        (row["query_id"], row["doc_id"]): row["label"]
        for row in table(some, LABELS, annotator="gold_likelihood").iter_rows(named=True)
    }
    question, answer, _ = QUESTIONS["q2"]
    _, title, text = PASSAGES["d3"]
    case = models.case_for("fid", max_new_tokens=6)
    request = GOLD_LIKELIHOOD.request(case, question, (Passage(title, text),), (answer,))
    (wanted,) = likelihoods(models.loaded("fid", some.config.reader.model or ""), [request])
    assert likely["q2", "d3"] == pytest.approx(wanted, rel=1e-4)
    assert len(set(likely.values())) > 5
    gains = table(some, LABELS, annotator="gain_likelihood")["label"]
    assert gains.is_between(-1, 1).all()
    assert {*table(some, PER_QUERY, annotator="gain")["measure"]} == {"P", "Success", "Harmful"}
    assert {*table(some, CORRELATIONS)["annotator"]} == set(names)
    inputs = prepare(some.config, check_reader)
    again = plan_stage(some.config, inputs, "compare", single_document=True, end_to_end=True)
    assert {row["new"] for row in again.counts} == {0}
    num_pairs, unrelated = labels.filter(annotator="erag").height, unrelated_pairs(evidence_of(inputs)).height
    assert unrelated > 6
    asked = {row["lists"]: row["asked"] for row in again.counts if row["kind"] == GOLD_LIKELIHOOD.name}
    assert asked == {"pairs": num_pairs + unrelated}


def test_the_report_says_where_gains_can_show_harm(tiny_fid: Tiny, reads_here: list[int]) -> None:
    some = tiny_fid.with_config(annotators=["erag", "gain", "gain_likelihood"])
    compare(some)
    manifest = TableStore(some.config.out).manifest(LABELS)["config"]
    (closed_book,), (noise,) = manifest["closed_book"], manifest["noise"]
    assert (closed_book["dataset"], closed_book["num_questions"], closed_book["num_answered"]) == (
        "tiny",
        6,
        0,
    )
    assert noise["low"] < 0 < noise["high"]
    warnings, _, rest = (tiny_fid.folder / "out" / "report.md").read_text().partition("## Notes")
    assert "tiny: gain can show harm on 0 of 6 questions (0.0%) only" in warnings
    assert f"from {noise['num_pairs']} unrelated documents" in warnings
    assert "only on the questions that the reader answers without documents, 0 of 6 questions (0.0%)" in rest
    assert f"{math.exp(noise['low']):.3g} to {math.exp(noise['high']):.3g} times as likely" in rest


def test_labels_of_another_noise_are_not_taken_for_these(
    tiny_fid: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = tiny_fid.with_config(annotators=["gain_likelihood"])
    compare(some)
    monkeypatch.setattr("erag_ray.inputs.dependencies.PER_QUESTION", 2)
    with pytest.raises(
        InputError, match=r"labels were made with another unrelated; run erag-ray annotate again"
    ):
        evaluate(some.config, prepared(some.config))
