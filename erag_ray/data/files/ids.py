"""Ids: the one rule for their values and for the keys that they have, for files, frames, Python values and HTTP."""

import functools
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

ID_FORM = "it must be a string or a whole number"
MAX_EXACT = 1 << 53
"""Whole numbers from here on are rounded in double precision, so several ids may become one float."""
_LOOKS_LIKE_ID = re.compile(
    r"(?:^|[^A-Za-z])(?i:uu|u|gu)?(?i:id)$|[a-z]I[dD]$|(?i:^(?:chunk|node|segment|paragraph|text|article|ext)id$)"
    r"|(?i:^(?:doc|did|doc(?:ument)?[^a-z]?key)$)"
)
_OTHER_THINGS = re.compile(
    r"(?i)^(?:page|wikipedia|wiki|wikidata|parent|query|question|q|run|user|session|tenant|index|collection|title)"
)
"""Beginnings of keys of ids that are those of something else than a document."""


@dataclass(frozen=True)
class IdKeys:
    """Keys of an id: ``first`` unless blank, ``others`` without case and separators (docId: docid), else ``last``."""

    first: str
    others: frozenset[str]
    last: frozenset[str] = frozenset()

    def among(self, names: Collection[str]) -> list[str]:
        """Return the names that are such keys; only ``first`` if it is one of them."""
        return [self.first] if self.first in names else self._others_among(names)

    def _others_among(self, names: Collection[str]) -> list[str]:
        groups = ([name for name in names if plain_key(name) in keys] for keys in (self.others, self.last))
        return next(filter(None, groups), [])

    def id_of(self, values: Mapping[str, Any]) -> tuple[str | None, str]:
        """Return the id and its key; (None, "") if there is none.

        Raises:
            ValueError: a value is not an id, or two keys have different ids.
        """
        if (name := checked_id(values.get(self.first), self.first)) is not None:
            return name, self.first
        ids = {key: checked_id(values[key], key) for key in self._others_among(values)}
        known = {key: value for key, value in ids.items() if value is not None}
        if len({*known.values()}) > 1:
            raise ValueError(self.several(f"{key} {value!r}" for key, value in known.items()))
        return next(((value, key) for key, value in known.items()), (None, ""))

    def several(self, ids: Iterable[str]) -> str:
        """Return the message about ids under several keys."""
        return f"several ids: {', '.join(ids)}. Write the right one under {self.first}"


DOCUMENT_IDS = IdKeys(
    "doc_id", frozenset({"docid", "id", "documentid", "passageid", "pid", "docno", "corpusid"})
)
ROW_QUERY_IDS = IdKeys("query_id", frozenset({"queryid", "qid", "questionid"}))
"""Of rows that are documents, whose ``id`` is the document's."""
QUERY_IDS = IdKeys("query_id", ROW_QUERY_IDS.others | {"id"})
"""Of records that are lists."""
RUN_IDS = IdKeys(
    "run_id",
    frozenset({"runid", "runtag", "runname", "run", "tag", "retriever", "system"}),
    frozenset({"method", "model", "engine", "pipeline", "systemname", "retrievername"}),
)
"""Of rows and records of a file with several runs."""
QUESTION_IDS = IdKeys("id", QUERY_IDS.others)


def scalar(value: Any) -> Any:
    """Return a scalar of NumPy, pandas or torch, or a decimal, as a Python value; other values unchanged."""
    if isinstance(value, Decimal):
        return float(value)
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or pandas' NA or NaT."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or _is_nan(value)


def _is_nan(value: Any) -> bool:
    number = scalar(value)
    return isinstance(number, float) and math.isnan(number)


def identifier(value: Any) -> str | None:
    """Return an id as text: a string that is not blank, or a whole number (7, 7.0, np.int64(7)); else None."""
    value = scalar(value)
    if isinstance(value, str):
        return str(value) if value.strip() else None
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_EXACT:
        return str(int(value))
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def checked_id(value: Any, key: str) -> str | None:
    """Return what `identifier` does, None for null and blank values only; raise ValueError for others without one."""
    name = identifier(value)
    if name is None and not isinstance(value, str) and (not is_missing(value) or _is_nan(value)):
        raise ValueError(f"{key} is {shown(value)}; {ID_FORM}")
    return name


def numbering_fault(question_ids: Collection[str], other_ids: Collection[str]) -> str:
    """Return what is wrong if all questions are numbered from 0 and lists or qrels from 1, or the reverse; else ""."""
    questions, others, count = {*question_ids}, {*other_ids}, len({*question_ids})
    numbers = [{*map(str, range(start, start + count))} for start in (0, 1)]
    for first, other in ((1, 0), (0, 1)):
        if questions == numbers[first] and others <= numbers[other] and others - questions:
            return (
                f"is of questions numbered from {other}, but the questions are numbered from {first} to "
                f"{first + count - 1}: each would get what is its neighbour's. Number both alike"
            )
    return ""


def lookalikes(names: Iterable[str]) -> list[str]:
    """Return the names that look like keys of a document's id."""
    return [name for name in names if _LOOKS_LIKE_ID.search(name) and not _OTHER_THINGS.match(name)]


@functools.lru_cache(1 << 12)
def plain_key(name: str) -> str:
    """Return a key without case and separators: docId, doc_id and Doc ID are docid."""
    return re.sub("[^a-z0-9]", "", str(name).lower())


def shown(value: Any) -> str:
    """A value for messages: as Python writes it, cut where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} that is nested too deep to be shown"
    return text if len(text) <= 80 else f"{text[:77]}..."
