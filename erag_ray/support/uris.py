"""The form of URIs, checked without opening one: no file system is imported here."""

import os
import re

SCHEMES = {"s3": "", **dict.fromkeys(("gs", "gcs"), "?retry_limit_seconds=60"), "abfs": "", "abfss": ""}
"""Schemes of object stores, with options for Arrow: without them it retries for a quarter of an hour."""

SECRET = re.compile(r"://[^/@]*:(?:.*@|(?!\d*(?:/|$)))|^(?:s3|gs|gcs)://[^/@]+@", re.DOTALL)
"""A user with a secret, which may contain slashes or have lost its @; or a user of a store that takes no user."""


def is_uri(path: str) -> bool:
    return "://" in path


def searched_in(path: str) -> str:
    """Return where a relative path was looked for, to follow the message that nothing is there; "" for other paths."""
    is_relative = not (is_uri(path) or os.path.isabs(path))
    is_text = " " in path and os.path.splitext(path)[1] in ("", ".")
    hint = ". Strings are paths; texts go in mappings, {'text': ...}" * is_text
    return f" (looked for in the working folder, {os.getcwd()}){hint}" if is_relative else ""


def uri_fault(path: str) -> str | None:
    """Return what is wrong with the form of a URI, without the URI, which may contain a secret; None if nothing is."""
    scheme, separator, rest = path.partition("://")
    if SECRET.search(path):
        return (
            f"a {scheme}:// path contains a user or a secret, which would be in logs and manifests. Leave it out, and "
            "set environment variables (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS)"
        )
    match = re.search(r"[?#%]" if scheme in SCHEMES else r"[?#]", rest)
    if not separator or not match:
        return None
    return (
        f"a {scheme}:// path contains the character {match[0]}. Write names without escapes, and set options such as "
        "the endpoint by environment variables (AWS_ENDPOINT_URL, AWS_REGION)"
    )
