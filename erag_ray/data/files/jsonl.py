"""Text files, plain or gzip -> numbered lines, and JSON Lines -> records that know their place.

`open_bytes` is the only place where a text file is opened, local or by its URI. Nothing here raises
for bad input: what is wrong goes to `Diagnostics` with file and line, and reading continues with the
next line where there is one.
"""

import gzip
import io
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import ID_FORM, IdKeys, identifier, shown
from erag_ray.store.files import open_file, size_of, start_of
from erag_ray.support.uris import is_uri, searched_in

Path = str | os.PathLike[str]
Paths = Path | Iterable[Path]

# trec_eval splits at C's white space; str.split would also split inside ids, at Unicode's
FIELD = re.compile(r"[^ \t\n\r\f\v]+")
_START_BYTES = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"
_NO_TEXT = {
    b"\xff\xfe": "it is UTF-16. Save it as UTF-8",
    b"\xfe\xff": "it is UTF-16. Save it as UTF-8",
    b"PK\x03\x04": "it is an Excel workbook or a zip archive. Save the table in it as Parquet or JSON Lines",
    b"PAR1": "it is Parquet. Name it .parquet",
}
"""First bytes of a file -> what it is."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HALF_A_PAIR = "holds half of a surrogate pair (\\ud800 to \\udfff), which is no character"


@dataclass(frozen=True, kw_only=True)
class Span:
    """Lines of a file: those that begin at its bytes ``start`` to before ``end`` (None: its end), if not compressed.

    ``first_line`` is the number of the first of them.
    """

    start: int = 0
    end: int | None = None
    first_line: int = 1


WHOLE = Span()


def spans_of(path: str, num_bytes: int) -> list[Span]:
    """Spans of this number of bytes with whole lines; one span if the file is compressed or cannot be read."""
    try:
        size = 0 if start_of(path, len(_GZIP_MAGIC)) == _GZIP_MAGIC else size_of(path)
    except OSError:
        size = 0
    starts = range(0, size, num_bytes)
    return [Span(start=start, end=start + num_bytes) for start in starts] if len(starts) > 1 else [WHOLE]


def numbered(path: str, span: Span) -> Span:
    """The same lines, numbered from the start of the file, which is read up to there."""
    count, left = 1, span.start
    with open_file(path) as stream:
        while left and (data := stream.read(min(left, 1 << 20))):
            count, left = count + data.count(b"\n"), left - len(data)
        # the line that begins before the span and ends in it
        stream.seek(max(span.start - 1, 0))
        begins_before = span.start and stream.read(1) != b"\n"
    return replace(span, first_line=count + bool(begins_before))


def listed(paths: Paths) -> list[str]:
    """One path or several -> a list of strings."""
    return [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]


def open_bytes(path: str) -> IO[bytes]:
    """The bytes of a file, decompressed where it is gzip, whatever its name; OSError if it is not a text file."""
    start = start_of(path, 4)
    if not start.startswith(_GZIP_MAGIC):
        if texts := [text for magic, text in _NO_TEXT.items() if start.startswith(magic)]:
            raise OSError(*texts)
        return open_file(path)
    inner = gzip.GzipFile(fileobj=open_file(path)) if is_uri(path) else gzip.GzipFile(path)
    # the outer buffer makes reading line by line several times faster than GzipFile's own
    return io.BufferedReader(inner, 1 << 18)


def text_start(path: str) -> str:
    """Return the first part of a text file, without white space before it; "" if it cannot be read."""
    try:
        with open_bytes(path) as stream:
            return stream.read(_START_BYTES).decode("utf-8-sig", errors="replace").lstrip()
    except (OSError, EOFError, zlib.error):
        # the function that reads the file reports it
        return ""


def _lines_in(stream: IO[bytes], span: Span) -> Iterator[bytes]:
    if span.start:
        stream.seek(span.start - 1)
        stream.readline()
    offset = stream.tell() if span.start else 0
    for raw in stream:
        if span.end is not None and offset >= span.end:
            return
        offset += len(raw)
        yield raw


def read_lines(path: str, diagnostics: Diagnostics, span: Span = WHOLE) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, numbered, without a byte order mark."""
    number = 0
    try:
        with open_bytes(path) as stream:
            for number, raw in enumerate(_lines_in(stream, span), span.first_line):
                if not span.start and number == 1:
                    raw = raw.removeprefix(_BYTE_ORDER_MARK)
                try:
                    line = raw.decode()
                except UnicodeDecodeError as error:
                    text = f"{path}:{number}: not UTF-8: {error.reason} at byte {error.start + 1} of the line"
                    diagnostics.error(f"lines that are not UTF-8 in {path}", text)
                    continue
                if line and not line.isspace():
                    yield number, line
    except (EOFError, zlib.error, OSError) as error:
        report_unreadable(path, error, diagnostics, f" after line {number:,}" if number else "")


def report_unreadable(path: str, error: BaseException, diagnostics: Diagnostics, reached: str = "") -> None:
    """Record that a file cannot be read, and why."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, EOFError):
        reason = "truncated gzip file"
    if isinstance(error, zlib.error | gzip.BadGzipFile):
        reason = f"damaged gzip file ({error})"
    reason = reason.splitlines()[0] + (searched_in(path) if isinstance(error, FileNotFoundError) else "")
    diagnostics.error(f"unreadable file {path}", f"{path}: cannot be read{reached}: {reason}")


@dataclass(slots=True, eq=False)
class Record:
    """One JSON object of a file, with its place; reading a field of the wrong type records a problem (``faulty``)."""

    values: dict[str, Any]
    path: str
    line: int
    diagnostics: Diagnostics
    faulty: bool = False

    @property
    def location(self) -> str:
        """``file:line``, for messages."""
        return f"{self.path}:{self.line}"

    def fault(self, kind: str, text: str) -> None:
        """Record a problem of this record; ``kind`` names it without the place."""
        self.faulty = True
        self.diagnostics.error(f"{kind} in {self.path}", f"{self.location}: {text}")

    def identifier(self, key: str | IdKeys) -> str:
        """The id under ``key``; a problem, and "", where it is missing, blank or no string or whole number."""
        keys = key if isinstance(key, IdKeys) else IdKeys(key, frozenset())
        try:
            name, _ = keys.id_of(self.values)
        except ValueError as error:
            self.fault(f"wrong {keys.first}", str(error))
            return ""
        if name is None:
            used = next(iter(keys.among(self.values)), keys.first)
            state = f"is {shown(self.values[used])}" if used in self.values else "is missing"
            self.fault(f"missing {used}", f"{used} {state}; {ID_FORM}")
        return name or ""

    def text(self, key: str, *, optional: bool = False) -> str:
        """The string under ``key``; ``optional``: "" where it is missing or null."""
        value = self.values.get(key)
        if isinstance(value, str):
            return value
        if value is not None or not optional:
            state = f"is {shown(value)}" if key in self.values else "is missing"
            self.fault(f"{key} that is no text", f"{key} {state}; it must be a string")
        return ""

    def number(self, key: str, kind: type[int] | type[float]) -> float | None:
        """The number of at least 0 under ``key``, whole if the kind is int; None where it is missing, null or wrong."""
        value = self.values.get(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or (is_number and 0 <= value < math.inf and value == kind(value)):
            return None if value is None else kind(value)
        word = "whole number" if kind is int else "number"
        self.fault(f"wrong {key}", f"{key} is {shown(value)}; it must be a {word} of at least 0")
        return None

    def objects(self, key: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The list of objects under ``key`` of the record, or of an object in it; empty if missing or null."""
        entries = _or_empty((self.values if values is None else values).get(key))
        if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
            return entries
        self.fault(f"wrong {key}", f"{key} is {shown(entries)}; it must be a list of objects")
        return []

    def identifiers_of(self, values: dict[str, Any], key: str) -> list[str]:
        """Return the ids under ``key`` of an object inside this record, without repeats; empty if missing or null."""
        entries = _or_empty(values.get(key))
        ids = [identifier(value) for value in entries] if isinstance(entries, list) else [None]
        if None in ids:
            self.fault(f"wrong {key}", f"{key} is {shown(entries)}; it must be a list of ids")
        return list(dict.fromkeys(name for name in ids if name is not None))


def _or_empty(value: Any) -> Any:
    """Return an empty list for null and empty values; 0 and false stay, as they are wrong values."""
    return [] if value is None or value in ("", {}) else value


def read_json_lines(path: str, diagnostics: Diagnostics, span: Span = WHOLE) -> Iterator[Record]:
    """Yield the objects of a JSON Lines file. Invalid lines are reported and skipped."""
    for number, line in read_lines(path, diagnostics, span):
        record = Record({}, path, number, diagnostics)
        try:
            values = json.loads(line)
            if "\\u" in line and ("\\ud" in line or "\\uD" in line):
                json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            record.fault("bad lines", _HALF_A_PAIR)
            continue
        except (ValueError, RecursionError) as error:
            record.fault("bad lines", f"not JSON: {error}")
            continue
        if isinstance(values, dict):
            record.values = values
            yield record
        else:
            record.fault("bad lines", f"a {type(values).__name__} where an object is expected")


def read_json(
    path: str, diagnostics: Diagnostics, object_hook: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """The one value of a JSON file; None, and a problem, where it cannot be read."""
    try:
        with open_bytes(path) as stream:
            content = json.loads(stream.read(), object_hook=object_hook)
        json.dumps(content, ensure_ascii=False).encode()
        return content
    except UnicodeEncodeError:
        diagnostics.error(f"unreadable file {path}", f"{path}: {_HALF_A_PAIR}")
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        report_unreadable(path, error, diagnostics)
    return None
