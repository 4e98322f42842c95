"""Query files -> QUERIES, PROVENANCE and the gold passages that the files name.

Formats are in `questions` (`QUERY_FORMATS`), data sets and their scores in `known` (`DATASETS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import polars as pl
import xxhash

from erag_ray.datasets.filters import SlicePaths, Where, conditions_of
from erag_ray.datasets.qrels import Qrels, read_qrels
from erag_ray.datasets.questions import FORMS, QUERY_FORMATS, Question, format_of, format_of_article
from erag_ray.datasets.tasks import Dataset, ScoreRule, dataset_of_file, find_dataset, known_name
from erag_ray.datasets.triviaqa import read_triviaqa
from erag_ray.errors import InputError
from erag_ray.files import Diagnostics, Paths, Record, is_squad, listed, read_records, read_squad, shown
from erag_ray.registry import find
from erag_ray.scores import ENGLISH, check_language, normalize_answer
from erag_ray.user_code import checking, is_user_code

QUERY_COLUMNS = pl.Schema(
    {
        "query_id": pl.String(),
        "dataset": pl.String(),
        "question": pl.String(),
        "answers": pl.List(pl.String()),
        "score": pl.String(),
    }
)
GOLD_COLUMNS = pl.Schema({"query_id": pl.String(), "rank": pl.Int32(), "doc_id": pl.String()})
EVIDENCE_COLUMNS = pl.Schema({"query_id": pl.String(), "span": pl.String()})
PROVENANCE_COLUMNS = pl.Schema({"query_id": pl.String(), "page_id": pl.String()})
SLICE_COLUMNS = pl.Schema({"query_id": pl.String(), "slice": pl.String(), "value": pl.String()})
NO_VALUE = "(none)"
"""The value of a slice for a question whose record has none: the path is missing, null or blank."""
MAX_SLICE_VALUES = 50
PAGE_SET_COLUMNS = pl.Schema({"query_id": pl.String(), "output": pl.Int32(), "page_id": pl.String()})


@dataclass(frozen=True, kw_only=True)
class LoadedQueries:
    """What query files hold.

    Attributes:
        queries: QUERIES.
        provenance: PROVENANCE.
        page_sets: ``query_id, output, page_id``: the gold pages of each output that names any, each set evidence alone.
        gold: ``query_id, rank, doc_id`` of the gold passages, for the queries whose file names them.
        evidence: ``query_id, span``: stretches of gold passages that show the answer, where the file quotes them.
        datasets: what is known of each data set that ``queries`` names.
        slices: SLICES: the text that each question's record holds at each path of ``slices``, or `NO_VALUE`.
    """

    queries: pl.DataFrame
    provenance: pl.DataFrame
    page_sets: pl.DataFrame
    gold: pl.DataFrame
    evidence: pl.DataFrame
    datasets: Mapping[str, Dataset]
    slices: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SLICE_COLUMNS))


def load_queries(
    paths: Paths,
    diagnostics: Diagnostics,
    *,
    format: str = "auto",
    dataset: str | None = None,
    score: str | None = None,
    score_by_dataset: Mapping[str, str] | None = None,
    language: str | None = None,
    is_chat: bool = False,
    triviaqa_questions: Paths = (),
    qrels: Paths = (),
    filters: Iterable[str] = (),
    slices: Iterable[str] = (),
) -> LoadedQueries:
    """The questions of JSON Lines files (KILT's, BEIR's, plain questions) or SQuAD's and KLUE-MRC's JSON; gzip too.

    Args:
        paths: one file or several; ids must not repeat over all of them.
        diagnostics: receives every problem and note.
        format: a key of `QUERY_FORMATS`, ``package.module:name`` of a function `Record -> Question`, or "auto" to tell
            each record by the names of its fields.
        dataset: name of the data set; else the record's ``kilt_task``, else the file's name.
        score: the score of all questions; else ``score_by_dataset``, else what is known of the data set.
        score_by_dataset: data set -> score.
        language: of the questions and answers, ISO 639-1; else what is known of the data set (see `known.ScoreRule`).
        is_chat: the reader is a chat model: match takes the place of exact_match as the default.
        triviaqa_questions: TriviaQA's own JSON files, for KILT files that leave ``input`` out.
        qrels: relevance files, TREC's or BEIR's (see `qrels`). Their documents above 0 become the gold passages of
            questions whose record names none. They choose BEIR's questions, whose documents are pages of their own and
            so also their gold pages.
        filters: conditions on the records, ``path=value`` or ``dataset:path=value``; the others are as if not there.
        slices: paths in the records, as those of ``filters``, with at most `MAX_SLICE_VALUES` values each.

    Raises:
        InputError: ``format`` is unknown, or user code that raises; nothing else: bad input goes to ``diagnostics``.
    """
    formats = QUERY_FORMATS if format == "auto" else {format: _format_named(format)}
    files, num_before = listed(paths), diagnostics.num_errors
    judged = read_qrels(listed(qrels), diagnostics)
    conditions = conditions_of(filters, diagnostics)
    rule = ScoreRule(
        given=score,
        by_dataset=score_by_dataset or {},
        language=_checked_language(language, diagnostics),
        is_chat=is_chat,
    )
    loading = _Loading(
        diagnostics=diagnostics,
        format=format,
        formats=formats,
        dataset=dataset,
        qrels=judged,
        where=conditions,
        slices=SlicePaths(diagnostics=diagnostics, paths=tuple(dict.fromkeys(slices))),
        rule=rule,
    )
    for path in files:
        if is_squad(path):
            for record in read_squad(path, diagnostics):
                loading.add(record, format_of_article(record))
        else:
            for record in read_records(path, diagnostics):
                loading.add(record, format_of(record))
    if diagnostics.num_errors == num_before:
        conditions.check()
        loading.check_slices()
    loading.join_triviaqa(listed(triviaqa_questions))
    loading.check_qrels(listed(qrels))
    if not loading.found and diagnostics.num_errors == num_before:
        diagnostics.error("no questions", f"no questions in {', '.join(files) or 'an empty list of files'}")
    return _tables(loading)


def _checked_language(language: str | None, diagnostics: Diagnostics) -> str | None:
    """The language; None for one that there is not, which is a problem."""
    try:
        check_language(language or ENGLISH)
    except ValueError as error:
        diagnostics.error("config key language", f"language: {error}")
        return None
    return language


def _format_named(name: str) -> Callable[[Record], Question]:
    """What reads a record; user code that raises is a problem of the config."""
    try:
        read = find("query format", name, QUERY_FORMATS)
    except ValueError as error:
        raise InputError([f"query_format: {error}"]) from error

    def question(record: Record) -> Question:
        with checking(f"{record.place}: query_format: {name}", read):
            found = read(record)
            if not isinstance(found, Question):
                raise TypeError(f"it returned a {type(found).__name__}, not an erag_ray.datasets.Question")
            return found

    return question if is_user_code(read) else read


@dataclass(frozen=True, kw_only=True)
class _Named:
    question: Question
    dataset: str
    place: str
    slices: Mapping[str, str]
    """Path -> value."""


@dataclass(kw_only=True)
class _Loading:
    """The questions found so far, with the checks that need more than one record."""

    diagnostics: Diagnostics
    format: str
    formats: Mapping[str, Callable[[Record], Question]]
    dataset: str | None
    qrels: Qrels
    where: Where
    slices: SlicePaths
    rule: ScoreRule
    found: list[_Named] = field(default_factory=list)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """File -> what is said of its first record of no known form."""
    uses_qrels: bool = False
    unjudged: str = ""
    """The first question that could have, but does not have, a line in the qrels."""

    def add(self, record: Record, format_of_record: str | None) -> None:
        form = format_of_record if self.format == "auto" else self.format
        if form is None:
            self._report_unknown(record)
            return
        question = self.formats[form](record)
        name = self.dataset or question.dataset or dataset_of_file(record.path)
        if not self.where.keeps(record, question.query_id, name):
            return
        self._check_repeat(question.query_id, record)
        if question.is_unnamed:
            self.diagnostics.warning(
                "questions without an id, called by their place, NAME:LINE", question.query_id
            )
        if self.qrels and not question.gold:
            is_beir = form == "beir"
            if question.query_id in self.qrels:
                self.uses_qrels, question = True, self._judged(question, is_page=is_beir)
            elif not self._keeps_unjudged(question, is_chosen=is_beir):
                return
        if question.impossible:
            self.diagnostics.warning("impossible questions, left out", question.query_id)
            return
        self._check(question, name, record)
        if not record.faulty:
            self._check_dataset(name, question.task, record)
            values = self.slices.values(record)
            self.found.append(_Named(question=question, dataset=name, place=record.place, slices=values))

    def _judged(self, question: Question, *, is_page: bool) -> Question:
        """The question with the gold passages of the qrels; ``is_page``: each is a page of its own."""
        gold = self.qrels[question.query_id]
        pages = tuple((page,) for page in gold) if is_page else question.page_sets
        return replace(question, gold=gold, page_sets=pages)

    def _keeps_unjudged(self, question: Question, *, is_chosen: bool) -> bool:
        """Whether a question that has no line in the qrels is read: not where they choose the questions."""
        self.unjudged = self.unjudged or question.query_id
        if is_chosen:
            self.diagnostics.warning("questions without a line in the qrels, left out", question.query_id)
        elif not question.page_sets:
            self.diagnostics.warning(
                "questions without a line in the qrels: no gold is known", question.query_id
            )
        return not is_chosen

    def _report_unknown(self, record: Record) -> None:
        """One line for a file, however many of its records are of no known form."""
        fields = shown(list(record.values))
        text = f"{record.place}: a record of no known form, with the fields {fields}. Known forms: {FORMS}"
        text = self.unknown.setdefault(record.path, text)
        self.diagnostics.error(f"records of no known form in {record.path}", text, count=1)

    def _check_repeat(self, query_id: str, record: Record) -> None:
        if not query_id:
            return
        first = self.places.setdefault(query_id, record.place)
        if first != record.place:
            record.fault("repeated ids", f"query id {query_id!r} repeats the one at {first}")

    def _check(self, question: Question, name: str, record: Record) -> None:
        label = f"query {question.query_id!r}"
        if question.num_empty_answers:
            self.diagnostics.warning(
                "empty answers, left out", question.query_id, count=question.num_empty_answers
            )
        if not question.answers:
            record.fault("queries without an answer", f"{label} has no answer")
        nothing = [answer for answer in question.answers if not normalize_answer(answer)]
        for _ in nothing:
            self.diagnostics.warning(
                "answers that normalise to nothing (they match nothing), of queries", question.query_id
            )
        if not question.text.strip() and known_name(name) != "triviaqa":
            record.fault("queries without a question", f"{label} has no question")

    def _check_dataset(self, name: str, task: str | None, record: Record) -> None:
        found = find_dataset(name, task)
        if found is None:
            found = Dataset()
            default = self.rule.default(found)
            self.diagnostics.warning(
                f"data set {name!r} is not known: taken as question answering by {default}"
            )
        if self.datasets.setdefault(name, found) != found:
            record.fault(
                "mixed tasks",
                f"task {task!r} differs from others of data set {name!r}; name the data sets apart (kilt_task)",
            )

    def check_qrels(self, paths: list[str]) -> None:
        """Qrels of which no question takes its gold passages are a mistake."""
        if not self.qrels or self.uses_qrels:
            return
        names, text = ", ".join(paths), ""
        if self.unjudged:
            ids = f"such as {next(iter(self.qrels))!r} against {self.unjudged!r}"
            text = f"has no query in common with the questions ({ids})"
        elif self.found:
            text = "qrels are given, but every question names its gold passages itself (gold_doc_ids)"
        if text:
            self.diagnostics.error("unused qrels", f"{names}: {text}")

    def check_slices(self) -> None:
        """A path that no question has is a problem, and so is one whose values name questions, not groups of them."""
        if self.found:
            self.slices.check()
        for path in self.slices.paths:
            count = len({named.slices.get(path, NO_VALUE) for named in self.found})
            if count > MAX_SLICE_VALUES:
                text = f"slices: {path}: {count:,} values, more than {MAX_SLICE_VALUES}: it does not group questions"
                self.diagnostics.error("config key slices", f"{text}; name another path")

    def join_triviaqa(self, paths: list[str]) -> None:
        """Fill in the questions that KILT's TriviaQA files leave out."""
        pending = {named.question.query_id: named for named in self.found if not named.question.text.strip()}
        if pending and not paths:
            first = next(iter(pending.values()))
            self.diagnostics.error(
                "TriviaQA without questions",
                f"{first.place}: {len(pending):,} queries such as {first.question.query_id!r} carry no question; "
                "set triviaqa_questions to TriviaQA's own JSON files",
            )
        texts = read_triviaqa(paths, pending, self.diagnostics) if pending else {}
        for query_id, named in pending.items() if paths else ():
            if query_id not in texts:
                self.diagnostics.error(
                    "queries that no TriviaQA file holds",
                    f"{named.place}: query {query_id!r} is not in {', '.join(paths)}",
                )
        self.found = list(_joined(self.found, texts))


def _joined(found: list[_Named], texts: Mapping[str, str]) -> Iterator[_Named]:
    for named in found:
        if named.question.text.strip():
            yield named
        elif named.question.query_id in texts:
            question = replace(named.question, text=texts[named.question.query_id])
            yield replace(named, question=question)


def _datasets(loading: _Loading) -> dict[str, Dataset]:
    """What is known of each data set, with the score and the language that its questions get."""
    rule = loading.rule
    for name, known in loading.datasets.items():
        if note := rule.note(name, known):
            loading.diagnostics.warning(note)
    return {
        name: replace(known, score=rule.score(name, known), language=rule.language or known.language)
        for name, known in loading.datasets.items()
    }


def _tables(loading: _Loading) -> LoadedQueries:
    unused = [name for name in loading.rule.by_dataset if name not in loading.datasets]
    if unused:
        loading.diagnostics.warning("score_by_dataset names data sets that no query has", *unused)
    datasets = _datasets(loading)
    questions = [named.question for named in loading.found]
    names = [named.dataset for named in loading.found]
    return LoadedQueries(
        queries=pl.DataFrame(
            {
                "query_id": [question.query_id for question in questions],
                "dataset": names,
                "question": [question.text for question in questions],
                "answers": [list(question.answers) for question in questions],
                "score": [datasets[name].score for name in names],
            },
            schema=QUERY_COLUMNS,
        ),
        provenance=pl.DataFrame(
            [(question.query_id, page) for question in questions for page in question.pages],
            schema=PROVENANCE_COLUMNS,
            orient="row",
        ),
        page_sets=pl.DataFrame(
            [
                (question.query_id, output, page)
                for question in questions
                for output, pages in enumerate(question.page_sets)
                for page in pages
            ],
            schema=PAGE_SET_COLUMNS,
            orient="row",
        ),
        gold=pl.DataFrame(
            [
                (question.query_id, rank, doc_id)
                for question in questions
                for rank, doc_id in enumerate(question.gold, 1)
            ],
            schema=GOLD_COLUMNS,
            orient="row",
        ),
        evidence=pl.DataFrame(
            [(question.query_id, span) for question in questions for span in question.evidence],
            schema=EVIDENCE_COLUMNS,
            orient="row",
        ),
        datasets=datasets,
        slices=pl.DataFrame(
            [
                (named.question.query_id, path, named.slices.get(path, NO_VALUE))
                for named in loading.found
                for path in loading.slices.paths
            ],
            schema=SLICE_COLUMNS,
            orient="row",
        ),
    )


def sample_loaded(loaded: LoadedQueries, num_queries: int | None, seed: int) -> LoadedQueries:
    """What query files hold of a `sample` of the questions."""
    queries = sample(loaded.queries, num_queries, seed)
    names = ("provenance", "page_sets", "gold", "evidence", "slices")
    frames = {name: getattr(loaded, name).join(queries, on="query_id", how="semi") for name in names}
    return replace(loaded, queries=queries, **frames)


def sample(queries: pl.DataFrame, num_queries: int | None, seed: int) -> pl.DataFrame:
    """The ``num_queries`` questions whose ids hash lowest: the same for every run, machine and order of the file."""
    if num_queries is None or num_queries >= queries.height:
        return queries.sort("query_id")
    places = [xxhash.xxh3_64_intdigest(f"{seed}:{query_id}".encode()) for query_id in queries["query_id"]]
    ordered = queries.with_columns(place=pl.Series(places, dtype=pl.UInt64)).sort("place", "query_id")
    return ordered.head(num_queries).drop("place").sort("query_id")
