"""Log-probabilities of answers after a prompt: teacher forcing in one forward pass, without decoding.

A row of a batch is a prompt with the answer tokens that are fed to the model. Answers with the same fed tokens share a
row, such as all answers of one token without an end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import torch

from erag_ray.models.local.memory import Limits, to_device
from erag_ray.models.local.model import PromptTokens
from erag_ray.models.local.word_cache import Ids


class Row(NamedTuple):
    """One row of a batch: the index of a prompt, and the answer tokens that are fed after it."""

    prompt: int
    fed: Ids


class Scoring(NamedTuple):
    """How the answers of a batch are scored.

    Attributes:
        ends: tokens that end an output; the probability of the end is the sum of theirs.
        has_end: whether an answer's log-likelihood includes its end.
    """

    ends: Collection[int]
    has_end: Callable[[Ids], bool]


def fed(prompt: PromptTokens, ids: Ids) -> Ids:
    """Return the answer tokens that are fed; the last one only if the end after it is scored."""
    if prompt.form.next_token:
        return ()
    return ids if prompt.form.with_end else ids[:-1]


def rows_of(prompts: Sequence[PromptTokens]) -> list[Row]:
    rows = (
        Row(index, fed(prompt, ids))
        for index, prompt in enumerate(prompts)
        for ids in prompt.answer_ids or ()
    )
    return list(dict.fromkeys(rows))


def batched(rows: Sequence[Row], prompts: Sequence[PromptTokens], limits: Limits) -> Iterator[Sequence[Row]]:
    longest = max(prompt.length for prompt in prompts) + max((len(row.fed) for row in rows), default=0)
    size = limits.rows_of(longest)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def logprobs_of(
    logits: torch.Tensor,
    starts: Sequence[int],
    rows: Sequence[Row],
    prompts: Sequence[PromptTokens],
    scoring: Scoring,
) -> dict[tuple[int, Ids], torch.Tensor]:
    """Return the log-probability of each answer of a batch: (index of the prompt, answer) -> scalar, on the host.

    All values are copied from the device at once.

    Args:
        logits: [rows, tokens, vocabulary].
        starts: of each row, the position at which the answer's first token is predicted.
        rows: of the batch.
        prompts: to which the rows refer.
        scoring: end tokens, and which answers have an end.
    """
    answers = list(_scored_answers(rows, prompts, scoring))
    ends = sorted(scoring.ends)
    positions = [position for answer in answers for position in answer.positions(starts[answer.row], ends)]
    values = _values(logits, positions)
    logprobs, start = {}, 0
    for answer in answers:
        stop = start + answer.num_positions(ends)
        logprobs[rows[answer.row].prompt, answer.ids] = answer.logprob(values[start:stop])
        start = stop
    return logprobs


class _ScoredAnswer(NamedTuple):
    row: int
    ids: Ids
    has_end: bool
    is_possible: bool
    """False for an answer of several tokens that is scored as a next token."""

    def positions(self, start: int, ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield (row, token, vocabulary) of the log-probabilities of its tokens, then of the end tokens after them."""
        if self.is_possible:
            yield from ((self.row, start + step, id_) for step, id_ in enumerate(self.ids))
            if self.has_end:
                yield from ((self.row, start + len(self.ids), id_) for id_ in ends)

    def num_positions(self, ends: Sequence[int]) -> int:
        return self.is_possible * (len(self.ids) + self.has_end * len(ends))

    def logprob(self, values: torch.Tensor) -> torch.Tensor:
        if not self.is_possible:
            return values.new_tensor(-math.inf)
        total = values[: len(self.ids)].sum()
        return total + values[len(self.ids) :].logsumexp(dim=0) if self.has_end else total


def _scored_answers(
    rows: Sequence[Row], prompts: Sequence[PromptTokens], scoring: Scoring
) -> Iterator[_ScoredAnswer]:
    for number, row in enumerate(rows):
        prompt = prompts[row.prompt]
        for ids in dict.fromkeys(prompt.answer_ids or ()):
            if fed(prompt, ids) == row.fed:
                is_possible = not prompt.form.next_token or len(ids) == 1
                yield _ScoredAnswer(number, ids, scoring.has_end(ids), is_possible)


def _values(logits: torch.Tensor, positions: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    """Return the log-probabilities at positions of a batch, on the host."""
    index = to_device(torch.tensor(positions, dtype=torch.long).reshape(-1, 3), logits.device)
    return logits.float().log_softmax(dim=-1)[tuple(index.unbind(dim=1))].cpu()


def by_prompt(
    logprobs: dict[tuple[int, Ids], torch.Tensor], prompts: Sequence[PromptTokens]
) -> list[list[float]]:
    """Return the log-probabilities of each prompt's answers, in their order."""
    values = (
        dict(zip(logprobs, torch.stack(list(logprobs.values())).tolist(), strict=True)) if logprobs else {}
    )
    return [
        [values[index, ids] if counts else -math.inf for ids, counts in scored_answers(prompt)]
        for index, prompt in enumerate(prompts)
    ]


def scored_answers(prompt: PromptTokens) -> Iterator[tuple[Ids, bool]]:
    """Yield the answers of a prompt and whether each counts: of equal next tokens only the first does."""
    answers = prompt.answer_ids or ()
    for index, ids in enumerate(answers):
        yield ids, not (prompt.form.next_token and ids in answers[:index])
