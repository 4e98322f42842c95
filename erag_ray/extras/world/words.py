"""Vocabulary of the world and relations of its entities, from ``words.yaml`` and ``relations.yaml``.

`names` samples the combinations of words, so that a reader that has seen every piece still has to find the entity. A
new relation is an entry in ``relations.yaml`` and, for a new kind of object, its words or its form in `names.FORMS`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

PLAIN = ("year", "instrument", "product")
"""Kinds of objects that are plain words."""


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A relation with its templates, in which ``{S}`` is the subject and ``{O}`` the object.

    Attributes:
        subject, object: kinds of entity, or one of `PLAIN`.
        sentences: for pages and claims.
        questions: for the object.
        clause: a relative clause, for questions that describe their answer.
        phrase: a description of the object by its subject, for two-hop questions.
    """

    subject: str
    object: str
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    clause: str
    phrase: str = ""


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(
        pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")
    )
    return content


def _relation(values: Mapping[str, Any]) -> Relation:
    lists = {key: tuple(values[key]) for key in ("sentences", "questions")}
    return Relation(**{**values, **lists})


RELATIONS = {name: _relation(values) for name, values in _read("relations.yaml").items()}
WORDS: dict[str, tuple[str, ...]] = {kind: tuple(text.split()) for kind, text in _read("words.yaml").items()}
SHORT_NAMES: dict[str, str] = dict(word.split("/") for kind in ("woman", "man") for word in WORDS[kind])
"""First name -> the form that friends (and some pages and questions) use."""
OCCUPATIONS: dict[str, str] = dict(word.split("/") for word in WORDS["occupation"])
"""Occupation -> another word for the same."""
