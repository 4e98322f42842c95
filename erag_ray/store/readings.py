"""The open store of readings: appended to by many jobs, a whole file at a time, and never rewritten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from erag_ray.schemas import READINGS, conform
from erag_ray.store.folder import UNFINISHED, Folder, as_frame
from erag_ray.store.lease import is_leased

KEY_COLUMNS = ["question_key", "passages_key"]


def keys_digest(table: pa.Table) -> str:
    """16 hex digits (XXH3-64) of the keys of REQUESTS or READINGS, in their order."""
    columns = (table.column(name).combine_chunks().to_numpy() for name in KEY_COLUMNS)
    return xxhash.xxh3_64_hexdigest(b"".join(column.tobytes() for column in columns))


class ReadingStore:
    """All readings of one reader: an open store, shared by jobs.

    Layout: ``<root>/readings/<reader>/<job>-<content>.parquet``; unfinished files under ``_unfinished/``,
    leases under ``_leases/``, unreadable files set aside under ``_torn/``, what the reader is in ``reader.json``.
    """

    def __init__(self, root: str, reader: str) -> None:
        self.root = root
        self.reader = reader
        self.folder = Folder("/".join([root.rstrip("/"), "readings", reader]))

    def is_described(self) -> bool:
        """Whether the folder says what its reader is."""
        return self.folder.exists("reader.json")

    def describe(self, identity: Mapping[str, object]) -> None:
        """Store what the reader's fingerprint covers, once, for people who look into the folder."""
        if not self.is_described():
            self.folder.write_bytes(json.dumps(identity, indent=1, sort_keys=True).encode(), "reader.json")

    def append(self, readings: pa.Table, job: str) -> str:
        """Add readings as one file; the same readings of the same job replace themselves (a retried task).

        Returns:
            The file's name.
        """
        conformed = conform(readings, READINGS)
        name = f"{job}-{keys_digest(conformed)}.parquet"
        self.folder.write_parquet(conformed, name)
        return name

    def num_rows_of(self, job: str, known: dict[str, int]) -> int:
        """Readings that a job has written so far, by the files' footers; ``known`` remembers those looked at."""
        for name in self.folder.names(suffix=".parquet"):
            if name.startswith(f"{job}-") and name not in known:
                with self.folder.filesystem.open_input_file(self.folder.at(name)) as file:
                    known[name] = pq.read_metadata(file).num_rows
        return sum(known.values())

    def keys(self, *, without_errors: bool = False) -> pl.DataFrame:
        """Keys of all readings that count: errors of kind ``resource`` hold for their own job only.

        Args:
            without_errors: no error counts, whatever its kind.
        """
        rows = self._read([*KEY_COLUMNS, "error_kind"])
        kind = pl.col("error_kind")
        counts = kind.is_null() if without_errors else kind.ne_missing("resource")
        return rows.filter(counts).select(KEY_COLUMNS).unique()

    def keys_by(self, job: str) -> pl.DataFrame:
        """Keys of all readings that a job has written, errors too."""
        names = self.folder.names(suffix=".parquet")
        return self._of_files([name for name in names if name.startswith(f"{job}-")], KEY_COLUMNS)

    def lookup(self, keys: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """The readings of the given keys and the number of rows that repeat a key.

        A key that was read twice counts once: the first file by name, errors last, of kind ``resource`` after all.
        """
        wanted = keys.select(KEY_COLUMNS).unique()
        rows = self._read(None).join(wanted, on=KEY_COLUMNS, how="semi", maintain_order="left")
        is_error, is_of_job = pl.col("error_kind").is_not_null(), pl.col("error_kind").eq_missing("resource")
        by_worth = rows.sort(is_error, is_of_job, maintain_order=True)
        first = by_worth.unique(subset=KEY_COLUMNS, keep="first", maintain_order=True)
        return first, rows.height - first.height

    def _read(self, columns: list[str] | None) -> pl.DataFrame:
        return self._of_files(self.folder.names(suffix=".parquet"), columns)

    def _of_files(self, names: Iterable[str], columns: list[str] | None) -> pl.DataFrame:
        tables = [self.folder.read_parquet(name, columns=columns) for name in names]
        wanted = columns or READINGS.columns.names
        schema = pa.schema([READINGS.columns.field(name) for name in wanted])
        return as_frame(pa.concat_tables([schema.empty_table(), *(t.cast(schema) for t in tables)]))

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
        return is_leased(self.folder, job)
