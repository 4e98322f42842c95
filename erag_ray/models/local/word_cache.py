"""Tokenization with a cache of words.

A tokenizer like T5's splits a text at its blanks and tokenizes each word by itself. Text repeats its words, so a cache
takes a tenth of the time. Words whose tokens could depend on their neighbours are not cached, nor are words of other
tokenizers.
"""

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

Ids = tuple[int, ...]
Encode = Callable[[Sequence[str]], list[Ids]]
MAX_WORDS = 1 << 18
"""Size of the cache; about 40 MB."""
# normalizers that work within a word, or only on repeated blanks, which no cached text has
NORMALIZERS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Precompiled", "Strip"}
SEVERAL_BLANKS = {"Regex": " {2,}"}
BLANK = "\u2581"
"""The character that these tokenizers use instead of a blank."""
VISIBLE = "LNPS"
"""Unicode categories of letters, numbers, punctuation and symbols; not of marks, which combine with what precedes."""
WITHIN_WORDS = {"Punctuation", "Digits"}
AT_BLANKS = {"Metaspace", "WhitespaceSplit"}
Normalize = Callable[[str], str]


def splits_at_blanks(tokenizer: Any) -> bool:
    """Return whether in a text with single blanks each word's tokens are independent of the other words."""
    settings = json.loads(tokenizer.to_str())
    normalizers = list(_stages(settings["normalizer"], "normalizers"))
    splitters = list(_stages(settings["pre_tokenizer"], "pretokenizers"))
    metaspaces = [stage for stage in splitters if stage["type"] == "Metaspace"]
    types = [stage["type"] for stage in splitters]
    normalize = normalizer_of(tokenizer)
    return (
        all(
            stage["type"] in NORMALIZERS
            or (stage["type"] == "Replace" and stage["pattern"] == SEVERAL_BLANKS)
            for stage in normalizers
        )
        and [(stage["split"], stage["prepend_scheme"]) for stage in metaspaces] == [(True, "always")]
        # a stage that splits words must come after the one that splits at blanks, or it would depend on the blanks
        and types[0] in AT_BLANKS
        and set(types) <= AT_BLANKS | WITHIN_WORDS
        # no printable ASCII character is normalised to a blank, or merged with one
        and all(_is_independent(chr(code), normalize) for code in range(ord("!"), 0x7F))
        and not settings["model"].get("dropout")
        and not any(
            " " in token["content"] or token["lstrip"] or token["rstrip"]
            for token in settings["added_tokens"]
        )
    )


def _stages(stage: Mapping[str, Any] | None, key: str) -> Iterator[Mapping[str, Any]]:
    if stage is None:
        return
    if stage["type"] != "Sequence":
        yield stage
        return
    for member in stage[key]:
        yield from _stages(member, key)


def normalizer_of(tokenizer: Any) -> Normalize:
    """Return the normalizer of a tokenizer as a function."""
    normalizer = tokenizer.normalizer
    return str if normalizer is None else normalizer.normalize_str


def _is_independent(word: str, normalize: Normalize) -> bool:
    """Return whether a word is normalised in the same way by itself and between blanks, to a text without blanks."""
    form, neighbour = normalize(word), normalize("a")
    has_blank = BLANK in form or any(map(str.isspace, form))
    return form != "" and not has_blank and normalize(f"a {word} a") == f"{neighbour} {form} {neighbour}"


class WordCache:
    """Token ids of plain texts by a tokenizer that `splits_at_blanks`.

    A text with a word that has one of ``control_ids``, the ids of control tokens, is tokenized as a whole.
    """

    def __init__(
        self,
        encode: Encode,
        control_texts: Collection[str],
        control_ids: Collection[int],
        normalize: Normalize = str,
    ) -> None:
        self._encode = encode
        self._control_text = re.compile("|".join(map(re.escape, control_texts)) or "(?!)")
        self._control_ids = frozenset(control_ids)
        self._normalize = normalize
        self._ids: dict[str, Ids | None] = {}
        self._numbers: dict[int, int] = {}
        """Interns ids, so that equal ids are one object and close together in memory."""

    def __call__(self, texts: Sequence[str]) -> list[Ids]:
        ids = list(map(self._joined, texts))
        self._add_words([text for text, cached in zip(texts, ids, strict=True) if cached is None])
        ids = [
            self._joined(text) if cached is None else cached for text, cached in zip(texts, ids, strict=True)
        ]
        rest = iter(self._encode([text for text, cached in zip(texts, ids, strict=True) if cached is None]))
        return [next(rest) if cached is None else cached for cached in ids]

    def _joined(self, text: str) -> Ids | None:
        """Return the concatenated ids of a text's words; None if a word is not in the cache or cannot be cached."""
        try:
            return tuple(itertools.chain.from_iterable(map(self._ids.get, _words(text))))  # type: ignore[arg-type]
        except TypeError:
            return None

    def _add_words(self, texts: Sequence[str]) -> None:
        words = set(itertools.chain.from_iterable(map(_words, texts)))
        new = words.difference(self._ids)
        if len(self._ids) + len(new) > MAX_WORDS:
            self._ids.clear()
            new = words
        cacheable = list(filter(self._is_cacheable, new))
        self._ids |= dict.fromkeys(new)
        for word, ids in zip(cacheable, self._encode(cacheable), strict=True):
            if self._control_ids.isdisjoint(ids):
                self._ids[word] = tuple(map(self._numbers.setdefault, ids, ids))

    def _is_cacheable(self, word: str) -> bool:
        """Return whether no part of a word merges with the blanks around it, or becomes a blank or a control token."""
        if not word.isprintable() or BLANK in word or self._control_text.search(word):
            return False
        if word.isascii():
            return word != ""
        is_visible = unicodedata.category(word[0])[0] in VISIBLE
        normal = unicodedata.normalize("NFKC", word)
        return is_visible and not self._control_text.search(normal) and _is_independent(word, self._normalize)


def _words(text: str) -> list[str]:
    """Split a text at its blanks; one blank at its start belongs to the first word."""
    return text.removeprefix(" ").split(" ")
