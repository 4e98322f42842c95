"""Folders on a local path or an object store."""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import os
import posixpath
import shutil
import urllib.parse
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from erag_ray.support.ownership import MARKER, TREE, UNFINISHED, Ledger, ancestors, read_marker
from erag_ray.support.uris import SCHEMES, is_uri, uri_fault

TORN = "_torn"
"""Folder of files that could not be read, next to those that can."""
# names in pyarrow.fs: there a file becomes visible when it is complete, and a rename would be a copy
OBJECT_STORES = ("s3", "gcs", "abfs")
NUM_ATTEMPTS = 5
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_LEDGERS: dict[str, Ledger] = {}
"""The ledgers of this process, by the path of their folder; "" for files in no job's folder."""


def open_filesystem(root: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it.

    Raises:
        ValueError: the URI is not valid, or its scheme needs another package.
    """
    if not is_uri(root):
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(root))
    if fault := uri_fault(root):
        raise ValueError(fault)
    scheme = root.partition("://")[0]
    is_store = scheme in SCHEMES
    # escape characters that are not allowed in a URI
    uri = urllib.parse.quote(root, safe="/:@!$&'()*+,;=~") + SCHEMES[scheme] if is_store else root
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid:
        if is_store:
            raise
        # an optional package
        import fsspec

        try:
            handler, path = fsspec.core.url_to_fs(root)
        except ImportError as error:
            raise ValueError(f"{scheme}:// paths need another package: {error}") from error
        return pafs.PyFileSystem(pafs.FSSpecHandler(handler)), path
    if scheme == "s3":
        # the same with exponential backoff and a limit of about half a minute; the default of `from_uri` is thirty
        # retries without pauses: too fast for a busy store, too long for one that never answers
        endpoint = next(filter(None, map(os.environ.get, ENDPOINTS)), None)
        retry = pafs.AwsStandardS3RetryStrategy(max_attempts=NUM_ATTEMPTS)
        region = filesystem.region or None
        filesystem = pafs.S3FileSystem(region=region, endpoint_override=endpoint, retry_strategy=retry)
    return filesystem, path


class Folder:
    """A folder by local path or URI (``s3://``, ``gs://``, ...).

    In a job's folder only files that a job has written are replaced or deleted (`ownership`). One that ``is_shared`` is
    written by several jobs, such as a cache: no list of its files is kept.
    """

    def __init__(self, root: str, *, is_shared: bool = False) -> None:
        self.root = root
        self.is_shared = is_shared
        self.filesystem, self.path = open_filesystem(root)
        self.needs_rename = self.filesystem.type_name not in OBJECT_STORES
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        self._ledger: Ledger | None = None

    def shared(self, path: str) -> Folder:
        """Return the folder at a path of the same file system, as ``is_shared`` has it."""
        folder = copy.copy(self)
        folder.path = folder.root = path
        folder.is_shared, folder._ledger = True, None
        return folder

    def _ledger_and_name(self, *names: str) -> tuple[Ledger, str]:
        """Return the ledger of the job's folder that contains a file, and the file's name there."""
        ledger, path = self._ledger or self._find_ledger(), posixpath.normpath(self.at(*names))
        if ledger.root is None:
            return ledger, path
        self._ledger = ledger
        return ledger, "" if path == ledger.root.path else path.removeprefix(f"{ledger.root.path}/")

    def _find_ledger(self) -> Ledger:
        path = "" if self.is_shared else posixpath.normpath(self.path)
        while path.strip("/."):
            root = self.shared(path)
            # a folder above may not be readable
            with contextlib.suppress(OSError):
                if path in _LEDGERS and root.exists(MARKER):
                    return _LEDGERS[path]
                if read_marker(root) is not None:
                    return root.claim()
            path = path.rpartition("/")[0]
        return _LEDGERS.setdefault("", Ledger(None))

    def claim(self) -> Ledger:
        """Return the ledger of this folder, which has a marker, read anew."""
        path = posixpath.normpath(self.path)
        self._ledger = _LEDGERS[path] = Ledger(self.shared(path))
        return self._ledger

    def record(self, *names: str) -> None:
        """Record a file that is written by other means than this class, before it is written.

        Raises:
            InputError: there is a file that no job has written.
        """
        if not self.is_shared:
            ledger, name = self._ledger_and_name(*names)
            if ledger.root is not None or not self.exists(*names):
                ledger.record(name)

    def record_tree(self, *names: str) -> None:
        """Record a temporary folder with a new name: the next job deletes it completely."""
        ledger, name = self._ledger_and_name(*names)
        ledger.record(name + TREE)

    def at(self, *names: str) -> str:
        return "/".join([self.path.rstrip("/"), *names])

    @property
    def address(self) -> str:
        """The URI or absolute path, valid in any process."""
        return self.root if is_uri(self.root) else self.path

    def names(self, *below: str, suffix: str = "") -> list[str]:
        """Return the sorted names of the files directly in a folder; none if it does not exist."""
        return [name for name in self.entries(*below, files_only=True) if name.endswith(suffix)]

    def entries(self, *below: str, files_only: bool = False) -> list[str]:
        """Return the sorted names of the files and folders directly in a folder; none if it does not exist."""
        if not self.is_local:
            return [info.base_name for info in self.infos(*below) if info.is_file or not files_only]
        # Arrow raises for a name that is not UTF-8
        with contextlib.suppress(FileNotFoundError), os.scandir(self.at(*below)) as entries:
            return sorted(entry.name for entry in entries if not files_only or entry.is_file())
        return []

    def infos(self, *below: str) -> list[pafs.FileInfo]:
        """Return what is directly in a folder with sizes and times, sorted by name; none if it does not exist."""
        selector = pafs.FileSelector(self.at(*below), allow_not_found=True)
        return sorted(self.filesystem.get_file_info(selector), key=lambda info: info.base_name)

    def exists(self, *names: str) -> bool:
        return bool(self.filesystem.get_file_info(self.at(*names)).type != pafs.FileType.NotFound)

    def delete(self, *names: str) -> None:
        """Delete a file if it exists; in a job's folder, only if a job has written it."""
        if self._is_of_others(*names):
            return
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.at(*names))

    def delete_folder(self, *names: str) -> None:
        """Delete the files of a folder that jobs have written, and the folders that are empty then."""
        ledger, top = self._ledger_and_name(*names)
        files, trees = ledger.below(top)
        for tree in trees:
            self.shared(ledger.path(tree)).remove_tree()
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_file(ledger.path(file))
        for folder in ancestors(files, top):
            ledger.remove_unfinished(self.shared(ledger.path(folder)), folder)
            self.shared(ledger.path(folder)).prune()
        ledger.forget([*files, *trees])

    def remove_tree(self, *names: str) -> None:
        if self.is_local:
            shutil.rmtree(self.at(*names), ignore_errors=True)
        elif self.exists(*names):
            self.filesystem.delete_dir(self.at(*names))

    def prune(self, *names: str) -> None:
        if self.is_local:
            with contextlib.suppress(OSError):
                os.rmdir(self.at(*names))
        elif self.exists(*names) and not self.filesystem.get_file_info(pafs.FileSelector(self.at(*names))):
            self.filesystem.delete_dir(self.at(*names))

    def move(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Move a file: create the target's folder, and replace a target; raise InputError if no job wrote that."""
        self.record(*target)
        self._make(*target[:-1])
        if self.is_local:
            replace_file(self.at(*source), self.at(*target))
        else:
            self.filesystem.move(self.at(*source), self.at(*target))

    def set_aside(self, *names: str) -> None:
        """Move a file that cannot be read to ``_torn``, next to it; FileNotFoundError: another process did so."""
        if not self._is_of_others(*names):
            self.move(names, (*names[:-1], TORN, names[-1]))

    def _is_of_others(self, *names: str) -> bool:
        """Return whether a file is in a job's folder, and no job has written it."""
        if self.is_shared:
            return False
        ledger, name = self._ledger_and_name(*names)
        return ledger.root is not None and not ledger.has(name)

    def write_bytes(self, data: bytes, *names: str) -> None:
        """Write a file atomically: by a rename, which object stores do not need.

        Raises:
            InputError: it would replace a file that no job has written.
        """
        self.record(*names)
        if not self.needs_rename:
            return self.overwrite(data, *names)
        # a unique name: an abandoned task and its retry may write the same file at the same time
        unfinished = (*names[:-1], UNFINISHED, f"{names[-1]}-{uuid.uuid4().hex[:8]}")
        try:
            self.overwrite(data, *unfinished)
            self.move(unfinished, names)
        except OSError as error:
            # on a full disk, a partial file would fill the rest
            with contextlib.suppress(OSError):
                self.filesystem.delete_file(self.at(*unfinished))
            text = f"{self.at(*names)}: {error.strerror or error}"
            # Python chooses the same subclass by the number
            raise (OSError(text) if error.errno is None else OSError(error.errno, text)) from error

    def overwrite(self, data: bytes, *names: str) -> None:
        """Write a file in place: others may see a part of it."""
        self._make(*names[:-1])
        with self.filesystem.open_output_stream(self.at(*names), compression=None) as stream:
            stream.write(data)

    def append_or_write(self, line: bytes, data: bytes, *names: str) -> None:
        """Append a line to a local file; in an object store, write all of its data again."""
        if not self.is_local:
            return self.overwrite(data, *names)
        self._make(*names[:-1])
        with open(self.at(*names), "ab") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    def _make(self, *names: str) -> None:
        """Create a folder; object stores need none."""
        if self.needs_rename:
            self.filesystem.create_dir(self.at(*names), recursive=True)

    def write_parquet(self, table: pa.Table, *names: str, **options: Any) -> str:
        """Write a table as one Parquet file, atomically; return the file's SHA-256 in hex."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", **options)
        data = sink.getvalue()
        self.write_bytes(data, *names)
        return hashlib.sha256(data).hexdigest()

    def read_bytes(self, *names: str) -> bytes:
        with self.filesystem.open_input_stream(self.at(*names), compression=None) as stream:
            return bytes(stream.read())

    def read_parquet(self, *names: str, columns: list[str] | None = None) -> pa.Table:
        with self.filesystem.open_input_file(self.at(*names)) as file:
            return pq.ParquetFile(file, page_checksum_verification=True).read(columns=columns)


def replace_file(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a local file, after its content is on the disk: a crash of the machine leaves it whole or not at all."""
    sync(source)
    os.replace(source, target)
    sync(os.path.dirname(target) or ".")


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a local file, or the list of a folder's files, is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        # some file systems cannot sync folders
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(number)
