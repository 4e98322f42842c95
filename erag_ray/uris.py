"""The form of URIs, checked without opening one: no file system is imported here."""

from __future__ import annotations

import re

SCHEMES = {
    "s3": "",
    "gs": "?retry_limit_seconds=60",
    "gcs": "?retry_limit_seconds=60",
    "abfs": "",
    "abfss": "",
}
"""Schemes of object stores, with options for Arrow: without them it retries for a quarter of an hour."""


def is_uri(path: str) -> bool:
    """Return whether a path is a URI."""
    return "://" in path


def uri_fault(path: str) -> str | None:
    """Return what is wrong with the form of a URI, without the URI, which may contain a secret; None if nothing is."""
    scheme, separator, rest = path.partition("://")
    match = re.search(r"[?#%]" if scheme in SCHEMES else r"[?#]", rest)
    if not separator or not match:
        return None
    return (
        f"a {scheme}:// path contains the character {match[0]}. Write names without escapes, and set options such as "
        "the endpoint by environment variables (AWS_ENDPOINT_URL, AWS_REGION)"
    )
