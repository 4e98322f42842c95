"""How a text becomes the words that BM25 counts. A new analyser is one class and one line in `ANALYSERS`."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import unicodedata
from collections.abc import Sequence
from typing import Any, Protocol

import bm25s
import Stemmer

from erag_ray.registry import find

# a word with what an apostrophe joins to it: the stemmer takes a possessive 's off
TOKEN = r"(?u)\w+(?:'\w+)*"
CURLY_APOSTROPHE = "\u2019"


class Analyser(Protocol):
    """A way to make words; made without arguments, in every process that needs it."""

    settings: str
    package: str | None

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text, in order, repeats kept."""


class English:
    """Words in lower case, without the stop words of Lucene's English analyser, by Snowball's English stemmer."""

    package: str | None = None
    settings = (
        f"NFC, lower case, {TOKEN}, stop words of Lucene's English analyser, Snowball's English stemmer"
    )

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        clean = [unicodedata.normalize("NFC", text).replace(CURLY_APOSTROPHE, "'") for text in texts]
        found: list[list[str]] = bm25s.tokenize(
            clean,
            token_pattern=TOKEN,
            stopwords="english",
            stemmer=Stemmer.Stemmer("english"),
            return_ids=False,
            show_progress=False,
        )
        return found


class Korean:
    """Morphemes as Kiwi finds them, all of them, in lower case; what the dual-label paper's BM25 counts."""

    package: str | None = "kiwipiepy"
    settings = "NFC, lower case, morphemes by kiwipiepy"

    def __init__(self) -> None:
        kiwipiepy = importlib.import_module("kiwipiepy")
        self._kiwi: Any = kiwipiepy.Kiwi(num_workers=1)

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        clean = [unicodedata.normalize("NFC", text).lower() for text in texts]
        return [[token.form for token in tokens] for tokens in self._kiwi.tokenize(clean)]


def analyser_named(name: str) -> type[Analyser]:
    """An analyser of `ANALYSERS`, or package.module:name.

    Raises:
        ValueError: there is none of that name, or the package that it needs is not installed.
    """
    found = find("analyser", name, ANALYSERS)
    package = getattr(found, "package", None)
    if package and importlib.util.find_spec(package) is None:
        raise ValueError(f"the analyser {name} needs the package {package}: pip install {package}")
    return found


def analyser_settings(name: str) -> dict[str, str | None]:
    """What an analyser's words depend on: its name, its own description, the versions of the packages behind it."""
    packages = ("bm25s", "PyStemmer") if name == "english" else ("kiwipiepy", "kiwipiepy_model")
    versions = {package: importlib.metadata.version(package) for package in packages if name in ANALYSERS}
    return {"name": name, "rule": getattr(analyser_named(name), "settings", None), **versions}


ANALYSERS: dict[str, type[Analyser]] = {
    "english": English,
    "korean": Korean,
}
