"""Damage for the fuzz tests: bytes of small valid files changed at random, and records of odd shapes.

`ERAG_RAY_FUZZ` says how many examples each test tries; without it few, and always the same ones.
"""

import copy
import gzip
import json
import os
import pathlib
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from erag_ray.data.files.diagnostics import Diagnostics

MANY = os.environ.get("ERAG_RAY_FUZZ")
DEEP = "@deep@"
DEPTH = 20_000


def tried(num_examples: int) -> settings:
    """The settings of a fuzz test of so many examples, or of as many as `ERAG_RAY_FUZZ` says."""
    return settings(
        derandomize=not MANY,
        database=None,
        max_examples=int(MANY) if MANY else num_examples,
        suppress_health_check=list(HealthCheck),
    )


# --- values that do not belong where they stand ---

LEAVES: list[Any] = [
    None, True, False, 0, 1, -7, 10**30, 10**400, 2**63, 1.5, float("nan"), float("inf"), 1e308,
    "", " ", "\u3000", "q1", "d1", "7", "\x00", "\x1b[31m", "a\nb", "a\tb", "\u2028", "\u202e", "[/bold]",
    "\ud800", "\udfff\ud800", "e\u0301", "\ufeffq1", "x" * 20_000, DEEP, [], {}, ["a"], [None], [1], [[]], [{}],
    {"a": 1}, [{"answer": 3}], [{"text": 3}], [{"provenance": 5}], [{"wikipedia_id": 1.5}], [{"doc_id": [1]}],
]  # fmt: skip
odd = st.one_of(st.sampled_from(LEAVES), st.text(max_size=4), st.integers(), st.floats())


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inside:
        yield (*above, key)
        yield from places(held, (*above, key))


@st.composite
def odd_records(draw: st.DrawFn, records: Sequence[Any]) -> list[Any]:
    """The records with some values, at any depth, replaced by odd ones or left out, or whole records repeated."""
    changed = copy.deepcopy(list(records))
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from([*places(changed)]))
        holder: Any = changed
        for key in above:
            holder = holder[key]
        change = draw(st.sampled_from(["replace", "replace", "leave out", "repeat"]))
        if change == "replace":
            holder[last] = copy.deepcopy(draw(odd))
        elif change == "leave out":
            del holder[last]
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        if not changed:
            break
    return changed


def as_json(value: Any) -> str:
    """JSON of a value with Python's own liberties: NaN, half surrogate pairs, and nesting as deep as it gets."""
    return json.dumps(value).replace(f'"{DEEP}"', "[" * DEPTH + "]" * DEPTH)


def as_lines(records: Sequence[Any]) -> bytes:
    return b"".join(as_json(record).encode() + b"\n" for record in records)


# --- bytes ---

PIECES = [
    b"\x00", b"\r", b"\r\n", b"\n", b"\n\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\xff", b"\xed\xa0\x80", b"\xc3",
    b"\x1b[2J", b"\\ud800", b"\\u0000", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 5000, b"null", b'"', b"{",
    b"}", b"[", b"[" * DEPTH, b'{"a":' * 5000, b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c", b"\x1c", b"\t", b" ", b"nan",
    b"inf", b"1_0", "\uff11".encode(), b"\x1f\x8b", b"#", b"- ", b": ", b"&a [*a]", b"!!python/object:x", b"\xcc\x81",
]  # fmt: skip


CHANGES = [
    "flip", "flip", "delete", "insert", "insert", "overwrite", "truncate", "swap lines", "double a line", "mark",
    "windows", "old mac", "wide", "compress", "compress halves",
]  # fmt: skip


def _changed(draw: st.DrawFn, data: bytes, change: str) -> bytes:
    place, lines = draw(st.integers(0, len(data))), data.split(b"\n")
    before, after = data[:place], data[place:]
    match change:
        case "flip":
            return before + bytes(byte ^ draw(st.integers(1, 255)) for byte in after[:1]) + after[1:]
        case "delete":
            return before + after[draw(st.integers(1, 8)) :]
        case "insert":
            return before + draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=4))) + after
        case "overwrite":
            piece = draw(st.sampled_from(PIECES))
            return before + piece + after[len(piece) :]
        case "truncate":
            return before
        case "swap lines":
            one, two = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            lines[one], lines[two] = lines[two], lines[one]
            return b"\n".join(lines)
        case "double a line":
            one = draw(st.integers(0, len(lines) - 1))
            return b"\n".join([*lines[: one + 1], *lines[one:]])
        case "mark":
            return b"\xef\xbb\xbf" + data
        case "windows":
            return data.replace(b"\n", b"\r\n")
        case "old mac":
            return data.replace(b"\n", b"\r")
        case "wide":
            encoding = draw(st.sampled_from(["utf-16", "utf-32", "utf-16-le", "utf-8-sig"]))
            return data.decode(errors="replace").encode(encoding)
        case "compress":
            return gzip.compress(data, mtime=0)
    assert change == "compress halves", change
    return gzip.compress(before, mtime=0) + gzip.compress(after, mtime=0)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes of a file after up to three changes; now and then also what is left of them under gzip."""
    for _ in range(draw(st.integers(0, 3))):
        data = _changed(draw, data, draw(st.sampled_from(CHANGES)))
    return data


# --- what holds for every reader ---


def is_clean(text: str) -> bool:
    """Whether nothing in a line of text can steer a terminal, break the line or fail to be written."""
    return not any(unicodedata.category(mark) in ("Cc", "Cs", "Zl", "Zp") for mark in text)


def check_messages(diagnostics: Diagnostics, *paths: pathlib.Path) -> None:
    """Every problem names one of the files and is one clean line of some length; so are the notes."""
    for line in (*diagnostics.errors, *diagnostics.warnings):
        assert is_clean(line), ascii(line)
        assert len(line) < 3000, len(line)
    for problem in diagnostics.errors:
        assert problem.startswith("... and ") or any(str(path) in problem for path in paths), problem
