"""A district -> its pages: every page tells what is known of its subject, and some things about others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from erag_ray.world.config import WorldConfig
from erag_ray.world.district import District, Entity, Fact
from erag_ray.world.relations import RELATIONS


@dataclass(frozen=True)
class Telling:
    """A sentence of a page and the fact that it tells."""

    sentence: str
    fact: Fact


@dataclass(frozen=True)
class Page:
    """One page: whose it is, its id and title, and what its paragraphs tell."""

    page_id: str
    title: str
    subject: Entity
    intro: str
    own: tuple[Telling, ...]
    others: tuple[Telling, ...]

    @property
    def paragraphs(self) -> list[str]:
        """The text below the title: the subject's own facts, then a paragraph about others."""
        own = " ".join([self.intro, *(telling.sentence for telling in self.own)])
        others = " ".join(telling.sentence for telling in self.others)
        return [own, others] if others else [own]


def make_pages(config: WorldConfig, district: District) -> list[Page]:
    """All pages of a district, in the order of its entities: every fact is told on one of them at least."""
    random = Random(f"{config.seed}/{district.number}/pages")
    own: dict[int, list[Fact]] = {id(one): [] for one in district.entities}
    others: dict[int, list[Fact]] = {id(one): [] for one in district.entities}
    for fact in district.facts:
        if random.random() < config.own_fraction:
            own[id(fact.subject)].append(fact)
        else:
            others[id(_host(random, district, fact))].append(fact)
    return [
        _page(config, random, district, place, own[id(one)], others[id(one)])
        for place, one in enumerate(district.entities)
    ]


def _host(random: Random, district: District, fact: Fact) -> Entity:
    """Whose page tells a fact that its subject's does not: its object's, or that of anybody else."""
    pages = [one for one in district.entities if one is not fact.subject]
    return fact.object if any(one is fact.object for one in pages) else random.choice(pages)


def _page(
    config: WorldConfig,
    random: Random,
    district: District,
    place: int,
    own: Sequence[Fact],
    others: Sequence[Fact],
) -> Page:
    one = district.entities[place]
    title = f"{one.name} ({one.occupation})" if one.kind == "person" else one.name
    own_facts = [Telling(_tell(random, fact, _own_subject(random, one)), fact) for fact in own]
    random.shuffle(own_facts)
    more = [fact for fact in _others(config, random, district, one) if fact not in others]
    other_facts = [
        Telling(_tell(random, fact, _side_subject(config, random, fact.subject)), fact)
        for fact in (*others, *more)
    ]
    random.shuffle(other_facts)
    return Page(
        f"{district.number * 1000 + place + 1}", title, one, _intro(one), tuple(own_facts), tuple(other_facts)
    )


def _intro(one: Entity) -> str:
    kinds = {
        "person": one.occupation,
        "town": "town",
        "company": "company",
        "school": "school",
        "novel": "novel",
    }
    noun = kinds[one.kind]
    return f"{one.name} is {'an' if noun[0] in 'aeiou' else 'a'} {noun}."


def _own_subject(random: Random, one: Entity) -> str:
    """On one's own page: a pronoun mostly, or the name."""
    if random.random() < 0.4:
        return one.name
    if one.kind == "person":
        return random.choice(("She" if one.woman else "He", one.name.split(" ")[1]))
    return "It" if one.kind == "novel" else f"The {one.kind}"


def _side_subject(config: WorldConfig, random: Random, one: Entity) -> str:
    """On another page: in full, sometimes in other words."""
    return one.variant if random.random() < config.variant_fraction else one.reference


def _tell(random: Random, fact: Fact, subject: str) -> str:
    return state(random.choice(RELATIONS[fact.relation].sentences), subject, fact.object.name)


def state(template: str, subject: str, object_: str) -> str:
    """A template with its words, starting with a capital letter; a pronoun inside it is lower-cased."""
    if not template.startswith("{S}") and subject in ("She", "He", "It"):
        subject = {"She": "her", "He": "him", "It": "it"}[subject]
    if not template.startswith("{S}") and subject.startswith("The ") and subject[4:5].islower():
        subject = subject[0].lower() + subject[1:]
    text = template.replace("{S}", subject).replace("{O}", object_)
    return text[0].upper() + text[1:]


def _others(config: WorldConfig, random: Random, district: District, one: Entity) -> list[Fact]:
    """Facts about others that this page tells: whom it is the object of, namesakes and relatives, anybody."""
    pointing = [fact for fact in district.facts if fact.object is one]
    near = [fact for fact in district.facts if fact.subject is not one and _is_near(fact.subject, one)]
    anybody = [fact for fact in district.facts if fact.subject is not one]
    chosen: list[Fact] = []
    for _ in range(_poisson(random, config.side_facts)):
        pool = random.choices((pointing or anybody, near or anybody, anybody), (5, 3, 2))[0]
        fact = random.choice(pool)
        if fact not in chosen:
            chosen.append(fact)
    return chosen


def _is_near(other: Entity, one: Entity) -> bool:
    return other.kind == one.kind == "person" and other.name.split(" ")[1] == one.name.split(" ")[1]


def _poisson(random: Random, mean: float) -> int:
    """A Poisson number (Knuth's product of uniforms; the mean is small)."""
    count, product, floor = 0, random.random(), math.exp(-mean)
    while product > floor:
        count, product = count + 1, product * random.random()
    return count
