"""What a reader writes: shares of odd outputs counted by hand, and the warnings about them."""

from typing import Any

import polars as pl
import pytest
from evaluated import framed
from given_results import results
from tiny import Tiny, make_tables, table

from erag_ray.analyses import best_depths as of_depths
from erag_ray.analyses import outputs as of_outputs
from erag_ray.analyses.best_depths import BEST_DEPTHS
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.inference.output_tables import Expected, describe_outputs, outputs_of
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.planning.uses import check_reader, use_of
from erag_ray.inference.stage import expected_of, run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.labels.document_labels import label
from erag_ray.measures.scores import normalize_answer
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.prompt import FAMILIES, VERDICTS
from erag_ray.store.schemas import DOCUMENT_OUTPUTS, LABELS, OUTPUTS, REQUESTS, RESPONSES, conform
from erag_ray.store.tables import TableStore


def described(
    outputs: list[str | None],
    answers: list[str],
    *,
    score: str = "exact_match",
    tokens: int = 2,
    most: int | None = 8,
    examples: tuple[str, ...] = (),
    verdicts: tuple[str, ...] = (),
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """OUTPUTS and COMMON_OUTPUTS of one document alone for each question; question i wants ``answers[i]``."""
    ids = [f"q{number}" for number in range(len(outputs))]
    queries = pl.DataFrame(
        {"query_id": ids, "dataset": "d", "question": ids, "answers": [[answer] for answer in answers]}
    ).with_columns(score=pl.lit(score))
    lists = pl.DataFrame(
        {"kind": "single_document", "depth": 1, "query_id": ids, "doc_ids": [["x"]] * len(ids)}
    )
    keys = {"model": "m", "question_key": range(len(ids)), "passages_key": 1}
    requests = pl.DataFrame(
        {"kind": "answer", "query_id": ids, "doc_ids": [["x"]] * len(ids), "reader": "r", **keys}
    )
    responses = pl.DataFrame(
        {
            **keys,
            "output": outputs,
            "logprobs": [[]] * len(ids),
            "num_answer_tokens": [[]] * len(ids),
            "error": [None if output is not None else "out of memory" for output in outputs],
            "error_kind": [None if output is not None else "resource" for output in outputs],
            "num_prompt_tokens": 5,
            "num_output_tokens": tokens,
            "num_truncated_question_tokens": 0,
            "num_truncated_passage_tokens": 0,
        }
    )
    expected = Expected(max_new_tokens={"r": most}, example_answers={"r": examples}, verdicts={"d": verdicts})
    given = ((requests, REQUESTS), (responses, RESPONSES))
    asked, answered = (pl.DataFrame(conform(table, schema)) for table, schema in given)
    return describe_outputs(outputs_of(lists, asked, answered, queries), queries, expected)


def test_a_verdict_in_another_spelling_is_counted_where_spelling_matters() -> None:
    verdicts = ["SUPPORTS", "REFUTES"]
    outputs, _ = described(
        ["Refutes", "refutes.", "REFUTES", "Supports", "no"],
        ["REFUTES", "SUPPORTS", "REFUTES", "REFUTES", "REFUTES"],
        score="accuracy",
        verdicts=tuple(verdicts),
    )
    assert outputs["num_misspelt"].item() == 3
    for score in ("exact_match", "abstained", "rouge_l_google"):
        plain, _ = described(["paris", "Paris."], ["Paris", "Paris"], score=score)
        assert plain["num_misspelt"].item() == 0


def test_outputs_with_markup_are_counted() -> None:
    plain = ["Paris", "Paris (2024)", "[Paris]", "see {x}"]
    marked = [r"It is $\boxed{Paris}$.", '{"answer": "Paris"}', '```json\n{ "a": 1}\n```', "Paris[1]"]
    outputs, _ = described([*plain, *marked], ["Paris"] * 8)
    assert outputs["num_marked_up"].item() == 4
    assert "25.0% of the reader's outputs are JSON, in \\boxed{} or have citation marks" in warned(
        ["x", "y", "z", "Paris[1]"] * 10, ["Paris"] * 40
    )


def test_outputs_at_the_limit() -> None:
    assert described(["long"], ["x"], tokens=8)[0]["num_at_limit"].item() == 1
    assert described(["long"], ["x"], tokens=7)[0]["num_at_limit"].item() == 0
    # a server that counts no tokens
    assert described(["long"], ["x"], tokens=0)[0]["num_at_limit"].item() is None
    # a function, which knows no limit
    assert described(["long"], ["x"], tokens=8, most=None)[0]["num_at_limit"].item() is None


def warned(outputs: list[str | None], answers: list[str], **settings: object) -> str:
    tables = dict(zip(("outputs", "common_outputs"), described(outputs, answers, **settings), strict=True))  # type: ignore[arg-type]
    return "\n".join(note.text for note in of_outputs.show_all(results(**tables)))


def test_odd_shares_are_warned_about() -> None:
    distinct = [f"answer {number}" for number in range(40)]
    assert warned(list(distinct), distinct) == ""
    assert "10.0% of the reader's outputs are empty" in warned(["", "", "", "", *distinct[4:]], distinct)
    copied = warned(["1874", *distinct[1:]], distinct, examples=("1874",))
    assert "2.5% of the reader's outputs repeat the answer of a worked example" in copied
    assert "100.0% of the reader's outputs end at the limit" in warned(list(distinct), distinct, tokens=8)
    same = warned(["Paris"] * 20 + distinct[:20], distinct)
    assert "50.0% of the reader's outputs are 'Paris'" in same
    assert "2.5% of the questions" in same
    # half of all claims are refuted, so half of the verdicts may be
    assert warned(["REFUTES", "SUPPORTS"] * 20, ["REFUTES", "SUPPORTS"] * 20, score="accuracy") == ""
    # of a few outputs no share is odd
    assert warned(["", ""], ["a", "b"]) == ""


def test_a_fall_with_depth_is_warned_about() -> None:
    best = framed([("d", "r", "accuracy", "A", 1, 10, 0.14, 0.05, 0.2, 40)], BEST_DEPTHS)
    (note,) = of_depths.show_all(results(best_depths=best))
    text = "d, A: fewer documents serve this reader better: best depth 1, difference from depth 10 0.140 [0.050, 0.200]"
    assert text in note.text


# --- through the walk ---


def test_without_erag_only_lists_of_one_document_give_an_output_alone(
    tiny: Tiny, reads_here: list[int]
) -> None:
    make_tables(tiny.with_config(annotators=["provenance"], end_to_end_depths=[3]))
    pairs = table(tiny, DOCUMENT_OUTPUTS).select("query_id", "doc_id")
    # the only document of a list, in both runs, and gold passages that come alone
    assert {("q5", "d9"), ("q5", "d11")} <= set(pairs.iter_rows())
    assert ("q1", "d11") not in set(pairs.iter_rows())


def test_a_stage_that_asks_nothing_is_sealed(tiny: Tiny, no_reader: None) -> None:
    some = tiny.with_config(annotators=["provenance"])
    inputs = prepare(some.config, check_reader)
    plan = plan_stage(some.config, inputs, "annotate", single_document=True, end_to_end=False)
    assert (plan.plans, plan.counts, plan.requests.height) == ([], [], 0)
    done = run_stage(some.config, plan)
    label(some.config, inputs, done)
    assert table(some, LABELS)["annotator"].unique().to_list() == ["provenance"]
    assert done.responses.is_empty()
    assert TableStore(f"{some.config.out}/annotate").read(OUTPUTS).is_empty()


# --- worked examples ---


def test_the_answers_of_worked_examples_are_known_of_a_causal_reader(llama: str) -> None:
    def examples_of(**changes: Any) -> list[str]:
        """The answers that the prompt shows, as far as they would be odd outputs."""
        config = JobConfig(reader=ReaderConfig(kind="causal", model=llama, **changes))
        use, _ = use_of(ANSWER, config, Dataset())
        return list(expected_of({(ANSWER.name, "d"): use}, {}).example_answers.get(use.reader, ()))

    assert examples_of(num_examples=2) == [example.answer for example in FAMILIES["question"].examples]
    assert examples_of(num_examples=1, family="dialogue") == [FAMILIES["dialogue"].examples[0].answer]
    for changes in ({"num_examples": 0}, {"prompt": "question_first"}, {"family": "claim"}):
        assert examples_of(**changes) == []


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(VERDICTS)))
def test_no_worked_example_has_an_answer_that_a_question_may_have(family: str) -> None:
    """No year, number or common word: every answer holds a name that is nowhere else."""
    invented = ("brandvik", "mellinghaven", "skerry")
    for example in FAMILIES[family].examples:
        assert any(name in normalize_answer(example.answer) for name in invented), example.answer
