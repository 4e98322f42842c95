"""The open store of responses: appended to by many jobs, a whole file at a time, and never rewritten."""

import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from erag_ray.store.folder import TORN, Folder
from erag_ray.store.lease import LEASES, Lease, fields_of, is_leased, read_sign
from erag_ray.store.schemas import RESPONSES, conform
from erag_ray.store.tables import whole_manifest
from erag_ray.support.ownership import UNFINISHED

KEY_COLUMNS = ["question_key", "passages_key"]
TOKEN_COLUMNS = ("num_prompt_tokens", "num_output_tokens")
SECONDS = b"seconds"
"""In a file's metadata: how long one actor took for what is in it."""
CACHED = b"num_cached_prompt_tokens"
"""In a file's metadata: prompt tokens of what is in it that a server had in its cache."""
DEVICE = b"device"
"""In a file's metadata: the kind of device, and the version of the software, that made what is in it."""
FINAL = ("input", "refused")
"""Kinds of errors that would come again."""
NEWEST_FILES = 16
FACTS = "facts.json"
NOTES = "_attempts"
"""Folder of the notes of running blocks: a folder for each job."""
NOTE = re.compile("[0-9a-f]{16}(-[0-9a-f]{8})?")
UNREADABLE = (pa.ArrowException, OSError, KeyError, ValueError)


def keys_digest(table: pa.Table) -> str:
    """16 hex digits (XXH3-64) of the keys of PENDING or RESPONSES, in their order."""
    columns = (table.column(name).combine_chunks().to_numpy() for name in KEY_COLUMNS)
    return xxhash.xxh3_64_hexdigest(b"".join(column.tobytes() for column in columns))


class ResponseStore:
    """All responses of one model: an open store, shared by jobs.

    Layout: ``<root>/responses/<model>/<job>-<content>.parquet``; unfinished files under ``_unfinished/``,
    leases under ``_leases/``, unreadable files set aside under ``_torn/``, what the model is in ``model.json``.
    A file that proves unreadable is set aside wherever it is met; ``set_aside`` names those that this object has met.
    """

    def __init__(self, root: str, model: str) -> None:
        self.root = root
        self.model = model
        self.folder = Folder("/".join([root.rstrip("/"), "responses", model]), is_shared=True)
        self.set_aside: list[str] = []
        self.devices: Counter[str] = Counter()
        """Number of the responses that `lookup` has found, by the device that made them, where files name it."""

    def describe(self, fields: Callable[[], Mapping[str, object]]) -> None:
        """Store what the model's fingerprint covers, once, for people who look into the folder."""
        if not self.folder.exists("model.json"):
            self.folder.write_bytes(json.dumps(fields(), indent=1, sort_keys=True).encode(), "model.json")

    def first_facts(self, facts: Mapping[str, object]) -> dict[str, object]:
        """Return what was found out about the model when its first responses were made; from now on it is this."""
        first = whole_manifest(self.folder, name=FACTS, form=dict.fromkeys(facts, object), sets_aside=True)
        if first is None:
            self.folder.write_bytes(json.dumps(facts, indent=1, sort_keys=True).encode(), FACTS)
            first = dict(json.loads(json.dumps(facts)))
        return first

    def append(self, responses: pa.Table, job: str, seconds: float | None = None, **facts: object) -> str:
        """Add responses as one file; the same responses of the same job replace themselves (a retried task).

        ``facts`` are further metadata of the file: device and num_cached_prompt_tokens.
        """
        conformed = conform(responses, RESPONSES)
        name = f"{job}-{keys_digest(conformed)}.parquet"
        named = {"seconds": seconds, **facts}.items()
        described = conformed.replace_schema_metadata(
            {key: str(fact) for key, fact in named if fact is not None}
        )
        self.folder.write_parquet(described, name, write_page_checksum=True)
        return name

    def speed(self) -> float | None:
        """Responses a second of one actor, by the newest files; None where none says how long it took."""
        names = self.folder.names(suffix=".parquet")[-NEWEST_FILES:]
        parts = [(rows, float(facts[SECONDS])) for rows, facts in self._facts(names) if SECONDS in facts]
        seconds = math.fsum(took for _, took in parts)
        return sum(rows for rows, _ in parts) / seconds if seconds else None

    def _facts(self, names: Iterable[str]) -> Iterator[tuple[int, Mapping[bytes, bytes]]]:
        """Yield the number of responses in each file, and its metadata."""
        for name in names:
            # a file that cannot be read is reported where its responses are needed
            with contextlib.suppress(*UNREADABLE):
                footer = self._footer(name)
                yield footer.num_rows, footer.metadata or {}

    def _footer(self, name: str) -> pq.FileMetaData:
        with self.folder.filesystem.open_input_file(self.folder.at(name)) as file:
            return pq.read_metadata(file)

    def keys(self, *, without_errors: bool = False) -> pl.DataFrame:
        """Keys of all responses that count: errors hold for their own job only, but for those that are `FINAL`.

        With ``without_errors`` no error counts, whatever its kind.
        """
        rows = self._of_files(self.folder.names(suffix=".parquet"), [*KEY_COLUMNS, "error_kind"])
        kind = pl.col("error_kind")
        counts = kind.is_null() if without_errors else kind.is_null() | kind.is_in(FINAL)
        return rows.filter(counts).select(KEY_COLUMNS).unique()

    def keys_by(self, job: str) -> pl.DataFrame:
        return self._of_files(self._names_of(job), KEY_COLUMNS)

    def _names_of(self, job: str) -> list[str]:
        return [name for name in self.folder.names(suffix=".parquet") if name.startswith(f"{job}-")]

    def totals_by(self, job: str) -> dict[str, Any]:
        """Sum up the responses of a job, those of actors that have died included.

        Returns:
            num_responses, num_prompt_tokens, num_output_tokens, num_cached_prompt_tokens, device_seconds.
        """
        names = self._names_of(job)
        rows = self._of_files(names, list(TOKEN_COLUMNS))
        facts = [facts for _, facts in self._facts(names)]
        return {
            "num_responses": rows.height,
            **rows.sum().row(0, named=True),
            CACHED.decode(): sum(int(fact.get(CACHED, 0)) for fact in facts),
            "device_seconds": math.fsum(float(fact.get(SECONDS, 0)) for fact in facts),
        }

    def lookup(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The responses of the given keys.

        A key that was answered twice counts once: the first file by name, errors last. Errors that hold for their own
        job only (`schemas.ERROR_KINDS`) come after all others, the last file by name first: the last job's.
        """
        wanted = keys.select(KEY_COLUMNS).unique()
        rows = self._of_files(self._names_with(wanted), [*RESPONSES.columns.names, "device"])
        rows = rows.join(wanted, on=KEY_COLUMNS, how="semi", maintain_order="left")
        kind = pl.col("error_kind")
        is_of_job = kind.is_not_null() & ~kind.is_in(FINAL)
        age = pl.when(is_of_job).then(-pl.int_range(pl.len()))
        by_worth = rows.sort(kind.is_not_null(), is_of_job, age, maintain_order=True)
        first = by_worth.unique(subset=KEY_COLUMNS, keep="first", maintain_order=True)
        self.devices.update(first["device"].drop_nulls().cast(pl.String).to_list())
        return first.drop("device")

    def _names_with(self, wanted: pl.DataFrame) -> list[str]:
        """The files that hold any of these keys, by their key columns alone."""
        names = self.folder.names(suffix=".parquet")
        keys = [self._of_files([name], KEY_COLUMNS).with_columns(name=pl.lit(name)) for name in names]
        hits = (
            pl.concat(keys).join(wanted, on=KEY_COLUMNS, how="semi") if keys else pl.DataFrame({"name": []})
        )
        hit = set(hits["name"].unique())
        return [name for name in names if name in hit]

    def _of_files(self, names: Iterable[str], columns: list[str]) -> pl.DataFrame:
        """Read columns of RESPONSES, and device (what made a row; null if unknown); set unreadable files aside."""
        schema = pa.schema([field for field in RESPONSES.columns if field.name in columns])
        tables, devices = [schema.empty_table()], [pl.Series([], dtype=pl.Categorical)]
        for name in names:
            try:
                table = self.folder.read_parquet(name, columns=schema.names)
                tables.append(table.select(schema.names).cast(schema))
            except UNREADABLE as error:
                self._set_aside(name, error)
                continue
            device = (table.schema.metadata or {}).get(DEVICE)
            text = device and device.decode()
            devices.append(pl.repeat(text, table.num_rows, dtype=pl.Categorical, eager=True))
        return pl.DataFrame(pa.concat_tables(tables)).with_columns(device=pl.concat(devices)).select(columns)

    def repair(self) -> list[str]:
        """Remove unfinished files of jobs that are gone and set unreadable files aside; return a line for each.

        Their responses will simply be asked again.
        """
        lines = self.clean()
        for name in self.folder.names(suffix=".parquet"):
            try:
                self._footer(name).schema.to_arrow_schema().empty_table().select(RESPONSES.columns.names)
            except UNREADABLE as error:
                lines += self._set_aside(name, error)
        return lines

    @contextlib.contextmanager
    def lease(self, job: str) -> Iterator[None]:
        """While open, a job may write here; meanwhile, what jobs that are gone have left is removed."""
        try:
            with Lease(self.folder, job, self.clean):
                yield
        finally:
            with contextlib.suppress(OSError):
                self._remove_notes(job)

    def clean(self) -> list[str]:
        """Remove signs, notes and unfinished files of jobs that are gone; return a line for each unfinished file."""
        lines = []
        for name in self.folder.names(UNFINISHED):
            stem, is_file, _ = name.rpartition(".parquet-")
            job = stem.rpartition("-")[0]
            if is_file and not is_leased(self.folder, job):
                self.folder.delete(UNFINISHED, name)
                lines.append(f"removed the unfinished file {name} of a job that is gone")
        for job in {*self.folder.names(LEASES), *self.folder.entries(NOTES)}:
            if not is_leased(self.folder, job):
                self._remove_notes(job)
                sign = read_sign(self.folder, job)
                if sign == b"" or (sign and "process" in fields_of(sign)):
                    self.folder.delete(LEASES, job)
        for below in ((UNFINISHED,), (LEASES, UNFINISHED), (LEASES,), (NOTES,)):
            self.folder.prune(*below)
        return lines

    def _remove_notes(self, job: str) -> None:
        for below in ((NOTES, job, UNFINISHED), (NOTES, job)):
            for name in self.folder.names(*below):
                if NOTE.fullmatch(name):
                    self.folder.delete(*below, name)
            self.folder.prune(*below)
        self.folder.prune(NOTES)

    def _set_aside(self, name: str, error: Exception) -> list[str]:
        """Set an unreadable file aside, which another job may have done; raise if the disk itself cannot be read."""
        try:
            self.folder.read_bytes(name)
            self.folder.set_aside(name)
        except FileNotFoundError:
            return []
        self.set_aside.append(name)
        return [f"set the unreadable file {name} aside in {self.folder.at(TORN)}: {error}"]
