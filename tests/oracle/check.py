"""A naive second program that computes every sealed table of a comparison again, and says what differs.

It starts from the files that the config names and from the cached responses, and shares no code with the package. A
difference names table, key, and both values.
"""

import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
from oracle import results
from oracle.cells import cell_tables, slices_of
from oracle.chance import About
from oracle.credits import credit_tables
from oracle.inputs import World
from oracle.lists import columns_of, utilities_of
from oracle.lists import retrieval_measures as retrieval_measures
from oracle.outputs import output_tables
from oracle.readings import Outside, Readings, Row, input_tables

_COLUMN = "dataset reader score annotator run_id depth measure cutoff ideal"
_PAIR = "reader score annotator run_a run_b depth measure cutoff ideal"
_MEAN = "mean low high num_queries num_dropped num_estimated"
_TEST = "difference low high p_value low_adjusted high_adjusted p_adjusted effect_size detectable num_needed"
_TEST += " num_queries num_dropped reason"
_AGREES = "value low high ceiling p_value num_queries num_runs num_dropped num_varied reason"
TABLES = {
    "queries": ("query_id", "dataset question answers score"),
    "provenance": ("query_id rank", "page_id doc_id"),
    "corpus": ("doc_id", "page_id title text"),
    "runs": ("run_id query_id rank", "doc_id score"),
    "retrieval_seconds": ("run_id query_id", "seconds"),
    "gold": ("query_id rank", "doc_id"),
    "given": ("query_id run_id depth doc_id", "output num_prompt_tokens num_output_tokens seconds"),
    "clusters": ("query_id", "cluster"),
    "labels": ("reader score annotator query_id doc_id", "label"),
    "utility": ("reader score run_id query_id depth", "value"),
    "document_outputs": ("reader query_id doc_id", "output"),
    "list_outputs": ("reader run_id query_id depth", "output"),
    "repeats": ("reader score run_id query_id depth repeat", "output value"),
    "repeat_spreads": (
        "dataset reader score run_a run_b depth",
        "num_queries num_repeats mean sd_questions sd_repeats share standard_error standard_error_once "
        "standard_error_endless",
    ),
    "list_tokens": ("reader run_id query_id depth", "num_prompt_tokens"),
    "per_query": (f"query_id {_COLUMN.removeprefix('dataset ')}", "value"),
    "means": (_COLUMN, _MEAN),
    "auxiliary_means": (
        f"{_COLUMN} auxiliary",
        "mean low high mean_read low_read high_read lambda correlation num_read num_queries",
    ),
    "correlations": (f"over statistic {_COLUMN}", _AGREES),
    "comparisons": (f"dataset {_PAIR}", _TEST),
    "contrasts": (
        "dataset reader score annotator_a annotator_b run_id depth measure cutoff ideal statistic",
        "difference low high p_value num_queries num_dropped",
    ),
    "best_depths": ("dataset reader score run_id", "depth deepest difference low high num_queries"),
    "slices": ("query_id slice", "value"),
    "facts": ("query_id fact", "answers"),
    "fact_labels": ("reader score query_id doc_id fact", "label"),
    "cells": ("reader score run_id query_id depth", "alone list closed_book cell"),
    "cell_shares": (
        "dataset reader score run_id depth slice value cell",
        "share low high num_positive num_queries num_dropped",
    ),
    "complements": (
        "dataset reader score run_a run_b depth quantity",
        "share low high num_queries num_dropped",
    ),
    "slice_means": (f"slice value {_COLUMN}", _MEAN),
    "slice_comparisons": (f"slice value dataset {_PAIR}", _TEST),
    "credits": ("reader score run_id query_id credit doc_id", "depth rank value standard_error"),
    "credit_agreement": (
        "dataset reader score run_id depth slice value credit annotator statistic over",
        "agreement low high num_queries num_documents num_dropped reason",
    ),
    "credit_shares": (
        "dataset reader score run_id depth slice value credit effect",
        "share low high num_positive num_documents num_queries",
    ),
    "order_utility": ("reader score run_id query_id depth order", "value"),
    "order_effects": (
        "dataset reader score run_id depth order",
        "difference low high p_value low_adjusted high_adjusted p_adjusted share_changed share_low share_high "
        "num_queries num_dropped reason",
    ),
    "compare/outputs": (
        "dataset reader kind depth",
        "num_outputs num_distinct num_empty num_at_limit num_copied num_misspelt num_marked_up majority_answer "
        "majority_share majority_score",
    ),
    "compare/common_outputs": ("dataset reader kind depth place", "output num_outputs share"),
    "compare/requests": ("kind query_id doc_ids", ""),
    "compare/costs": (
        "stage model",
        "num_requests num_reader_calls num_prompt_tokens num_output_tokens num_cached_prompt_tokens price",
    ),
    "retrieval_measures": ("dataset run_id measure cutoff", "value num_queries num_dropped"),
}
"""Table -> the columns that identify its rows, and the others; a sealed table that is not here is a difference."""
UNKNOWABLE = {
    "compare/costs": {"job", "seconds", "device_seconds", "peak_memory_bytes"},
    "compare/requests": {"model", "reader", "question_key", "passages_key"},
}
"""Columns that differ from run to run, or are hashes."""
MOST = 20


def tables_of(config: dict[str, Any], outside: Mapping[str, Outside] | None = None) -> dict[str, list[Row]]:
    """All tables of a comparison, from its files and its cached responses."""
    world = World(config)
    readings = Readings(world, pathlib.Path(config["out"]), outside or {})
    columns = columns_of(readings)
    tables = input_tables(readings) | cell_tables(readings) | output_tables(readings)
    tables |= credit_tables(readings) if config["credits"] else {}
    values = ((name, one, value) for name, row in columns.items() for one, value in row.items())
    tables["per_query"] = [(one, *name[1:], value) for name, one, value in values]
    for part in results.parts_of(world, columns | utilities_of(readings)):
        results.add_estimates(part)
        for name in ("means", "correlations", "contrasts", "best_depths", "auxiliary_means"):
            tables[name] += getattr(results, name)(part)
        tables["order_effects"] += results.order_effects(part, readings.changed)
        tables["comparisons"] += [row[2:] for row in results.comparisons([part])]
        slices = [*slices_of(readings, part)]
        tables["slice_means"] += [(*one.slice, *row) for one in slices for row in results.means(one)]
        tables["slice_comparisons"] += results.comparisons(slices, results.MIN_IN_SLICE)
    return tables


def sealed_tables(config: dict[str, Any]) -> list[str]:
    out = pathlib.Path(config["out"])
    return sorted({str(path.parent.relative_to(out)) for path in out.rglob("part-*.parquet")})


def read(config: dict[str, Any], name: str) -> pl.DataFrame:
    return pl.read_parquet(pathlib.Path(config["out"]) / name / "part-*.parquet")


def differences(config: dict[str, Any], computed: dict[str, list[Row]]) -> list[str]:
    """Return what differs between the sealed tables and those computed here."""
    sealed = sealed_tables(config)
    found = [f"{name}: the oracle does not know this table" for name in sealed if name not in TABLES]
    for name in filter(TABLES.__contains__, sealed):
        found += of_table(name, read(config, name), computed.get(name, []))
    return found


def of_table(name: str, sealed: pl.DataFrame, computed: list[Row]) -> Iterator[str]:
    key, others = (part.split() for part in TABLES[name])
    if unknown := {*sealed.columns} - {*key, *others} - UNKNOWABLE.get(name, set()):
        yield f"{name}: the oracle has no columns {sorted(unknown)}"
    ours = {_hashable(row[: len(key)]): row[len(key) :] for row in computed}
    theirs = {_hashable(row[: len(key)]): row[len(key) :] for row in sealed.select(*key, *others).iter_rows()}
    for what, one, other in (("sealed, not computed", theirs, ours), ("computed, not sealed", ours, theirs)):
        for row in [row for row in one if row not in other][:MOST]:
            yield f"{name} {row}: {what}"
    for place, row in theirs.items():
        for column, value, expected in zip(others, row, ours.get(place, row), strict=True):
            if not _equal(value, expected, column):
                yield f"{name} {place} {column}: sealed {value!r}, computed {expected!r}"


def _hashable(row: Row) -> Row:
    return tuple(tuple(one) if isinstance(one, list) else one for one in row)


def _equal(sealed: Any, computed: Any, column: str) -> bool:
    if column == "reason":
        return (sealed is not None) == (computed is True or isinstance(computed, str))
    if sealed is None or computed is None or isinstance(sealed, str | list | bool):
        return bool(sealed == computed)
    if isinstance(computed, About):
        return math.isclose(sealed, computed, rel_tol=0.15, abs_tol=0.02)
    return math.isclose(sealed, computed, rel_tol=1e-7, abs_tol=1e-9)
