"""Facts of a question: gold answers that each say another thing, in a record's field ``answers_all``."""

from __future__ import annotations

from typing import Any

from erag_ray.data.files.ids import shown

FIELD = "answers_all"
Facts = tuple[tuple[str, ...], ...]
"""Accepted forms of each fact, stripped and without repeats."""


def parse_facts(value: Any) -> tuple[Facts, str]:
    """Return the facts of a record, and what is wrong with them.

    Args:
        value: of the field ``answers_all``: a list of facts, each a string or a list of accepted forms; None: no facts.

    Returns:
        The facts, empty where there are none or something is wrong, and the problem ("": none).
    """
    if value is None:
        return (), ""
    if not isinstance(value, list) or not value:
        return (), f"{FIELD} is {shown(value)}; it must be a list of facts, or be left out"
    facts = tuple(_forms(fact) for fact in value)
    if () in facts:
        number = facts.index(()) + 1
        what = f"fact {number} of {FIELD} is {shown(value[number - 1])}"
        return (), f"{what}; it must be a text, or a list of accepted forms, without blank ones"
    return facts, ""


def _forms(fact: Any) -> tuple[str, ...]:
    """Return the accepted forms of a fact; none if one is not a text or blank."""
    forms = fact if isinstance(fact, list) else [fact]
    if not all(isinstance(form, str) and form.strip() for form in forms):
        return ()
    return tuple(dict.fromkeys(form.strip() for form in forms))


def all_forms(facts: Facts) -> tuple[str, ...]:
    """Return the accepted forms of all facts, without repeats."""
    return tuple(dict.fromkeys(form for forms in facts for form in forms))
