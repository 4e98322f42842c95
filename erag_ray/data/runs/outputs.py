"""Outputs that exist: what systems answered, from logs or from another evaluation.

``{"query_id": ..., "run": ..., "output": ..., "depth"?, "documents"?}``: the output of a run (or ``system``) with the
first ``depth`` documents of its list. ``{"query_id": ..., "doc_id": ..., "output": ...}``: the output with this
document alone, whatever run has it. ``num_prompt_tokens``, ``num_output_tokens`` and ``seconds`` are its lengths
and its time, where known.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import DOCUMENT_IDS, ROW_QUERY_IDS, RUN_IDS, IdKeys, is_missing, shown
from erag_ray.data.files.jsonl import Record
from erag_ray.data.files.records import read_records
from erag_ray.data.runs.entries import ENTRY_COLUMNS, LIST_KEYS, ListedDocument, documents_in
from erag_ray.data.runs.orders import rising_fault
from erag_ray.data.runs.references import GOLD_PASSAGES, NO_PASSAGES
from erag_ray.store.schemas import GIVEN

SYSTEMS = IdKeys(RUN_IDS.first, RUN_IDS.others - {"retriever"})
# in a log, id is the output's own
SINGLE_DOCUMENTS = IdKeys(DOCUMENT_IDS.first, DOCUMENT_IDS.others - {"id"})
LIST_COLUMNS = ("run_id", "query_id", "rank", "doc_id", "title", "text", "score")


def load_outputs(
    paths: Sequence[str], runs: Collection[str], depths: Sequence[int], depth: int, diagnostics: Diagnostics
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return GIVEN, and the lists that outputs bring along, with the columns `ENTRY_COLUMNS`.

    ``runs`` have a file of lists. Lists are answered with ``depths`` documents, ascending; the last is the depth of an
    output with a list and none. Outputs of `GOLD_PASSAGES` have the job's ``depth``, to which gold passages are cut.
    """
    rows: list[dict[str, Any]] = []
    first: dict[tuple[Any, ...], tuple[str, str | None]] = {}
    lists: _Lists = {}
    for record in (record for path in paths for record in read_records(path, diagnostics)):
        row = _row(record, depths, depth, runs)
        _check_list(record, row, runs, lists)
        key = tuple(row[name] for name in GIVEN.key)
        location, output = first.setdefault(key, (record.location, row["output"]))
        is_repeated = location != record.location
        if is_repeated and (row["run_id"] or output != row["output"]):
            which = f"run {row['run_id']!r}" if row["run_id"] else f"document {row['doc_id']!r}"
            text = f"query {row['query_id']!r}, {which}: repeats the output at {location}"
            record.fault("repeated outputs", text)
        if not record.faulty and not is_repeated:
            rows.append(row)
    documents = [(*of_list, *document) for of_list, (one, _) in lists.items() for document in one]
    schema = {name: ENTRY_COLUMNS[name] for name in LIST_COLUMNS}
    entries = pl.DataFrame(documents, schema=schema, orient="row")
    for (name,), ranked in entries.group_by("run_id", maintain_order=True):
        if fault := rising_fault(ranked, f"outputs of run {name!r}"):
            diagnostics.error("scores that rise", fault)
    outputs = pl.DataFrame(rows, schema=GIVEN.empty().schema)
    return outputs, pl.concat([pl.DataFrame(schema=ENTRY_COLUMNS), entries], how="diagonal")


def item_of(record: Record) -> dict[str, str]:
    """Return what a record is about: query_id, run_id and doc_id, of which one of the last two is ""."""
    # a table of both has an empty cell for the other
    is_document = any(not is_missing(record.values[name]) for name in SINGLE_DOCUMENTS.among(record.values))
    return {
        "query_id": record.identifier(ROW_QUERY_IDS),
        "run_id": "" if is_document else record.identifier(SYSTEMS),
        "doc_id": record.identifier(SINGLE_DOCUMENTS) if is_document else "",
    }


def _row(record: Record, depths: Sequence[int], gold_depth: int, runs: Collection[str]) -> dict[str, Any]:
    """Return a row of GIVEN; its depth is 0 where nothing is known of a list."""
    values = record.values
    item = item_of(record)
    has_no_list = item["run_id"] in ("", NO_PASSAGES)
    if "output" not in values:
        text = f"no output, only {', '.join(values)}; call it output, and write null for a missing one"
        record.fault("records without output", text)
    depth = values.get("depth")
    if item["run_id"] == GOLD_PASSAGES:
        depth = gold_depth
    elif depth is None or has_no_list:
        is_list_known = item["run_id"] in runs or bool({*LIST_KEYS} & {*values})
        depth = depths[-1] if is_list_known and not has_no_list else 0
    elif isinstance(depth, bool | list | dict) or depth not in depths:
        lists = f"the lists of the job have {', '.join(map(str, depths))} documents"
        record.fault("other depths", f"depth is {shown(depth)}, but {lists}; set end_to_end_depths")
    return {
        **item,
        "depth": depth,
        "output": None if values.get("output") is None else record.text("output"),
        **{name: record.number(name, int) or 0 for name in ("num_prompt_tokens", "num_output_tokens")},
        "seconds": record.number("seconds", float),
    }


_LIKE_DOCUMENTS = re.compile(r"(?i).*(?:doc|ctx|context|passage|chunk|retriev|search|sources|hits)")
_Lists = dict[tuple[str, str], tuple[list[ListedDocument], str]]
"""Run and query -> its documents, and the first record that has them."""


def _check_list(record: Record, row: dict[str, Any], runs: Collection[str], lists: _Lists) -> None:
    """Add the documents that a record brings to the lists; a longer list of the same query replaces its beginning."""
    run_id, query_id, documents = row["run_id"], row["query_id"], list(documents_in(record))
    if not documents or not run_id:
        for name in filter(_LIKE_DOCUMENTS.match, record.values if run_id and not documents else ()):
            if isinstance(record.values[name], list) and record.values[name] and not record.faulty:
                kind = f"outputs: lists in the field {name}, which is not read (documents is), queries"
                record.diagnostics.warning(kind, query_id)
        return
    if run_id in runs:
        text = f"run {run_id!r} has a file of lists in runs; leave its documents out here"
        record.fault("lists that are given twice", text)
    if len(documents) > row["depth"]:
        text = f"an output with {len(documents)} documents, but lists are cut to {row['depth']}; set depth"
        record.fault("longer lists", text)
    known, location = lists.get((run_id, query_id), ([], ""))
    if any(one != other for one, other in zip(known, documents, strict=False)):
        text = f"run {run_id!r}, query {query_id!r}: other documents than at {location}"
        record.fault("lists that differ", text)
    if len(documents) > len(known):
        lists[run_id, query_id] = documents, record.location
