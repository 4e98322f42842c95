"""A district with its pages -> questions of five tasks, as records of KILT's task files (kilt_task_format).

A new task is one function `(Scene) -> Asked` and one line in `TASKS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from erag_ray.world.config import WorldConfig
from erag_ray.world.district import District, Entity, Fact
from erag_ray.world.pages import Page, Telling, state
from erag_ray.world.relations import RELATIONS
from erag_ray.world.words import OCCUPATIONS

PLAIN = ("year", "instrument", "product")
MET = ("I have been reading about {S}.", "Do you know {S}?", "Yesterday I heard of {S}.")
REACTIONS = ("Yes, the name rings a bell.", "What would you like to know?", "Tell me more!")
OPENINGS = ("I think that ", "As far as I know, ", "I have read that ", "")


@dataclass(frozen=True)
class Scene:
    """A district as the tasks see it: facts, and who tells them where."""

    config: WorldConfig
    random: Random
    district: District
    pages: Sequence[Page]

    def source_of(self, fact: Fact) -> tuple[Page, Telling]:
        """The gold page of a fact, one of those that tell it, and the sentence there."""
        return self.random.choice(self._places[id(fact)])

    @functools.cached_property
    def _places(self) -> dict[int, list[tuple[Page, Telling]]]:
        places: dict[int, list[tuple[Page, Telling]]] = {}
        for page in self.pages:
            for telling in (*page.own, *page.others):
                places.setdefault(id(telling.fact), []).append((page, telling))
        return places

    def named(self, one: Entity) -> str:
        """Who is meant, sometimes in other words than the page has."""
        return one.variant if self.random.random() < self.config.variant_fraction else one.reference


@dataclass(frozen=True)
class Asked:
    """One question: the input, the answers that count, and the sentences that it rests on."""

    input: str
    answers: tuple[str, ...]
    sources: tuple[tuple[Page, Telling], ...]


def make_records(
    config: WorldConfig, district: District, pages: Sequence[Page], task: str, count: int
) -> list[dict[str, Any]]:
    """``count`` records of a task, no input twice; fewer where the district has no more."""
    scene = Scene(config, Random(f"{config.seed}/{district.number}/{task}"), district, pages)
    asked: dict[str, Asked] = {}
    for _ in range(20 * count):
        if len(asked) == count:
            break
        found = TASKS[task](scene)
        if found:
            asked.setdefault(found.input, found)
    return [_record(f"{task}-{district.number}-{i}", found) for i, found in enumerate(asked.values())]


def factoid(scene: Scene) -> Asked | None:
    """As in Natural Questions: one fact, asked for its object."""
    fact = scene.random.choice(scene.district.facts)
    question = scene.random.choice(RELATIONS[fact.relation].questions)
    return Asked(_ask(question, scene.named(fact.subject)), (fact.object.name,), (scene.source_of(fact),))


def described(scene: Scene) -> Asked | None:
    """As in TriviaQA: somebody or something described by two facts; all names count."""
    one = scene.random.choice([entity for entity in scene.district.entities if entity.kind != "school"])
    facts = scene.random.sample([fact for fact in scene.district.facts if fact.subject is one], 2)
    if all(fact.object.kind in PLAIN for fact in facts) or _fits_others(scene, one, facts):
        return None
    kind = one.kind
    if kind == "person":
        kind = (
            OCCUPATIONS[one.occupation]
            if scene.random.random() < scene.config.variant_fraction
            else one.occupation
        )
    clauses = [RELATIONS[fact.relation].clause.replace("{O}", fact.object.name) for fact in facts]
    return Asked(
        f"Which {kind} {' and '.join(clauses)}?", (one.name, *one.aliases), tuple(map(scene.source_of, facts))
    )


def _fits_others(scene: Scene, one: Entity, facts: Sequence[Fact]) -> bool:
    wanted = {(fact.relation, fact.object.name) for fact in facts}
    others = [
        other
        for other in scene.district.entities
        if other is not one and (other.kind, other.occupation) == (one.kind, one.occupation)
    ]
    return any(
        wanted
        <= {(fact.relation, fact.object.name) for fact in scene.district.facts if fact.subject is other}
        for other in others
    )


def two_hops(scene: Scene) -> Asked | None:
    """As in HotpotQA: the object of one fact is the subject of the one that is asked for."""
    first = scene.random.choice([fact for fact in scene.district.facts if RELATIONS[fact.relation].phrase])
    follow = [fact for fact in scene.district.facts if fact.subject is first.object]
    second = scene.random.choice(follow)
    if second.object is first.subject:
        return None
    bridge = RELATIONS[first.relation].phrase.replace("{S}", scene.named(first.subject))
    question = scene.random.choice(RELATIONS[second.relation].questions)
    sources = (scene.source_of(first), scene.source_of(second))
    if sources[0][0] is sources[1][0]:
        return None
    return Asked(_ask(question, bridge), (second.object.name,), sources)


def claim(scene: Scene) -> Asked | None:
    """As in FEVER: a fact, or the same with another object of its kind; half of each."""
    fact = scene.random.choice(scene.district.facts)
    true = scene.random.random() < 0.5
    other = [one.object.name for one in scene.district.facts if one.object.kind == fact.object.kind]
    wrong = [name for name in other if name not in (fact.object.name, fact.subject.name)]
    if not (true or wrong):
        return None
    template = scene.random.choice(RELATIONS[fact.relation].sentences)
    stated = fact.object.name if true else scene.random.choice(wrong)
    text = state(template, scene.named(fact.subject), stated)
    return Asked(text, ("SUPPORTS" if true else "REFUTES",), (scene.source_of(fact),))


def dialogue(scene: Scene) -> Asked | None:
    """As in Wizard of Wikipedia: a conversation, and a reply that uses a sentence of the page."""
    fact = scene.random.choice(scene.district.facts)
    page, telling = scene.source_of(fact)
    named = scene.named(fact.subject)
    met = scene.random.choice(MET).replace("{S}", named)
    question = _ask(scene.random.choice(RELATIONS[fact.relation].questions), named)
    reply = scene.random.choice(OPENINGS) + telling.sentence
    return Asked(f"{met}\n{scene.random.choice(REACTIONS)}\n{question}", (reply,), ((page, telling),))


def _ask(template: str, subject: str) -> str:
    return template.replace("{S}", subject)


def _record(query_id: str, asked: Asked) -> dict[str, Any]:
    """KILT's record: the first answer with its provenance, aliases as further outputs."""
    provenance = [_provenance(page, telling) for page, telling in asked.sources]
    first, *others = asked.answers
    output = [{"answer": first, "provenance": provenance}, *({"answer": other} for other in others)]
    return {"id": query_id, "input": asked.input, "output": output, "meta": {}}


def _provenance(page: Page, telling: Telling) -> dict[str, Any]:
    """Where the sentence stands: paragraph 0 of a page is its title."""
    number, text = next(found for found in enumerate(page.paragraphs, 1) if telling.sentence in found[1])
    start = text.index(telling.sentence)
    return {
        "wikipedia_id": page.page_id,
        "title": page.title,
        "section": "",
        "start_paragraph_id": number,
        "start_character": start,
        "end_paragraph_id": number,
        "end_character": start + len(telling.sentence),
        "bleu_score": 1.0,
        "meta": {"evidence_span": [telling.sentence]},
    }


TASKS: dict[str, Callable[[Scene], Asked | None]] = {
    "nq": factoid,
    "triviaqa": described,
    "hotpotqa": two_hops,
    "fever": claim,
    "wow": dialogue,
}
