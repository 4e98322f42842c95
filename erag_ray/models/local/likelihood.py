"""Log-probabilities of answers after a prompt: teacher forcing in one forward pass, without decoding.

A row of a batch is a prompt with the answer tokens that are fed to the model. Answers with the same fed tokens share a
row, such as all answers of one token without an end.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from erag_ray.models.local.memory import Limits, to_device
from erag_ray.models.local.model import LocalModel, PromptTokens
from erag_ray.models.local.word_cache import Ids


class Row(NamedTuple):
    """One row of a batch: the index of a prompt, and the answer tokens that are fed after it."""

    prompt: int
    fed: Ids


def fed(prompt: PromptTokens, ids: Ids) -> Ids:
    """Return the answer tokens that are fed; the last one only if the end after it is scored."""
    if prompt.form.next_token:
        return ()
    return ids if prompt.form.with_end else ids[:-1]


def rows_of(prompts: Sequence[PromptTokens]) -> list[Row]:
    rows = (Row(index, fed(prompt, ids)) for index, prompt in enumerate(prompts) for ids in prompt.answer_ids)
    return list(dict.fromkeys(rows))


def batched(rows: Sequence[Row], prompts: Sequence[PromptTokens], limits: Limits) -> Iterator[Sequence[Row]]:
    longest = max(prompt.length for prompt in prompts) + max((len(row.fed) for row in rows), default=0)
    size = limits.rows_of(longest)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def logprobs_of(
    model: LocalModel,
    logits: torch.Tensor,
    starts: Sequence[int],
    rows: Sequence[Row],
    prompts: Sequence[PromptTokens],
) -> dict[tuple[int, Ids], float]:
    """Return the log-probability of each answer of a batch that counts, by the index of its prompt and the answer.

    All values are copied to the host at once. The probability of an end is the sum of those of all end tokens. Logits
    are [rows, tokens, vocabulary]; those of a row's first answer token are at the row's position in ``starts``.
    """
    form = prompts[0].form
    ends = sorted(model.ends(form))
    # (row, token, vocabulary) of the tokens of each answer, then of the end tokens after them
    positions: dict[tuple[int, Ids], list[tuple[int, int, int]]] = {}
    for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
        prompt = prompts[row.prompt]
        for ids, counts in scored_answers(prompt):
            if counts and fed(prompt, ids) == row.fed:
                tokens = [(number, start + step, id_) for step, id_ in enumerate(ids)]
                end = [(number, start + len(ids), id_) for id_ in ends if model.scores_end(form, ids)]
                positions[row.prompt, ids] = [*tokens, *end]
    places = torch.tensor(list(itertools.chain.from_iterable(positions.values())), dtype=torch.long)
    index = to_device(places.reshape(-1, 3), logits.device).unbind(dim=1)
    values = logits.float().log_softmax(dim=-1)[tuple(index)].cpu()
    parts = torch.split(values, list(map(len, positions.values())))
    return {key: _logprob(key[1], part) for key, part in zip(positions, parts, strict=True)}


def _logprob(ids: Ids, values: torch.Tensor) -> float:
    total, ends = values[: len(ids)].sum(), values[len(ids) :]
    return (total + ends.logsumexp(dim=0) if len(ends) else total).item()


def by_prompt(logprobs: dict[tuple[int, Ids], float], prompts: Sequence[PromptTokens]) -> list[list[float]]:
    """Return the log-probabilities of each prompt's answers, in their order."""
    return [
        [logprobs[index, ids] if counts else -math.inf for ids, counts in scored_answers(prompt)]
        for index, prompt in enumerate(prompts)
    ]


def scored_answers(prompt: PromptTokens) -> Iterator[tuple[Ids, bool]]:
    """Yield the answers of a prompt and whether each counts: of next tokens those of one token, the first of equals."""
    answers, is_next = prompt.answer_ids, prompt.form.next_token
    for index, ids in enumerate(answers):
        yield ids, not is_next or (len(ids) == 1 and ids not in answers[:index])
