"""The log-probability of given answers after a prompt: teacher-forced, in one forward pass, without decoding.

Every answer that needs tokens of its own to be fed is a row with its prompt; answers that need the same tokens, such as
all those of one token without an end, share it.
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
    """One row of a batch: a prompt, and the tokens of an answer that are fed after it."""

    place: int
    fed: Ids


class Scoring(NamedTuple):
    """How the answers of a batch are scored.

    Attributes:
        ends: tokens that end an output; together they have the probability that it ends.
        has_end: whether an answer's log-likelihood includes its end.
    """

    ends: Collection[int]
    has_end: Callable[[Ids], bool]


def fed(prompt: PromptTokens, ids: Ids) -> Ids:
    """The tokens of an answer that are fed: its last one only where the end after it is scored."""
    if prompt.form.next_token:
        return ()
    return ids if prompt.form.with_end else ids[:-1]


def rows_of(prompts: Sequence[PromptTokens]) -> list[Row]:
    """The distinct rows of a batch."""
    rows = (
        Row(place, fed(prompt, ids))
        for place, prompt in enumerate(prompts)
        for ids in prompt.answer_ids or ()
    )
    return list(dict.fromkeys(rows))


def batched(rows: Sequence[Row], prompts: Sequence[PromptTokens], limits: Limits) -> Iterator[Sequence[Row]]:
    """As many as one batch may have; each is a row of its own, with its prompt."""
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
    """The log-probability of each answer of a batch: (place, answer) -> scalar, on the host.

    The device is asked for all of them at once.

    Args:
        logits: [rows, tokens, vocabulary].
        starts: where, among the tokens of each row, the answer's first one is predicted.
        rows: which prompt each is, and what was fed.
        prompts: of the batch.
        scoring: ends, and which answers have one.
    """
    answers = list(_scored_answers(rows, prompts, scoring))
    ends = sorted(scoring.ends)
    places = [place for one in answers for place in one.places(starts[one.row], ends)]
    values = _values(logits, places)
    found, start = {}, 0
    for one in answers:
        stop = start + one.num_places(ends)
        found[rows[one.row].place, one.ids] = one.logprob(values[start:stop])
        start = stop
    return found


class _ScoredAnswer(NamedTuple):
    """One answer of a row of a batch."""

    row: int
    ids: Ids
    has_end: bool
    is_possible: bool
    """Several tokens are never the one next token."""

    def places(self, start: int, ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Row, token and vocabulary of the log-probabilities of its tokens, then of the ends after them."""
        if self.is_possible:
            yield from ((self.row, start + step, id_) for step, id_ in enumerate(self.ids))
            if self.has_end:
                yield from ((self.row, start + len(self.ids), id_) for id_ in ends)

    def num_places(self, ends: Sequence[int]) -> int:
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
        prompt = prompts[row.place]
        for ids in dict.fromkeys(prompt.answer_ids or ()):
            if fed(prompt, ids) == row.fed:
                is_possible = not prompt.form.next_token or len(ids) == 1
                yield _ScoredAnswer(number, ids, scoring.has_end(ids), is_possible)


def _values(logits: torch.Tensor, places: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    """The log-probabilities at some places of a batch, on the host."""
    index = to_device(torch.tensor(places, dtype=torch.long).reshape(-1, 3), logits.device)
    return logits.float().log_softmax(dim=-1)[tuple(index.unbind(dim=1))].cpu()


def in_order(
    found: dict[tuple[int, Ids], torch.Tensor], prompts: Sequence[PromptTokens]
) -> list[list[float]]:
    """The log-probabilities of each prompt's answers, in their order."""
    values = dict(zip(found, torch.stack(list(found.values())).tolist(), strict=True)) if found else {}
    return [
        [values[place, ids] if counts else -math.inf for ids, counts in counting(prompt)]
        for place, prompt in enumerate(prompts)
    ]


def counting(prompt: PromptTokens) -> Iterator[tuple[Ids, bool]]:
    """The answers of a prompt; of those that are the same next token only the first counts."""
    answers = prompt.answer_ids or ()
    for place, ids in enumerate(answers):
        yield ids, not (prompt.form.next_token and ids in answers[:place])
