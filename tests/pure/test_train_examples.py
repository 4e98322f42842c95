"""Training files -> examples: what is read, what is noted, what is refused."""

import dataclasses
import json
import pathlib
from typing import Any

import polars as pl
import pytest
from models import causal_folder
from tiny import Tiny
from trainings import TINY, given_lines, tiny_training, write_given

from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.train.config import ExamplesConfig, StageConfig, TrainConfig
from erag_ray.extras.train.data.batches import listed
from erag_ray.extras.train.data.examples import Examples, prepare_examples
from erag_ray.extras.train.stage import check, prepare
from erag_ray.support.errors import InputError


def retrieved(tiny: Tiny, *, num_passages: int = 3, num_gold: int = 0, **changes: Any) -> TrainConfig:
    """Training on the tiny comparison's questions with the passages of its run ``good``."""
    files = {"queries": [str(tiny.queries)], "passages": [str(tiny.passages)], "run": [str(tiny.run("good"))]}
    return TrainConfig(
        reader=ReaderConfig(max_prompt_tokens=64),
        scratch=TINY,
        train=ExamplesConfig(**{**files, "dataset": "tiny", **changes}),
        curriculum=[StageConfig(steps=2, num_passages=[1, num_passages], num_gold=num_gold)],
        out=str(tiny.folder / "trained"),
    )


def texts(examples: Examples, query_id: str, column: str) -> list[str]:
    """The passages of a question, by their ids."""
    row = examples.table.column("query_id").to_pylist().index(query_id)
    ids = examples.corpus.column("doc_id").to_pylist()
    return [ids[place] for place in examples.table.column(column)[row].as_py()]


def problems(config: TrainConfig) -> str:
    with pytest.raises(InputError) as caught:
        prepare_examples(config)
    assert not pathlib.Path(config.out, "data").exists()
    return str(caught.value)


def test_lists_are_cut_and_short_ones_are_noted(tiny: Tiny) -> None:
    examples = prepare_examples(retrieved(tiny))["train"]
    assert texts(examples, "q1", "passages") == ["d1", "d2", "d12"]
    assert texts(examples, "q2", "passages") == ["d3", "d4"]
    assert texts(examples, "q1", "gold") == []
    assert any("train: lists of fewer than 3 passages: 4" in note for note in examples.notes)


def test_a_reader_that_sees_no_titles_is_trained_without_them(tiny: Tiny) -> None:
    config = retrieved(tiny)
    assert "" not in prepare_examples(config)["train"].corpus.column("title").to_pylist()
    hidden = dataclasses.replace(config, reader=dataclasses.replace(config.reader, titles=False))
    examples = prepare_examples(hidden)["train"]
    assert set(examples.corpus.column("title").to_pylist()) == {""}
    assert texts(examples, "q1", "passages") == ["d1", "d2", "d12"]


def test_gold_passages_come_from_gold_pages_those_with_an_answer_first(tiny: Tiny) -> None:
    examples = prepare_examples(retrieved(tiny, num_gold=2))["train"]
    # the title of d1 is the answer, the text of neither holds it
    assert texts(examples, "q1", "gold") == ["d1", "d2"]
    assert texts(examples, "q6", "gold") == []
    assert any("questions without a gold passage" in note for note in examples.notes)


def test_a_list_has_its_golds_first_and_no_passage_twice() -> None:
    assert listed([5, 6, 7, 8], [7, 9], 3, 1) == [7, 5, 6]
    assert listed([5, 6, 7, 8], [7, 9], 3, 2) == [7, 9, 5]
    assert listed([5, 6, 7, 8], [7, 9], 3, 0) == [5, 6, 7]
    assert listed([5], [7], 0, 1) == []
    assert listed([5, 6], [7, 9], 1, 2) == [7, 9]


def test_evidence_spans_of_kilt_files_are_kept(tiny: Tiny) -> None:
    sources = [
        {"wikipedia_id": "p1", "meta": {"evidence_span": ["she built", "the marn bridge"]}},
        {"wikipedia_id": "p1", "meta": {"evidence_span": None}},
        {"wikipedia_id": "p1"},
    ]
    lines = tiny.queries.read_text().splitlines()
    first = {**json.loads(lines[0]), "output": [{"answer": "Ada Brunner", "provenance": sources}]}
    tiny.queries.write_text("\n".join([json.dumps(first), *lines[1:]]))
    examples = prepare_examples(retrieved(tiny))["train"]
    assert examples.table.column("evidence").to_pylist()[:2] == [["she built", "the marn bridge"], []]


def test_given_passages_are_gold_and_named_by_their_place(tmp_path: pathlib.Path) -> None:
    config = tiny_training(tmp_path)
    examples = prepare_examples(config)["train"]
    place = f"{tmp_path}/train.jsonl:3"
    row = examples.table.column("query_id").to_pylist().index(place)
    assert examples.table.slice(row, 1).to_pylist()[0]["question"] == "who built mill 2"
    assert texts(examples, place, "passages") == [place]


def test_claims_are_known_by_the_name_of_their_file(tmp_path: pathlib.Path) -> None:
    line = {"question": "Mills are red.", "context": "They are not.", "answers": ["REFUTES"]}
    given = ExamplesConfig(given=[write_given(tmp_path / "fact.jsonl", [line])])
    examples = prepare_examples(tiny_training(tmp_path, train=given))["train"]
    assert examples.table.column("score").to_pylist() == ["accuracy"]
    assert examples.datasets["fact"].family == "claim"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"answers": []}, "train.jsonl:2: the question 'who built mill 1' has no answer"),
        ({"answers": ["  "]}, "train.jsonl:2: the question 'who built mill 1' has no answer"),
        ({"answers": 7}, "train.jsonl:2: answer 7 must be a string"),
        ({"question": " "}, "train.jsonl:2: the question is blank"),
        ({"context": None}, "train.jsonl:2: context is None; it must be a string"),
    ],
)
def test_a_faulty_line_is_named(tmp_path: pathlib.Path, change: dict[str, Any], named: str) -> None:
    lines = given_lines(3)
    lines[1] |= change
    config = tiny_training(tmp_path)
    write_given(tmp_path / "train.jsonl", lines)
    assert f"{tmp_path}/{named}" in problems(config)


def test_a_kilt_file_without_answers_is_refused(tiny: Tiny) -> None:
    line = {"id": "q9", "input": "who was it", "output": [{"provenance": [{"wikipedia_id": "p1"}]}]}
    tiny.queries.write_text(tiny.queries.read_text() + json.dumps(line) + "\n")
    assert f"{tiny.queries}:7: query 'q9' has no answer" in problems(retrieved(tiny))


def test_documents_that_are_not_in_the_passages_are_named(tiny: Tiny) -> None:
    lines = tiny.passages.read_text().splitlines()
    tiny.passages.write_text("\n".join(line for line in lines if '"d2"' not in line))
    assert "query 'q1': document 'd2' is not in the passages" in problems(retrieved(tiny))


def test_questions_without_passages_are_named(tiny: Tiny) -> None:
    run = tiny.run("good")
    kept = [line for line in run.read_text().splitlines() if not line.startswith(("q6", "q2"))]
    run.write_text("\n".join(kept))
    message = problems(retrieved(tiny))
    assert "train: query 'q2' has no passages: no list in a run file" in message
    assert "train: query 'q6' has no passages" in message
    # the gold page of q2 will do; q6 has none
    message = problems(retrieved(tiny, num_gold=1))
    assert "'q2'" not in message
    assert "query 'q6' has no passages: neither a list in a run file nor a gold passage" in message


def test_a_question_in_two_run_files_is_refused(tiny: Tiny) -> None:
    config = retrieved(tiny, run=[str(tiny.run("good")), str(tiny.run("bad"))])
    assert "query 'q1' also has a list in another run file" in problems(config)


def test_closed_book_training_needs_no_passages(tiny: Tiny) -> None:
    config = retrieved(tiny, run=[], passages=[])
    alone = dataclasses.replace(config, curriculum=[StageConfig(epochs=1, num_passages=[0])])
    assert prepare_examples(alone)["train"].corpus.num_rows == 0
    assert "q1" in problems(dataclasses.replace(config, out=f"{config.out}2"))


def copies(**numbers: int) -> dict[str, list[StageConfig]]:
    return {"curriculum": [StageConfig(epochs=1, num_passages=[1], copies=numbers)]}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"train": ExamplesConfig()}, "train: no question files"),
        ({"train": ExamplesConfig(given=["/nowhere.jsonl"])}, "/nowhere.jsonl: cannot be read"),
        ({"reader": ReaderConfig(model="/a/model")}, "reader.model: must be null with scratch"),
        ({"reader": ReaderConfig(kind="causal")}, "reader.kind: only fid and ipa readers are trained"),
        ({"reader": ReaderConfig(dtype="float16")}, "reader.dtype: training keeps weights in float32"),
        ({"scratch": None}, "reader.model: needs a model"),
        ({"scratch": dataclasses.replace(TINY, feed_forward_proj="sideways-relu")}, "scratch: T5 does not"),
        ({"scratch": dataclasses.replace(TINY, feed_forward_proj="magic")}, "scratch: T5 does not allow"),
        (copies(nq=2), "curriculum.copies: no training question is of 'nq'; there are train"),
        (copies(train=0), "curriculum.copies: stage 1 has no questions"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    tmp_path: pathlib.Path, changes: dict[str, Any], named: str
) -> None:
    config = tiny_training(tmp_path, **changes)
    with pytest.raises(InputError) as caught:
        _ = check(config), prepare(config)  # type: ignore[func-returns-value]
    assert named in str(caught.value)


def test_a_model_of_another_kind_is_refused(tmp_path: pathlib.Path) -> None:
    reader = ReaderConfig(kind="fid", model=causal_folder(tmp_path / "causal"))
    with pytest.raises(InputError, match="has a llama model, not an encoder-decoder"):
        prepare(tiny_training(tmp_path / "run", reader=reader, scratch=None))


@pytest.mark.parametrize(
    ("stage", "named"),
    [
        ({"epochs": 1, "steps": 2}, "either epochs or steps"),
        ({}, "either epochs or steps"),
        ({"epochs": 1, "num_passages": []}, "no number is given"),
        ({"epochs": 1, "crop_words": []}, "crop_words: no number is given"),
    ],
)
def test_a_stage_out_of_range_is_refused(stage: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        StageConfig(**stage)


# --- examples without an answer ---


def test_unanswerable_questions_get_passages_of_another_question(tiny: Tiny) -> None:
    config = retrieved(tiny)
    plain = pl.DataFrame(prepare_examples(config)["train"].table)
    train = dataclasses.replace(config.train, unanswerable_share=0.5)
    examples = pl.DataFrame(prepare_examples(dataclasses.replace(config, train=train))["train"].table)
    assert examples.head(plain.height).equals(plain)
    added = examples.tail(examples.height - plain.height)
    assert added.height == round(0.5 * plain.height)
    assert added["answers"].to_list() == [["NO-RESPONSE"]] * added.height
    own = {row["query_id"]: row for row in plain.iter_rows(named=True)}
    others = {row for rows in plain["passages"] for row in rows}
    for row in added.iter_rows(named=True):
        original = own[row["query_id"].removesuffix(":NO-RESPONSE")]
        assert row["question"] == original["question"]
        assert not {*row["passages"]} & {*original["passages"], *original["gold"]}
        assert row["passages"]
        assert {*row["passages"]} <= others
