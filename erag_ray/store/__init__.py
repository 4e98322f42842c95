"""Storage on a local path or an object store: input files, sealed tables, and the cache of responses.

Tables have two forms:

- a *sealed table* is written in one part or several, and last its manifest; without a manifest it does not exist
  (`TableStore`);
- an *open store* (`ResponseStore`) is append-only: many jobs add whole files. A file is written under ``_unfinished/``
  and moved into place, so that it is complete whenever it is visible.

A job's folder has a marker with the names of the files that jobs have written there (`support.ownership`): no other is
replaced or deleted.

Input: Arrow tables that conform to `schemas`. Output: Polars frames of the same schema.
"""
