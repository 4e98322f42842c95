"""Load a record for every question from sealed tables: its lists, documents, labels and outputs.

Tables are joined once with Polars into rows sorted by question. Records, which are what the page's script reads, are
built for a few questions at a time, so the texts of all questions are never in memory as records. A missing table
leaves its part of the records empty.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.analyses.cells import CELLS
from erag_ray.annotators import ANNOTATORS, label_sign
from erag_ray.data.runs.references import REFERENCES
from erag_ray.extensions import installed
from erag_ray.measures.scores import has_word, whole_words
from erag_ray.report.load import Loading
from erag_ray.store.schemas import (
    CORPUS,
    DOCUMENT_OUTPUTS,
    GOLD,
    LABELS,
    LIST_OUTPUTS,
    PROVENANCE,
    QUERIES,
    RUNS,
    SLICES,
    UTILITY,
)
from erag_ray.store.tables import TableStore

Texts = Literal["all", "snippets", "none"]
Floats = npt.NDArray[np.float64]
Record = dict[str, Any]
PAIR = ["query_id", "doc_id"]
LIST = ["reader", "run_id", "query_id", "depth"]
OF_QUESTION = ("pairs", "lists", "end_to_end", "cells", "slices", "in_lists")
"""Frames of `Questions` of which a record has rows."""
QUESTIONS_AT_A_TIME, PAIRS_AT_A_TIME = 64, 1_000_000
SNIPPET_CHARACTERS = 200
DIGITS = 6
"""Significant digits of labels and scores in a record."""
IN_LISTS = {**dict.fromkeys((*PAIR, "run_id", "name"), pl.String()), "value": pl.Float64()}
NEEDED = (RUNS, DOCUMENT_OUTPUTS, GOLD, QUERIES, CORPUS, LABELS, UTILITY, LIST_OUTPUTS, PROVENANCE)
"""Tables of every job; a folder that lacks one is said to. Older folders lack others."""


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Options of records: which texts they contain, and which labels count as useful."""

    texts: Texts = "all"
    """snippets: the text around a gold answer, or the first `SNIPPET_CHARACTERS`."""
    depth: int = 10
    """Number of documents of each list that include their text."""
    threshold: float = 0.5
    """Labels of at least this are useful."""
    prompts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Dataset -> the reader's prompt: its fields, and how it is filled."""
    num_answers: int = 1
    """Answers to each list; the output of a list is the first, its score the mean of all."""


class LabelColumn(NamedTuple):
    """Column of labels by one annotator, reader and score (empty where labels do not depend on them)."""

    annotator: str
    reader: str
    score: str
    kind: str
    """binary, graded, or signed (below 0: the document does harm)."""
    sign: int
    """1: larger labels are better, -1: smaller ones are, 0: neither."""


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions of a finished job: iterate to get records, in the order of QUERIES.

    Every frame but ``corpus`` is sorted by ``number``, the row number of the question.
    """

    runs: Sequence[str]
    columns: Sequence[LabelColumn]
    depths: Sequence[int]
    """Depths of end-to-end lists, without those of the reference runs."""
    notes: Sequence[str]
    """Tables that could not be used, and why."""
    options: QuestionOptions
    queries: pl.DataFrame
    pairs: pl.DataFrame
    """One row per document: number, pair (row number), doc_id, best (rank; null: in no list), row (in ``corpus``),
    is_gold, output."""
    labels: Floats
    """[num_pairs, num_columns], NaN: no label."""
    lists: pl.DataFrame
    """number, run, pair, in rank order."""
    end_to_end: pl.DataFrame
    """number, run_id, depth, value, output: every run at every depth, and the reference runs."""
    cells: pl.DataFrame
    slices: pl.DataFrame
    in_lists: pl.DataFrame
    """number, run, pair, name, value."""
    corpus: pl.DataFrame

    def __len__(self) -> int:
        return self.queries.height

    def __iter__(self) -> Iterator[Record]:
        for start in range(0, len(self), QUESTIONS_AT_A_TIME):
            yield from _records(self, range(start, min(start + QUESTIONS_AT_A_TIME, len(self))))

    @property
    def num_disagreements(self) -> list[int]:
        """Of each question: documents that some annotators call useful and others not; of binary labels and eRAG's."""
        columns = [one.sign > 0 and (one.kind == "binary" or one.annotator == "erag") for one in self.columns]
        selected = self.labels[:, np.array(columns, np.bool_)]
        is_useful, is_useless = selected >= self.options.threshold, selected < self.options.threshold
        return self._count(is_useful.any(axis=1) & is_useless.any(axis=1))

    @property
    def num_harmful(self) -> list[int]:
        return self._count((self.labels < 0).any(axis=1))

    def _count(self, is_counted: npt.ArrayLike) -> list[int]:
        numbers = self.pairs["number"].to_numpy()[np.asarray(is_counted)]
        return list(map(int, np.bincount(numbers, minlength=len(self))))


def load_questions(store: TableStore, options: QuestionOptions) -> Questions:
    """Load the questions of a folder from its sealed tables; missing ones leave their part empty."""
    loading = Loading(store)
    tables = {schema: loading.frame(schema, is_needed=True) for schema in NEEDED}
    runs, outputs, gold = tables[RUNS], tables[DOCUMENT_OUTPUTS], tables[GOLD].select(PAIR)
    queries = _queries(tables[QUERIES], runs if runs.height else outputs)
    run_ids = runs["run_id"].unique(maintain_order=True).to_list()
    corpus = tables[CORPUS].with_row_index("row")
    pairs = _pairs(runs, gold, outputs, queries)
    columns, labels = _labels(tables.pop(LABELS), pairs)
    end_to_end = _end_to_end(tables[UTILITY], tables[LIST_OUTPUTS], queries)
    runs_end_to_end = end_to_end.filter(pl.col("run_id").is_in(REFERENCES).not_())
    return Questions(
        runs=list(dict.fromkeys([*run_ids, *runs_end_to_end["run_id"]])),
        columns=columns,
        depths=runs_end_to_end["depth"].unique().sort().to_list(),
        options=options,
        queries=queries,
        pairs=_described(pairs, corpus, gold, tables[PROVENANCE], outputs),
        labels=labels,
        lists=_in_lists(runs, run_ids, pairs).sort("number", "run", "rank"),
        end_to_end=end_to_end,
        cells=_numbered(loading.frame(CELLS).drop_nulls("cell"), queries),
        slices=_numbered(loading.frame(SLICES), queries),
        in_lists=_in_lists(_list_values(loading), run_ids, pairs).sort("number", "run", "name", "pair"),
        corpus=corpus.select("title", "text"),
        notes=list(loading.missing.values()),
    )


def _list_values(loading: Loading) -> pl.DataFrame:
    """Return query_id, run_id, doc_id, name and value of all extensions."""
    value = pl.col("value").round_sig_figs(DIGITS)
    parts = [
        loading.frame(schema).select(*PAIR, "run_id", name=name, value=value)
        for schema, name in (extension.list_values for extension in installed() if extension.list_values)
    ]
    return pl.concat([pl.DataFrame(schema=IN_LISTS), *parts]).drop_nulls("value")


def _queries(queries: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Return QUERIES with their ``number``; if QUERIES is missing, only the ids from another table."""
    if not queries.height:
        ids = others.select(pl.col("query_id").unique(maintain_order=True))
        constant = {name: pl.lit("") for name in ("dataset", "question", "score")}
        queries = ids.with_columns(answers=pl.lit([], pl.List(pl.String)), **constant)
    return queries.with_row_index("number")


def _numbered(table: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of these queries, sorted stably by the number of the question."""
    numbers = queries.select("query_id", "number")
    joined = table.join(numbers, on="query_id", maintain_order="left").drop("query_id")
    return joined.sort("number", maintain_order=True)


def _pairs(
    runs: pl.DataFrame, gold: pl.DataFrame, outputs: pl.DataFrame, queries: pl.DataFrame
) -> pl.DataFrame:
    """Return every document of every question: number, query_id, doc_id, best and pair (the row number)."""
    others = [frame.select(*PAIR, rank=pl.lit(None, pl.Int32)) for frame in (gold, outputs)]
    # documents with an output but in no list get a row only if the lists are missing
    everything = pl.concat([runs.select(*PAIR, "rank"), *(others[:1] if runs.height else others)])
    best = everything.group_by(PAIR).agg(best=pl.col("rank").min())
    numbered = best.join(queries.select("query_id", "number"), on="query_id")
    return numbered.sort("number", "best", "doc_id", nulls_last=True).with_row_index("pair")


def _described(
    pairs: pl.DataFrame,
    corpus: pl.DataFrame,
    gold: pl.DataFrame,
    provenance: pl.DataFrame,
    outputs: pl.DataFrame,
) -> pl.DataFrame:
    """Add to the pairs their row of the corpus, whether they are gold, and the output with this document."""
    single = outputs.select(*PAIR, "output").unique(PAIR, keep="first", maintain_order=True)
    documents = pl.concat([gold, provenance.drop_nulls("doc_id").select(PAIR)]).unique()
    passages = documents.with_columns(is_passage=pl.lit(True))
    by_page = provenance.drop_nulls("page_id").select("query_id", "page_id", is_page=pl.lit(True))
    joined = (
        pairs.join(corpus.select("doc_id", "page_id", "row"), on="doc_id", how="left")
        .join(single, on=PAIR, how="left")
        .join(passages, on=PAIR, how="left")
        .join(by_page, on=["query_id", "page_id"], how="left")
    )
    is_gold = (pl.col("is_passage") | pl.col("is_page")).fill_null(False)
    return joined.sort("pair").select("number", "pair", "doc_id", "best", "row", "output", is_gold=is_gold)


def _in_lists(rows: pl.DataFrame, run_ids: Sequence[str], pairs: pl.DataFrame) -> pl.DataFrame:
    """Add number, run (index in ``run_ids``) and pair to rows about documents in lists."""
    schema = {"run_id": pl.String, "run": pl.Int32}
    numbers = pl.DataFrame({"run_id": run_ids, "run": range(len(run_ids))}, schema=schema)
    return rows.join(numbers, on="run_id").join(pairs.select(*PAIR, "number", "pair"), on=PAIR)


def _labels(labels: pl.DataFrame, pairs: pl.DataFrame) -> tuple[list[LabelColumn], Floats]:
    """Return the labels of every annotator as a column over the pairs, eRAG's first."""
    by_name: dict[tuple[str, str, str], Floats] = {}
    for part in labels.iter_slices(PAIRS_AT_A_TIME):
        joined = part.join(pairs.select(*PAIR, "pair"), on=PAIR)
        for name, rows in joined.group_by("reader", "score", "annotator"):
            column = by_name.setdefault(name, np.full(pairs.height, np.nan))
            values = rows["label"].round_sig_figs(DIGITS)
            column[rows["pair"].to_numpy()] = values.fill_null(np.nan).to_numpy()
    # eRAG first, annotators without a reader last
    names = sorted(by_name, key=lambda name: (name[2] != "erag", not name[0], name[2], name))
    columns = [
        LabelColumn(annotator, reader, score, _kind(annotator, labels), label_sign(annotator, score))
        for (reader, score, annotator), labels in ((name, by_name[name]) for name in names)
    ]
    return columns, np.stack([by_name[n] for n in names], axis=1) if names else np.empty((pairs.height, 0))


def _kind(annotator: str, labels: Floats) -> str:
    """Return the declared kind of labels; for outside code, which is not imported here, infer it from the values."""
    defined = labels[~np.isnan(labels)]
    declared = ANNOTATORS[annotator].kind if annotator in ANNOTATORS else None
    if declared is not None:
        return declared
    return "signed" if (defined < 0).any() else "binary" if np.isin(defined, (0, 1)).all() else "graded"


def _end_to_end(utility: pl.DataFrame, outputs: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """Return number, run_id, depth, value and output of every list."""
    texts = outputs.select(*LIST, "output")
    joined = utility.select(*LIST, pl.col("value").round_sig_figs(DIGITS)).join(
        texts, on=LIST, how="full", coalesce=True, maintain_order="left"
    )
    return _numbered(joined, queries)


def _records(questions: Questions, numbers: range) -> Iterator[Record]:
    options = questions.options
    frames = {name: _cut(getattr(questions, name), numbers) for name in OF_QUESTION}
    frames["pairs"] = _with_texts(frames["pairs"], questions.corpus, options)
    parts = {name: frame.partition_by("number", as_dict=True) for name, frame in frames.items()}
    for query in _cut(questions.queries, numbers).iter_rows(named=True):
        rows = {name: parts[name].get((query["number"],), frames[name].clear()) for name in OF_QUESTION}
        pairs = rows["pairs"]
        first = pairs["pair"].min() or 0
        lists = rows["lists"].group_by("run", maintain_order=True).agg(pl.col("pair") - first)
        in_lists: dict[int, dict[str, dict[int, float]]] = {}
        for run, pair, name, value in rows["in_lists"].select("run", "pair", "name", "value").iter_rows():
            in_lists.setdefault(run, {}).setdefault(name, {})[pair - first] = value
        yield {
            "id": query["query_id"],
            "question": query["question"],
            "answers": query["answers"],
            "dataset": query["dataset"],
            "score": query["score"],
            "slices": dict(rows["slices"].select("slice", "value").iter_rows()),
            "documents": _documents(pairs, questions.labels[pairs["pair"]], query["answers"], options),
            "lists": {str(run): documents for run, documents in lists.iter_rows()},
            "end_to_end": rows["end_to_end"].select("run_id", "depth", "value", "output").rows(),
            "cells": rows["cells"].select("run_id", "depth", "cell").rows(),
            "in_lists": in_lists,
        }


def _cut(frame: pl.DataFrame, numbers: range) -> pl.DataFrame:
    start, end = np.searchsorted(frame["number"].to_numpy(), [numbers.start, numbers.stop])
    return frame[int(start) : int(end)]


def _with_texts(pairs: pl.DataFrame, corpus: pl.DataFrame, options: QuestionOptions) -> pl.DataFrame:
    is_shown = (pl.col("best") <= options.depth) | pl.col("is_gold")
    text_row = pl.when(is_shown).then(pl.col("row")) if options.texts != "none" else pl.lit(None, pl.UInt32)
    rows = pairs.select("row", text_row=text_row)
    title, text = corpus["title"].gather(rows["row"]), corpus["text"].gather(rows["text_row"])
    return pairs.with_columns(title.alias("title"), text.alias("text"))


def _documents(
    pairs: pl.DataFrame, labels: Floats, answers: Sequence[str], options: QuestionOptions
) -> Record:
    """Return the distinct documents of a question by best rank; labels by index in `Questions.columns`, if any."""
    texts = pairs["text"].to_list()
    if options.texts == "snippets":
        pattern = answer_pattern(answers)
        texts = [None if text is None else snippet(text, pattern) for text in texts]
    return {
        "ids": pairs["doc_id"].to_list(),
        "titles": pairs["title"].to_list(),
        "texts": texts,
        "gold": pairs["is_gold"].arg_true().to_list(),
        "outputs": pairs["output"].to_list(),
        "labels": {
            str(column): pl.Series(labels[:, column], nan_to_null=True).to_list()
            for column in np.flatnonzero(~np.isnan(labels).all(axis=0))
        },
    }


def answer_pattern(answers: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern of the gold answers that have a word, case-insensitive, as whole words; None without any."""
    words = [r"\s+".join(map(re.escape, answer.split())) for answer in answers if has_word(answer)]
    longest_first = sorted(set(words), key=len, reverse=True)
    return re.compile(whole_words("|".join(longest_first)), re.IGNORECASE) if words else None


def snippet(text: str, pattern: re.Pattern[str] | None) -> str:
    """Return about `SNIPPET_CHARACTERS` around the first gold answer, or from the start; ``…`` marks omitted text."""
    match = pattern.search(text) if pattern else None
    middle = (match.start() + match.end()) // 2 if match else 0
    start = max(0, middle - SNIPPET_CHARACTERS // 2)
    if match:
        start = min(start, match.start())
    end = max(start + SNIPPET_CHARACTERS, match.end() if match else 0)
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
