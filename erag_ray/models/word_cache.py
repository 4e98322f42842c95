"""Token ids of texts, word by word: a word that was tokenised once is looked up from then on.

A tokenizer of T5's kind splits a text at its blanks and tokenises each word alone. Text repeats its words, so looking
them up takes a tenth of the time. Words whose tokens could depend on what stands beside them are not looked up, nor
is any word of another kind of tokenizer.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

Ids = tuple[int, ...]
Encode = Callable[[Sequence[str]], list[Ids]]
MAX_WORDS = 1 << 18
"""Most words that are kept; about 40 MB."""
# what works within a word, or only where blanks stand together, which no looked-up text has
NORMALIZERS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Precompiled", "Strip"}
SEVERAL_BLANKS = {"Regex": " {2,}"}
BLANK = "\u2581"
"""What these tokenizers have in place of a blank."""
VISIBLE = "LNPS"
"""Letters, numbers, punctuation and symbols by Unicode's categories: not the marks that join what is before them."""
WITHIN_WORDS = {"Punctuation", "Digits", "WhitespaceSplit"}


def splits_at_blanks(tokenizer: Any) -> bool:
    """Whether each word of a text with single blanks has the tokens that it has alone.

    Args:
        tokenizer: of the package tokenizers.
    """
    made = json.loads(tokenizer.to_str())
    normalizers = list(_stages(made["normalizer"], "normalizers"))
    splitters = list(_stages(made["pre_tokenizer"], "pretokenizers"))
    metaspaces = [stage for stage in splitters if stage["type"] == "Metaspace"]
    others = {stage["type"] for stage in splitters if stage["type"] != "Metaspace"}
    return (
        all(_is_local(stage) for stage in normalizers)
        and [(stage["split"], stage["prepend_scheme"]) for stage in metaspaces] == [(True, "always")]
        and others <= WITHIN_WORDS
        and not made["model"].get("dropout")
        and not any(
            " " in token["content"] or token["lstrip"] or token["rstrip"] for token in made["added_tokens"]
        )
    )


def _stages(stage: Mapping[str, Any] | None, parts: str) -> Iterator[Mapping[str, Any]]:
    if stage is None:
        return
    if stage["type"] != "Sequence":
        yield stage
        return
    for one in stage[parts]:
        yield from _stages(one, parts)


def _is_local(stage: Mapping[str, Any]) -> bool:
    is_replace = stage["type"] == "Replace" and stage["pattern"] == SEVERAL_BLANKS
    return is_replace or stage["type"] in NORMALIZERS


class WordCache:
    """Token ids of plain texts by a tokenizer that `splits_at_blanks`.

    Args:
        encode: the tokenizer.
        written: the texts of its control tokens.
        control_ids: ids that no word may have; a text with such a word is left to ``encode`` as a whole.
    """

    def __init__(self, encode: Encode, written: Collection[str], control_ids: Collection[int]) -> None:
        self._encode = encode
        self._written = re.compile("|".join(map(re.escape, written)) or "(?!)")
        self._control_ids = frozenset(control_ids)
        self._ids: dict[str, Ids | None] = {}

    def __call__(self, texts: Sequence[str]) -> list[Ids]:
        """The token ids of each text."""
        words = [text.split(" ") for text in texts]
        distinct = set(itertools.chain.from_iterable(words))
        if len(self._ids) + len(distinct) > MAX_WORDS:
            self._ids.clear()
        self._learn(distinct.difference(self._ids))
        ids = [self._joined(own) for own in words]
        rest = iter(self._encode([text for text, own in zip(texts, ids, strict=True) if own is None]))
        return [next(rest) if own is None else own for own in ids]

    def _joined(self, words: Sequence[str]) -> Ids | None:
        try:
            return tuple(itertools.chain.from_iterable(map(self._ids.__getitem__, words)))  # type: ignore[arg-type]
        except TypeError:
            # one of them has no tokens of its own
            return None

    def _learn(self, new: Collection[str]) -> None:
        alone = [word for word in new if self._stands_alone(word)]
        self._ids |= dict.fromkeys(new)
        for word, ids in zip(alone, self._encode(alone), strict=True):
            self._ids[word] = ids if self._control_ids.isdisjoint(ids) else None

    def _stands_alone(self, word: str) -> bool:
        """Whether nothing in a word can join the blank before or after it, or become a blank or a control token."""
        if not word.isprintable() or BLANK in word or self._written.search(word):
            return False
        if word.isascii():
            return word != ""
        normal = unicodedata.normalize("NFKC", word)
        has_blank = any(map(str.isspace, normal))
        return (
            unicodedata.category(word[0])[0] in VISIBLE and not has_blank and not self._written.search(normal)
        )
