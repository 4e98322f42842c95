"""Files of inputs, line by line, and the problems that loading them reports."""

from __future__ import annotations

import json
import pathlib


def write(path: pathlib.Path, *records: object) -> pathlib.Path:
    """Write a file of lines: texts and bytes unchanged, all else as JSON."""
    lines = [record if isinstance(record, str | bytes) else json.dumps(record) for record in records]
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return path
