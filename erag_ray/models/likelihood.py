"""The log-probability of given answers after a prompt: teacher-forced, in one forward pass, without decoding.

Every answer that needs tokens of its own to be fed is a row with its prompt; answers that need the same tokens, such as
all those of one token without an end, share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import torch

from erag_ray.models.local import PromptTokens
from erag_ray.models.memory import Limits
from erag_ray.models.tokens import Ids


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
    size = max(1, min(limits.rows, limits.tokens // longest))
    return (rows[start : start + size] for start in range(0, len(rows), size))


def logprobs_of(
    logits: torch.Tensor, row: Row, prompts: Sequence[PromptTokens], scoring: Scoring
) -> dict[tuple[int, Ids], torch.Tensor]:
    """The log-probability of each answer of a row: (place, answer) -> scalar.

    Args:
        logits: [len(fed) + 1, vocabulary], after the prompt and after each token that was fed.
        row: which prompt, and what was fed.
        prompts: of the batch.
        scoring: ends, and which answers have one.
    """
    prompt, chances = prompts[row.place], logits.float().log_softmax(dim=-1)
    answers = (ids for ids in prompt.answer_ids or () if fed(prompt, ids) == row.fed)
    return {(row.place, ids): _logprob(chances, prompt, ids, scoring) for ids in answers}


def _logprob(chances: torch.Tensor, prompt: PromptTokens, ids: Ids, scoring: Scoring) -> torch.Tensor:
    if prompt.form.next_token and len(ids) != 1:
        return chances.new_tensor(float("-inf"))
    total = chances[torch.arange(len(ids)), torch.tensor(ids, dtype=torch.long)].sum()
    if not scoring.has_end(ids):
        return total
    return total + chances[-1, sorted(scoring.ends)].logsumexp(dim=0)


def in_order(
    found: dict[tuple[int, Ids], torch.Tensor], prompts: Sequence[PromptTokens]
) -> list[list[float]]:
    """The log-probabilities of each prompt's answers, in their order."""
    values = dict(zip(found, torch.stack(list(found.values())).tolist(), strict=True)) if found else {}
    return [
        [values[place, ids] if counts else -math.inf for ids, counts in _counting(prompt)]
        for place, prompt in enumerate(prompts)
    ]


def _counting(prompt: PromptTokens) -> Iterator[tuple[Ids, bool]]:
    """The answers of a prompt; of those that are the same next token only the first counts."""
    answers = prompt.answer_ids or ()
    for place, ids in enumerate(answers):
        yield ids, not (prompt.form.next_token and ids in answers[:place])
