"""Loading of query files: QUERIES, PROVENANCE and gold passages.

Formats are in `questions` (`QUERY_FORMATS`), data sets and their scores in `tasks` (`DATASETS`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import xxhash

from erag_ray.data.datasets.answers import EMPTY_CELL, NO_ANSWER, READ, unread_fields
from erag_ray.data.datasets.paths import Filters, SlicePaths, with_fields
from erag_ray.data.datasets.qrels import Qrels, read_qrels
from erag_ray.data.datasets.questions import FORMS, QUERY_FORMATS, Question, formats_of, read_triviaqa
from erag_ray.data.datasets.tasks import Dataset, ScoreRule, dataset_of_file, find_dataset, known_name
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import DOCUMENT_IDS, lookalikes, numbering_fault, shown
from erag_ray.data.files.jsonl import Paths, Record, listed
from erag_ray.data.files.records import TABS, read_records
from erag_ray.data.files.squad import is_squad, read_squad
from erag_ray.measures.scores import ENGLISH, check_language, has_word, normalize_answer
from erag_ray.store.schemas import FACTS, PROVENANCE, QUERIES, SLICES
from erag_ray.support.errors import InputError
from erag_ray.support.registry import find
from erag_ray.support.user_code import checking, is_user_code

COLUMNS = {
    **{table.name: table.empty().schema for table in (QUERIES, PROVENANCE, SLICES, FACTS)},
    "page_sets": pl.Schema({"query_id": pl.String(), "output": pl.Int32(), "page_id": pl.String()}),
    "evidence": pl.Schema({"query_id": pl.String(), "span": pl.String()}),
}
"""Of the tables of `LoadedQueries`."""
TAB_COLUMNS = (("question", "answers"), ("id", "question", "answers"))
"""Columns of tab-separated questions without a header: DPR's, and with an id before."""
_LIKE_QUESTION = re.compile(r"(?i)question|query|prompt|user_?input|claim|problem|utterance")
_LIKE_ID = re.compile(r"[\w.:#/-]*\d[\w.:#/-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class LoadedQueries:
    """Tables loaded from query files."""

    queries: pl.DataFrame
    provenance: pl.DataFrame
    """PROVENANCE: gold passages, best first, then gold pages."""
    datasets: Mapping[str, Dataset]
    page_sets: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COLUMNS["page_sets"]))
    """``query_id, output, page_id``: the gold pages of each output; each set is sufficient evidence."""
    evidence: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COLUMNS["evidence"]))
    """``query_id, span``: quotes from gold passages that show the answer, where the file has them."""
    slices: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COLUMNS["slices"]))
    """SLICES: each record's value at each path of ``slices`` as text, or `paths.NO_VALUE`."""
    facts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COLUMNS["facts"]))
    """FACTS: gold answers that each say another thing, of questions whose records list them."""


def load_queries(
    paths: Paths,
    diagnostics: Diagnostics,
    *,
    format: str = "auto",
    fields: Mapping[str, str] | None = None,
    dataset: str | None = None,
    score: str | None = None,
    language: str | None = None,
    is_chat: bool = False,
    triviaqa_questions: Paths = (),
    qrels: Paths = (),
    filters: Iterable[str] = (),
    slices: Iterable[str] = (),
    clusters: str | None = None,
    is_scored: bool = True,
) -> LoadedQueries:
    """Load questions of KILT, BEIR or the plain format (see `files.records`), or from the JSON of SQuAD or KLUE-MRC.

    Args:
        paths: one file or dataset (``hf:NAME:SPLIT``) or several; ids must be unique over all of them.
        diagnostics: receives all errors and warnings.
        format: a key of `QUERY_FORMATS`, ``package.module:name`` of a function `Record -> Question`, or "auto" to
            detect the format of each record by its field names.
        fields: question, answers, answers_all or id -> path of that field in the records, which are then of the plain
            format.
        dataset: name of the data set; default: the record's ``kilt_task``, else the file's name.
        score: the score of all questions; default: the data set's.
        language: of questions and answers, ISO 639-1; default: the data set's (see `tasks.ScoreRule`).
        is_chat: the reader is a chat model: the default is match instead of exact_match.
        triviaqa_questions: original TriviaQA JSON files, for KILT files that omit ``input``.
        qrels: relevance files, TREC's or BEIR's (see `qrels`). Documents with grades above 0 become the gold passages
            of questions whose record lists none. BEIR's questions without a line in the qrels are dropped.
        filters: conditions on the records, ``path=value`` or ``dataset:path=value``; other records are ignored.
        slices: paths in the records, as in ``filters``, with at most `paths.MAX_SLICE_VALUES` values each.
        clusters: path in the records, which gets rows in ``slices`` too, with any number of values.
        is_scored: whether outputs will be scored, so that notes on the score are true.

    Raises:
        InputError: ``format`` is unknown, or user code raised. Bad input does not raise: it goes to ``diagnostics``.
    """
    files, num_before = listed(paths), diagnostics.num_errors
    if not diagnostics.attempt("language", check_language, language or ENGLISH):
        language = None
    paths_of_clusters = {clusters: "clusters"} if clusters else {}
    loading = _Loading(
        diagnostics=diagnostics,
        formats=QUERY_FORMATS if format == "auto" else {format: _format_named(format)},
        dataset=dataset,
        qrels=read_qrels(listed(qrels), diagnostics),
        filters=Filters(filters, diagnostics),
        slices=SlicePaths(
            diagnostics=diagnostics, paths={**paths_of_clusters, **dict.fromkeys(slices, "slices")}
        ),
        rule=ScoreRule(for_all=score, language=language, is_chat=is_chat),
        is_scored=is_scored,
    )
    for path in files:
        if is_squad(path):
            for record in read_squad(path, diagnostics):
                loading.add(record, "klue" if "guid" in record.values else "squad")
        else:
            num_known = len(loading.questions)
            for record in read_records(path, diagnostics, columns=TAB_COLUMNS):
                if fields:
                    loading.add(with_fields(record, fields), "plain")
                else:
                    loading.add(record, *formats_of(record))
            new = loading.questions[num_known:] if TABS.search(path) else []
            if new and all(question.is_unnamed and _LIKE_ID.fullmatch(question.text) for question in new):
                text = f"{path}: questions like {shown(new[0].text)} are ids. Two columns are question and answers,"
                diagnostics.error("ids for questions", f"{text} three are id, question and answers")
    if diagnostics.num_errors == num_before:
        loading.filters.check()
        loading.slices.check()
    loading.join_triviaqa(listed(triviaqa_questions))
    loading.check_qrels(listed(qrels))
    if not loading.questions and diagnostics.num_errors == num_before:
        left_out = [line for line in diagnostics.warnings if "left out" in line]
        text = "; ".join([f"no questions in {', '.join(files) or 'an empty list of files'}", *left_out])
        diagnostics.error("no questions", text)
    return loading.tables()


def _format_named(name: str) -> Callable[[Record], Question]:
    """Return the function of a format; an exception in user code becomes an error of the config."""
    try:
        parse = find("query format", name, QUERY_FORMATS)
    except ValueError as error:
        raise InputError([f"query_format: {error}"]) from error

    def question(record: Record) -> Question:
        with checking(f"{record.location}: query_format: {name}", parse):
            parsed = parse(record)
            if not isinstance(parsed, Question):
                raise TypeError(
                    f"it returned a {type(parsed).__name__}, not an erag_ray.data.datasets.Question"
                )
            return parsed

    return question if is_user_code(parse) else parse


@dataclass(kw_only=True)
class _Loading:
    """The questions loaded so far, with the checks that need more than one record."""

    diagnostics: Diagnostics
    formats: Mapping[str, Callable[[Record], Question]]
    """All of `QUERY_FORMATS`, or the one that the config names."""
    dataset: str | None
    qrels: Qrels
    filters: Filters
    slices: SlicePaths
    rule: ScoreRule
    is_scored: bool
    questions: list[Question] = field(default_factory=list)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    locations: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """File -> the message about its first record of unknown format."""
    uses_qrels: bool = False
    unjudged: str = ""
    """Id of the first question that lacks a line in the qrels."""

    def add(self, record: Record, *formats: str) -> None:
        """Add a record, read by the first of its formats unless the config names one."""
        if len(self.formats) == 1:
            formats = tuple(self.formats)
        elif not formats:
            self._report_unknown(record)
            return
        elif len(formats) > 1:
            names = f"{' and '.join(formats)}, read as {formats[0]}"
            advice = f"Set query_format: {formats[1]} for the other; records"
            self.diagnostics.warning(f"records with the fields of {names}. {advice}", record.location)
        form = formats[0]
        question = self.formats[form](record).with_page_keys()
        is_named = bool(self.dataset or question.dataset)
        name = self.dataset or question.dataset or dataset_of_file(record.path)
        if not self.filters.keeps(record, question.query_id, name):
            return
        first = self.locations.setdefault(question.query_id, record.location)
        if question.query_id and first != record.location:
            record.fault("repeated ids", f"query id {question.query_id!r} repeats the one at {first}")
        if question.is_unnamed:
            unread = [key for key in lookalikes(record.values) if not DOCUMENT_IDS.among([key])]
            advice = f" (question_fields: {{id: {unread[0]}}} reads that field)" if unread else ""
            kind = f"questions without an id, which get NAME:LINE as their id{advice}"
            self.diagnostics.warning(kind, question.query_id)
        if self.qrels and not question.gold:
            if question.query_id in self.qrels:
                self.uses_qrels, question = True, replace(question, gold=self.qrels[question.query_id])
            elif not self._keeps_unjudged(question, is_chosen=form == "beir"):
                return
        for note in question.notes:
            self.diagnostics.warning(note, question.query_id)
        if question.impossible:
            self.diagnostics.warning("impossible questions, left out", question.query_id)
            return
        self._check(question, name, record, form)
        if not record.faulty:
            self._check_dataset(name, question.task, record)
            if not is_named:
                self._note_task(name, form)
            self.slices.add(question.query_id, record)
            self.questions.append(replace(question, dataset=name))

    def _keeps_unjudged(self, question: Question, *, is_chosen: bool) -> bool:
        """Return whether to keep a question without a line in the qrels: not if they choose the questions (BEIR)."""
        self.unjudged = self.unjudged or question.query_id
        if is_chosen:
            self.diagnostics.warning("questions without a line in the qrels, left out", question.query_id)
        elif not question.page_sets:
            kind = "questions without a line in the qrels and without gold passages"
            self.diagnostics.warning(kind, question.query_id)
        return not is_chosen

    def _report_unknown(self, record: Record) -> None:
        """Report one error for a file, however many of its records have an unknown format."""
        fields, names = shown(list(record.values)), record.values
        question = next((name for name in names if _LIKE_QUESTION.search(name)), "prompt")
        answers = next(iter([*filter(names.get, READ), *unread_fields(names, [])]), "gold")
        text = (
            f"{record.location}: unknown format of a record with the fields {fields}. Known formats: {FORMS}; or name "
            f"the fields of the plain format, such as question_fields: {{question: {question}, answers: {answers}}}"
        )
        text = self.unknown.setdefault(record.path, text)
        self.diagnostics.error(f"records of unknown format in {record.path}", text, count=1)

    def _check(self, question: Question, name: str, record: Record, form: str) -> None:
        label = f"query {question.query_id!r}"
        if count := question.num_empty_answers:
            self.diagnostics.warning("empty answers, left out", question.query_id, count=count)
        if not question.answers:
            fields = ", ".join(map(str, record.values))
            advice = f"If there is none, mark it is_impossible: true to leave it out; if it is in one of {fields}, "
            advice += "set question_fields: {answers: NAME}"
            if unread := unread_fields(record.values, []):
                other = {"kilt": "question: input, ", "beir": "question: text, "}.get(form, "")
                advice = f"Set question_fields: {{{other}answers: {unread[0]}}} if this field has them"
            record.fault("queries without an answer", f"{label} has no answer. {advice}")
        for answer in question.answers:
            if not has_word(normalize_answer(answer)):
                kind = "answers that normalise to nothing or to signs (found in no text), of queries"
                self.diagnostics.warning(kind, question.query_id)
            if re.search(rf"{EMPTY_CELL}|{NO_ANSWER}|^\d+\.0$", answer):
                kind = "answers such as nan, unanswerable or 2020.0 (for none or 2020?), read as texts, of queries"
                self.diagnostics.warning(kind, question.query_id)
        if not question.text.strip() and known_name(name) != "triviaqa":
            record.fault("queries without a question", f"{label} has no question")

    def _check_dataset(self, name: str, task: str | None, record: Record) -> None:
        properties = find_dataset(name, task)
        if properties is None:
            properties = Dataset()
            text = f"unknown data set {name!r}: treated as question answering"
            self.diagnostics.warning(text + self._scored_by(properties))
        if self.datasets.setdefault(name, properties) != properties:
            record.fault(
                "mixed tasks",
                f"task {task!r} differs from the other records of data set {name!r}. Give each task its own data set "
                "name (kilt_task)",
            )

    def _note_task(self, name: str, form: str) -> None:
        """Warn about a task that is only known from the file's name, and is not question answering."""
        properties, key = self.datasets[name], known_name(name)
        if key is None or properties == Dataset() or (form == "kilt" and key == name):
            return
        text = f"data set {name!r}, named after its file, is taken for {key} ({properties.family}s)"
        advice = "Set dataset to another name, or score, for other rules"
        self.diagnostics.warning(f"{text}{self._scored_by(properties)}. {advice}")

    def _scored_by(self, properties: Dataset) -> str:
        return f", scored by {self.rule.score(properties)}" if self.is_scored else ""

    def check_qrels(self, paths: list[str]) -> None:
        """Record an error for qrels that give no question its gold passages."""
        if fault := numbering_fault(self.locations, self.qrels):
            self.diagnostics.error("qrels with another numbering", f"{', '.join(paths)}: {fault}")
        text = ""
        if self.qrels and not self.uses_qrels and self.unjudged:
            ids = f"such as {next(iter(self.qrels))!r} against {self.unjudged!r}"
            text = f"has no query in common with the questions ({ids})"
        elif self.qrels and not self.uses_qrels and self.questions:
            text = "unused qrels: every question lists its gold passages itself (gold_doc_ids)"
        if text:
            self.diagnostics.error("unused qrels", f"{', '.join(paths)}: {text}")

    def join_triviaqa(self, paths: list[str]) -> None:
        """Fill in the questions that KILT's TriviaQA files omit."""
        pending = [question.query_id for question in self.questions if not question.text.strip()]
        if not pending:
            return
        texts = read_triviaqa(paths, pending, self.diagnostics)
        if not paths:
            self.diagnostics.error(
                "TriviaQA without questions",
                f"{self.locations[pending[0]]}: {len(pending):,} queries such as {pending[0]!r} have no question. "
                "Set triviaqa_questions to the original TriviaQA JSON files",
            )
        for query_id in pending if paths else ():
            if query_id not in texts:
                text = f"{self.locations[query_id]}: query {query_id!r} is not in {', '.join(paths)}"
                self.diagnostics.error("queries that are in no TriviaQA file", text)
        self.questions = [
            replace(question, text=texts.get(question.query_id, question.text))
            for question in self.questions
            if question.text.strip() or question.query_id in texts
        ]

    def tables(self) -> LoadedQueries:
        """Return the tables of all questions, with a note for each data set that is scored by another rule."""
        for name, properties in self.datasets.items() if self.is_scored else ():
            if note := self.rule.note(name, properties):
                self.diagnostics.warning(note)
        datasets = {name: self.rule.applied(properties) for name, properties in self.datasets.items()}
        rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in COLUMNS}
        for question in self.questions:
            query_id, name = question.query_id, str(question.dataset)
            row = (query_id, name, question.text, list(question.answers), datasets[name].score)
            rows["queries"].append(row)
            sets = [(output, page) for output, pages in enumerate(question.page_sets) for page in pages]
            distinct = dict.fromkeys(page for _, page in sets)
            gold = [*((None, doc) for doc in question.gold), *((page, None) for page in distinct)]
            rows["provenance"] += [(query_id, rank, *ids) for rank, ids in enumerate(gold, 1)]
            rows["page_sets"] += [(query_id, *page_of_set) for page_of_set in sets]
            rows["evidence"] += [(query_id, span) for span in question.evidence]
            rows["facts"] += [(query_id, number, list(fact)) for number, fact in enumerate(question.facts, 1)]
        rows["slices"] += self.slices.rows
        frames = {name: pl.DataFrame(rows[name], schema=COLUMNS[name], orient="row") for name in COLUMNS}
        return LoadedQueries(**frames, datasets=datasets)


def sample_loaded(
    loaded: LoadedQueries, num_queries: int | None, seed: int, diagnostics: Diagnostics | None = None
) -> LoadedQueries:
    """Restrict all tables to a `sample` of the questions; datasets without any in it are noted."""
    queries = sample(loaded.queries, num_queries, seed)
    without = sorted({*loaded.queries["dataset"]} - {*queries["dataset"]})
    if without and diagnostics:
        text = f"num_queries: the sample of {queries.height:,} of {loaded.queries.height:,} questions of all datasets"
        diagnostics.warning(f"{text} has none of {', '.join(without)}")
    frames = {name: getattr(loaded, name).join(queries, on="query_id", how="semi") for name in COLUMNS}
    return replace(loaded, **{**frames, "queries": queries})


def sample(queries: pl.DataFrame, num_queries: int | None, seed: int) -> pl.DataFrame:
    """Return the ``num_queries`` questions with the lowest hashes: equal on any machine, for any order of the file."""
    if num_queries is None or num_queries >= queries.height:
        return queries.sort("query_id")
    hashes = [xxhash.xxh3_64_intdigest(f"{seed}:{query_id}".encode()) for query_id in queries["query_id"]]
    ordered = queries.with_columns(hash=pl.Series(hashes, dtype=pl.UInt64)).sort("hash", "query_id")
    return ordered.head(num_queries).drop("hash").sort("query_id")
