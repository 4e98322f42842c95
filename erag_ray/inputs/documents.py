"""The documents of runs, by the corpora that these search: entries and passage files to RUNS and CORPUS.

Where runs search several corpora, a document's id gets the corpus's name before it (``small/d1``), so equal ids of two
corpora stay apart, and from here on all corpora are one.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from erag_ray.config.job import JobConfig
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.predictions import resolve_pages
from erag_ray.data.runs.texts import load_corpus


class Documents(NamedTuple):
    """Documents of the runs of one corpus, or of all."""

    runs: pl.DataFrame
    """RUNS."""
    corpus: pl.DataFrame
    """CORPUS: their passages, and those of gold pages."""
    present: pl.DataFrame
    """doc_id: documents that count as present; those of the runs if the passages could not be read."""


def load_documents(
    config: JobConfig, entries: pl.DataFrame, diagnostics: Diagnostics, *, gold: pl.DataFrame
) -> Documents:
    """Load the passages of all runs' entries, cut to what is used, and of PROVENANCE; resolve pages among the entries.

    The job's ``run_corpora`` says which corpus each run searches.
    """
    parts = []
    for name, paths, part in _by_corpus(config, entries):
        documents = _of_one(paths, part, diagnostics, gold)
        doc_id = pl.lit(f"{name}/" if name else "") + pl.col("doc_id")
        parts.append(Documents(*(table.with_columns(doc_id=doc_id) for table in documents)))
    return Documents(*(pl.concat(tables) for tables in zip(*parts, strict=True)))


def _by_corpus(config: JobConfig, entries: pl.DataFrame) -> Iterator[tuple[str, Sequence[str], pl.DataFrame]]:
    """Yield name, passage files and entries of each corpus; the name of a job's only one is ""."""
    if not config.run_corpora:
        yield "", config.passages, entries
    for name in config.searched_corpora:
        runs = [run for run, corpus in config.run_corpora.items() if corpus == name]
        paths = config.corpora[name].passages if name in config.corpora else []
        yield name, paths, entries.filter(pl.col("run_id").is_in(runs))


def _of_one(
    paths: Sequence[str], entries: pl.DataFrame, diagnostics: Diagnostics, gold: pl.DataFrame
) -> Documents:
    num_before = diagnostics.num_errors
    corpus = load_corpus(paths, entries, diagnostics, gold=gold)
    # unreadable passages are one problem, not one for every document
    unreadable = diagnostics.num_errors > num_before and not corpus.height
    runs = resolve_pages(entries, corpus, Diagnostics() if unreadable else diagnostics)
    return Documents(runs, corpus, (runs if unreadable else corpus).select("doc_id"))
