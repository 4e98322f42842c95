"""File systems of local paths and URIs."""

from __future__ import annotations

import os
import urllib.parse

import pyarrow as pa
import pyarrow.fs as pafs

from erag_ray.support.uris import SCHEMES, is_uri, uri_fault

NUM_ATTEMPTS = 5
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


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
