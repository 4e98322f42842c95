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
JOINED_WORDS = 64
"""New words that are tokenised as one text."""
# what works within a word, or only where blanks stand together, which no looked-up text has
NORMALIZERS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Precompiled", "Strip"}
SEVERAL_BLANKS = {"Regex": " {2,}"}
BLANK = "\u2581"
"""What these tokenizers have in place of a blank."""
VISIBLE = "LNPS"
"""Letters, numbers, punctuation and symbols by Unicode's categories: not the marks that join what is before them."""
WITHIN_WORDS = {"Punctuation", "Digits"}
AT_BLANKS = {"Metaspace", "WhitespaceSplit"}
Normalize = Callable[[str], str]


def splits_at_blanks(tokenizer: Any) -> bool:
    """Return whether each word of a text with single blanks has the tokens that it has alone.

    Args:
        tokenizer: of the package tokenizers.
    """
    made = json.loads(tokenizer.to_str())
    normalizers = list(_stages(made["normalizer"], "normalizers"))
    splitters = list(_stages(made["pre_tokenizer"], "pretokenizers"))
    metaspaces = [stage for stage in splitters if stage["type"] == "Metaspace"]
    types = [stage["type"] for stage in splitters]
    return (
        all(_is_local(stage) for stage in normalizers)
        and [(stage["split"], stage["prepend_scheme"]) for stage in metaspaces] == [(True, "always")]
        # what splits words must come after what splits at blanks, or its pieces would depend on the blanks
        and types[0] in AT_BLANKS
        and set(types) <= AT_BLANKS | WITHIN_WORDS
        and _keeps_ascii_words(normalizer_of(tokenizer))
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


def normalizer_of(tokenizer: Any) -> Normalize:
    """Return what a tokenizer does to a text first.

    Args:
        tokenizer: of the package tokenizers.
    """
    normalizer = tokenizer.normalizer
    return str if normalizer is None else normalizer.normalize_str


def _keeps_ascii_words(normalize: Normalize) -> bool:
    """Return whether a printable character of ASCII is never made a blank, or joined with one."""
    return all(_is_apart(chr(code), normalize) for code in range(ord("!"), 0x7F))


def _is_apart(word: str, normalize: Normalize) -> bool:
    """Return whether a word is normalised alike alone and between blanks, to something without blanks."""
    alone, side = normalize(word), normalize("a")
    has_blank = BLANK in alone or any(map(str.isspace, alone))
    return alone != "" and not has_blank and normalize(f"a {word} a") == f"{side} {alone} {side}"


def word_starts(tokenizer: Any) -> frozenset[int]:
    """Return the ids of pieces that begin a word, where every word has exactly one of them; else nothing.

    Args:
        tokenizer: of the package tokenizers, that `splits_at_blanks`.
    """
    splitters = _stages(json.loads(tokenizer.pre_tokenizer.__getstate__()), "pretokenizers")
    if {stage["type"] for stage in splitters} - {"Metaspace", "WhitespaceSplit"}:
        # it may split a word, and put a blank before each piece of it
        return frozenset()
    return frozenset(id_ for piece, id_ in tokenizer.get_vocab().items() if piece.startswith(BLANK))


class WordCache:
    """Token ids of plain texts by a tokenizer that `splits_at_blanks`.

    Args:
        encode: the tokenizer.
        written: the texts of its control tokens.
        control_ids: ids that no word may have; a text with such a word is left to ``encode`` as a whole.
        starts: its `word_starts`: with them new words are tokenised many in one text, which takes half of the time.
        normalize: what the tokenizer does to a text first.
    """

    def __init__(
        self,
        encode: Encode,
        written: Collection[str],
        control_ids: Collection[int],
        starts: Collection[int] = (),
        normalize: Normalize = str,
    ) -> None:
        self._encode = encode
        self._written = re.compile("|".join(map(re.escape, written)) or "(?!)")
        self._control_ids = frozenset(control_ids)
        self._starts = frozenset(starts)
        self._normalize = normalize
        self._ids: dict[str, Ids | None] = {}
        self._numbers: dict[int, int] = {}
        """Each id as one object, so that the ids of all words lie close together in memory."""

    def __call__(self, texts: Sequence[str]) -> list[Ids]:
        """Return the token ids of each text."""
        ids = list(map(self._joined, texts))
        self._learn([text for text, own in zip(texts, ids, strict=True) if own is None])
        ids = [self._joined(text) if own is None else own for text, own in zip(texts, ids, strict=True)]
        rest = iter(self._encode([text for text, own in zip(texts, ids, strict=True) if own is None]))
        return [next(rest) if own is None else own for own in ids]

    def _joined(self, text: str) -> Ids | None:
        """Return the ids of a text by its words; None if one of them is not known, or has no tokens of its own."""
        try:
            return tuple(itertools.chain.from_iterable(map(self._ids.get, _words(text))))  # type: ignore[arg-type]
        except TypeError:
            return None

    def _learn(self, texts: Sequence[str]) -> None:
        words = set(itertools.chain.from_iterable(map(_words, texts)))
        new = words.difference(self._ids)
        if len(self._ids) + len(new) > MAX_WORDS:
            self._ids.clear()
            new = words
        alone = list(filter(self._stands_alone, new))
        self._ids |= dict.fromkeys(new)
        for word, ids in zip(alone, self._encode_words(alone), strict=True):
            if self._control_ids.isdisjoint(ids):
                self._ids[word] = tuple(map(self._numbers.setdefault, ids, ids))

    def _encode_words(self, words: Sequence[str]) -> Iterator[Ids]:
        """Yield the ids of each word."""
        if not self._starts:
            yield from self._encode(words)
            return
        groups = [words[start : start + JOINED_WORDS] for start in range(0, len(words), JOINED_WORDS)]
        for group, ids in zip(groups, self._encode([" ".join(group) for group in groups]), strict=True):
            starts = [place for place, id_ in enumerate(ids) if id_ in self._starts]
            if len(starts) == len(group) and starts[0] == 0:
                yield from (ids[start:end] for start, end in itertools.pairwise([*starts, len(ids)]))
            else:
                # the vocabulary has no piece for the start of one of them
                yield from self._encode(group)

    def _stands_alone(self, word: str) -> bool:
        """Return whether nothing in a word joins the blanks beside it, or becomes a blank or a control token."""
        if not word.isprintable() or BLANK in word or self._written.search(word):
            return False
        if word.isascii():
            return word != ""
        is_visible = unicodedata.category(word[0])[0] in VISIBLE
        normal = unicodedata.normalize("NFKC", word)
        return is_visible and not self._written.search(normal) and _is_apart(word, self._normalize)


def _words(text: str) -> list[str]:
    """Return the words of a text; one blank before the first, which is that word's own, is none of them."""
    return text.removeprefix(" ").split(" ")
