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

from erag_ray.measures.scores import Score, score_named, usable_answers

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
NUM_CACHED = 1 << 16
"""Size of the cache of checked prefixes: the documents of a question often lead to the same output."""
Stop = Callable[[int, Sequence[int]], bool]
"""(row of a batch, its output tokens so far) -> whether the output can end here."""


class EarlyStopping:
    """Early stopping for one tokenizer and one score.

    Args:
        tokenizer: of transformers.
        score: name of the score, which has ``may_match``.
    """

    def __init__(self, tokenizer: Any, score: str) -> None:
        self._tokenizer = tokenizer
        self._score = score_named(score)
        self._is_mismatch = functools.lru_cache(NUM_CACHED)(self._mismatches)

    def matches(self, answers: Sequence[str]) -> tuple[str, ...]:
        """Return the answers that can match."""
        return tuple(usable_answers(self._score, answers))

    def stop(self, matches: Sequence[tuple[str, ...]]) -> Stop | None:
        """Return the stop of a batch; None if the tokenizer's clean-up may remove blanks from already decoded text.

        Args:
            matches: the answers that can match, of each row of the batch.
        """
        if getattr(self._tokenizer, "clean_up_tokenization_spaces", False):
            return None
        return lambda row, ids: self._is_mismatch(matches[row], tuple(ids))

    def _mismatches(self, answers: tuple[str, ...], ids: tuple[int, ...]) -> bool:
        """Return whether no output that starts with these tokens can match an answer."""
        score: Score = self._score
        assert score.may_match is not None, (
            "early-stopped requests are planned only for scores with may_match"
        )
        if any(UNFINISHED in answer for answer in answers):
            return False
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        return not score.may_match(text.split(UNFINISHED, 1)[0], answers)
