"""Questions of five tasks about a district, as records of KILT's task files (kilt_task_format).

A new task is one function `(Scene) -> Item | None` and one line in `TASKS`.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from erag_ray.extras.world.config import WorldConfig
from erag_ray.extras.world.district import District, Entity, Fact
from erag_ray.extras.world.pages import Page, Statement, refer, state
from erag_ray.extras.world.words import OCCUPATIONS, PLAIN, RELATIONS

MET = ("I have been reading about {S}.", "Do you know {S}?", "Yesterday I heard of {S}.")
REACTIONS = ("Yes, the name rings a bell.", "What would you like to know?", "Tell me more!")
OPENINGS = ("I think that ", "As far as I know, ", "I have read that ", "")


@dataclass(frozen=True)
class Scene:
    """A district with its pages: the input of a task."""

    config: WorldConfig
    random: Random
    district: District
    pages: Sequence[Page]

    def source_of(self, fact: Fact) -> tuple[Page, Statement]:
        """Choose one of the pages that state a fact as its gold page; return it with the statement."""
        return self.random.choice(self._sources[id(fact)])

    @functools.cached_property
    def _sources(self) -> dict[int, list[tuple[Page, Statement]]]:
        sources: dict[int, list[tuple[Page, Statement]]] = {}
        for page in self.pages:
            for statement in (*page.statements, *page.others):
                sources.setdefault(id(statement.fact), []).append((page, statement))
        return sources

    def reference_to(self, entity: Entity) -> str:
        return refer(self.config, self.random, entity)


class Item(NamedTuple):
    """One question: its input, its answers, and the statements that support them."""

    input: str
    answers: tuple[str, ...]
    sources: tuple[tuple[Page, Statement], ...]


def make_records(
    config: WorldConfig, district: District, pages: Sequence[Page], task: str, count: int
) -> list[dict[str, Any]]:
    """Generate ``count`` records of a task with distinct inputs; fewer if the district has no more."""
    scene = Scene(config, Random(f"{config.seed}/{district.number}/{task}"), district, pages)
    items: dict[str, Item] = {}
    for _ in range(20 * count):
        if len(items) < count and (item := TASKS[task](scene)):
            items.setdefault(item.input, item)
    return [_record(f"{task}-{district.number}-{i}", item) for i, item in enumerate(items.values())]


def factoid(scene: Scene) -> Item | None:
    """Ask for the object of one fact, as in Natural Questions."""
    fact = scene.random.choice(scene.district.facts)
    question = scene.random.choice(RELATIONS[fact.relation].questions)
    text = question.replace("{S}", scene.reference_to(fact.subject))
    return Item(text, (fact.object.name,), (scene.source_of(fact),))


def described(scene: Scene) -> Item | None:
    """Ask for an entity by two of its facts, as in TriviaQA; all its names are answers."""
    entity = scene.random.choice([one for one in scene.district.entities if one.kind != "school"])
    facts = scene.random.sample([fact for fact in scene.district.facts if fact.subject is entity], 2)
    if all(fact.object.kind in PLAIN for fact in facts) or _fits_others(scene, entity, facts):
        return None
    kind = entity.occupation or entity.kind
    if entity.kind == "person" and scene.random.random() < scene.config.variant_fraction:
        kind = OCCUPATIONS[entity.occupation]
    clauses = [RELATIONS[fact.relation].clause.replace("{O}", fact.object.name) for fact in facts]
    text = f"Which {kind} {' and '.join(clauses)}?"
    return Item(text, (entity.name, *entity.aliases), tuple(map(scene.source_of, facts)))


def _fits_others(scene: Scene, entity: Entity, facts: Sequence[Fact]) -> bool:
    description = {(fact.relation, fact.object.name) for fact in facts}
    return any(
        description
        <= {(fact.relation, fact.object.name) for fact in scene.district.facts if fact.subject is other}
        for other in scene.district.entities
        if other is not entity and (other.kind, other.occupation) == (entity.kind, entity.occupation)
    )


def two_hops(scene: Scene) -> Item | None:
    """Ask about the object of another fact, as in HotpotQA."""
    first = scene.random.choice([fact for fact in scene.district.facts if RELATIONS[fact.relation].phrase])
    second = scene.random.choice([fact for fact in scene.district.facts if fact.subject is first.object])
    if second.object is first.subject:
        return None
    bridge = RELATIONS[first.relation].phrase.replace("{S}", scene.reference_to(first.subject))
    question = scene.random.choice(RELATIONS[second.relation].questions)
    sources = (scene.source_of(first), scene.source_of(second))
    if sources[0][0] is sources[1][0]:
        return None
    return Item(question.replace("{S}", bridge), (second.object.name,), sources)


def claim(scene: Scene) -> Item | None:
    """Claim a fact, or the same with another object of its kind (half of each), as in FEVER."""
    fact = scene.random.choice(scene.district.facts)
    true = scene.random.random() < 0.5
    names = [other.object.name for other in scene.district.facts if other.object.kind == fact.object.kind]
    wrong = [name for name in names if name not in (fact.object.name, fact.subject.name)]
    if not (true or wrong):
        return None
    template = scene.random.choice(RELATIONS[fact.relation].sentences)
    stated = fact.object.name if true else scene.random.choice(wrong)
    text = state(template, scene.reference_to(fact.subject), stated)
    return Item(text, ("SUPPORTS" if true else "REFUTES",), (scene.source_of(fact),))


def dialogue(scene: Scene) -> Item | None:
    """Generate a dialogue with a reply that uses a sentence of the gold page, as in Wizard of Wikipedia."""
    fact = scene.random.choice(scene.district.facts)
    page, statement = scene.source_of(fact)
    reference = scene.reference_to(fact.subject)
    opening = scene.random.choice(MET).replace("{S}", reference)
    question = scene.random.choice(RELATIONS[fact.relation].questions).replace("{S}", reference)
    reply = scene.random.choice(OPENINGS) + statement.sentence
    return Item(f"{opening}\n{scene.random.choice(REACTIONS)}\n{question}", (reply,), ((page, statement),))


def _record(query_id: str, item: Item) -> dict[str, Any]:
    """Return KILT's record: the first answer with its provenance, aliases as further outputs."""
    provenance = [_provenance(page, statement) for page, statement in item.sources]
    first, *others = item.answers
    output = [{"answer": first, "provenance": provenance}, *({"answer": other} for other in others)]
    return {"id": query_id, "input": item.input, "output": output, "meta": {}}


def _provenance(page: Page, statement: Statement) -> dict[str, Any]:
    """Return KILT's provenance of a statement; paragraph 0 of a page is its title."""
    starts = [text.find(statement.sentence) for text in page.paragraphs]
    number, start = next((number, start) for number, start in enumerate(starts, 1) if start >= 0)
    return {
        "wikipedia_id": page.page_id,
        "title": page.title,
        "section": "",
        "start_paragraph_id": number,
        "start_character": start,
        "end_paragraph_id": number,
        "end_character": start + len(statement.sentence),
        "bleu_score": 1.0,
        "meta": {"evidence_span": [statement.sentence]},
    }


TASKS: dict[str, Callable[[Scene], Item | None]] = {
    "nq": factoid,
    "triviaqa": described,
    "hotpotqa": two_hops,
    "fever": claim,
    "wow": dialogue,
}
