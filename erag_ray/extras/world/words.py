"""Vocabulary of the world and relations of its entities (``words.yaml``, ``relations.yaml``), and names made of words.

A reader that has seen every piece of a name still has to find the entity. The hash of a full name (of a person, a town,
a company, a book ...) decides whether it belongs to dev, for all seeds and sizes of the world: no train file of any
world has a name of a dev file, although both are composed of the same pieces.

A new relation is an entry in ``relations.yaml`` and, for a new kind of object, its words or its form in `FORMS`.
"""

import pathlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import xxhash
import yaml

PLAIN = ("year", "instrument", "product")
"""Kinds of objects that are plain words."""


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A relation of two kinds of entity (or of `PLAIN`), with templates: ``{S}`` is the subject, ``{O}`` the object."""

    subject: str
    object: str
    sentences: Sequence[str]
    """For pages and claims."""
    questions: Sequence[str]
    """For the object."""
    clause: str
    """A relative clause, for questions that describe their answer."""
    phrase: str = ""
    """A description of the object by its subject, for two-hop questions."""


def _read(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load(pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")))


RELATIONS = {name: Relation(**values) for name, values in _read("relations.yaml").items()}
WORDS: dict[str, tuple[str, ...]] = {kind: tuple(text.split()) for kind, text in _read("words.yaml").items()}
SHORT_NAMES: dict[str, str] = dict(word.split("/") for kind in ("woman", "man") for word in WORDS[kind])
"""First name -> the form that friends (and some pages and questions) use."""
OCCUPATIONS: dict[str, str] = dict(word.split("/") for word in WORDS["occupation"])
"""Occupation -> another word for the same."""
DEV_EVERY = 5
"""One name in so many belongs to dev."""
FORMS = {
    "region": "{town_start}{middle}{region_end}",
    "town": "{town_start}{middle}{town_end}",
    "river": "{town_start}{middle}{river_end}",
    "company": "{surname} {company_end}",
    "school": "{surname} {school_kind}",
    "award": "{surname} {award_kind}",
    "novel": "The {title_adjective} {title_noun} of {surname}",
}
"""Kind of entity -> the form of its names: pieces of `WORDS`, drawn from left to right; ``middle`` may be empty."""


def is_dev_name(name: str) -> bool:
    """Return whether a name belongs to dev."""
    return xxhash.xxh3_64_intdigest(name.encode()) % DEV_EVERY == 0


@dataclass
class Names:
    """A generator of unique names of one split."""

    random: Random
    dev: bool
    """Generate names of dev, else of train."""
    surnames: int
    """Number of surnames in the whole world: the fewer, the more namesakes."""
    used: set[str] = field(default_factory=set)

    def draw(self, make: Callable[[], str]) -> str:
        """Return the first unused name of this split from calls of ``make``."""
        while True:
            name = make()
            if is_dev_name(name) == self.dev and name not in self.used:
                self.used.add(name)
                return name

    def of_kind(self, kind: str) -> str:
        """Return a new name of an entity, by `FORMS`."""
        return self.draw(lambda: re.sub(r"{(\w+)}", lambda match: self._piece(match[1]), FORMS[kind]))

    def _piece(self, kind: str) -> str:
        if kind == "surname":
            return surname(self.random.randrange(len(WORDS["surname_start"]) * len(WORDS["surname_end"])))
        return self.random.choice(("", *WORDS[kind]) if kind == "middle" else WORDS[kind])


def surname(number: int) -> str:
    """Return the surname of a number: two pieces for the first 1,600 or so, then three."""
    starts, middles, ends = WORDS["surname_start"], WORDS["middle"], WORDS["surname_end"]
    # a large odd step: consecutive numbers share neither piece
    short = number * 1009 % (len(starts) * len(ends))
    long = number // (len(starts) * len(ends))
    middle = middles[(long - 1) % len(middles)] if long else ""
    return starts[short // len(ends)] + middle + ends[short % len(ends)]
