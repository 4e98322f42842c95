"""Districts: a few dozen people and things that refer to each other, and all facts about them. Pure, from a seed.

The world is a sequence of districts that are generated independently, so that memory does not grow with its size.
"""

import functools
from random import Random
from typing import NamedTuple

from erag_ray.extras.world.config import DISTRICTS_PER_SURNAME, WorldConfig
from erag_ray.extras.world.words import FORMS, OCCUPATIONS, RELATIONS, SHORT_NAMES, WORDS, Names, surname

NUM_THINGS = {"region": 3, "town": 6, "company": 6, "school": 5, "novel": 8}
"""Kind -> number in a district; all but regions have pages."""
NUM_PEOPLE, NUM_SURNAMES = 36, 16
FACTS_OF_A_PERSON = 5


class Entity(NamedTuple):
    """An entity with a page, or only a name (regions, rivers, prizes, years, plain words)."""

    kind: str
    name: str
    """As on its page."""
    aliases: tuple[str, ...] = ()
    """Other names that count as the same answer."""
    occupation: str = ""
    """Of people; unique together with the name."""
    woman: bool = False

    @property
    def reference(self) -> str:
        """An unambiguous reference for pages and questions: the botanist Anna Kelner."""
        if self.kind == "person":
            return f"the {self.occupation} {self.name}"
        return f"the novel {self.name}" if self.kind == "novel" else self.name

    @property
    def variant(self) -> str:
        """The reference in other words, for people: the plant-scientist Annie Kelner."""
        if self.kind != "person":
            return self.reference
        return f"the {OCCUPATIONS[self.occupation]} {self.aliases[0]}"


class Fact(NamedTuple):
    """A subject, a relation, an object."""

    subject: Entity
    relation: str
    object: Entity


class District(NamedTuple):
    """A district with its entities and facts."""

    number: int
    dev: bool
    entities: list[Entity]
    facts: list[Fact]


def make_district(config: WorldConfig, number: int) -> District:
    """Generate district ``number`` of the world, deterministic in seed and settings."""
    random = Random(f"{config.seed}/{number}")
    dev = config.is_dev(number)
    num_surnames = max(config.num_districts * NUM_SURNAMES // DISTRICTS_PER_SURNAME, NUM_SURNAMES)
    names = Names(random, dev, num_surnames)
    cast = {kind: [_thing(kind, names) for _ in range(count)] for kind, count in NUM_THINGS.items()}
    cast["person"] = _people(names, config.namesake_fraction)
    entities = [entity for kind, of_kind in cast.items() if kind != "region" for entity in of_kind]
    facts = [fact for entity in entities for fact in _facts_of(entity, cast, names)]
    return District(number, dev, entities, facts)


def _thing(kind: str, names: Names) -> Entity:
    name = names.of_kind(kind)
    aliases = {"town": (f"{name} Town",), "company": (name.split()[0],)}
    return Entity(kind, name, aliases.get(kind, ()))


def _people(names: Names, namesake_fraction: float) -> list[Entity]:
    """Generate people with few surnames; a fraction have the name of an earlier one, with another occupation."""
    random = names.random
    surnames = [surname(random.randrange(names.surnames)) for _ in range(NUM_SURNAMES)]
    people: list[Entity] = []

    def full_name(sex: str) -> str:
        return f"{random.choice(WORDS[sex]).split('/')[0]} {random.choice(surnames)}"

    while len(people) < NUM_PEOPLE:
        if people and random.random() < namesake_fraction:
            _, name, _, _, woman = random.choice(people)
        else:
            woman = random.random() < 0.5
            name = names.draw(functools.partial(full_name, "woman" if woman else "man"))
        used = {person.occupation for person in people if person.name == name}
        unused = [other for other in OCCUPATIONS if other not in used]
        if not unused:
            continue
        occupation = random.choice(unused)
        first, last = name.split(" ")
        aliases = (f"{SHORT_NAMES[first]} {last}", f"{first[0]}. {last}")
        people.append(Entity("person", name, aliases, occupation, woman))
    return people


def _facts_of(entity: Entity, cast: dict[str, list[Entity]], names: Names) -> list[Fact]:
    relations = [name for name, relation in RELATIONS.items() if relation.subject == entity.kind]
    if entity.kind == "person":
        relations = sorted(names.random.sample(relations, FACTS_OF_A_PERSON))
    return [
        Fact(entity, relation, _object(entity, RELATIONS[relation].object, cast, names))
        for relation in relations
    ]


def _object(entity: Entity, kind: str, cast: dict[str, list[Entity]], names: Names) -> Entity:
    if kind in cast:
        return names.random.choice([other for other in cast[kind] if other.name != entity.name])
    if kind == "year":
        return Entity(kind, str(names.random.randrange(1840, 1990)))
    return Entity(kind, names.of_kind(kind) if kind in FORMS else names.random.choice(WORDS[kind]))
