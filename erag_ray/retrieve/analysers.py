"""Analysers: texts to the words that BM25 counts, in order, with repetitions.

A new analyser is one class, which takes no arguments and is instantiated in each process, and one line in `ANALYSERS`.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import unicodedata
from collections.abc import Sequence
from typing import Any

import regex
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from erag_ray.store.fingerprints import code_stamp
from erag_ray.support.registry import find

# a word includes its accents and vowel signs, unlike \w of re, and what an apostrophe joins to it: the stemmer strips a
# possessive 's
WORD = regex.compile(r"(?!\p{M})\w+(?:'\w+)*")
STOP_WORDS = frozenset(STOPWORDS_EN)
CURLY_APOSTROPHE = "\u2019"


class English:
    """Lower-case words without the stop words of Lucene's English analyser, stemmed by Snowball's English stemmer."""

    without_words = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    """Pattern, of Polars, of texts in scripts without spaces: a whole clause is one word."""
    settings = f"NFC, lower case, {WORD.pattern}, stop words of Lucene's English analyser, Snowball's English stemmer"

    def __init__(self) -> None:
        self._stem = functools.lru_cache(1 << 18)(Stemmer.Stemmer("english").stemWord)

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        clean = (unicodedata.normalize("NFC", text).replace(CURLY_APOSTROPHE, "'").lower() for text in texts)
        return [[self._stem(word) for word in WORD.findall(text) if word not in STOP_WORDS] for text in clean]


class Korean:
    """All morphemes of Kiwi's analysis, in lower case, as in the dual-label paper's BM25."""

    package = "kiwipiepy"
    settings = "NFC, lower case, morphemes by kiwipiepy"

    def __init__(self) -> None:
        self._kiwi: Any = importlib.import_module("kiwipiepy").Kiwi(num_workers=1)

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        clean = [unicodedata.normalize("NFC", text).lower() for text in texts]
        return [[token.form for token in tokens] for tokens in self._kiwi.tokenize(clean)]


def analyser_named(name: str) -> Any:
    """Return an analyser of `ANALYSERS`, or package.module:name; raise ValueError if it or its package is missing."""
    analyser = find("analyser", name, ANALYSERS)
    package = getattr(analyser, "package", None)
    if package and importlib.util.find_spec(package) is None:
        raise ValueError(f"the analyser {name} needs the package {package}: pip install {package}")
    return analyser


def analyser_settings(name: str) -> dict[str, str | None]:
    """Return all that an analyser's words depend on: its name, its description, the versions of its packages."""
    packages = ("bm25s", "PyStemmer") if name == "english" else ("kiwipiepy", "kiwipiepy_model")
    versions = {package: importlib.metadata.version(package) for package in packages if name in ANALYSERS}
    rule = getattr(analyser_named(name), "settings", None)
    stamp = code_stamp(name)
    return {"name": name, "rule": rule, **versions, **({"code": stamp} if stamp else {})}


ANALYSERS: dict[str, Any] = {"english": English, "korean": Korean}
