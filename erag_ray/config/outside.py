"""Keys of retrievers that exist outside this package: an object of another library, a function, or an HTTP service."""

from __future__ import annotations

import urllib.parse

from erag_ray.config.keys.values import Above0, AtLeast0, Keys, Text, require
from erag_ray.config.served import check_key_variable

OBJECT_KINDS = ("langchain", "llama_index", "haystack", "python")
"""Kinds of retrievers that are Python objects."""
OUTSIDE_KINDS = (*OBJECT_KINDS, "http")
OUTSIDE_KEYS: dict[str, set[str]] = {
    **{kind: {"object", "revision", "retries"} for kind in OBJECT_KINDS},
    "http": {"url", "revision", "retries", "timeout_seconds", "api_key_env"},
}


class OutsideKeys(Keys):
    """Keys of a retriever outside this package; its results have the texts, so the job needs no passages.

    The text of each key starts with the kinds of retrievers that have it. `check_outside` checks the values.
    """

    object: Text | None = None
    """langchain, llama_index, haystack, python: package.module:name of the retriever, or of a function without
    arguments that makes it."""

    url: Text | None = None
    """http: where POST {"query", "k"} is answered by {"documents": [{"id", "text", "title", "score"}]}."""

    revision: Text | None = None
    """langchain, llama_index, haystack, python, http: which index and settings the retriever has, in your own words;
    required, because a run is made again only when its settings change. Another index needs another revision."""

    retries: AtLeast0 = 3
    """langchain, llama_index, haystack, python, http: how often a question that fails is tried again."""

    timeout_seconds: Above0 = 60.0
    """http: how long one request may take."""

    api_key_env: Text | None = None
    """http: the name of an environment variable, in capitals, with the key (sent as a bearer token); never the
    key itself."""

    def check_outside(self, kind: str) -> None:
        """Check the keys of one of `OUTSIDE_KINDS`.

        Raises:
            ValueError: a key is missing or has a wrong value.
        """
        if kind not in OUTSIDE_KINDS:
            return
        revision = (self.revision or "").strip()
        require(
            bool(revision), f"revision: {kind} needs one: which index and settings it has, in your own words"
        )
        if kind == "http":
            self._check_url()
            check_key_variable(self.api_key_env)
        else:
            is_named = ":" in (self.object or "").strip(":")
            require(is_named, f"object must be package.module:name, got {self.object}")

    def _check_url(self) -> None:
        require(bool(self.url), "url: http needs one")
        # the URL may contain a key, which must not appear in a message
        is_plain = not any(sign in str(self.url) for sign in "@?#")
        require(is_plain, "url must be an address without a name, a password or a query")
        address = urllib.parse.urlsplit(str(self.url))
        is_address = address.scheme in ("http", "https") and address.hostname
        require(bool(is_address), f"url: {self.url} is no http:// or https:// address")
