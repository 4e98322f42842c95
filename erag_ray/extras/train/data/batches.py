"""Batches of a step, sampled and tokenised: deterministic in (seed, stage, epoch, question)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from erag_ray.extras.train.config import StageConfig
from erag_ray.extras.train.data.curriculum import Curriculum
from erag_ray.extras.train.data.examples import Examples
from erag_ray.extras.train.reader import TrainedReader
from erag_ray.measures.scores import has_word, score_named, usable_answers, whole_words
from erag_ray.models.local.model import PromptTokens
from erag_ray.models.local.word_cache import Ids
from erag_ray.prompts.prompt import Piece
from erag_ray.prompts.request import Passage, Request

WORD = re.compile(r"\S+")
LETTERS = re.compile(r"\w+")


class Drawn(NamedTuple):
    """A question in one epoch, with its sampled passages and answer."""

    dataset: str
    question: str
    passages: tuple[Passage, ...]
    answer: str

    @property
    def num_characters(self) -> int:
        """Characters of all segments: an estimate of the number of tokens, for sorting."""
        num_segments = max(len(self.passages), 1)
        return len(self.question) * num_segments + sum(len(p.title) + len(p.text) for p in self.passages)


class Sample(NamedTuple):
    """A prompt and its target tokens, including the end token."""

    prompt: PromptTokens
    target: Ids


class Batches(NamedTuple):
    """The samples of each training step."""

    examples: Examples
    curriculum: Curriculum
    reader: TrainedReader

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
        return tokenised(self.draw(step)[rank::num_workers], self.reader)


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
        for index, row in enumerate(rows):
            # with known gold passages, an answer in another passage does not count as evidence
            may_answer = row in record["gold"] or not record["gold"]
            evidence, named = (record["evidence"], answers) if may_answer else ([], [])
            text = crop(passages[index].text, evidence, named, record["question"], num_words, rng)
            passages[index] = Passage(passages[index].title, text)
    return Drawn(record["dataset"], record["question"], tuple(passages), answer)


def crop(
    text: str,
    evidence: Sequence[str],
    answers: Sequence[str],
    question: str,
    num_words: int,
    rng: np.random.Generator,
) -> str:
    """Return a window of ``num_words`` whole words.

    It contains, at a random position, one of the evidence spans in the text, else one of the answers in it (case
    insensitive, whole words); a longer span is not cut. Without either it is the window that shares the most letters
    with the question's words (ties are random).
    """
    words = [match.span() for match in WORD.finditer(text)]
    if len(words) <= num_words:
        return text
    span = _find(text, evidence, rng) or _find(text, answers, rng)
    if span is None:
        start = _most_like(question, [text[a:b] for a, b in words], num_words, rng)
        return text[words[start][0] : words[start + num_words - 1][1]]
    touched = [index for index, (start, end) in enumerate(words) if start < span[1] and end > span[0]]
    first, last = touched[0], touched[-1]
    low, high = max(0, last + 1 - num_words), min(first, len(words) - num_words)
    start = first if low > high else int(rng.integers(low, high + 1))
    return text[words[start][0] : words[max(start + num_words - 1, last)][1]]


def _most_like(question: str, words: Sequence[str], num_words: int, rng: np.random.Generator) -> int:
    """Return the first word of the window; words weigh by their length, as long ones are more specific."""
    question_words = set(LETTERS.findall(question.casefold()))
    shared = [sum(map(len, question_words.intersection(LETTERS.findall(word.casefold())))) for word in words]
    sums = np.convolve(shared, np.ones(num_words, int), "valid")
    return int(rng.choice(np.flatnonzero(sums == sums.max())))


def _find(text: str, spans: Sequence[str], rng: np.random.Generator) -> tuple[int, int] | None:
    """Return a random occurrence of one of the spans in the text; None without any."""
    patterns = [whole_words(re.escape(span.strip())) for span in spans if has_word(span)]
    matches = [match.span() for whole in patterns for match in re.finditer(whole, text, re.IGNORECASE)]
    return matches[int(rng.integers(len(matches)))] if matches else None


def listed(ranked: Sequence[int], gold: Sequence[int], num_passages: int, num_gold: int) -> list[int]:
    """Return the rows of a question's passages: at most ``num_gold`` gold passages, then the other ranked ones.

    The gold passages are included even if they are more than ``num_passages`` (unless that is 0): a multi-hop question
    needs all.
    """
    if not num_passages:
        return []
    first = gold[:num_gold]
    return [*first, *(row for row in ranked if row not in first)][: max(num_passages, len(first))]


def read_passages(corpus: pa.Table, rows: Sequence[int]) -> list[Passage]:
    """Return the passages in the given rows of a CORPUS."""
    records = corpus.select(["title", "text"]).take(pa.array(rows, pa.int64())).to_pylist()
    return [Passage(record["title"], record["text"]) for record in records]


def tokenised(drawn: Sequence[Drawn], reader: TrainedReader) -> list[Sample]:
    """Tokenise sampled questions, each in its dataset's form."""
    model = reader.model
    requests = [Request.of(reader.forms[one.dataset], one.question, one.passages) for one in drawn]
    answers = model.pieces.tokenise([[Piece("passage", one.answer)] for one in drawn])
    return [
        Sample(prompt, (*answer[: prompt.form.max_new_tokens - len(model.end)], *model.end))
        for prompt, (answer,) in zip(model.render(requests), answers, strict=True)
    ]


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
