"""Pages of a district: each states facts of its subject, and some of other entities."""

import math
from collections import defaultdict
from random import Random
from typing import NamedTuple

from erag_ray.extras.world.config import WorldConfig
from erag_ray.extras.world.district import District, Entity, Fact
from erag_ray.extras.world.words import RELATIONS


class Statement(NamedTuple):
    """A sentence of a page and the fact that it states."""

    sentence: str
    fact: Fact


class Page(NamedTuple):
    """A page: its id, title and subject, and the statements of its paragraphs."""

    page_id: str
    title: str
    subject: Entity
    intro: str
    statements: tuple[Statement, ...]
    others: tuple[Statement, ...]

    @property
    def paragraphs(self) -> list[str]:
        """The text below the title: the subject's facts, then a paragraph of other entities' facts."""
        first = " ".join([self.intro, *(statement.sentence for statement in self.statements)])
        others = " ".join(statement.sentence for statement in self.others)
        return [first, others] if others else [first]


def make_pages(config: WorldConfig, district: District) -> list[Page]:
    """Generate all pages of a district, in the order of its entities; every fact is on at least one of them."""
    random = Random(f"{config.seed}/{district.number}/pages")
    of_subject: dict[int, list[Fact]] = defaultdict(list)
    of_others: dict[int, list[Fact]] = defaultdict(list)
    for fact in district.facts:
        if random.random() < config.own_fraction:
            of_subject[id(fact.subject)].append(fact)
        else:
            # its object's page, or any other
            entities = [entity for entity in district.entities if entity is not fact.subject]
            is_on_page = any(entity is fact.object for entity in entities)
            of_others[id(fact.object if is_on_page else random.choice(entities))].append(fact)
    pages = []
    for number, entity in enumerate(district.entities, district.number * 1000 + 1):
        noun = entity.occupation or entity.kind
        title = f"{entity.name} ({noun})" if entity.kind == "person" else entity.name
        intro = f"{entity.name} is {'an' if noun[0] in 'aeiou' else 'a'} {noun}."
        statements = [_tell(random, fact, _own_subject(random, entity)) for fact in of_subject[id(entity)]]
        random.shuffle(statements)
        facts = of_others[id(entity)]
        facts += [fact for fact in _others(config, random, district, entity) if fact not in facts]
        others = [_tell(random, fact, refer(config, random, fact.subject)) for fact in facts]
        random.shuffle(others)
        pages.append(Page(str(number), title, entity, intro, tuple(statements), tuple(others)))
    return pages


def _own_subject(random: Random, entity: Entity) -> str:
    """Refer to the subject on its own page: mostly a pronoun, else the name."""
    if random.random() < 0.4:
        return entity.name
    if entity.kind == "person":
        return random.choice(("She" if entity.woman else "He", entity.name.split(" ")[1]))
    return "It" if entity.kind == "novel" else f"The {entity.kind}"


def refer(config: WorldConfig, random: Random, entity: Entity) -> str:
    """Refer to an entity in a question or on another page than its own: often in other words than its page."""
    return entity.variant if random.random() < config.variant_fraction else entity.reference


def _tell(random: Random, fact: Fact, subject: str) -> Statement:
    template = random.choice(RELATIONS[fact.relation].sentences)
    return Statement(state(template, subject, fact.object.name), fact)


def state(template: str, subject: str, object_: str) -> str:
    """Fill a template, capitalise the sentence, and lower-case a pronoun inside it."""
    if not template.startswith("{S}"):
        subject = {"She": "her", "He": "him", "It": "it"}.get(subject, subject)
        if subject.startswith("The ") and subject[4:5].islower():
            subject = subject[0].lower() + subject[1:]
    text = template.replace("{S}", subject).replace("{O}", object_)
    return text[0].upper() + text[1:]


def _others(config: WorldConfig, random: Random, district: District, entity: Entity) -> list[Fact]:
    """Choose facts of other entities for a page: those with it as their object, of people with its surname, or any."""
    pointing = [fact for fact in district.facts if fact.object is entity]
    anybody = [fact for fact in district.facts if fact.subject is not entity]
    people = [fact for fact in anybody if fact.subject.kind == entity.kind == "person"]
    near = [fact for fact in people if fact.subject.name.split(" ")[1] == entity.name.split(" ")[1]]
    chosen: list[Fact] = []
    for _ in range(_poisson(random, config.side_facts)):
        pool = random.choices((pointing or anybody, near or anybody, anybody), (5, 3, 2))[0]
        fact = random.choice(pool)
        if fact not in chosen:
            chosen.append(fact)
    return chosen


def _poisson(random: Random, mean: float) -> int:
    """Sample a Poisson number (Knuth's product of uniforms, for small means)."""
    count, product, floor = 0, random.random(), math.exp(-mean)
    while product > floor:
        count, product = count + 1, product * random.random()
    return count
