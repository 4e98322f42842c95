"""Analysers: texts to the words that BM25 counts, in order, with repetitions.

A new analyser is one class, which takes no arguments and is instantiated in each process, and one line in `ANALYSERS`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import unicodedata
from collections.abc import Sequence
from typing import Any

import bm25s
import Stemmer

from erag_ray.store.fingerprints import code_stamp
from erag_ray.support.registry import find

# a word includes what an apostrophe joins to it: the stemmer strips a possessive 's
TOKEN = r"(?u)\w+(?:'\w+)*"
CURLY_APOSTROPHE = "\u2019"


class English:
    """Lower-case words without the stop words of Lucene's English analyser, stemmed by Snowball's English stemmer."""

    package: str | None = None
    settings = (
        f"NFC, lower case, {TOKEN}, stop words of Lucene's English analyser, Snowball's English stemmer"
    )

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        clean = [unicodedata.normalize("NFC", text).replace(CURLY_APOSTROPHE, "'") for text in texts]
        words: list[list[str]] = bm25s.tokenize(
            clean,
            token_pattern=TOKEN,
            stopwords="english",
            stemmer=Stemmer.Stemmer("english"),
            return_ids=False,
            show_progress=False,
        )
        return words


class Korean:
    """All morphemes of Kiwi's analysis, in lower case, as in the dual-label paper's BM25."""

    package: str | None = "kiwipiepy"
    settings = "NFC, lower case, morphemes by kiwipiepy"

    def __init__(self) -> None:
        kiwipiepy = importlib.import_module("kiwipiepy")
        self._kiwi: Any = kiwipiepy.Kiwi(num_workers=1)

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        clean = [unicodedata.normalize("NFC", text).lower() for text in texts]
        return [[token.form for token in tokens] for tokens in self._kiwi.tokenize(clean)]


def analyser_named(name: str) -> Any:
    """Return an analyser of `ANALYSERS`, or of package.module:name.

    Raises:
        ValueError: the name is unknown, or a required package is not installed.
    """
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
