"""Files of records in any form: JSON Lines, a JSON list, tab-separated values, Parquet, or a dataset by its name."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import DOCUMENT_IDS, QUESTION_IDS
from erag_ray.data.files.jsonl import WHOLE, Record, Span, read_json, read_json_lines, read_lines, text_start
from erag_ray.data.files.parquet import COLUMN_NAMES, TABLE, scan_parquet, separator_of
from erag_ray.store.files import ROW
from erag_ray.store.huggingface import dataset_rows, is_dataset

TABS = re.compile(r"\.(tsv|csv|txt)(\.gz)?$", re.IGNORECASE)


def read_records(
    path: str, diagnostics: Diagnostics, span: Span = WHOLE, *, columns: Sequence[Sequence[str]] = ()
) -> Iterator[Record]:
    """Yield the records of a file, numbered by line or from 1; what is wrong is an error, and skipped.

    The file is JSON Lines (or a span of these), one JSON list of objects, tab-separated values (.tsv, .csv, .txt), CSV
    with a header (see `separator_of`), Parquet, or a dataset (``hf:NAME:SPLIT``). ``columns`` are names of
    tab-separated values without a header, for each number of columns.
    """
    if is_dataset(path):
        try:
            for number, row in enumerate(dataset_rows(path), 1):
                yield Record(row, path, number, diagnostics)
        except ValueError as error:
            diagnostics.error(f"unreadable dataset {path}", f"{path}: {error}")
    elif path.lower().endswith(".parquet") or separator_of(path):
        file = scan_parquet(path, diagnostics)
        rows = None if file is None else file.collect(file.frame)
        for values in () if rows is None else rows.iter_rows(named=True):
            yield Record(values, path, values.pop(ROW), diagnostics)
    elif (TABS if columns else TABLE).search(path) and text_start(path)[:1] not in ("{", "["):
        yield from _tab_rows(path, diagnostics, columns)
    elif not span.start and (values := whole_json(path)) is not None:
        yield from _items(values, path, diagnostics)
    else:
        yield from read_json_lines(path, diagnostics, span)


def whole_json(path: str) -> Any:
    """Return the list that a file is, or the object over several lines; None for JSON Lines and unreadable files."""
    start = text_start(path)
    first, newline, _ = start.partition("\n")
    if not start.startswith(("[", "{")) or (start[0] == "{" and not newline):
        return None
    if start[0] == "{":
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(first)
            return None
    return read_json(path, Diagnostics())


def _items(values: list[Any] | dict[str, Any], path: str, diagnostics: Diagnostics) -> Iterator[Record]:
    if isinstance(values, dict):
        text = f"{path}:1: one JSON object over several lines, with the keys {', '.join([*values][:5])}. "
        lists = [key for key, value in values.items() if isinstance(value, list) and value[:1] != []]
        by_key = "Write one object a line, or a list of objects, with the key as query_id or doc_id"
        text += f"Write the list {lists[0]} by itself" if len(lists) == 1 else by_key
        diagnostics.error(f"wrong {path}", text)
        return
    for number, item in enumerate(values, 1):
        if isinstance(item, dict):
            yield Record(item, path, number, diagnostics)
        else:
            text = f"{path}: item {number} is a {type(item).__name__} where an object is expected"
            diagnostics.error(f"bad items in {path}", text)


def _tab_rows(path: str, diagnostics: Diagnostics, columns: Sequence[Sequence[str]]) -> Iterator[Record]:
    """Yield the rows of tab-separated values; a first line of column names is the header."""
    by_count: Mapping[int, Sequence[str]] = {len(names): names for names in columns}
    names: Sequence[str] = ()
    for position, (number, line) in enumerate(read_lines(path, diagnostics)):
        cells = [_unquoted(cell) for cell in line.rstrip("\r\n").split("\t")]
        lower = [cell.strip().lower() for cell in cells]
        num_names = sum(
            cell in COLUMN_NAMES or bool(DOCUMENT_IDS.among([cell]) or QUESTION_IDS.among([cell]))
            for cell in {*lower}
        )
        # one known name among words that could all be names is a header too
        if position == 0 and num_names > (not all(cell.replace(" ", "_").isidentifier() for cell in lower)):
            names = lower
            if len({*names}) < len(names):
                text = f"{path}:{number}: two columns of one name in {', '.join(names)}. Rename one"
                diagnostics.error(f"bad lines in {path}", text)
                return
        elif len(cells) == len(names or by_count.get(len(cells), ())):
            values = dict(zip(names or by_count[len(cells)], cells, strict=True))
            yield Record(values, path, number, diagnostics)
        else:
            forms = " or ".join(map(", ".join, [names] if names else columns)) or "a header of names"
            text = f"{path}:{number}: {len(cells)} columns between tabs; expected {forms}"
            diagnostics.error(f"bad lines in {path}", f"{text}. Write these columns, or JSON Lines")


def _unquoted(cell: str) -> str:
    """Return the text of a cell in quotes, in which a quote is doubled (as csv writes it)."""
    inside = cell[1:-1]
    is_quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inside.replace('""', "")
    return inside.replace('""', '"') if is_quoted else cell
