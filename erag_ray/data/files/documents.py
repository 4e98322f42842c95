"""One document, from whatever a file, a frame, a library or a service calls a document."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import xxhash

from erag_ray.data.files import ids

RANDOM_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
"""A random UUID: what LangChain and LlamaIndex call documents that have no id, another one each time."""
TEXT_KEYS = ("text", "contents", "content", "page_content")
TEXT_FORM = f"it must be a string, under one of {', '.join(TEXT_KEYS)}"
METADATA_KEYS = ("metadata", "meta")
IN_METADATA = "metadata."
FORMS = (
    "an object of LangChain, LlamaIndex or Haystack, (id, text), (id, text, score), or a mapping with the keys text, "
    "doc_id, title and score"
)
OWN_IDS = (
    "is not its own id, perhaps its page's. Give each document an id (attribute id or key doc_id), or leave it out of "
    "the metadata: a hash of title and text is the id then"
)
"""What is wrong with a key of the metadata whose value several documents have, and what to do."""


@dataclass(frozen=True)
class Document:
    """One document of a list or a corpus."""

    doc_id: str | None = None
    """Its id; None: it has none, and is called by its title and text where it has a text."""
    text: str | None = None
    """None: only the id is known."""
    title: str | None = None
    score: float | None = None
    """Of the retriever, finite; None if unknown. The order of the list is the rank."""
    page_id: str | None = None
    """The page that it is a part of; None if unknown."""
    id_key: str = field(default="", compare=False)
    """Where its id was found: ``doc_id``, ``_id``, ``metadata.doc_id``, ..."""
    rank: float | None = field(default=None, compare=False)
    """That a mapping names; None if unknown."""


def document_of(value: object, *, bare: str = "text") -> Document:
    """Return a document of a library, a mapping (of JSON, or a row of a frame), a tuple, or a single value.

    The id is the document's own, under one of the keys `DOCUMENT_IDS`; without one (or with a random UUID, for
    LangChain and LlamaIndex) the one in its metadata. A score may follow it: (document, score). ``bare`` says what a
    single string or number is: "text" or "doc_id".

    Raises:
        ValueError: it is not a document; an id, the text or the title has a wrong type; it has neither id nor text.
    """
    if isinstance(value, Document):
        return value
    value = ids.scalar(value)
    if isinstance(value, str) or (bare == "doc_id" and isinstance(value, int | float)):
        doc_id = ids.checked_id(value, "id") if bare == "doc_id" else None
        return _checked(doc_id, "id", None if bare == "doc_id" else value, None, None)
    if isinstance(value, Mapping):
        return _of_mapping(value)
    if isinstance(value, Sequence):
        return _of_sequence(value, bare)
    return _of_object(value, bare)


def _of_mapping(values: Mapping[Any, Any]) -> Document:
    doc_id, key = ids.DOCUMENT_IDS.id_of(values)
    text = next((values[name] for name in TEXT_KEYS if not ids.is_missing(values.get(name))), None)
    if doc_id is None and text is None:
        raise ValueError(f"neither an id nor a text in {', '.join(map(str, values)) or 'an empty mapping'}")
    metadatas = (values[name] for name in METADATA_KEYS if isinstance(values.get(name), Mapping))
    metadata: Any = next(metadatas, {})
    document = _with_metadata(doc_id, key, text, values.get("title"), values.get("score"), metadata)
    if document.doc_id is None:
        for name in ids.lookalikes(
            str(key) for key, value in values.items() if ids.identifier(value) is not None
        ):
            raise ValueError(unread_id(f"{name} {ids.shown(values[name])}"))
    page = values.get("page_id")
    if not ids.is_missing(page) and ids.identifier(page) is None:
        raise ValueError(f"page_id is {ids.shown(page)}; {ids.ID_FORM}")
    return replace(document, page_id=ids.identifier(page), rank=finite(values.get("rank")))


def unread_id(name: str) -> str:
    """Return the message about a key that looks like one of an id and is not."""
    first = ids.DOCUMENT_IDS.first
    return (
        f"no id under {first}, but {name} looks like one. Rename it to {first}, or leave it out: the document is then "
        "called by a hash of its title and text"
    )


def _of_sequence(value: Sequence[Any], bare: str) -> Document:
    if len(value) not in (2, 3) or isinstance(value, bytes):
        raise ValueError(f"a document is {ids.shown(value)}; it must be {_forms(bare)}")
    first, second, *score = value
    if isinstance(second, str) and (bare == "text" or score or finite(second) is None):
        if len(str(first)) > len(second) and " " in str(first) and re.fullmatch(r"\S+", second):
            raise ValueError(f"a document is {ids.shown(value)}: a pair is (id, text), in this order")
        return _checked(ids.checked_id(first, "id"), "id", second, None, *(score or [None]))
    if score or not (ids.is_missing(second) or finite(second) is not None):
        text = "its second entry is neither a text nor a finite number"
        raise ValueError(f"a document is {ids.shown(value)}: {text}")
    if bare == "text" and isinstance(first, str):
        raise ValueError(f"a document is {ids.shown(value)}: its second entry is not the text")
    return replace(document_of(first, bare=bare), score=finite(second))


def _of_object(value: Any, bare: str) -> Document:
    score = getattr(value, "score", None)
    if hasattr(value, "page_content"):
        own_id, text, metadata = _stable(getattr(value, "id", None)), value.page_content, value.metadata
        return _with_metadata(own_id, "id", text, None, score, metadata, is_stable=True)
    # LlamaIndex: a node with a score, or the node itself
    node = getattr(value, "node", value)
    if hasattr(node, "node_id") and hasattr(node, "get_content"):
        own_id, text, metadata = _stable(node.node_id), node.get_content(), node.metadata
        return _with_metadata(own_id, "node_id", text, None, score, metadata, is_stable=True)
    if hasattr(value, "content") and hasattr(value, "meta"):
        return _with_metadata(ids.checked_id(value.id, "id"), "id", value.content, None, score, value.meta)
    raise ValueError(f"a document is {ids.shown(value)}, a {type(value).__name__}; it must be {_forms(bare)}")


def _forms(bare: str) -> str:
    return f"{'a text' if bare == 'text' else 'an id'}, {FORMS}"


def _with_metadata(
    doc_id: str | None, key: str, text: Any, title: Any, score: Any, metadata: Any, *, is_stable: bool = False
) -> Document:
    """Return a document whose id and title may be in its metadata; ``is_stable``: a random id is not one."""
    known = metadata if isinstance(metadata, Mapping) else {}
    if doc_id is None:
        doc_id, key = ids.DOCUMENT_IDS.id_of(
            {name: one for name, one in known.items() if not (is_stable and RANDOM_ID.fullmatch(str(one)))}
        )
        key = f"{IN_METADATA}{key}"
    inner = known.get("title")
    if ids.is_missing(title) and isinstance(inner, str) and inner.strip():
        title = inner
    return _checked(doc_id, key, text, title, score)


def _checked(doc_id: str | None, key: str, text: Any, title: Any, score: Any) -> Document:
    for name, value in {"text": text, "title": title}.items():
        if not (isinstance(value, str) or ids.is_missing(value)):
            raise ValueError(f"{name} is {ids.shown(value)}; it must be a string")
    text, title = (None if ids.is_missing(value) else value for value in (text, title or None))
    if doc_id is None and text is None:
        raise ValueError("it has neither an id nor a text")
    # half of a surrogate pair cannot be written
    "".join([text or "", title or "", doc_id or ""]).encode()
    return Document(doc_id, text, title, finite(score), id_key=key if doc_id is not None else "")


def _stable(value: object) -> str | None:
    """Return an id that a library gives to its document; None for a random one."""
    name = ids.checked_id(value, "id")
    return None if name is None or RANDOM_ID.fullmatch(name) else name


def finite(score: Any) -> float | None:
    """Return the score as a finite float, also of a text, else None: scores are informative, the order is the rank."""
    score = ids.scalar(score)
    if isinstance(score, bool) or not isinstance(score, int | float | str):
        return None
    try:
        return number if math.isfinite(number := float(score)) else None
    except (OverflowError, ValueError):
        return None


def with_text(document: Document) -> Document:
    """Return the document; raise ValueError if it has no text, or a blank one."""
    if document.text is None or not document.text.strip():
        blank = f"is {ids.shown(document.text)}; it must be a string that is not blank"
        raise ValueError(f"text {f'is missing; {TEXT_FORM}' if document.text is None else blank}")
    return document


class ListIds:
    """The ids of a list's documents; those without one are called by their title and text."""

    def __init__(self) -> None:
        self._unnamed: Counter[str] = Counter()
        self._keys: dict[str, str] = {}
        self._rank = -math.inf

    def next(self, document: Document) -> str:
        """Return the id of the list's next document.

        Raises:
            ValueError: the id is that of an earlier one, or the rank is lower than that of an earlier one.
        """
        self.check_rank(document.rank)
        doc_id = document.doc_id
        if doc_id is None:
            doc_id = text_id(document.title, document.text or "")
            self._unnamed[doc_id] += 1
            doc_id = numbered_id(doc_id, self._unnamed[doc_id])
        if doc_id in self._keys:
            keys = (document.id_key, self._keys[doc_id])
            key = next((one for one in keys if one.startswith(IN_METADATA)), "")
            advice = f": {key} {OWN_IDS}" if key else ""
            raise ValueError(f"document {doc_id!r} is in the list more than once{advice}")
        self._keys[doc_id] = document.id_key
        return doc_id

    def check_rank(self, rank: float | None) -> None:
        """Raise ValueError if a rank, of the list's next document, is lower than that of an earlier one."""
        before, self._rank = self._rank, self._rank if rank is None else rank
        if self._rank < before:
            advice = "The order of a list is its rank: sort it by rank, or leave rank out"
            raise ValueError(f"rank {rank:g} comes after rank {before:g}. {advice}")


def text_id(title: str | None, text: str) -> str:
    """Return the id of a document that has none: a hash of its title and text."""
    content = "\0".join([title or "", text])
    return f"text-{xxhash.xxh3_64_hexdigest(content.encode())}"


def numbered_id(doc_id: str, count: int) -> str:
    """Return the id of the ``count``-th document of a list with the same title and text, and without an id."""
    return doc_id if count == 1 else f"{doc_id}-{count}"
