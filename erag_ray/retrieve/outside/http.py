"""Search behind HTTP: POST {"query", "k"} -> {"documents": [{"id", "text", "title"?, "score"?}]}."""

from __future__ import annotations

from dataclasses import dataclass, field

import urllib3

from erag_ray.data.files.documents import Document, document_of, with_text
from erag_ray.support.masking import Secret, masked
from erag_ray.support.user_code import one_line

MAX_PAUSE_SECONDS = 120.0
SHOWN_CHARACTERS = 200
TRANSIENT = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""


class HttpError(Exception):
    """The service answered with an error.

    Attributes:
        is_final: the same request would fail again.
        pause_seconds: what the service asks to wait; None: nothing.
    """

    def __init__(self, message: str, *, is_final: bool, pause_seconds: float | None = None) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.pause_seconds = pause_seconds


@dataclass(frozen=True, kw_only=True)
class HttpSearch:
    """A `Search` by a service; connections are reused. Documents that repeat the key have asterisks instead."""

    url: str
    timeout_seconds: float = 60.0
    api_key: Secret | None = None
    _pool: urllib3.PoolManager = field(
        default_factory=urllib3.PoolManager, init=False, repr=False, compare=False
    )

    def __call__(self, question: str, count: int) -> list[Document]:
        """Return the documents of a question.

        Raises:
            HttpError: the service answered with an error, or not in the form above.
            urllib3.exceptions.HTTPError: it cannot be reached.
        """
        headers = {"Authorization": f"Bearer {self.api_key.value}"} if self.api_key else {}
        response = self._pool.request(
            "POST",
            self.url,
            json={"query": question, "k": count},
            headers=headers,
            timeout=self.timeout_seconds,
            retries=False,
            redirect=False,
        )
        if response.status != 200:
            raise _error_of(response)
        try:
            content = masked(response.json())
        except ValueError as error:
            raise HttpError(f"the answer is not JSON: {error}", is_final=False) from error
        fields = content if isinstance(content, dict) else {}
        is_failed = fields.get("status") in ("error", "failed")
        if is_failed or any(map(fields.get, ("error", "errors", "timed_out"))):
            text = f"the answer is an error or not complete: {one_line(str(fields), SHOWN_CHARACTERS)}"
            raise HttpError(text, is_final=False)
        documents = fields.get("documents")
        if not isinstance(documents, list):
            raise HttpError('the answer has no list "documents"', is_final=True)
        return [with_text(document_of(document)) for document in documents]


def _error_of(response: urllib3.BaseHTTPResponse) -> HttpError:
    status = response.status
    body = one_line(response.data.decode(errors="replace"), SHOWN_CHARACTERS)
    message = f"{status} {response.reason or ''}".strip() + (f": {body}" if body else "")
    try:
        pause = urllib3.Retry().get_retry_after(response)
    except urllib3.exceptions.InvalidHeader:
        pause = None
    return HttpError(
        message,
        is_final=status < 500 and status not in TRANSIENT,
        pause_seconds=None if pause is None else min(pause, MAX_PAUSE_SECONDS),
    )
