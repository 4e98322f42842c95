"""The only door to disk for tables: folders of Parquet, on a local path or an object store.

Two kinds of folder:

- a *sealed table* is written whole, then its manifest; without the manifest it does not exist (`TableStore`);
- an *open store* (`ReadingStore`) is appended to by many jobs, a whole file at a time, and never rewritten.
  A file is written under ``_unfinished/`` and moved into place, so that a reader sees it complete or not at all.

Goes in: Arrow tables that conform to `schemas`. Comes out: Polars frames of the same schema.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import xxhash

from erag_ray.schemas import READINGS, TableSchema, conform

KEY_COLUMNS = ["question_key", "passages_key"]
HEARTBEAT_SECONDS = 10.0
LEASE_SECONDS = 60.0
UNFINISHED = "_unfinished"
# by the names of pyarrow.fs: there a file appears when its last byte has arrived, and a rename would be a copy
OBJECT_STORES = ("s3", "gcs", "abfs")
PACKAGES = ("erag-ray", "ray", "torch", "transformers", "tokenizers", "polars", "pyarrow", "scipy", "numpy")


def fingerprint(value: object) -> str:
    """32 hex digits (128 bits of SHA-256) of a value's canonical JSON form.

    As in JSON, a tuple is a list, and a key of a mapping is its text (1 is "1").

    Raises:
        TypeError: the value holds something without a stable form (a set, an object, NaN).
    """
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False, default=_stable, ensure_ascii=True)
    except ValueError as error:
        raise TypeError(f"no stable form: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _stable(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} has no stable form")


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a local file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def new_job_id() -> str:
    """A name for one start of one job: sorts by time, never repeats."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


class Folder:
    """A folder by local path or URI (``s3://``, ``gs://``, ...), with the few operations that stores need."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.filesystem, self.path = _open_filesystem(root)
        self.needs_rename = self.filesystem.type_name not in OBJECT_STORES

    def at(self, *names: str) -> str:
        """The path of something inside."""
        return "/".join([self.path.rstrip("/"), *names])

    def names(self, *below: str, suffix: str = "") -> list[str]:
        """Names of the files directly in a folder, sorted; none if it does not exist."""
        selector = pafs.FileSelector(self.at(*below), allow_not_found=True)
        infos = self.filesystem.get_file_info(selector)
        return sorted(
            i.base_name for i in infos if i.type == pafs.FileType.File and i.base_name.endswith(suffix)
        )

    def exists(self, *names: str) -> bool:
        """Whether something is there."""
        return bool(self.filesystem.get_file_info(self.at(*names)).type != pafs.FileType.NotFound)

    def delete(self, *names: str) -> None:
        """Delete a file; one that is gone already is fine."""
        try:
            self.filesystem.delete_file(self.at(*names))
        except FileNotFoundError:
            return

    def move(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Move a file; the target's folder is made, an existing target is replaced."""
        self.filesystem.create_dir(self.at(*target[:-1]), recursive=True)
        self.filesystem.move(self.at(*source), self.at(*target))

    def write_bytes(self, data: bytes, *names: str) -> None:
        """Write a file so that it appears whole: object stores do that themselves, others by a rename."""
        if not self.needs_rename:
            return self._write(data, *names)
        # a name of its own: a task that was given up and its second try may write the same file at once
        unfinished = (*names[:-1], UNFINISHED, f"{names[-1]}-{uuid.uuid4().hex[:8]}")
        self._write(data, *unfinished)
        self.move(unfinished, names)

    def _write(self, data: bytes, *names: str) -> None:
        self.filesystem.create_dir(self.at(*names[:-1]), recursive=True)
        with self.filesystem.open_output_stream(self.at(*names)) as stream:
            stream.write(data)

    def write_parquet(self, table: pa.Table, *names: str, **options: Any) -> None:
        """Write a table as one Parquet file that appears whole."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", **options)
        self.write_bytes(sink.getvalue(), *names)

    def read_bytes(self, *names: str) -> bytes:
        """The content of a file."""
        with self.filesystem.open_input_stream(self.at(*names)) as stream:
            return bytes(stream.read())

    def read_parquet(self, *names: str, columns: list[str] | None = None) -> pa.Table:
        """A Parquet file as a table."""
        with self.filesystem.open_input_file(self.at(*names)) as file:
            return pq.ParquetFile(file).read(columns=columns)


def _open_filesystem(root: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in root:
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(root))
    try:
        filesystem, path = pafs.FileSystem.from_uri(root)
    except pa.ArrowInvalid:
        # a scheme that Arrow does not know itself: fsspec may
        import fsspec

        handler, path = fsspec.core.url_to_fs(root)
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(handler))
    return filesystem, path


class TableStore:
    """Sealed tables: ``<root>/<table>/part-00000.parquet`` and, written last, ``manifest.json``."""

    def __init__(self, root: str) -> None:
        self.folder = Folder(root)

    def write(
        self,
        table: pa.Table | pl.DataFrame,
        schema: TableSchema,
        *,
        config: Mapping[str, object] | None = None,
        inputs: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Write a whole table and seal it; what stood there before is replaced.

        Args:
            table: the rows, in the order in which they are to be read.
            schema: what they must conform to.
            config: the settings that the content depends on.
            inputs: name -> fingerprint of what it was made from.
        """
        conformed = conform(table, schema)
        self.unseal(schema)
        self._remove_unfinished(schema)
        self.folder.write_parquet(conformed, schema.name, "part-00000.parquet")
        digest = hashlib.sha256(self.folder.read_bytes(schema.name, "part-00000.parquet")).hexdigest()
        self._seal(schema, conformed.num_rows, digest, config, inputs)
        return conformed

    def unseal(self, schema: TableSchema) -> None:
        """From here to the next `write` the table does not exist."""
        self.folder.delete(schema.name, "manifest.json")

    def _remove_unfinished(self, schema: TableSchema) -> None:
        # a table has one writer, so these are left from one that was killed
        for name in self.folder.names(schema.name, UNFINISHED):
            self.folder.delete(schema.name, UNFINISHED, name)

    def _seal(
        self,
        schema: TableSchema,
        num_rows: int,
        digest: str,
        config: Mapping[str, object] | None,
        inputs: Mapping[str, str] | None,
    ) -> None:
        content = {
            "table": schema.name,
            "columns": {field.name: str(field.type) for field in schema.columns},
            "num_rows": num_rows,
            "sha256": digest,
            "config": dict(config or {}),
            "inputs": dict(inputs or {}),
            **provenance_of_code(),
        }
        self.write_manifest(content, schema.name)

    def write_manifest(self, content: Mapping[str, object], *below: str) -> None:
        """Write a ``manifest.json``: the last act of whatever it describes."""
        data = json.dumps(content, indent=1, sort_keys=True, default=_stable).encode()
        self.folder.write_bytes(data, *below, "manifest.json")

    def is_sealed(self, schema: TableSchema) -> bool:
        """Whether the table is complete."""
        return self.folder.exists(schema.name, "manifest.json")

    def manifest(self, schema: TableSchema) -> dict[str, Any]:
        """The manifest of a sealed table.

        Raises:
            FileNotFoundError: the table is not sealed.
            ValueError: the manifest is not JSON.
        """
        if not self.is_sealed(schema):
            raise FileNotFoundError(f"table {schema.name} in {self.folder.root} is not there or not sealed")
        try:
            content: dict[str, Any] = json.loads(self.folder.read_bytes(schema.name, "manifest.json"))
        except ValueError as error:
            place = self.folder.at(schema.name, "manifest.json")
            raise ValueError(
                f"{place}: the manifest is damaged ({error}); run the job that writes it again"
            ) from error
        return content

    def read(self, schema: TableSchema) -> pl.DataFrame:
        """A sealed table.

        Raises:
            FileNotFoundError: the table is not sealed.
            ValueError: its rows are not those that its manifest states.
        """
        manifest = self.manifest(schema)
        table = conform(self.folder.read_parquet(schema.name, "part-00000.parquet"), schema, unique=False)
        if table.num_rows != manifest["num_rows"]:
            stated = manifest["num_rows"]
            raise ValueError(f"table {schema.name}: {table.num_rows} rows, its manifest says {stated}")
        return _frame(table)


@functools.cache
def provenance_of_code() -> dict[str, object]:
    """Package versions and the commit of the source tree (null outside one), for manifests."""
    return {"packages": dict(_versions(PACKAGES)), "commit": _commit()}


def _versions(packages: Iterable[str]) -> Iterable[tuple[str, str | None]]:
    for package in packages:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, None


def _commit() -> str | None:
    here = pathlib.Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


class ReadingStore:
    """All readings of one reader: an open store, shared by jobs.

    Layout: ``<root>/readings/<reader>/<job>-<content>.parquet``; unfinished files under ``_unfinished/``,
    leases under ``_leases/``, unreadable files set aside under ``_torn/``, what the reader is in ``reader.json``.
    """

    def __init__(self, root: str, reader: str) -> None:
        self.root = root
        self.reader = reader
        self.folder = Folder("/".join([root.rstrip("/"), "readings", reader]))

    def describe(self, identity: Mapping[str, object]) -> None:
        """Store what the reader's fingerprint covers, once, for people who look into the folder."""
        if not self.folder.exists("reader.json"):
            self.folder.write_bytes(json.dumps(identity, indent=1, sort_keys=True).encode(), "reader.json")

    def append(self, readings: pa.Table, job: str) -> str:
        """Add readings as one file; the same readings of the same job replace themselves (a retried task).

        Returns:
            The file's name.
        """
        conformed = conform(readings, READINGS)
        digest = xxhash.xxh3_64_hexdigest(
            b"".join(conformed.column(name).combine_chunks().to_numpy().tobytes() for name in KEY_COLUMNS)
        )
        name = f"{job}-{digest}.parquet"
        self.folder.write_parquet(conformed, name)
        return name

    def num_rows_of(self, job: str, known: dict[str, int]) -> int:
        """Readings that a job has written so far, by the files' footers; ``known`` remembers those looked at."""
        for name in self.folder.names(suffix=".parquet"):
            if name.startswith(f"{job}-") and name not in known:
                with self.folder.filesystem.open_input_file(self.folder.at(name)) as file:
                    known[name] = pq.read_metadata(file).num_rows
        return sum(known.values())

    def keys(self) -> pl.DataFrame:
        """Keys of all readings that count: errors of kind ``resource`` hold for their own job only."""
        rows = self._read([*KEY_COLUMNS, "error_kind"])
        return rows.filter(pl.col("error_kind").ne_missing("resource")).select(KEY_COLUMNS).unique()

    def lookup(self, keys: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """The readings of the given keys and the number of rows that repeat a key.

        A key that was read twice counts once: the first file by name, errors of kind ``resource`` last.
        """
        wanted = keys.select(KEY_COLUMNS).unique()
        rows = self._read(None).join(wanted, on=KEY_COLUMNS, how="semi", maintain_order="left")
        by_worth = rows.sort(pl.col("error_kind").eq_missing("resource"), maintain_order=True)
        first = by_worth.unique(subset=KEY_COLUMNS, keep="first", maintain_order=True)
        return first, rows.height - first.height

    def _read(self, columns: list[str] | None) -> pl.DataFrame:
        tables = [
            self.folder.read_parquet(name, columns=columns) for name in self.folder.names(suffix=".parquet")
        ]
        wanted = columns or READINGS.columns.names
        schema = pa.schema([READINGS.columns.field(name) for name in wanted])
        return _frame(pa.concat_tables([schema.empty_table(), *(t.cast(schema) for t in tables)]))

    def repair(self) -> list[str]:
        """Remove unfinished files of jobs that are gone and set unreadable files aside.

        Returns:
            One line for each thing done; their readings will simply be read again.
        """
        return [*self._remove_unfinished(), *self._set_torn_aside()]

    def _remove_unfinished(self) -> Iterable[str]:
        for name in self.folder.names(UNFINISHED):
            readings, is_readings, _ = name.rpartition(".parquet-")
            job = readings.rpartition("-")[0]
            if is_readings and not self.is_leased(job):
                self.folder.delete(UNFINISHED, name)
                yield f"removed the unfinished file {name} of a job that is gone"

    def _set_torn_aside(self) -> Iterable[str]:
        for name in self.folder.names(suffix=".parquet"):
            try:
                with self.folder.filesystem.open_input_file(self.folder.at(name)) as file:
                    pq.read_metadata(file)
            except (pa.ArrowInvalid, OSError) as error:
                self.folder.move((name,), ("_torn", name))
                yield f"set the unreadable file {name} aside in {self.folder.at('_torn')}: {error}"

    def is_leased(self, job: str) -> bool:
        """Whether a job that may still write here has shown life within `LEASE_SECONDS`."""
        try:
            beat = float(self.folder.read_bytes("_leases", job))
        except (FileNotFoundError, ValueError):
            return False
        return time.time() - beat < LEASE_SECONDS


class Lease:
    """While open, tells other jobs on the same store that this one is alive (a heartbeat in a file)."""

    def __init__(self, store: ReadingStore, job: str) -> None:
        self._store = store
        self._job = job
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{job}", daemon=True)

    def __enter__(self) -> Lease:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._thread.join()
        self._store.folder.delete("_leases", self._job)

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_SECONDS):
            # a disk that fails once must not end the lease; the next beat comes before it runs out
            with contextlib.suppress(OSError):
                self._write()

    def _write(self) -> None:
        self._store.folder.write_bytes(str(time.time()).encode(), "_leases", self._job)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
