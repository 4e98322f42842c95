"""The only door to disk for tables: folders of Parquet, on a local path or an object store.

Three forms:

- a *sealed table* is written, in one part or several, then its manifest; without the manifest it does not exist
  (`TableStore`);
- a *mapped table* is one Arrow file that the processes of a machine share (`write_mapped`, `open_mapped`);
- an *open store* (`ReadingStore`) is appended to by many jobs, a whole file at a time, and never rewritten.
  A file is written under ``_unfinished/`` and moved into place, so that a reader sees it complete or not at all.

Goes in: Arrow tables that conform to `schemas`. Comes out: Polars frames of the same schema.
"""

from erag_ray.store.arrays import open_array, write_array
from erag_ray.store.folder import UNFINISHED, Folder, as_frame
from erag_ray.store.identity import (
    NOT_LOCAL,
    file_digest,
    file_stamp,
    fingerprint,
    new_job_id,
    provenance_of_code,
)
from erag_ray.store.lease import LEASE_SECONDS, LEASES, Lease, is_leased, last_beat
from erag_ray.store.mapped import open_mapped, write_mapped
from erag_ray.store.readings import KEY_COLUMNS, ReadingStore, keys_digest
from erag_ray.store.tables import TableStore, part_paths, read_manifest

__all__ = [
    "KEY_COLUMNS",
    "LEASES",
    "LEASE_SECONDS",
    "NOT_LOCAL",
    "UNFINISHED",
    "Folder",
    "Lease",
    "ReadingStore",
    "TableStore",
    "as_frame",
    "file_digest",
    "file_stamp",
    "fingerprint",
    "is_leased",
    "keys_digest",
    "last_beat",
    "new_job_id",
    "open_array",
    "open_mapped",
    "part_paths",
    "provenance_of_code",
    "read_manifest",
    "write_array",
    "write_mapped",
]
