"""Format the values of a report as text, the same in every renderer."""

import math
import re

from erag_ray.analyses.parts.model import Column, Format, Table, Value

MISSING = "-"
WITHOUT_ZERO = {Format.NUMBER, Format.NUMBER_2, Format.NUMBER_4}


def text_of(value: Value, column: Column) -> str:
    """Return a value as text: ``0.349 [0.312, 0.391] n=30``; a missing value is a dash."""
    form = column.format
    if form is Format.P_VALUE and isinstance(value.value, int | float):
        return _joined(p_number(value.value), value)
    spec = "" if column.is_text else form.value
    return _joined(_printed(value, spec, ".3f" if form is Format.NUMBER_4 else spec), value)


def compact_text_of(value: Value, column: Column) -> str:
    """Return a value for a narrow table: ``.349 [.31, .39]``, without zeros before the point."""
    if column.format not in WITHOUT_ZERO:
        return text_of(value, column)
    return _joined(_printed(value, column.format.value, ".2f", drop_zero=True), value)


def rows_of_text(table: Table) -> list[tuple[str, ...]]:
    return [
        tuple(text_of(value, column) for value, column in zip(row, table.columns, strict=True))
        for row in table.rows
    ]


def _printed(value: Value, spec: str, ends: str, *, drop_zero: bool = False) -> str:
    if not isinstance(value.value, int | float):
        return MISSING if value.value is None else value.value
    if math.isnan(value.value):
        return MISSING
    text = _one(value.value, spec, drop_zero)
    if value.low is None or value.high is None:
        return text
    return f"{text} [{_one(value.low, ends, drop_zero)}, {_one(value.high, ends, drop_zero)}]"


def _one(value: float, spec: str, drop_zero: bool) -> str:
    text = format(value, spec)
    if text.startswith("-") and not text.strip("-0.%"):
        # rounded to 0, which has no sign
        text = format(0.0, spec)
    return text.replace("0.", ".", 1) if drop_zero and abs(value) < 1 else text


def _joined(text: str, value: Value) -> str:
    return f"{text} {value.note}" if value.note else text


def number(value: float | None, digits: int = 3, *, drop_zero: bool = False) -> str:
    """Return a number for a sentence, with ``drop_zero`` as ``.473``; a missing value is a dash."""
    return MISSING if value is None or math.isnan(value) else _one(value, f".{digits}f", drop_zero)


def change(value: float | None, digits: int = 3) -> str:
    return MISSING if value is None else _one(value, f"+.{digits}f", drop_zero=False)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 document``, ``5 documents``, ``2 queries``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def with_documents(depth: int) -> str:
    """Return with how many documents the reader answers; of 0, outputs of systems whose lists are not known."""
    return f"with {counted(depth, 'document')}" if depth else "end to end"


def utility_name(depth: int) -> str:
    """Return the name of utility with this many documents: ``utility@5``; of 0 ``utility``."""
    return f"utility@{depth}" if depth else "utility"


def p_number(value: float | None) -> str:
    """Return a p-value; values below .001 in scientific notation, since no p-value is 0."""
    return MISSING if value is None else number(value) if value >= 0.001 else f"{value:.1e}"


def p_text(value: float | None) -> str:
    return "not known" if value is None else "< .001" if value < 0.001 else number(value, drop_zero=True)


def with_interval(
    value: float | None, low: float | None, high: float | None, digits: int = 3, *, drop_zero: bool = False
) -> str:
    """Return ``value [low, high]``; without an interval only the value. Arguments as in `number`."""
    return _printed(Value(value, low, high), f".{digits}f", f".{digits}f", drop_zero=drop_zero)


def quoted(text: str, width: int) -> str:
    """Return a text in quotes and one line, cut where it is longer than the width."""
    plain = " ".join(text.split())
    return repr(plain if len(plain) <= width else f"{plain[: width - 3]}...")


def shortened(text: str, width: int) -> str:
    """Return a text whose words of more than ``width`` characters keep their start and end; not those of a path."""
    return re.sub(rf"[^\s/]{{{width + 1},}}", lambda word: f"{word[0][: width - 9]}…{word[0][-8:]}", text)


def one_line(text: str) -> str:
    """Return text in one line, without control characters: they could control a terminal or forge a line."""
    visible = "".join(mark if mark.isprintable() or mark.isspace() else "\ufffd" for mark in text)
    return " ".join(visible.split())
