"""Responses -> sealed LABELS and UTILITY -> LIST_VALUES, MEANS, CORRELATIONS and more; TREC files."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import xxhash

from erag_ray.annotators import (
    PER_QUESTION,
    TAIL,
    Evidence,
    annotate,
    annotator_named,
    applicable_queries,
    asks_of,
    closed_book_answers,
    likelihood_noise,
    no_documents,
    unrelated_pairs,
)
from erag_ray.config import JobConfig, output_settings
from erag_ray.datasets import Findings, write_trec_qrels, write_trec_run
from erag_ray.evaluate import (
    DatasetColumns,
    Settings,
    best_depths,
    by_dataset,
    comparisons,
    contrasts,
    correlations,
    depths_of,
    list_value_parts,
    means,
    pooling,
    utility,
)
from erag_ray.kinds import ANSWER, EARLY_STOPPED, RELEVANCE, VERDICT, Kind, Value
from erag_ray.pending import Use, Uses, pairs
from erag_ray.progress import StageProgress, stage_progress
from erag_ray.report.load import EXPORT
from erag_ray.requests import Response
from erag_ray.schemas import (
    BEST_DEPTHS,
    COMPARISONS,
    CONTRASTS,
    CORRELATIONS,
    LABELS,
    LIST_VALUES,
    MEANS,
    POOLING,
    PROVENANCE,
    QUERIES,
    RESPONSES,
    RUNS,
    UTILITY,
    InputError,
    TableSchema,
)
from erag_ray.scores import ScoreErrors
from erag_ray.steps import say
from erag_ray.steps.checks import check_evaluation, cutoff_notes, scores_of
from erag_ray.steps.errors import check_scores, score_notes
from erag_ray.steps.inputs import INPUT_TABLES, Inputs, unseal
from erag_ray.steps.stages import Stage, digests
from erag_ray.store import Folder, TableStore, TableWriter, as_frame, frame_digest
from erag_ray.user_code import running

MAX_NAME = 150
INSTEAD_OF_ANSWERS = (EARLY_STOPPED, VERDICT)
"""Kinds that give the score of an answer without all of its text."""
RESULTS = (LIST_VALUES, MEANS, CORRELATIONS, COMPARISONS, CONTRASTS, POOLING, BEST_DEPTHS)
OF_LABELS: Mapping[TableSchema, Sequence[str]] = {
    LIST_VALUES: ("depths", "measures", "cutoffs", "threshold"),
    POOLING: ("depths", "measures", "threshold"),
}
"""Tables made from labels, and the settings that each depends on."""
MakeTable = Callable[[Sequence[DatasetColumns], Settings], pl.DataFrame]
OF_VALUES: Mapping[TableSchema, tuple[MakeTable, Sequence[str]]] = {
    MEANS: (means, ("num_resamples", "confidence", "seed")),
    CORRELATIONS: (
        correlations,
        ("statistics", "num_resamples", "confidence", "num_permutations", "seed"),
    ),
    COMPARISONS: (comparisons, ("num_resamples", "confidence", "num_flips", "seed")),
    CONTRASTS: (contrasts, ("statistics", "num_resamples", "confidence", "seed")),
    BEST_DEPTHS: (best_depths, ("num_resamples", "confidence", "seed")),
}
"""Tables made from values of lists and utility, how, and the settings that each depends on."""


Values = Mapping[Kind, pl.DataFrame]
"""Kind of question -> query_id, doc_id? (null: without any document), reader, value?: what was folded (`fold`)."""


def evidence_of(inputs: Inputs, values: Values | None = None, judged: pl.DataFrame | None = None) -> Evidence:
    """What annotators may look at.

    Args:
        inputs: of the job.
        values: what models answered.
        judged: the pairs that the judge is asked about.
    """
    return Evidence(
        pairs=pairs(inputs.runs),
        queries=inputs.queries,
        corpus=inputs.corpus,
        provenance=inputs.provenance,
        gold=inputs.gold,
        values=values or {},
        judged=judged,
    )


def fold(uses: Uses, requests: pl.DataFrame, responses: pl.DataFrame, queries: pl.DataFrame) -> Values:
    """What each kind of question came to, about single documents and about none.

    What was asked for its score alone stands for the answer.

    Args:
        uses: how each kind was asked.
        requests: REQUESTS.
        responses: RESPONSES that answer them.
        queries: QUERIES.
    """
    alone = requests.filter(pl.col("doc_ids").list.len() <= 1)
    facts = queries.select("query_id", "dataset", gold_answers="answers")
    joined = alone.with_columns(doc_id=pl.col("doc_ids").list.first()).join(facts, on="query_id")
    answered = joined.join(responses, on=list(RESPONSES.key))
    parts: dict[Kind, list[pl.DataFrame]] = {}
    replaced = {dataset for (_, dataset), use in uses.items() if use.kind in INSTEAD_OF_ANSWERS}
    for pair, use in uses.items():
        if use.kind is ANSWER and pair[1] in replaced:
            continue
        rows = answered.filter(kind=pair[0], dataset=pair[1])
        kind = ANSWER if use.kind in INSTEAD_OF_ANSWERS else use.kind
        value = pl.Series("value", _folded(use, rows), dtype=pl.String if kind.value is str else pl.Float64)
        parts.setdefault(kind, []).append(rows.select("query_id", "doc_id", "reader", value))
    return {kind: pl.concat(frames) for kind, frames in parts.items()}


def _folded(use: Use, rows: pl.DataFrame) -> pl.Series | list[Value]:
    fold_one = use.kind.fold
    if fold_one is None:
        return rows["output"]
    columns = rows.select("gold_answers", "output", "logprobs", "num_answer_tokens", "error").iter_rows()
    with running(f"kind {use.kind.name}: fold", fold_one):
        return [
            None
            if error is not None
            else fold_one(
                use.answers(golds),
                Response(text=text, logprobs=tuple(values), num_answer_tokens=tuple(counts)),
            )
            for golds, text, values, counts, error in columns
        ]


def label(config: JobConfig, inputs: Inputs, values: Values) -> None:
    """Every annotator's labels, sealed as LABELS.

    Args:
        config: the job.
        inputs: its inputs.
        values: what models answered (`fold`).

    Raises:
        InputError: an annotator gives no labels, or such as cannot be (NaN, a pair left out).
        JobError: an annotator of the user's own raises; or a score does so for more outputs than ``max_error_share``
            allows. Nothing is sealed then.
    """
    errors = ScoreErrors()
    with stage_progress("labels", show=config.progress) as at:
        made_from = _label_stage(config, inputs, values)
        if made_from.is_made(TableStore(config.out)):
            return say(f"{made_from.name}: as sealed before")
        evidence = dataclasses.replace(
            evidence_of(inputs, values), relevant_from=config.judge.threshold, score_errors=errors
        )
        writer = TableStore(config.out).writer(LABELS)
        for name in at.each(config.annotators, "annotators"):
            writer.append(_label_by_reader(name, evidence))
        check_scores(errors, config)
        notes = [*_judge_notes(config, evidence), *score_notes(errors, "outputs of documents alone")]
        _seal(config, made_from, writer, RESULTS, notes=notes, **_harm_evidence(config, evidence))


def _label_stage(config: JobConfig, inputs: Inputs, values: Values) -> Stage:
    return Stage(
        name="labels",
        tables=[LABELS],
        settings=_label_settings(config),
        inputs={
            **digests(TableStore(config.out), INPUT_TABLES),
            **_frame_digests({kind.name: frame for kind, frame in values.items()}),
        },
        names=[*config.annotators, *scores_of(inputs.queries)],
    )


def _frame_digests(frames: Mapping[str, pl.DataFrame]) -> dict[str, str]:
    """Of the same rows in any order: the store gives them in that of its files."""
    return {name: frame_digest(frame.sort(pl.all())) for name, frame in frames.items()}


def _seal(
    config: JobConfig, made_from: Stage, writer: TableWriter, after: Sequence[TableSchema], **more: object
) -> None:
    """Seal a stage's table; if it is another than before, the tables made from it lose their seals first."""
    if writer.is_changed:
        unseal(config, after)
    settings = {**made_from.settings, **more}
    writer.seal(config=settings, inputs=made_from.inputs, made_from=made_from.fingerprint)


def _judge_notes(config: JobConfig, evidence: Evidence) -> Iterator[str]:
    if RELEVANCE not in evidence.values:
        return
    judged = evidence.of(RELEVANCE)
    unread, asked, queries = judged["value"].null_count(), judged.height, judged["query_id"].n_unique()
    judge = f"{config.judge.model}, {config.judge.scale}"
    yield f"relevance was judged ({judge}) for {asked:,} of {evidence.pairs.height:,} pairs, {queries:,} questions"
    if unread:
        yield f"answers of the judge without a grade, labelled null: {unread:,} of {asked:,}"


def _harm_evidence(config: JobConfig, evidence: Evidence) -> dict[str, list[dict[str, Any]]]:
    """What tells where gains can show harm: the arguments of `harm_notes`, empty where nothing is asked."""
    lists = {ask.lists for ask in asks_of(config.annotators)}
    closed_book = closed_book_answers(evidence).to_dicts() if no_documents in lists else []
    noise = likelihood_noise(evidence).to_dicts() if unrelated_pairs in lists else []
    return {"closed_book": closed_book, "noise": noise}


def _label_by_reader(name: str, evidence: Evidence) -> pl.DataFrame:
    """One annotator's labels; each dataset's pairs are labelled with the reader that read them.

    Raises:
        InputError: it gives no labels, or such as cannot be (NaN, a pair left out).
    """
    try:
        return _labels_of(name, evidence)
    except ValueError as error:
        raise InputError([f"annotators: {name}: {error}"]) from error


def _labels_of(name: str, evidence: Evidence) -> pl.DataFrame:
    annotator = annotator_named(name)
    if "reader" not in annotator.fills:
        return as_frame(annotate(name, evidence))
    kinds = [kind for kind in {ask.kind for ask in annotator.asks} if kind in evidence.values]
    readers = pl.concat([evidence.of(kind).select("reader", "query_id").unique() for kind in kinds]).unique()
    parts = []
    for (reader,), queries in readers.group_by("reader", maintain_order=True):
        own = evidence.pairs.join(queries, on="query_id", how="semi")
        values = {
            kind: frame.filter(reader=reader) for kind, frame in evidence.values.items() if kind in kinds
        }
        parts.append(as_frame(annotate(name, dataclasses.replace(evidence, pairs=own, values=values))))
    return pl.concat(parts)


def use(
    config: JobConfig, inputs: Inputs, lists: pl.DataFrame, requests: pl.DataFrame, responses: pl.DataFrame
) -> None:
    """The end-to-end scores of all lists, sealed as UTILITY.

    Raises:
        JobError: a score of the user's own raises for more outputs than ``max_error_share`` allows.
    """
    errors = ScoreErrors()
    with stage_progress("end-to-end scores", show=config.progress):
        made_from = _use_stage(config, inputs, lists, requests, responses)
        if made_from.is_made(TableStore(config.out)):
            return say(f"{made_from.name}: as sealed before")
        writer = TableStore(config.out).writer(UTILITY)
        writer.append(utility(lists, _answers(requests), responses, inputs.queries, errors))
        check_scores(errors, config)
        notes = list(score_notes(errors, "outputs of lists"))
        _seal(config, made_from, writer, tuple(OF_VALUES), notes=notes)


def _answers(requests: pl.DataFrame) -> pl.DataFrame:
    """The REQUESTS for whole answers."""
    return requests.filter(kind=ANSWER.name)


def _use_stage(
    config: JobConfig, inputs: Inputs, lists: pl.DataFrame, requests: pl.DataFrame, responses: pl.DataFrame
) -> Stage:
    outputs = responses.select(*RESPONSES.key, "output")
    return Stage(
        name="end-to-end scores",
        tables=[UTILITY],
        settings=_use_settings(config),
        inputs={
            **digests(TableStore(config.out), [QUERIES]),
            **_frame_digests({"lists": lists, "requests": requests, "outputs": outputs}),
        },
        names=scores_of(inputs.queries),
    )


def _label_settings(config: JobConfig) -> dict[str, object]:
    asks = list(asks_of(config.annotators))
    judge = {"judge": output_settings(config.judge)} if any(a.kind.asks == "judge" for a in asks) else {}
    is_unrelated = any(ask.lists is unrelated_pairs for ask in asks)
    noise = {"unrelated": {"per_question": PER_QUESTION, "tail": TAIL}} if is_unrelated else {}
    return {
        "annotators": sorted(config.annotators),
        "reader": output_settings(config.reader),
        "score_only": config.score_only,
        **judge,
        **noise,
    }


def _use_settings(config: JobConfig) -> dict[str, object]:
    return {"end_to_end_depths": config.depths, "reader": output_settings(config.reader)}


def settings_of(config: JobConfig) -> Settings:
    """The part of a config that evaluation needs."""
    return Settings(
        depths=depths_of(config.depths, config.depth),
        measures=config.measures,
        cutoffs=config.cutoffs,
        threshold=config.threshold,
        statistics=config.statistics,
        num_resamples=config.num_resamples,
        confidence=config.confidence,
        num_flips=config.num_flips,
        num_permutations=config.num_permutations,
        seed=config.seed,
    )


def evaluate(config: JobConfig, inputs: Inputs) -> None:
    """LIST_VALUES, MEANS and CORRELATIONS of the sealed LABELS and UTILITY.

    Raises:
        InputError: one of them is not sealed or was made with other settings, or the config asks for what cannot be.
    """
    findings = Findings()
    check_evaluation(config, scores_of(inputs.queries), findings)
    findings.raise_problems()
    tables = TableStore(config.out)
    _check_made(tables, LABELS, "annotate", _label_settings(config))
    _check_made(tables, UTILITY, "end_to_end", _use_settings(config))
    evaluation = _Evaluation(config, inputs, tables)
    same = [schema.name for schema in RESULTS if not evaluation.make(schema)]
    if same:
        say(f"{', '.join(same)}: as sealed before")


class _Evaluation:
    """The tables that follow from LABELS and UTILITY; each is made only where it does not stand there already."""

    def __init__(self, config: JobConfig, inputs: Inputs, tables: TableStore) -> None:
        self.config, self.inputs, self.tables = config, inputs, tables
        self.settings = settings_of(config)
        with stage_progress("loading labels", show=config.progress):
            self.labels, self.used = tables.read(LABELS), tables.read(UTILITY)

    def make(self, schema: TableSchema) -> bool:
        """Make and seal a table; False where it was made from exactly this before."""
        made_from = self._of_labels(schema) if schema in OF_LABELS else self._of_values(schema)
        with stage_progress(made_from.name, show=self.config.progress) as at:
            if made_from.is_made(self.tables):
                return False
            writer = self.tables.writer(schema)
            for part in self._parts(schema, at):
                writer.append(part)
        if schema == LIST_VALUES:
            _seal(self.config, made_from, writer, tuple(OF_VALUES), notes=cutoff_notes(self.config))
        else:
            _seal(self.config, made_from, writer, ())
        return True

    def _of_labels(self, schema: TableSchema) -> Stage:
        called = [*self.config.annotators, *scores_of(self.inputs.queries), *(self.settings.measures or ())]
        return Stage(
            name=schema.name,
            tables=[schema],
            settings={key: getattr(self.settings, key) for key in OF_LABELS[schema]},
            inputs=digests(self.tables, (LABELS, QUERIES, PROVENANCE, RUNS)),
            names=called,
        )

    def _of_values(self, schema: TableSchema) -> Stage:
        _, keys = OF_VALUES[schema]
        return Stage(
            name=schema.name,
            tables=[schema],
            settings={key: getattr(self.settings, key) for key in keys},
            inputs=digests(self.tables, (LIST_VALUES, UTILITY, QUERIES)),
            names=self.settings.statistics if "statistics" in keys else (),
        )

    def _parts(self, schema: TableSchema, at: StageProgress) -> Iterable[pl.DataFrame]:
        if schema in OF_VALUES:
            make, _ = OF_VALUES[schema]
            parts = (make([own], self.settings) for own in at.each(self._columns, "datasets"))
            return [pl.concat([as_frame(schema.empty()), *parts])]
        own = self.labels, self.inputs.runs, self._applicable, self.inputs.queries, self.settings
        return [pooling(*own)] if schema == POOLING else at.each(list_value_parts(*own), "parts")

    @functools.cached_property
    def _applicable(self) -> dict[str, pl.Series]:
        evidence, names = evidence_of(self.inputs), self.labels["annotator"].unique().sort()
        return {name: applicable_queries(name, evidence)["query_id"] for name in names}

    @functools.cached_property
    def _columns(self) -> list[DatasetColumns]:
        values = self.tables.read_parts(LIST_VALUES)
        return by_dataset(values, self.used, self.inputs.queries, self.settings)


def _check_made(tables: TableStore, schema: TableSchema, job: str, wanted: Mapping[str, object]) -> None:
    place = tables.folder.root
    if not tables.is_sealed(schema):
        raise InputError([f"{place}: no sealed {schema.name}; run jobs/{job}.py or jobs/compare.py first"])
    made = tables.manifest(schema)["config"]
    other = [key for key, value in wanted.items() if made.get(key) != value]
    if other:
        text = f"{place}: {schema.name} were made with another {', '.join(other)}; run jobs/{job}.py again"
        raise InputError([f"{text} (what was read before is not read again)"])


def export(config: JobConfig, inputs: Inputs) -> list[str]:
    """Write runs as TREC runs and LABELS as TREC qrels under ``trec/``.

    Returns:
        What could not be written, and why; it is in the manifest there too.
    """
    tables = TableStore(config.out)
    labels, folder = tables.read(LABELS), tables.folder
    notes: list[str] = []
    for name in folder.names(EXPORT):
        folder.delete(EXPORT, name)
    with stage_progress("TREC files", show=config.progress) as at:
        for name, write in at.each(list(_trec_files(config, inputs, labels)), "files"):
            notes += _export(config, name, write)
    tables.write_manifest({"notes": notes}, EXPORT)
    return notes


def _trec_files(
    config: JobConfig, inputs: Inputs, labels: pl.DataFrame
) -> Iterator[tuple[str, Callable[[pathlib.Path], None]]]:
    for (run_id,), run in inputs.runs.group_by("run_id", maintain_order=True):
        yield f"{run_id}.trec", functools.partial(write_trec_run, run)
    for (annotator, reader, score), part in labels.group_by(
        "annotator", "reader", "score", maintain_order=True
    ):
        name = ".".join(str(word) for word in (annotator, score, reader) if word) + ".qrels"
        yield name, functools.partial(write_trec_qrels, part, threshold=config.threshold)


def _export(config: JobConfig, name: str, write: Callable[[pathlib.Path], None]) -> Iterator[str]:
    # a name may come from a config or from outside code: it must not leave the folder
    safe = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[:MAX_NAME]
    if safe != name or name.startswith("."):
        # and two names must not become one file
        safe = f"{xxhash.xxh3_64_hexdigest(name.encode())[:8]}-{safe}"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, safe)
        try:
            write(path)
        except ValueError as error:
            yield f"{EXPORT}/{safe} was not written: {error}"
        else:
            Folder(config.out).write_bytes(path.read_bytes(), EXPORT, safe)
