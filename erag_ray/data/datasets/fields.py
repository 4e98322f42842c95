"""Fields of records under other names than the plain format's: ``question: q``, ``answers: a.text``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from erag_ray.data.datasets.answers import READ, is_alias, unread_fields
from erag_ray.data.files.jsonl import Record


def with_fields(record: Record, fields: Mapping[str, str]) -> Record:
    """Return the record with the fields of the plain format next to its own.

    Args:
        record: a row or line; a field that it lacks is an error with its row number.
        fields: name of a plain field -> path in the record. Dots descend into objects, also into those of a list.
    """
    hidden = _hidden(record.values) if "answers" in fields else ()
    values = {name: value for name, value in record.values.items() if name not in hidden}
    for name, path in fields.items():
        try:
            values[name] = _at(record.values, path.split("."))
        except LookupError:
            known = ", ".join(record.values) or "none"
            record.fault(
                f"missing field {path}", f"question_fields.{name}: no field {path}; the record has {known}"
            )
    return record.with_values(values)


def _hidden(values: Mapping[str, Any]) -> set[str]:
    """Return the fields with answers, which the format must not read or name: the config names another."""
    return {*READ, *filter(is_alias, values), *unread_fields(values, [])}


def _at(value: Any, keys: list[str]) -> Any:
    """Return the value at a path; for a list, the list of the values there in each of its items.

    Raises:
        LookupError: there is nothing.
    """
    if not keys:
        return value
    if isinstance(value, list):
        return [_at(item, keys) for item in value]
    if not isinstance(value, dict):
        raise LookupError
    return _at(value[keys[0]], keys[1:])
