"""Keys of a comparison whose runs search several corpora: other passages, or the same pages split in other ways."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from erag_ray.config.inputs import PassageKeys
from erag_ray.config.keys.values import require
from erag_ray.config.retrieval import RetrieverConfig, is_file_name


class CorpusConfig(PassageKeys):
    """One corpus: passages, or pages and how they are split."""

    def _check(self) -> None:
        has_any = bool(self.passages or self.knowledge_source)
        require(has_any, "passages: give each corpus either passages or a knowledge_source")


def check_corpora(
    corpora: Mapping[str, CorpusConfig],
    run_corpora: Mapping[str, str],
    runs: Collection[str],
    retrievers: Mapping[str, RetrieverConfig],
) -> None:
    """Check that every run says which corpus it searches, if one does, and that every corpus is searched.

    Args:
        corpora: name -> corpus; empty where all runs bring their texts.
        run_corpora: run -> name of its corpus.
        runs: names of the runs that are given.
        retrievers: name -> retriever of the runs that are made.

    Raises:
        ValueError: they do not go together.
    """
    for name in [*corpora, *run_corpora.values()]:
        require(is_file_name(name), f"corpora: {name!r} cannot be a file name")
    names = [*runs, *retrievers]
    for run in run_corpora:
        require(run in names, f"run_corpora: {run} is no run; the runs are {', '.join(names)}")
    if not (corpora or run_corpora):
        return
    for run in names:
        require(run in run_corpora, f"run_corpora: add which corpus {run} searches")
        corpus = run_corpora[run]
        known = not corpora or corpus in corpora
        require(known, f"run_corpora: {run}: {corpus} is none of the corpora {', '.join(corpora)}")
    for run, retriever in retrievers.items():
        for other in retriever.others:
            same = run_corpora[other] == run_corpora[run]
            require(
                same, f"retrievers.{run}: {other} searches another corpus, whose documents have other ids"
            )
    for name, corpus_config in corpora.items():
        require(name in run_corpora.values(), f"corpora: no run searches {name}")
        is_split = name in {run_corpora[run] for run in retrievers}
        text = f"corpora.{name}: a knowledge_source is split for retrievers alone, and none searches it; give passages"
        require(is_split or not corpus_config.knowledge_source, text)
