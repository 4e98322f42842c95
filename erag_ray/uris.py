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
    """Whether a path is a URI, and not local."""
    return "://" in path


def uri_fault(path: str) -> str | None:
    """What is wrong with the form of a URI, without the URI: there may be a secret in it."""
    scheme, is_uri, rest = path.partition("://")
    found = re.search(r"[?#%]" if scheme in SCHEMES else r"[?#]", rest)
    if not is_uri or not found:
        return None
    return (
        f"a {scheme}:// path holds the character {found[0]}: names stand as they are, and options such as the "
        "endpoint come by the environment (AWS_ENDPOINT_URL, AWS_REGION)"
    )
