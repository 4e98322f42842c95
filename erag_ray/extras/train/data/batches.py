"""Batches of a step, sampled and tokenised: deterministic in (seed, stage, epoch, question)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from erag_ray.extras.train.config import StageConfig
from erag_ray.extras.train.data.crops import crop
from erag_ray.extras.train.data.curriculum import Curriculum
from erag_ray.extras.train.data.examples import Examples
from erag_ray.extras.train.reader import TrainedReader
from erag_ray.measures.scores import score_named, usable_answers
from erag_ray.models.local.model import PromptTokens
from erag_ray.models.local.word_cache import Ids
from erag_ray.prompts.prompt import Piece
from erag_ray.prompts.request import Passage, Request


class Drawn(NamedTuple):
    """A question in one epoch, with its sampled passages and answer."""

    dataset: str
    question: str
    passages: tuple[Passage, ...]
    answer: str

    @property
    def num_characters(self) -> int:
        """Characters of question and passages: an estimate of the number of tokens, for sorting."""
        passages = self.passages
        return len(self.question) * max(len(passages), 1) + sum(len(p.title) + len(p.text) for p in passages)


class Sample(NamedTuple):
    """A prompt and its target tokens, including the end token."""

    prompt: PromptTokens
    target: Ids


class Batches:
    """The samples of each training step."""

    def __init__(
        self, examples: Examples, curriculum: Curriculum, readers: Mapping[str, TrainedReader]
    ) -> None:
        self.examples = examples
        self.curriculum = curriculum
        self.readers = readers

    def draw(self, step: int) -> list[Drawn]:
        """Sample all questions of a step, longest first."""
        position = self.curriculum.position(step)
        config, numbers = self.curriculum.config, self.curriculum.numbers_in_epoch(position)
        stage, seed = config.curriculum[position.stage], (config.seed, position.stage, position.epoch)
        table = self.examples.table.take(pa.array(self.curriculum.rows(position))).to_pylist()
        drawn = [
            draw(record, self.examples.corpus, stage, np.random.default_rng([*seed, int(number)]))
            for record, number in zip(table, numbers, strict=True)
        ]
        return sorted(drawn, key=lambda question: -question.num_characters)

    def share(self, step: int, rank: int, num_workers: int) -> list[Sample]:
        """Return one worker's samples of a step: every ``num_workers``-th question by length."""
        return tokenised(self.draw(step)[rank::num_workers], self.readers)


def draw(record: Mapping[str, Any], corpus: pa.Table, stage: StageConfig, rng: np.random.Generator) -> Drawn:
    """Sample passages and one answer for a row of EXAMPLES, by the stage's settings."""
    answers = usable_answers(score_named(record["score"]), record["answers"]) or record["answers"]
    answer = answers[int(rng.integers(len(answers)))]
    num_passages = stage.num_passages[int(rng.integers(len(stage.num_passages)))]
    rows = listed(record["passages"], record["gold"], num_passages, stage.num_gold)
    if stage.num_gold:
        rows = [rows[index] for index in rng.permutation(len(rows))]
    passages = read_passages(corpus, rows)
    if stage.crop_words:
        num_words = stage.crop_words[int(rng.integers(len(stage.crop_words)))]
        passages = [
            _cropped(record, row, passage, answers, num_words, rng)
            for row, passage in zip(rows, passages, strict=True)
        ]
    return Drawn(record["dataset"], record["question"], tuple(passages), answer)


def _cropped(
    record: Mapping[str, Any],
    row: int,
    passage: Passage,
    answers: Sequence[str],
    num_words: int,
    rng: np.random.Generator,
) -> Passage:
    """Crop a passage. With known gold passages, an answer in another passage does not count as evidence."""
    may_answer = row in record["gold"] or not record["gold"]
    evidence, answers = (record["evidence"], answers) if may_answer else ([], [])
    text = crop(passage.text, evidence, answers, record["question"], num_words, rng)
    return Passage(passage.title, text)


def listed(ranked: Sequence[int], gold: Sequence[int], num_passages: int, num_gold: int) -> list[int]:
    """Return the rows of a question's passages: at most ``num_gold`` gold passages, then the other ranked ones.

    The gold passages are included even if they are more than ``num_passages`` (unless that is 0): a multi-hop question
    needs all.
    """
    if not num_passages:
        return []
    first = gold[:num_gold]
    rows = [*first, *(row for row in ranked if row not in first)]
    return rows[: max(num_passages, len(first))]


def read_passages(corpus: pa.Table, rows: Sequence[int]) -> list[Passage]:
    """Return the passages in the given rows of a CORPUS."""
    table = corpus.select(["title", "text"]).take(pa.array(rows, pa.int64()))
    return [
        Passage(*pair)
        for pair in zip(*(table.column(name).to_pylist() for name in ("title", "text")), strict=True)
    ]


def tokenised(drawn: Sequence[Drawn], readers: Mapping[str, TrainedReader]) -> list[Sample]:
    """Tokenise sampled questions, each by its dataset's reader; keep their order."""
    samples: dict[int, Sample] = {}
    for dataset in sorted({question.dataset for question in drawn}):
        indices = [index for index, question in enumerate(drawn) if question.dataset == dataset]
        reader = readers[dataset]
        model, form = reader.model, reader.form
        requests = [Request.of(form, drawn[index].question, drawn[index].passages) for index in indices]
        targets = model.pieces.tokenise([[Piece("passage", drawn[index].answer)] for index in indices])
        for index, prompt, (answer,) in zip(indices, model.render(requests), targets, strict=True):
            truncated = answer[: form.max_new_tokens - len(model.end)]
            samples[index] = Sample(prompt, (*truncated, *model.end))
    return [samples[index] for index in range(len(drawn))]


def micro_batches(samples: Sequence[Sample], max_tokens: int) -> Iterator[list[Sample]]:
    """Yield batches of similar length with at most ``max_tokens`` segment tokens; a longer sample is its own batch."""
    batch: list[Sample] = []
    num_tokens = 0
    for sample in sorted(samples, key=lambda sample: -sample.prompt.length):
        if batch and num_tokens + sample.prompt.length > max_tokens:
            yield batch
            batch, num_tokens = [], 0
        batch.append(sample)
        num_tokens += sample.prompt.length
    if batch:
        yield batch
