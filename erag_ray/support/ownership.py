"""Names of the files that jobs have written to a folder: only these are replaced or deleted.

The names of all files that jobs write to a folder are in its marker, ``erag_ray.json``; those of the running job are in
``_files/``, a file for each process, and are added there before a file is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from erag_ray.support.errors import InputError

if TYPE_CHECKING:
    # of the store, which imports this module
    Folder = Any

MARKER = "erag_ray.json"
RECORDS = "_files"
RECORD = re.compile(r"[0-9a-f]{32}\.jsonl")
UNFINISHED = "_unfinished"
BEGUN = re.compile(r"(.+)-[0-9a-f]{8}", re.DOTALL)
TREE = "/"
"""End of the name of a whole folder: a temporary one, with a name that no other has."""


class Ledger:
    """Names of the files that jobs have written to one folder."""

    def __init__(self, root: Folder | None) -> None:
        self.root = root
        self._names: set[str] = set()
        self._added: list[str] = []
        self._record = f"{uuid.uuid4().hex}.jsonl"
        self._lock = threading.Lock()
        self.load()

    def load(self) -> list[str]:
        """Add the names that any process has recorded; return the records that they are in."""
        if self.root is None:
            return []
        self._names.update(read_marker(self.root) or ())
        records = [name for name in self.root.names(RECORDS) if RECORD.fullmatch(name)]
        for record in records:
            with contextlib.suppress(FileNotFoundError):
                self._names.update(_lines(self.root.read_bytes(RECORDS, record)))
        return records

    def record(self, name: str) -> None:
        """Record a file, or with a final / a folder, before it is written; raise InputError if it is not a job's."""
        with self._lock:
            if name in self._names:
                return
            if self.root is not None:
                if self.root.exists(name.rstrip(TREE)):
                    self.load()
                    if name in self._names:
                        return
                    text = (
                        f"{self.root.at(name)}: no job has written this file, and this one would replace it"
                    )
                    raise InputError([f"{text}. Move it, or choose another out"])
                self._added.append(name)
                data = "".join(map(_line, self._added)).encode()
                self.root.append_or_write(_line(name).encode(), data, RECORDS, self._record)
            self._names.add(name)

    def has(self, name: str) -> bool:
        if name not in self._names:
            self.load()
        return name in self._names

    def below(self, name: str) -> tuple[list[str], list[str]]:
        """Return the recorded files and temporary folders below a folder ("" is the root)."""
        self.load()
        start = f"{name}/" if name else ""
        names = [recorded for recorded in self._names if recorded.startswith(start)]
        return [one for one in names if not one.endswith(TREE)], [one for one in names if one.endswith(TREE)]

    def forget(self, names: Iterable[str]) -> None:
        self._names.difference_update(names)

    def path(self, name: str) -> str:
        """Return the path of a recorded file or folder in its file system."""
        plain = name.rstrip(TREE) if self.root is not None else name
        return plain if self.root is None else self.root.at(plain) if plain else self.root.path

    def remove_unfinished(self, folder: Folder, name: str) -> None:
        """Delete the beginnings of recorded files in a folder, which is recorded as ``name``."""
        for file in folder.names(UNFINISHED):
            match = BEGUN.fullmatch(file)
            if match and posixpath.join(name, match[1]) in self._names:
                folder.delete(UNFINISHED, file)
        folder.prune(UNFINISHED)

    def check_links(self) -> None:
        """Raise InputError if a folder of recorded files was replaced by a link, behind which are files of others."""
        assert self.root is not None
        for folder in ancestors(sorted(self._names), "") if self.root.is_local else ():
            if folder and os.path.islink(path := self.root.at(folder)):
                text = f"out: {path} is a link, in the place of a folder that jobs have written"
                raise InputError([f"{text}. Remove the link, or choose another out"])

    def settle(self) -> None:
        """Keep the names of files that exist, all in the marker, and delete what killed jobs left unfinished.

        Only for the one job that has the folder.
        """
        assert self.root is not None
        records = self.load()
        _, trees = self.below("")
        for tree in trees:
            self.root.remove_tree(tree.rstrip(TREE))
        folders = {"", *map(posixpath.dirname, self._names)}
        for folder in folders:
            self.remove_unfinished(self.root.shared(self.path(folder)), folder)
        existing = (posixpath.join(folder, file) for folder in folders for file in self.root.names(folder))
        self._names &= {*existing}
        self._added = []
        if records or sorted(self._names) != read_marker(self.root):
            write_marker(self.root, self._names)
            for record in records:
                self.root.delete(RECORDS, record)
        self.root.prune(RECORDS)


def read_marker(root: Folder) -> list[str] | None:
    """Return the names in a folder's marker; None without one, or if it is damaged.

    Raises:
        OSError: it cannot be read now.
    """
    missing = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
    with contextlib.suppress(*missing, ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(root.read_bytes(MARKER))
        names = content["files"]
        if content["made_by"] == "erag_ray" and isinstance(names, list) and all(map(_is_inside, names)):
            return names
    return None


def write_marker(root: Folder, names: Iterable[str]) -> None:
    note = "A folder of erag_ray. Its jobs replace and delete the files named here, and no others."
    content = {"made_by": "erag_ray", "note": note, "files": sorted(names)}
    root.write_bytes(json.dumps(content, indent=1).encode(), MARKER)


def _is_inside(name: object) -> bool:
    return isinstance(name, str) and not name.startswith("/") and ".." not in name.split("/")


def _line(name: str) -> str:
    # a full disk may have cut the line before
    return f"\n{json.dumps(name)}\n"


def _lines(data: bytes) -> list[str]:
    """Return the names of a record; the last line of a killed process may be cut."""
    names = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            names.append(json.loads(line))
    return [name for name in names if _is_inside(name)]


def ancestors(names: Sequence[str], top: str) -> list[str]:
    """Return the folders of files, up to and with the folder ``top`` that they are in, the deepest first."""
    folders = {top}
    for name in names:
        folder = posixpath.dirname(name)
        while len(folder) > len(top) and folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    return sorted(folders, key=len, reverse=True)
