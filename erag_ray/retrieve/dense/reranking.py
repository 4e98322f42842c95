"""Reranking of another run's candidates, by a cross-encoder or by a dense retriever's vectors."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import sentence_transformers
import torch

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.texts import with_texts
from erag_ray.retrieve.dense import encoders
from erag_ray.retrieve.dense.index import Dense, exact, vectors_of
from erag_ray.retrieve.lists import PAIRS_PER_PART, SEARCHED, by_score, read_found
from erag_ray.retrieve.run import Retriever, Run, Sources
from erag_ray.store.folder import Folder
from erag_ray.store.model_sources import ModelSource
from erag_ray.store.sharded_tasks import Do, Tasks, open_array, part, read_frame, undone, write_frame
from erag_ray.support.errors import InputError
from erag_ray.support.logs import warn

CLASSIFIER = "ForSequenceClassification"
SCORED_COLUMNS = pl.Schema({"question": pl.String(), "text": pl.String(), "score": pl.Float64()})


@dataclass(frozen=True, kw_only=True)
class ByVectors(Retriever):
    """Reranking by a dense retriever's scores, which equal those of its run."""

    @property
    def settings(self) -> Mapping[str, object]:
        return self.chosen("candidates", "by")

    def needs_passages(self, run: Run) -> bool:
        dense = run.others[str(self.config.by)]
        return dense.retriever.needs_passages(dense)

    def lists(self, run: Run, sources: Sources, do: Do) -> pl.DataFrame:
        """Rerank the candidates, after the dense index is built; those without a vector are left out, and counted."""
        by, queries = run.others[str(self.config.by)], sources.queries
        dense, index = by.retriever, by.index
        assert isinstance(dense, Dense)
        dense.prepare(by, sources, do)
        num_parts = dense.encode(queries.select(text="question"), "query", run.work, do)
        parts = [open_array(run.work, "vectors", f"{part(number)}.npy") for number in range(num_parts)]
        numbered = queries.select("query_id").with_row_index("query")
        documents = read_frame(index, "documents.parquet")
        lists = _candidates(run, queries)
        if (unknown := lists.join(documents, on="doc_id", how="anti", maintain_order="left")).height:
            counts = f"{unknown.height:,} of {lists.height:,} documents of {self.config.of[0]}"
            reason = f"have no vector (blank, or not in the passages), such as {unknown['doc_id'][0]!r}"
            warn(f"retrievers.{self.name}: {counts} {reason}; they are left out")
        pairs = lists.join(numbered, on="query_id").join(documents, on="doc_id").sort("query")
        texts, rows = np.unique(pairs["number"].to_numpy(), return_inverse=True)
        passages, questions = vectors_of(index, texts), np.concatenate(parts)
        scores = [np.empty(0, np.float32)]
        for (query,), group in pairs.with_columns(row=rows).group_by("query", maintain_order=True):
            scores.append(exact(questions[query : query + 1], passages, group["row"].to_numpy()[None])[0])
        scored = pairs.select(
            "query_id", "doc_id", score=pl.Series(np.concatenate(scores).astype(np.float64))
        )
        return by_score(scored, run.job.depth)


def _candidates(run: Run, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the documents of the run that is scored again, down to ``candidates``."""
    config = run.retriever.config
    depth = config.candidates or run.job.depth
    return run.others[config.of[0]].read(queries).filter(pl.col("rank") <= depth)


def _made_from(run: Run) -> Iterator[Run]:
    """Yield the runs that a run uses, and those that these use: a fused list brings no texts itself."""
    for other in run.others.values():
        yield from (other, *_made_from(other))


@dataclass(frozen=True, kw_only=True)
class CrossEncoder(Retriever):
    """Reranking by a cross-encoder: a model of query and passage with one output."""

    source: ModelSource = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", encoders.find_encoder(self.config, self.name))
        settings = json.loads(pathlib.Path(self.source.folder, "config.json").read_text())
        architectures = settings.get("architectures") or []
        # for other architectures the package would silently add a head with random weights
        if not any(architecture.endswith(CLASSIFIER) for architecture in architectures):
            raise ValueError(
                f"model: {self.config.model} is not a cross-encoder: its architecture is "
                f"{', '.join(architectures) or 'unknown'}"
            )

    @property
    def settings(self) -> Mapping[str, object]:
        """The searched fields, and all that a score depends on."""
        chosen = self.chosen("searches", "candidates", "max_tokens", "dtype")
        return {**chosen, "weights": encoders.model_digests(self.source)}

    def needs_passages(self, run: Run) -> bool:
        return not all(one.others or one.retriever.brings_texts for one in _made_from(run))

    def lists(self, run: Run, sources: Sources, do: Do) -> pl.DataFrame:
        """Rerank the candidates, with the texts of the passages or of the lists; equal texts have equal scores."""
        lists, diagnostics, work = _candidates(run, sources.queries), Diagnostics(), run.work
        brought = [one.read(sources.queries) for one in _made_from(run) if one.retriever.brings_texts]
        corpus = with_texts(sources.corpus, pl.concat([lists.clear(), *brought]), diagnostics)
        diagnostics.raise_errors()
        texts = corpus.select("doc_id", text=SEARCHED[self.config.searches](corpus))
        questions = sources.queries.select("query_id", "question")
        pairs = lists.select("query_id", "doc_id").join(questions, on="query_id").join(texts, on="doc_id")
        distinct = pairs.select("question", "text").unique().sort("question", "text")
        parts = list(distinct.iter_slices(PAIRS_PER_PART))
        for number, batch in enumerate(parts):
            write_frame(batch, work, "pairs", f"{part(number)}.parquet")
        options = self.chosen("max_tokens", "dtype", "batch_size")
        settings = {"work": work.address, "model": self.source.folder, **options}
        todo = undone(work, "found", ".parquet", len(parts))
        noun = f"parts of {PAIRS_PER_PART:,} pairs scored"
        do(Tasks(worker=ScorePairs, settings=settings, numbers=todo, noun=noun))
        encoders.warn_of_cut(self.name, "pairs of question and passage", work)
        scored = read_found(work, len(parts), SCORED_COLUMNS)
        documents = pairs.join(scored, on=["question", "text"]).select("query_id", "doc_id", "score")
        return by_score(documents, run.job.depth)


class ScorePairs:
    """Task: score one part of ``pairs``."""

    def __init__(
        self, *, work: str, model: str, max_tokens: int | None, dtype: str, batch_size: int | None
    ) -> None:
        self._work = Folder(work)
        self._batch_size = batch_size or encoders.default_batch_size()
        options = {"torch_dtype": getattr(torch, dtype), "local_files_only": True}
        with encoders.loading(model, "a cross-encoder"):
            self._model: Any = sentence_transformers.CrossEncoder(model, model_kwargs=options)
        encoders.limit_tokens(self._model, max_tokens, model)

    def __call__(self, number: int) -> None:
        pairs = read_frame(self._work, "pairs", f"{part(number)}.parquet")
        scores = self._model.predict(
            list(pairs.iter_rows()),
            batch_size=self._batch_size,
            show_progress_bar=False,
            # raw logits: a sigmoid would saturate, so that very good or very bad passages tie
            activation_fn=torch.nn.Identity(),
            convert_to_numpy=True,
        )
        if np.ndim(scores) != 1:
            count = np.shape(scores)[1]
            raise InputError([f"the cross-encoder returns {count} scores for each pair, not one"])
        encoders.write_lengths(
            self._model, [pairs[name].to_list() for name in ("question", "text")], self._work, number
        )
        column = pl.Series(np.asarray(scores, dtype=np.float64))
        write_frame(pairs.with_columns(score=column), self._work, "found", f"{part(number)}.parquet")
