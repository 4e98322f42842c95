"""Early stopping: for a binary score, an output ends as soon as no answer can match it any more.

Decoding stays greedy. An output that can still match is generated to its end; one that is stopped would score 0
whatever follows. So the score is exactly that of the full output, but the text may be shorter: such requests have a
key of their own, which includes the answers.

This is exact because the decoded text of some tokens is a prefix of the decoded text of these and more tokens, up to
the first `UNFINISHED` (an incomplete character, or bytes that are no character; in the second case the full output has
it too, and cannot match an answer without it), and because ``Score.may_match`` holds for every text with this prefix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from erag_ray.measures.scores import score_named, usable_answers
from erag_ray.models.local.model import PromptTokens
from erag_ray.prompts.request import Request

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
NUM_CACHED = 1 << 16
"""Size of the cache of checked prefixes: the documents of a question often lead to the same output."""
MayMatch = Callable[[str, Sequence[str]], bool]
Stop = Callable[[int, Sequence[int]], bool]
"""(row of a batch, its output tokens so far) -> whether the output can end here."""


class EarlyStopping:
    """Early stopping for one tokenizer of transformers; the form of a request names the score."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._score_named = functools.cache(score_named)
        self._is_mismatch = functools.lru_cache(NUM_CACHED)(self._mismatches)

    def matches(self, request: Request) -> tuple[str, ...]:
        """Return the answers that can match the output; none if it is not to be stopped early."""
        score = request.form.early_stop
        return tuple(usable_answers(score_named(score), request.answers)) if score else ()

    def stop(self, prompts: Sequence[PromptTokens]) -> Stop | None:
        """Return the stop of a batch of one form; None without early stopping.

        It is also None if the tokenizer's clean-up may remove blanks from already decoded text.
        """
        score = prompts[0].form.early_stop
        if score is None or getattr(self._tokenizer, "clean_up_tokenization_spaces", False):
            return None
        may_match = self._score_named(score).may_match
        assert may_match is not None, "early-stopped requests are planned only for scores with may_match"
        return lambda row, ids: self._is_mismatch(may_match, prompts[row].matches, tuple(ids))

    def _mismatches(self, may_match: MayMatch, answers: tuple[str, ...], ids: tuple[int, ...]) -> bool:
        """Return whether no output that starts with these tokens can match an answer."""
        if any(UNFINISHED in answer for answer in answers):
            return False
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        return not may_match(text.split(UNFINISHED, 1)[0], answers)


def up_to_stop(row: int, ids: list[int], stop: Stop) -> list[int]:
    """Return the shortest prefix of a row's tokens for which ``stop`` is True, else all of them."""
    lengths = range(1, len(ids))
    return ids[: next((length for length in lengths if stop(row, ids[:length])), len(ids))]
