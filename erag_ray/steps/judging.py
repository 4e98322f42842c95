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
    all_slices,
    best_depths,
    by_dataset,
    cell_columns,
    cell_comparisons,
    cell_shares,
    cells,
    comparisons,
    complements,
    contrasts,
    correlations,
    depths_of,
    list_outputs,
    list_value_parts,
    means,
    pooling,
    slice_comparisons,
    slice_means,
    utility_of,
)
from erag_ray.kinds import ANSWER, ANSWER_JUDGE, EARLY_STOPPED, RELEVANCE, VERDICT, Case, Kind, Value
from erag_ray.pending import Use, Uses, pairs
from erag_ray.progress import StageProgress, stage_progress
from erag_ray.report.load import EXPORT
from erag_ray.requests import Response
from erag_ray.schemas import (
    BEST_DEPTHS,
    CELL_COMPARISONS,
    CELL_SHARES,
    CELLS,
    COMPARISONS,
    COMPLEMENTS,
    CONTRASTS,
    CORRELATIONS,
    DOCUMENT_OUTPUTS,
    LABELS,
    LIST_OUTPUTS,
    LIST_VALUES,
    MEANS,
    POOLING,
    PROVENANCE,
    QUERIES,
    RESPONSES,
    RUNS,
    SLICE_COMPARISONS,
    SLICE_MEANS,
    SLICES,
    UTILITY,
    InputError,
    TableSchema,
)
from erag_ray.scores import JUDGED, Scoring
from erag_ray.steps import say
from erag_ray.steps.checks import check_evaluation, cutoff_notes, scores_of
from erag_ray.steps.errors import check_scores, score_notes
from erag_ray.steps.inputs import INPUT_TABLES, RESULTS, Inputs, unseal
from erag_ray.steps.stages import Stage, digests
from erag_ray.store import Folder, TableStore, TableWriter, as_frame, frame_digest
from erag_ray.user_code import running

MAX_NAME = 150
INSTEAD_OF_ANSWERS = (EARLY_STOPPED, VERDICT)
"""Kinds that give the score of an answer without all of its text."""
OF_LABELS: Mapping[TableSchema, Sequence[str]] = {
    LIST_VALUES: ("depths", "measures", "cutoffs", "threshold"),
    POOLING: ("depths", "measures", "threshold"),
}
"""Tables made from labels, and the settings that each depends on."""
MakeTable = Callable[[Sequence[DatasetColumns], Settings], pl.DataFrame]
MakeSliced = Callable[[Sequence[DatasetColumns], pl.DataFrame, Settings], pl.DataFrame]
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
OF_CELLS: Mapping[TableSchema, tuple[MakeTable, Sequence[str]]] = {
    CELL_COMPARISONS: (cell_comparisons, ("num_resamples", "confidence", "num_flips", "seed")),
    COMPLEMENTS: (complements, ("confidence",)),
}
"""Tables made from cells, as `OF_VALUES`."""
OF_SLICES: Mapping[TableSchema, tuple[MakeSliced, Sequence[str]]] = {
    CELL_SHARES: (cell_shares, ("slices", "confidence")),
    SLICE_MEANS: (slice_means, ("slices", "num_resamples", "confidence", "seed")),
    SLICE_COMPARISONS: (slice_comparisons, ("slices", "num_resamples", "confidence", "num_flips", "seed")),
}
"""Tables made from cells (CELL_SHARES) or from values and utility, by slice too; as `OF_VALUES`."""
SOURCES: Mapping[TableSchema, Sequence[TableSchema]] = {
    **dict.fromkeys(OF_LABELS, (LABELS, QUERIES, PROVENANCE, RUNS)),
    **dict.fromkeys(OF_VALUES, (LIST_VALUES, UTILITY, QUERIES)),
    CELLS: (LABELS, UTILITY, RUNS),
    **dict.fromkeys(OF_CELLS, (CELLS, QUERIES)),
    CELL_SHARES: (CELLS, SLICES, QUERIES),
    **dict.fromkeys((SLICE_MEANS, SLICE_COMPARISONS), (LIST_VALUES, UTILITY, CELLS, SLICES, QUERIES)),
}
"""Each result, and the tables that it is made from."""


def _made_from_it(schema: TableSchema) -> list[TableSchema]:
    """The results that a table goes into, directly or through others."""
    direct = [result for result, sources in SOURCES.items() if schema in sources]
    return list(dict.fromkeys([*direct, *(last for one in direct for last in _made_from_it(one))]))


Values = Mapping[Kind, pl.DataFrame]
"""Kind of question -> query_id, doc_id? (null: without any document), reader, value?: what was folded (`fold`).

Of `ANSWER_JUDGE`: query_id, output, value?."""


def scoring_of(judgements: pl.DataFrame | None) -> Scoring:
    """What a job knows for its scores: judgements of outputs (None: there are none)."""
    rows = () if judgements is None else judgements.select("query_id", "output", "value").iter_rows()
    return Scoring(judgements={(query_id, output): value for query_id, output, value in rows})


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
    """Every annotator's labels, sealed as LABELS, and the outputs behind them, as DOCUMENT_OUTPUTS.

    Args:
        config: the job.
        inputs: its inputs.
        values: what models answered (`fold`).

    Raises:
        InputError: an annotator gives no labels, or such as cannot be (NaN, a pair left out).
        JobError: an annotator of the user's own raises; or a score does so for more outputs than ``max_error_share``
            allows. Nothing is sealed then.
    """
    scoring = scoring_of(values.get(ANSWER_JUDGE))
    with stage_progress("labels", show=config.progress) as at:
        made_from = _label_stage(config, inputs, values)
        if made_from.is_made(TableStore(config.out)):
            return say(f"{made_from.name}: as sealed before")
        evidence = dataclasses.replace(
            evidence_of(inputs, values), relevant_from=config.judge.threshold, scoring=scoring
        )
        writer = TableStore(config.out).writer(LABELS)
        for name in at.each(config.annotators, "annotators"):
            writer.append(_label_by_reader(name, evidence))
        check_scores(scoring, config)
        _seal_outputs(config, made_from, DOCUMENT_OUTPUTS, document_outputs(values))
        notes = [*_judge_notes(config, evidence), *score_notes(scoring, "outputs of documents alone")]
        after = _made_from_it(LABELS)
        _seal(config, made_from, writer, after, notes=notes, **_harm_evidence(config, evidence))


def _label_stage(config: JobConfig, inputs: Inputs, values: Values) -> Stage:
    return Stage(
        name="labels",
        tables=[LABELS, DOCUMENT_OUTPUTS],
        settings=_label_settings(config, inputs),
        inputs={
            **digests(TableStore(config.out), INPUT_TABLES),
            **_frame_digests({kind.name: frame for kind, frame in values.items()}),
        },
        names=[*config.annotators, *scores_of(inputs.queries)],
    )


def document_outputs(values: Values) -> pl.DataFrame:
    """DOCUMENT_OUTPUTS: what was written with single documents; without rows where no answers were asked for."""
    if ANSWER not in values:
        return as_frame(DOCUMENT_OUTPUTS.empty())
    outputs = values[ANSWER].drop_nulls("doc_id").rename({"value": "output"})
    key = list(DOCUMENT_OUTPUTS.key)
    return outputs.select(DOCUMENT_OUTPUTS.columns.names).unique(key).sort(key)


def _seal_outputs(config: JobConfig, made_from: Stage, schema: TableSchema, outputs: pl.DataFrame) -> None:
    writer = TableStore(config.out).writer(schema)
    writer.append(outputs)
    _seal(config, made_from, writer, ())


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
    config: JobConfig,
    inputs: Inputs,
    lists: pl.DataFrame,
    requests: pl.DataFrame,
    responses: pl.DataFrame,
    judgements: pl.DataFrame | None = None,
) -> None:
    """The end-to-end scores of all lists, sealed as UTILITY, and the outputs, as LIST_OUTPUTS.

    Args:
        config: the job.
        inputs: its inputs.
        lists: columns run_id, query_id, depth, doc_ids.
        requests: REQUESTS that hold each of them.
        responses: RESPONSES that answer them.
        judgements: what the judge says of their outputs, where it was asked: columns query_id, output, value.

    Raises:
        JobError: a score of the user's own raises for more outputs than ``max_error_share`` allows.
    """
    scoring = scoring_of(judgements)
    with stage_progress("end-to-end scores", show=config.progress):
        made_from = _use_stage(config, inputs, lists, requests, responses, judgements)
        if made_from.is_made(TableStore(config.out)):
            return say(f"{made_from.name}: as sealed before")
        writer = TableStore(config.out).writer(UTILITY)
        outputs = list_outputs(lists, _answers(requests), responses)
        writer.append(utility_of(outputs, inputs.queries, scoring))
        check_scores(scoring, config)
        _seal_outputs(config, made_from, LIST_OUTPUTS, outputs)
        notes = list(score_notes(scoring, "outputs of lists"))
        _seal(config, made_from, writer, _made_from_it(UTILITY), notes=notes)


def _answers(requests: pl.DataFrame) -> pl.DataFrame:
    """The REQUESTS for whole answers."""
    return requests.filter(kind=ANSWER.name)


def _use_stage(
    config: JobConfig,
    inputs: Inputs,
    lists: pl.DataFrame,
    requests: pl.DataFrame,
    responses: pl.DataFrame,
    judgements: pl.DataFrame | None,
) -> Stage:
    outputs = responses.select(*RESPONSES.key, "output")
    judged = {} if judgements is None else {"judgements": judgements}
    return Stage(
        name="end-to-end scores",
        tables=[UTILITY, LIST_OUTPUTS],
        settings=_use_settings(config, inputs),
        inputs={
            **digests(TableStore(config.out), [QUERIES]),
            **_frame_digests({"lists": lists, "requests": requests, "outputs": outputs, **judged}),
        },
        names=scores_of(inputs.queries),
    )


def _label_settings(config: JobConfig, inputs: Inputs) -> dict[str, object]:
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
        **_judged_settings(config, inputs),
    }


def _use_settings(config: JobConfig, inputs: Inputs) -> dict[str, object]:
    return {
        "end_to_end_depths": config.depths,
        "reader": output_settings(config.reader),
        **_judged_settings(config, inputs),
    }


def _judged_settings(config: JobConfig, inputs: Inputs) -> dict[str, object]:
    """What judged scores depend on besides outputs: the judge, and the hash of what it is told (dataset by dataset)."""
    cases = {
        name: Case(dataset=dataset, reader=config.reader, judge=config.judge)
        for name, dataset in inputs.datasets.items()
        if dataset.score in JUDGED
    }
    forms = {name: ANSWER_JUDGE.build(case).fingerprint for name, case in cases.items()}
    return {"judge": output_settings(config.judge), "judged_by": forms} if forms else {}


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
        slices=tuple(dict.fromkeys(config.slices)),
    )


def evaluate(config: JobConfig, inputs: Inputs) -> None:
    """All of `RESULTS`, from the sealed LABELS and UTILITY.

    Raises:
        InputError: one of them is not sealed or was made with other settings, or the config asks for what cannot be.
    """
    findings = Findings()
    check_evaluation(config, scores_of(inputs.queries), findings)
    findings.raise_problems()
    tables = TableStore(config.out)
    _check_made(tables, LABELS, "annotate", _label_settings(config, inputs))
    _check_made(tables, UTILITY, "end_to_end", _use_settings(config, inputs))
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
        made_from = self._stage(schema)
        with stage_progress(made_from.name, show=self.config.progress) as at:
            if made_from.is_made(self.tables):
                return False
            writer = self.tables.writer(schema)
            for part in self._parts(schema, at):
                writer.append(part)
        notes = {"notes": cutoff_notes(self.config)} if schema == LIST_VALUES else {}
        _seal(self.config, made_from, writer, _made_from_it(schema), **notes)
        return True

    def _stage(self, schema: TableSchema) -> Stage:
        keys = self._keys(schema)
        names = list(self.settings.statistics) if "statistics" in keys else []
        if schema in OF_LABELS:
            names += [
                *self.config.annotators,
                *scores_of(self.inputs.queries),
                *(self.settings.measures or ()),
            ]
        return Stage(
            name=schema.name,
            tables=[schema],
            settings={key: getattr(self.settings, key) for key in keys},
            inputs=digests(self.tables, SOURCES[schema]),
            names=names,
        )

    @staticmethod
    def _keys(schema: TableSchema) -> Sequence[str]:
        """The settings that a table depends on."""
        if schema == CELLS:
            return ("threshold",)
        makers = {**OF_VALUES, **OF_CELLS, **OF_SLICES}
        return OF_LABELS[schema] if schema in OF_LABELS else makers[schema][1]

    def _parts(self, schema: TableSchema, at: StageProgress) -> Iterable[pl.DataFrame]:
        if schema == CELLS:
            return [cells(self.labels, self.used, self.inputs.runs, self.settings.threshold)]
        if schema in OF_LABELS:
            own = self.labels, self.inputs.runs, self._applicable, self.inputs.queries, self.settings
            return [pooling(*own)] if schema == POOLING else at.each(list_value_parts(*own), "parts")
        is_of_cells = schema in OF_CELLS or schema == CELL_SHARES
        datasets = self._cell_columns if is_of_cells else self._columns
        parts = [self._part(schema, one) for one in at.each(datasets, "datasets")]
        return [_one_table(schema, parts)]

    def _part(self, schema: TableSchema, own: DatasetColumns) -> pl.DataFrame:
        """A table's rows of one dataset."""
        if schema in OF_SLICES:
            return OF_SLICES[schema][0]([own], self._slices, self.settings)
        return {**OF_VALUES, **OF_CELLS}[schema][0]([own], self.settings)

    @functools.cached_property
    def _applicable(self) -> dict[str, pl.Series]:
        evidence, names = evidence_of(self.inputs), self.labels["annotator"].unique().sort()
        return {name: applicable_queries(name, evidence)["query_id"] for name in names}

    @functools.cached_property
    def _columns(self) -> list[DatasetColumns]:
        values = self.tables.read_parts(LIST_VALUES)
        return by_dataset(values, self.used, self.inputs.queries, self.settings)

    @functools.cached_property
    def _cells(self) -> pl.DataFrame:
        return self.tables.read(CELLS)

    @functools.cached_property
    def _cell_columns(self) -> list[DatasetColumns]:
        return cell_columns(self._cells, self.inputs.queries, self.settings)

    @functools.cached_property
    def _slices(self) -> pl.DataFrame:
        return all_slices(self.inputs.slices, self._cells, self.settings.slices)


def _one_table(schema: TableSchema, parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([as_frame(schema.empty()), *parts])


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
