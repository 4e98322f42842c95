"""How likely the gold answers are, and what documents gain: against a model's own numbers, by hand, in a job."""

import math
from collections.abc import Sequence
from typing import Any

import models
import numpy as np
import polars as pl
import pytest
import torch
from given_results import configured, results
from gold import gold_of
from one_measure import compute
from tiny import PASSAGES, QUESTIONS, Tiny, compare, table

from erag_ray.analyses.columns import DIGITS, PER_QUERY
from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.useful_documents import harm_notes
from erag_ray.annotators import Evidence, annotate, closed_book_answers
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.planning.uses import check_reader
from erag_ray.inputs.stage import prepare
from erag_ray.measures.lists import list_ideal
from erag_ray.models import Model
from erag_ray.models.local.likelihood import batched, rows_of
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Case
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.prompts.request import Passage, Request, question_key
from erag_ray.store.schemas import LABELS
from erag_ray.store.tables import TableStore

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


LIKELIHOODS = {"a": 0.75, "b": 0.2, "c": 0.03, "d": None}
ANSWERS = {"a": "one two", "b": "two", "c": "nine", "d": None, None: "two"}


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


def test_equal_means_of_equal_gains_tie() -> None:
    answers = values_of([("q", *row) for row in {**ANSWERS, "d": "one x x x"}.items()], pl.String)
    gains = labels_of("gain", evidence(values={ANSWER: answers}))
    lists = list_ideal([[gains[one] for one in names] for names in ("ccb", "cdd")])  # type: ignore[arg-type]
    assert len({*np.round(compute("P", lists, 3), DIGITS)}) == 1


def test_a_closed_book_answer_that_failed_leaves_no_gain() -> None:
    value = pl.when(pl.col("doc_id").is_not_null()).then("value")
    failed = evidence(values={ANSWER: evidence().of(ANSWER).with_columns(value)})
    assert labels_of("gain", failed) == dict.fromkeys("abcd")
    assert closed_book_answers(failed).rows() == [("set", "r", 1, 0)]


def test_labels_without_a_response_are_refused() -> None:
    without = evidence().of(ANSWER).drop_nulls("doc_id")
    with pytest.raises(ValueError, match="query 'q' has no closed-book answer"):
        annotate("gain", evidence(values={ANSWER: without}))
    lacking = evidence().of(GOLD_LIKELIHOOD).filter(pl.col("doc_id") != "c")
    with pytest.raises(ValueError, match=r"1 pairs lack a response of the kind gold_.*, such as .*'c'"):
        annotate("gold_likelihood", evidence(values={GOLD_LIKELIHOOD: lacking}))


@pytest.mark.parametrize(
    ("num_questions", "num_answered", "is_low"),
    [(300, 5, True), (300, 29, True), (300, 30, False), (100, 19, True), (100, 20, False), (20, 20, False)],
)
def test_a_closed_book_too_low_for_gain_to_show_harm_gets_a_warning(
    num_questions: int, num_answered: int, is_low: bool
) -> None:
    row = {"dataset": "nq", "reader": "r", "num_questions": num_questions, "num_answered": num_answered}
    share = f"{num_answered} of {num_questions} questions ({num_answered / num_questions:.1%})"
    note, *warnings = harm_notes(configured(results(), labels={"closed_book": [row]}))
    text = "gain can fall below 0 only on the questions that the reader answers without documents"
    assert note.text == f"nq: {text}, {share}"
    start = f"nq: gain can show harm on {share} only"
    assert [warning.is_warning and warning.text.startswith(start) for warning in warnings] == [True] * is_low


def test_gains_fold_by_mean_largest_and_share_harmful() -> None:
    lists = list_ideal([[0.5, -0.25, 0.0], [-0.5, -0.25, 0.0], [0.0, 0.0, 0.0]], [3, 2, 0])  # type: ignore[arg-type]
    assert compute("P", lists, 2) == pytest.approx([0.125, -0.375, 0])
    assert compute("Success", lists, 2) == pytest.approx([0.5, -0.25, 0])
    # behind the end of a list there is no document: neither gain nor harm
    assert compute("Success", lists, 3) == pytest.approx([0.5, 0, 0])
    assert compute("Harmful", lists, 3) == pytest.approx([1 / 3, 2 / 3, 0])


def test_a_job_with_likelihoods_and_gains(tiny: Tiny, reads_here: list[int], t5: str) -> None:
    names = ["erag", "gold_likelihood", "gain"]
    some = tiny.with_config(annotators=names, reader=ReaderConfig(kind="fid", model=t5, max_new_tokens=6))
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
    assert table(some, LABELS, annotator="gain")["label"].is_between(-1, 1).all()
    assert {*table(some, PER_QUERY, annotator="gain")["measure"]} == {"P", "Success", "Harmful"}
    assert {*table(some, CORRELATIONS)["annotator"]} == set(names)
    inputs = prepare(some.config, check_reader)
    again = plan_stage(some.config, inputs, "compare", single_document=True, end_to_end=True)
    assert {row["new"] for row in again.counts} == {0}
    asked = {row["lists"]: row["asked"] for row in again.counts if row["kind"] == GOLD_LIKELIHOOD.name}
    assert asked == {"pairs": labels.filter(annotator="erag").height}
    (closed_book,) = TableStore(some.config.out).manifest(LABELS)["config"]["closed_book"]
    counts = [closed_book[name] for name in ("dataset", "num_questions", "num_answered")]
    assert counts == ["tiny", 6, 0]
    warnings, _, rest = (tiny.folder / "out" / "report.md").read_text().partition("## Notes")
    assert "tiny: gain can show harm on 0 of 6 questions (0.0%) only" in warnings
    assert "only on the questions that the reader answers without documents, 0 of 6 questions (0.0%)" in rest
