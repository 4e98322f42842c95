"""Passages: loading of CORPUS (`load_passages`) and splitting of pages into it (`make_corpus`, `SPLITTERS`)."""

from erag_ray.passages.corpus import make_corpus
from erag_ray.passages.load import CORPUS_COLUMNS, PASSAGE_FORMATS, load_passages, passage_of
from erag_ray.passages.splitters import SPLITTERS, Page, splitter_named

__all__ = [
    "CORPUS_COLUMNS",
    "PASSAGE_FORMATS",
    "SPLITTERS",
    "Page",
    "load_passages",
    "make_corpus",
    "passage_of",
    "splitter_named",
]
