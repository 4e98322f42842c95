"""The extension of the key ``verdicts``: its files and tables, and how these are shown.

A file has lines ``{"query_id", "run" or "doc_id", "verdict", "annotator"?, "depth"?}``. A verdict is true, false, 1 or
0, also under ``accepted``: is the output of the run right, or the document useful.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from erag_ray.analyses.contract import RESAMPLED, Analysis, Evaluation, View
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.formats import counted, number, with_interval
from erag_ray.analyses.parts.model import Figure, Finding, Format, Part, Table
from erag_ray.analyses.parts.shapes import estimate, field, listing, name_field, rows_of
from erag_ray.config.job import JobConfig
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import identifier, is_missing, numbering_fault, shown
from erag_ray.data.files.jsonl import Record
from erag_ray.data.files.records import read_records
from erag_ray.data.runs.outputs import item_of
from erag_ray.extensions import Extension
from erag_ray.extras.verdicts.agreement import (
    AMONG_PEOPLE,
    OUTPUTS,
    PEOPLE,
    PEOPLE_MEANS,
    VERDICTS,
    make_means,
    make_people,
    unused_notes,
)
from erag_ray.store.fingerprints import file_stamp
from erag_ray.store.schemas import LABELS, LIST_OUTPUTS, QUERIES, REPEATS, UTILITY
from erag_ray.support.errors import InputError
from erag_ray.support.progress import StageProgress

KEYS = ("verdict", "accepted")
STATISTICS = {"kappa": "Cohen's kappa", "alpha": "Krippendorff's alpha"}


def load_verdicts(paths: Sequence[str], diagnostics: Diagnostics) -> pl.DataFrame:
    """Load VERDICTS from JSON Lines (.gz too), a JSON list, Parquet or a dataset; what is wrong goes to diagnostics."""
    rows: list[dict[str, Any]] = []
    first: dict[tuple[Any, ...], str] = {}
    for record in (record for path in paths for record in read_records(path, diagnostics)):
        row = _row(record)
        location = first.setdefault(tuple(row[name] for name in VERDICTS.key), record.location)
        if location != record.location:
            by = f" by {row['rater']!r}" if row["rater"] else ""
            text = f"query {row['query_id']!r}: repeats the verdict{by} at {location}; name each in annotator"
            record.fault("repeated verdicts", text)
        if not record.faulty:
            rows.append(row)
    return pl.DataFrame(rows, schema=VERDICTS.empty().schema)


def _row(record: Record) -> dict[str, Any]:
    values = record.values
    key = next((key for key in KEYS if key in values), KEYS[0])
    verdict = values.get(key)
    if verdict not in (0, 1):
        state = f"is {shown(verdict)}" if key in values else "is missing"
        record.fault(f"wrong {key}", f"{key} {state}; it must be true, false, 1 or 0")
    depth = 0 if is_missing(values.get("depth")) else values["depth"]
    if isinstance(depth, bool) or not isinstance(depth, int | float) or depth < 0 or depth != int(depth):
        record.fault("wrong depth", f"depth is {shown(depth)}; it must be a number of documents")
    item, rater = item_of(record), values.get("annotator")
    return {
        **item,
        "depth": 0 if item["doc_id"] else depth,
        "rater": "" if is_missing(rater) else identifier(rater) or str(rater),
        "verdict": bool(verdict),
    }


def check(config: JobConfig) -> None:
    """Raise InputError, before anything is requested, with all that is wrong with the files."""
    diagnostics = Diagnostics()
    if load_verdicts(config.verdicts, diagnostics).is_empty() and not diagnostics.num_errors:
        diagnostics.error("no verdicts", f"verdicts: there is none in {', '.join(config.verdicts)}")
    diagnostics.raise_errors()


def make_verdicts(evaluation: Evaluation, _: StageProgress) -> Iterator[pl.DataFrame]:
    """Yield VERDICTS; `unused_notes` counts those on other questions."""
    verdicts = load_verdicts(evaluation.config.verdicts, Diagnostics())
    query_ids = evaluation.inputs.queries["query_id"].to_list()
    if fault := numbering_fault(query_ids, verdicts["query_id"].unique().to_list()):
        raise InputError([f"verdicts: the file {fault}"])
    yield verdicts


def show(view: View) -> Iterator[Part]:
    """Yield how far each rater agrees with people, and the means of the runs as people would have them."""
    rows = view.rows(PEOPLE)
    for (about,), part in rows.group_by("about", maintain_order=True):
        whole = part.filter(run_id="").sort(pl.col("rater") == AMONG_PEOPLE, maintain_order=True)
        yield _figure(view, whole, str(about))
        yield _table(view, whole, f"{about}: which score or label agrees with people", str(about))
        of_runs = in_run_order(part.filter(pl.col("run_id") != ""), view.runs)
        if of_runs["run_id"].n_unique() > 1:
            yield _table(view, of_runs, "outputs of each run: agreement with people", "runs")
        if about == OUTPUTS:
            yield from _finding(view, whole)
    means = in_run_order(view.rows(PEOPLE_MEANS), view.runs)
    if means.height:
        yield _means(view, means)


def _figure(view: View, rows: pl.DataFrame, about: str) -> Figure:
    among_people = rows.filter(rater=AMONG_PEOPLE)["value"].drop_nulls()
    return Figure(
        data=rows.filter(pl.col("rater") != AMONG_PEOPLE)
        .drop_nulls("value")
        .select("rater", "value", "low", "high"),
        mark="interval",
        x="value",
        y="rater",
        low="low",
        high="high",
        rules={"people among themselves": among_people[0]} if len(among_people) else {},
        x_title="Cohen's kappa with people",
        is_main=True,
        **view.about("people_agreement", f"{about}: agreement with people", about),
    )


def _table(view: View, rows: pl.DataFrame, title: str, word: str) -> Table:
    heads = {
        "num_both": "both accept",
        "num_only_rater": "only it accepts",
        "num_only_people": "only people accept",
        "num_neither": "none accepts",
    }
    return listing(
        rows_of(rows),
        (
            name_field("rater", "rater"),
            *([name_field("run", "run_id")] if word == "runs" else []),
            field("agreement", estimate, Format.NUMBER, "1: always, 0: as often as by chance"),
            name_field("statistic", lambda row: STATISTICS[row["statistic"]]),
            field("items", "num_items", Format.COUNT),
            *(field(head, name, Format.COUNT) for name, head in heads.items()),
        ),
        caption="An item is an output or a document with a verdict; of several verdicts counts what more than half "
        "say. Intervals draw whole questions. A score or label of at least the threshold (.5 if none is set) accepts.",
        **view.about("people", title, word),
    )


def _finding(view: View, rows: pl.DataFrame) -> Iterator[Finding]:
    known = {row["rater"]: row for row in rows.drop_nulls("value").to_dicts()}
    people = known.pop(AMONG_PEOPLE, None)
    score = view.standing.score if view.standing is not None else ""
    if score not in known:
        return
    row, best = known[score], max(known.values(), key=lambda row: row["value"])
    value = with_interval(row["value"], row["low"], row["high"], drop_zero=True)
    text = f"{score} agrees with people at {value} (Cohen's kappa, {counted(row['num_items'], 'output')})"
    if best["value"] > row["value"]:
        text += f", {best['rater']} at {number(best['value'], drop_zero=True)}"
    if people is not None:
        statistic = STATISTICS[people["statistic"]]
        text += f"; people among themselves at {number(people['value'], drop_zero=True)} ({statistic})"
    yield Finding(topic="trust", text=text)


def _means(view: View, rows: pl.DataFrame) -> Table:
    return listing(
        rows_of(rows),
        (
            name_field("run", "run_id"),
            field("documents", lambda row: row["depth"] or None, Format.COUNT),
            field("accepted by people", "judged", Format.NUMBER, "share of the outputs that have a verdict"),
            field("of", "num_judged", Format.COUNT),
            field("score", "mean", Format.NUMBER, "mean score of all outputs"),
            field("as people would", lambda row: estimate(row, "corrected"), Format.NUMBER),
        ),
        caption="As people would: the share of all outputs that people would accept, predicted by the score and "
        "corrected by the outputs that have a verdict (prediction-powered). It holds where these are a random sample.",
        **view.about("people_means", "the runs as people would judge them"),
    )


EXTENSION = Extension(
    name="verdicts",
    check=check,
    analyses=(
        Analysis(
            schema=VERDICTS,
            sources=(QUERIES,),
            more_settings=lambda config: {"verdicts": {path: file_stamp(path) for path in config.verdicts}},
            is_wanted=lambda config: bool(config.verdicts),
            make=make_verdicts,
        ),
        Analysis(
            schema=PEOPLE,
            sources=(VERDICTS, UTILITY, LIST_OUTPUTS, REPEATS, LABELS, QUERIES),
            settings=("threshold", *RESAMPLED),
            more_settings=lambda config: {"language": config.language},
            code=("scores",),
            is_wanted=lambda config: bool(config.verdicts),
            make=make_people,
            notes=unused_notes,
            shows=(PEOPLE_MEANS,),
            is_optional=True,
            show=show,
            group="Agreement with people",
        ),
        Analysis(
            schema=PEOPLE_MEANS,
            sources=(VERDICTS, UTILITY, LIST_OUTPUTS, REPEATS, QUERIES),
            settings=RESAMPLED,
            is_wanted=lambda config: bool(config.verdicts),
            make=make_means,
        ),
    ),
)
