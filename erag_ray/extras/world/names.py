"""Names, composed of pieces, with a fixed split into train and dev for all seeds and sizes of the world.

The hash of a full name (of a person, a town, a company, a book ...) decides whether it belongs to dev. So no train file
of any world has a name of a dev file, although both are composed of the same pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import xxhash

from erag_ray.extras.world.words import WORDS

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
    """A generator of unique names of one split.

    Attributes:
        random: the random number generator.
        dev: generate names of dev, else of train.
        surnames: number of surnames in the whole world: the fewer, the more namesakes.
    """

    random: Random
    dev: bool
    surnames: int
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

    def surname(self) -> str:
        """Return one of the world's surnames."""
        return surname(self.random.randrange(self.surnames))

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
