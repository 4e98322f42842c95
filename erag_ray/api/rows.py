"""Frames, datasets and lists of mappings as rows of plain Python values."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from erag_ray.data.files.ids import is_missing
from erag_ray.support.errors import InputError

Row = dict[str, Any]


def rows_of(data: object, name: str) -> list[Row]:
    """Return the rows of a Polars or pandas frame, a Hugging Face dataset, or a list of mappings.

    NaN in a pandas column that is not of floats is a missing value, and becomes None.

    Raises:
        InputError: it is something else, or one of its items is not a mapping.
    """
    items = _items(data, name)
    problems = [
        f"{name}[{number}]: a {type(item).__name__}, not a mapping such as {{...}}"
        for number, item in enumerate(items)
        if not isinstance(item, Mapping)
    ]
    if problems:
        raise InputError(problems[:5])
    return [{str(key): value for key, value in item.items()} for item in items]


def _items(data: object, name: str) -> list[Any]:
    frame: Any = data
    if hasattr(frame, "iter_rows"):
        return list(frame.iter_rows(named=True))
    if hasattr(frame, "iterrows"):
        frame = frame.reset_index() if any(frame.index.names) else frame
        not_floats = {name for name, dtype in frame.dtypes.items() if dtype.kind != "f"}
        return [
            {key: None if key in not_floats and is_missing(value) else value for key, value in row.items()}
            for row in frame.to_dict("records")
        ]
    if isinstance(frame, Mapping | str | bytes) or not isinstance(frame, Iterable):
        text = f"a {type(frame).__name__}, not a list of mappings, a Polars or pandas frame, or a dataset"
        raise InputError([f"{name}: {text}"])
    return list(frame)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: NumPy's as Python's, dates and durations as text, missing values as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta) and not is_missing(value):
        return str(value)
    return None if is_missing(value) else value
