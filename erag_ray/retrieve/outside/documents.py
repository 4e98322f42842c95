"""One retrieved document, from whatever a library calls a document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from erag_ray.files import identifier, shown
from erag_ray.runs import finite

RANDOM_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
"""A random UUID: what LangChain and LlamaIndex call documents that have no id, another one each time."""
ID_KEYS = ("doc_id", "id")
FORMS = (
    "a LangChain, LlamaIndex or Haystack document, a text, (doc_id, text), (doc_id, text, score), or a mapping with "
    "the keys text, doc_id, title and score"
)


@dataclass(frozen=True)
class Retrieved:
    """One document of a list.

    Attributes:
        doc_id: its id; None: it has none, and is called by its title and text.
        text: not blank.
        title: None if unknown.
        score: of the retriever; None if unknown. The order of the list is the rank, whatever the scores are.

    Raises:
        TypeError: the text or the title is no string.
        ValueError: the text is blank, or not valid Unicode.
    """

    doc_id: str | None
    text: str
    title: str | None = None
    score: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"a document's text is {shown(self.text)}, not a string")
        if not isinstance(self.title, str | None):
            raise TypeError(f"a document's title is {shown(self.title)}, not a string")
        if not self.text.strip():
            raise ValueError(f"document {self.doc_id!r} has a blank text")
        # half of a surrogate pair cannot be written
        "".join([self.text, self.title or "", self.doc_id or ""]).encode()


def as_retrieved(document: object) -> Retrieved:
    """Return a document of a library, or plain data, as `Retrieved`.

    The id is the document's own; without one (or with a random UUID, for LangChain and LlamaIndex) the one in its
    metadata, under ``doc_id`` or ``id``. A score may stand beside it: (document, score).

    Raises:
        TypeError: it is no document.
        ValueError: it has no text.
    """
    if isinstance(document, Retrieved):
        return document
    if isinstance(document, str):
        return Retrieved(None, document)
    if isinstance(document, Mapping):
        return _of_mapping(document)
    if isinstance(document, Sequence):
        return _of_sequence(document)
    return _of_object(document)


def _of_mapping(document: Mapping[Any, Any]) -> Retrieved:
    names = ("text", "content", "page_content")
    key = next((name for name in names if document.get(name) is not None), "text")
    own_id = next((value for name in (*ID_KEYS, "_id") if (value := _named(document.get(name)))), None)
    metadata = document.get("metadata") or document.get("meta") or {}
    title = document.get("title")
    return _retrieved(own_id, document.get(key), metadata, document.get("score"), title)


def _of_sequence(document: Sequence[Any]) -> Retrieved:
    if len(document) not in (2, 3) or isinstance(document, bytes):
        raise TypeError(f"a document is {shown(document)}; it must be {FORMS}")
    first, second, *score = document
    if isinstance(second, str):
        return _retrieved(_named(first), second, {}, *(score or [None]))
    if score or isinstance(first, str):
        raise TypeError(f"a document is {shown(document)}: its second entry is not the text")
    scored = as_retrieved(first)
    return Retrieved(scored.doc_id, scored.text, scored.title, _score(second))


def _of_object(document: Any) -> Retrieved:
    score = getattr(document, "score", None)
    if hasattr(document, "page_content"):
        own_id = _stable(getattr(document, "id", None))
        return _retrieved(own_id, document.page_content, document.metadata, score)
    # LlamaIndex: a node with a score, or the node itself
    node = getattr(document, "node", document)
    if hasattr(node, "node_id") and hasattr(node, "get_content"):
        return _retrieved(_stable(node.node_id), node.get_content(), node.metadata, score)
    if hasattr(document, "content") and hasattr(document, "meta"):
        return _retrieved(_named(document.id), document.content, document.meta, score)
    raise TypeError(f"a document is a {type(document).__name__}; it must be {FORMS}")


def _retrieved(doc_id: str | None, text: Any, metadata: Any, score: Any, title: Any = None) -> Retrieved:
    known = metadata if isinstance(metadata, Mapping) else {}
    in_metadata = (value for name in ID_KEYS if (value := _named(known.get(name))))
    titles = (one for one in (title, known.get("title")) if isinstance(one, str) and one.strip())
    return Retrieved(doc_id or next(in_metadata, None), text, next(titles, None), _score(score))


def _named(value: object) -> str | None:
    """Return an id as a string; None if it is missing or blank.

    Raises:
        TypeError: it is neither a string nor a whole number.
    """
    if value is not None and not isinstance(value, str) and identifier(value) is None:
        raise TypeError(f"a document's id is {shown(value)}; it must be a string or a whole number")
    return identifier(value)


def _stable(value: object) -> str | None:
    """Return an id that a library gives to its document; None for a random one."""
    name = _named(value)
    return None if name is None or RANDOM_ID.fullmatch(name) else name


def _score(value: Any) -> float | None:
    """Return a score, also one of NumPy, as a finite number; else None."""
    item = getattr(value, "item", None)
    return finite(item() if callable(item) else value)
