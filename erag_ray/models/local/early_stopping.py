"""Outputs that end as soon as no answer can match them any more, where a binary score alone is wanted.

Greedy decoding as ever, so what can still match is written to its end and scored as ever; what is stopped is worth 0
however it would have gone on. The score is exactly that of the whole output, the text is not the whole output: so the
request is another one, and its key includes the answers.

What makes it certain: the text of some tokens is how the text of those and more tokens starts, up to the first
`UNFINISHED` (a character of which some bytes are not written yet, or bytes that are no character: then the whole output
has it too, and matches no answer that has none), and ``Score.may_match`` answers for every text that starts so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from erag_ray.scores import Score, score_named, usable_answers

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
NUM_KEPT = 1 << 16
"""Starts of outputs that are remembered: the documents of a question often make a model write the same."""
Stop = Callable[[int, Sequence[int]], bool]
"""Row of a batch, what it has written -> whether no more of it is wanted."""


class EarlyStopping:
    """When the outputs of one tokenizer can match no answer any more, by one score.

    Args:
        tokenizer: of transformers.
        score: name of the score, which has ``may_match``.
    """

    def __init__(self, tokenizer: Any, score: str) -> None:
        self._tokenizer = tokenizer
        self._score = score_named(score)
        self._is_lost = functools.lru_cache(NUM_KEPT)(self._lost)

    def matches(self, answers: Sequence[str]) -> tuple[str, ...]:
        """The answers that can match."""
        return tuple(usable_answers(self._score, answers))

    def stop(self, matches: Sequence[tuple[str, ...]]) -> Stop | None:
        """Whether no answer can match an output any more; None for a tokenizer that takes blanks back.

        Args:
            matches: of each row of a batch.
        """
        if getattr(self._tokenizer, "clean_up_tokenization_spaces", False):
            return None
        return lambda row, ids: self._is_lost(matches[row], tuple(ids))

    def _lost(self, answers: tuple[str, ...], ids: tuple[int, ...]) -> bool:
        score: Score = self._score
        assert score.may_match is not None, "the kind of request is asked of such scores only"
        if any(UNFINISHED in answer for answer in answers):
            return False
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        return not score.may_match(text.split(UNFINISHED, 1)[0], answers)
