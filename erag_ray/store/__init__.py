"""Storage on a local path or an object store: input files, sealed tables, and the cache of responses.

Tables have three forms:

- a *sealed table* is written in one part or several, and last its manifest; without a manifest it does not exist
  (`TableStore`);
- a *mapped table* is one Arrow file that the processes of a machine share (`write_mapped`, `open_mapped`);
- an *open store* (`ResponseStore`) is append-only: many jobs add whole files. A file is written under ``_unfinished/``
  and moved into place, so that it is complete whenever it is visible.

A job's folder has a marker with the names of the files that jobs have written there (`ownership`): no other file is
replaced or deleted.

Input: Arrow tables that conform to `schemas`. Output: Polars frames of the same schema.
"""

from erag_ray.store.arrays import open_array, write_array
from erag_ray.store.digests import CACHE, cache_folder, cached_digest
from erag_ray.store.files import ROW, is_folder, open_file, scan_file, size_of, start_of
from erag_ray.store.fingerprints import (
    NOT_LOCAL,
    code_fingerprint,
    file_digest,
    file_stamp,
    fingerprint,
    frame_digests,
    new_job_id,
    provenance_of_code,
)
from erag_ray.store.folder import TORN, Folder, as_frame, replace_file, sync
from erag_ray.store.huggingface import dataset_name, dataset_rows, is_dataset
from erag_ray.store.lease import (
    LEASE_SECONDS,
    LEASES,
    Lease,
    fields_of,
    is_leased,
    read_sign,
    runs_here,
    sealing_under,
)
from erag_ray.store.mapped import open_mapped, write_mapped
from erag_ray.store.responses import KEY_COLUMNS, NOTES, ResponseStore, keys_digest, old_store_notes
from erag_ray.store.tables import (
    DIGEST,
    MANIFEST,
    TABLE_MANIFEST,
    TableStore,
    TableWriter,
    content_digest,
    part_paths,
    read_back,
    read_manifest,
    whole_manifest,
)

__all__ = [
    "CACHE",
    "DIGEST",
    "KEY_COLUMNS",
    "LEASES",
    "LEASE_SECONDS",
    "MANIFEST",
    "NOTES",
    "NOT_LOCAL",
    "ROW",
    "TABLE_MANIFEST",
    "TORN",
    "Folder",
    "Lease",
    "ResponseStore",
    "TableStore",
    "TableWriter",
    "as_frame",
    "cache_folder",
    "cached_digest",
    "code_fingerprint",
    "content_digest",
    "dataset_name",
    "dataset_rows",
    "fields_of",
    "file_digest",
    "file_stamp",
    "fingerprint",
    "frame_digests",
    "is_dataset",
    "is_folder",
    "is_leased",
    "keys_digest",
    "new_job_id",
    "old_store_notes",
    "open_array",
    "open_file",
    "open_mapped",
    "part_paths",
    "provenance_of_code",
    "read_back",
    "read_manifest",
    "read_sign",
    "replace_file",
    "runs_here",
    "scan_file",
    "sealing_under",
    "size_of",
    "start_of",
    "sync",
    "whole_manifest",
    "write_array",
    "write_mapped",
]
