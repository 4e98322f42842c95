"""Names, composed of pieces, with a fixed split into train and dev for all seeds and sizes of the world.

The hash of a full name (of a person, a town, a company, a book ...) decides whether it belongs to dev. So no train file
of any world has a name of a dev file, although both are composed of the same pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import xxhash

from erag_ray.extras.world.words import (
    AWARD_KINDS,
    COMPANY_ENDS,
    MEN,
    REGION_ENDS,
    RIVER_ENDS,
    SCHOOL_KINDS,
    SURNAME_ENDS,
    SURNAME_MIDDLES,
    SURNAME_STARTS,
    TITLE_ADJECTIVES,
    TITLE_NOUNS,
    TOWN_ENDS,
    TOWN_STARTS,
    WOMEN,
)

DEV_EVERY = 5
"""One name in so many belongs to dev."""


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

    def surname(self) -> str:
        """Return one of the world's surnames."""
        return surname(self.random.randrange(self.surnames))

    def first_name(self, woman: bool) -> str:
        return self.random.choice(list(WOMEN if woman else MEN))

    def town(self) -> str:
        return self.draw(lambda: self._pick(TOWN_STARTS) + self._piece() + self._pick(TOWN_ENDS))

    def river(self) -> str:
        return self.draw(lambda: self._pick(TOWN_STARTS) + self._piece() + self._pick(RIVER_ENDS))

    def region(self) -> str:
        return self.draw(lambda: self._pick(TOWN_STARTS) + self._piece() + self._pick(REGION_ENDS))

    def company(self) -> str:
        return self.draw(lambda: f"{self._any_surname()} {self._pick(COMPANY_ENDS)}")

    def school(self) -> str:
        return self.draw(lambda: f"{self._any_surname()} {self._pick(SCHOOL_KINDS)}")

    def award(self) -> str:
        return self.draw(lambda: f"{self._any_surname()} {self._pick(AWARD_KINDS)}")

    def book(self) -> str:
        return self.draw(
            lambda: f"The {self._pick(TITLE_ADJECTIVES)} {self._pick(TITLE_NOUNS)} of {self._any_surname()}"
        )

    def _any_surname(self) -> str:
        return surname(self.random.randrange(len(SURNAME_STARTS) * len(SURNAME_ENDS)))

    def _piece(self) -> str:
        return self.random.choice(("", *SURNAME_MIDDLES))

    def _pick(self, pieces: tuple[str, ...]) -> str:
        return self.random.choice(pieces)


def surname(number: int) -> str:
    """Return the surname of a number: two pieces for the first 1,600 or so, then three."""
    starts, ends = SURNAME_STARTS, SURNAME_ENDS
    # a large odd step: consecutive numbers share neither piece
    short = number * 1009 % (len(starts) * len(ends))
    long = number // (len(starts) * len(ends))
    middle = SURNAME_MIDDLES[(long - 1) % len(SURNAME_MIDDLES)] if long else ""
    return starts[short // len(ends)] + middle + ends[short % len(ends)]
