"""Crops, curriculum, micro-batches and the tokenizer of a model from scratch."""

import dataclasses
import pathlib

import numpy as np
import pyarrow as pa
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from models import form_for

from erag_ray.extras.train.config import StageConfig, TrainConfig
from erag_ray.extras.train.data.batches import Sample, crop, draw, micro_batches
from erag_ray.extras.train.data.curriculum import Curriculum, Position
from erag_ray.extras.train.scratch.start import train_tokenizer
from erag_ray.models.local.model import PromptTokens

FORM = form_for("fid")
TEXT = [
    'Ada Brunner\'s 2nd mill (in 1984) stood at Marn-on-Tessel; "why?" it cost 3,500.',
    "SUPPORTS",
    "a\nb",
]


@given(
    before=st.lists(st.sampled_from(["one", "two", "Ada"]), max_size=30),
    evidence=st.lists(st.sampled_from(["mill,", "stood", "Tessel"]), min_size=1, max_size=6),
    after=st.lists(st.sampled_from(["three", "mil", "Ada"]), max_size=30),
    num_words=st.integers(1, 12),
    seed=st.integers(0, 5),
)
@settings(max_examples=200)
def test_a_crop_holds_the_evidence_in_whole_words(
    before: list[str], evidence: list[str], after: list[str], num_words: int, seed: int
) -> None:
    words = [*before, *evidence, *after]
    span = " ".join(evidence)
    cut = crop(" ".join(words), [span], ["three"], "mil", num_words, np.random.default_rng(seed))
    kept = cut.split()
    assert span in cut
    assert len(kept) == min(len(words), max(num_words, len(evidence)))
    assert any(words[start : start + len(kept)] == kept for start in range(len(words)))
    assert cut == crop(" ".join(words), [span], ["three"], "mil", num_words, np.random.default_rng(seed))


def test_a_crop_falls_back_on_an_answer_then_on_what_looks_like_the_question_then_on_anything() -> None:
    text = " ".join([*["word"] * 40, "ADA", *["other"] * 40, "Brunner's,", "of", "mill", *["word"] * 40])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert "ADA" in crop(text, ["not there"], ["da", "Ada"], "Brunner", 5, rng).split()
        asked = crop(text, [], ["nothing"], "Whose mill is Brunner's?", 5, rng).split()
        assert {"Brunner's,", "mill"} <= set(asked)
        assert len(asked) == 5
        korean = " ".join([*["말 ."] * 40, "서울은", "크다"])
        assert "서울은" in crop(korean, [], [".", "서울"], "?", 5, rng).split()
    places = {crop(text, [], [], "not there", 5, np.random.default_rng(seed)) for seed in range(40)}
    assert len(places) > 2


def test_only_a_gold_passage_is_cut_at_its_evidence() -> None:
    bodies = [f"told here {'word ' * 30} who asks", "told here " + "x " * 30]
    corpus = pa.table({"title": ["a", "b"], "text": bodies})
    record = {"dataset": "d", "question": "who asks", "answers": ["here"], "score": "exact_match"}
    record["evidence"] = ["told here"]
    stage = StageConfig(steps=1, num_passages=[2], num_gold=1, crop_words=[2])

    def texts(**lists: list[int]) -> list[str]:
        drawn = draw({**record, **lists}, corpus, stage, np.random.default_rng(0))
        return sorted(passage.text for passage in drawn.passages)

    assert texts(passages=[0, 1], gold=[1]) == ["told here", "who asks"]
    assert texts(passages=[0, 1], gold=[]) == ["told here", "told here"]


def test_every_epoch_asks_every_question_once_in_another_order() -> None:
    stages = [StageConfig(steps=4), StageConfig(epochs=2, batch_size=3)]
    curriculum = Curriculum(TrainConfig(curriculum=stages, batch_size=4), ["a"] * 7)
    assert curriculum.num_steps == 4 + 2 * 3
    assert curriculum.position(3) == Position(stage=0, epoch=1, step=1)
    assert curriculum.position(4) == Position(stage=1, epoch=0, step=0)
    epochs = [
        [int(row) for step in steps for row in curriculum.rows(curriculum.position(step))]
        for steps in (range(0, 2), range(2, 4), range(4, 7), range(7, 10))
    ]
    assert all(sorted(rows) == list(range(7)) for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) == 4


def test_a_stage_asks_a_dataset_more_often_than_another_or_never() -> None:
    stages = [StageConfig(epochs=1, copies={"b": 3, "c": 0})]
    curriculum = Curriculum(TrainConfig(curriculum=stages, batch_size=2), ["a", "b", "c", "a"])
    assert curriculum.num_steps == 3
    places = [curriculum.position(step) for step in range(3)]
    assert sorted(int(row) for place in places for row in curriculum.rows(place)) == [0, 1, 1, 1, 3]
    # copies of a question are drawn apart
    numbers = np.concatenate([curriculum.numbers_in_epoch(place) for place in places])
    assert sorted(numbers.tolist()) == [*range(5)]


def test_the_learning_rate_rises_and_falls() -> None:
    config = TrainConfig(curriculum=[StageConfig(steps=100)], learning_rate=1.0, warmup_ratio=0.1)
    rates = [Curriculum(config, ["a"] * 8).learning_rate(step) for step in range(100)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert max(rates) == rates[9] == rates[10] == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 90)
    flat = dataclasses.replace(config, schedule="constant", warmup_ratio=0.0)
    assert {Curriculum(flat, ["a"] * 8).learning_rate(step) for step in range(100)} == {1.0}


@given(lengths=st.lists(st.integers(1, 50), max_size=30), most=st.integers(1, 80))
def test_micro_batches_hold_every_sample_once_and_stay_small(lengths: list[int], most: int) -> None:
    prompts = [PromptTokens(form=FORM, segments=((row,) * length,)) for row, length in enumerate(lengths)]
    samples = [Sample(prompt, (row,)) for row, prompt in enumerate(prompts)]
    batches = list(micro_batches(samples, most))
    assert sorted(one.target for batch in batches for one in batch) == [(row,) for row in range(len(samples))]
    assert all(len(batch) == 1 or sum(one.prompt.num_tokens for one in batch) <= most for batch in batches)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> transformers.PreTrainedTokenizerBase:
    """Trained on a little text, saved and loaded again."""
    folder: pathlib.Path = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(iter(TEXT * 20), 300).save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@given(
    words=st.lists(
        st.text("".join(map(chr, range(33, 127))), min_size=1, max_size=12), min_size=1, max_size=8
    )
)
def test_text_comes_back_from_its_tokens(
    tokenizer: transformers.PreTrainedTokenizerBase, words: list[str]
) -> None:
    text = " ".join(words)
    tokens = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.decode(tokens["input_ids"]) == text


def test_the_tokenizer_is_like_t5s(tokenizer: transformers.PreTrainedTokenizerBase) -> None:
    assert tokenizer.convert_tokens_to_ids(["<pad>", "</s>", "<unk>"]) == [0, 1, 2]
    assert tokenizer("Ada")["input_ids"][-1] == tokenizer.eos_token_id
    assert tokenizer.tokenize("in 1984")[-1] == "▁1984"
    assert tokenizer.tokenize("Ada") != tokenizer.tokenize("ada")
    assert tokenizer.tokenize("(Ada)")[-1] == ")"
    assert tokenizer.tokenize(" Ada") == tokenizer.tokenize("Ada")
