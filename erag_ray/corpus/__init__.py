"""Pages -> CORPUS: passages by a named splitting rule (`SPLITTERS`), in sealed Parquet parts (`make_corpus`)."""

from erag_ray.corpus.making import SealedCorpus, make_corpus
from erag_ray.corpus.splitters import SPLITTERS, Page, Splitter, splitter_named

__all__ = ["SPLITTERS", "Page", "SealedCorpus", "Splitter", "make_corpus", "splitter_named"]
