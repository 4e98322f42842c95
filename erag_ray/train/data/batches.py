"""One step's share of questions, drawn and tokenised: deterministic in (seed, stage, epoch, question)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from erag_ray.models.local import Ids, PromptTokens
from erag_ray.requests import Passage, Piece, Request
from erag_ray.scores import score_named, usable_answers
from erag_ray.train.config import StageConfig
from erag_ray.train.data.crops import crop
from erag_ray.train.data.curriculum import Curriculum
from erag_ray.train.data.examples import Examples
from erag_ray.train.reader import TrainedReader


class Drawn(NamedTuple):
    """What a question has become in one epoch."""

    dataset: str
    question: str
    passages: tuple[Passage, ...]
    answer: str

    @property
    def num_characters(self) -> int:
        """Of question and passages: near enough to the number of tokens to sort by."""
        passages = self.passages
        return len(self.question) * max(len(passages), 1) + sum(len(p.title) + len(p.text) for p in passages)


class Sample(NamedTuple):
    """A prompt and the tokens that the reader is to write, its end token included."""

    prompt: PromptTokens
    target: Ids


class Batches:
    """The training questions as steps of samples."""

    def __init__(
        self, examples: Examples, curriculum: Curriculum, readers: Mapping[str, TrainedReader]
    ) -> None:
        self.examples = examples
        self.curriculum = curriculum
        self.readers = readers

    def draw(self, step: int) -> list[Drawn]:
        """All questions of a step, longest first."""
        place = self.curriculum.place(step)
        stage, numbers = self.curriculum.stage(place.stage), self.curriculum.places_in_epoch(place)
        seed = (self.curriculum.config.seed, place.stage, place.epoch)
        table = self.examples.table.take(pa.array(self.curriculum.rows(place))).to_pylist()
        drawn = [
            draw(record, self.examples.corpus, stage, np.random.default_rng([*seed, int(number)]))
            for record, number in zip(table, numbers, strict=True)
        ]
        return sorted(drawn, key=lambda one: -one.num_characters)

    def share(self, step: int, rank: int, num_workers: int) -> list[Sample]:
        """One worker's part of a step: every ``num_workers``-th question by length."""
        return tokenised(self.draw(step)[rank::num_workers], self.readers)


def draw(
    record: Mapping[str, list[int] | list[str] | str],
    corpus: pa.Table,
    stage: StageConfig,
    rng: np.random.Generator,
) -> Drawn:
    """A row of EXAMPLES -> question, passages and one answer, as the stage has it."""
    answers = usable_answers(score_named(str(record["score"])), list(map(str, record["answers"])))
    answers = answers or list(map(str, record["answers"]))
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
    return Drawn(str(record["dataset"]), str(record["question"]), tuple(passages), answer)


def _cropped(
    record: Mapping[str, list[int] | list[str] | str],
    row: int,
    passage: Passage,
    answers: Sequence[str],
    num_words: int,
    rng: np.random.Generator,
) -> Passage:
    """Where gold passages are known, an answer in another passage is no sign that it tells it."""
    shows = row in record["gold"] or not record["gold"]
    evidence = list(map(str, record["evidence"])) if shows else []
    text = crop(passage.text, evidence, answers if shows else [], str(record["question"]), num_words, rng)
    return Passage(passage.title, text)


def listed(ranked: Sequence[object], gold: Sequence[object], num_passages: int, num_gold: int) -> list[int]:
    """The rows of the passages to read: at most ``num_gold`` gold ones, then the ranked ones that are not among them.

    All those gold ones are kept, also where they are more than ``num_passages`` (but 0): a question over two pages
    needs both.
    """
    if not num_passages:
        return []
    first = [int(str(row)) for row in gold[:num_gold]]
    found = [*first, *(int(str(row)) for row in ranked if row not in first)]
    return found[: max(num_passages, len(first))]


def read_passages(corpus: pa.Table, rows: Sequence[int]) -> list[Passage]:
    """The passages in the given rows of a CORPUS."""
    found = corpus.select(["title", "text"]).take(pa.array(rows, pa.int64()))
    return [
        Passage(*pair)
        for pair in zip(*(found.column(name).to_pylist() for name in ("title", "text")), strict=True)
    ]


def tokenised(drawn: Sequence[Drawn], readers: Mapping[str, TrainedReader]) -> list[Sample]:
    """Samples in the order of what was drawn; each dataset by its own reader."""
    samples: dict[int, Sample] = {}
    for dataset in sorted({one.dataset for one in drawn}):
        places = [place for place, one in enumerate(drawn) if one.dataset == dataset]
        reader = readers[dataset]
        model, form = reader.model, reader.form
        requests = [Request.of(form, drawn[place].question, drawn[place].passages) for place in places]
        targets = model.pieces.tokenise([[Piece("passage", drawn[place].answer)] for place in places])
        for place, prompt, (answer,) in zip(places, model.render(requests), targets, strict=True):
            kept = answer[: form.max_new_tokens - len(model.end)]
            samples[place] = Sample(prompt, (*kept, *model.end))
    return [samples[place] for place in range(len(drawn))]


def micro_batches(samples: Sequence[Sample], max_tokens: int) -> Iterator[list[Sample]]:
    """Samples of similar length together, at most ``max_tokens`` segment tokens; one longer sample goes alone."""
    batch: list[Sample] = []
    num_tokens = 0
    for sample in sorted(samples, key=lambda one: -one.prompt.length):
        if batch and num_tokens + sample.prompt.length > max_tokens:
            yield batch
            batch, num_tokens = [], 0
        batch.append(sample)
        num_tokens += sample.prompt.length
    if batch:
        yield batch
