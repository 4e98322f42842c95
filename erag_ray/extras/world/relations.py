"""Relations of entities, with templates of sentences, questions, claims and replies.

In every template ``{S}`` is the subject and ``{O}`` the object. A new relation is one line in `RELATIONS` and, for a
new kind of object, its generation in `district`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A relation with its templates.

    Attributes:
        subject, object: kinds of entity, or "year", "instrument", "product" for plain words.
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


def _relation(
    subject: str, object_: str, sentences: str, questions: str, clause: str, phrase: str = ""
) -> Relation:
    return Relation(
        subject=subject,
        object=object_,
        sentences=tuple(part.strip() for part in sentences.split("|")),
        questions=tuple(part.strip() for part in questions.split("|")),
        clause=clause,
        phrase=phrase,
    )


RELATIONS = {
    "birth_town": _relation(
        "person",
        "town",
        "{S} was born in {O}. | {S} came into the world in {O}. | {S} is a native of {O}.",
        "Where was {S} born? | In which town was {S} born? | What is the birthplace of {S}?",
        "was born in {O}",
        "the town where {S} was born",
    ),
    "birth_year": _relation(
        "person",
        "year",
        "{S} was born in {O}. | {S} was born in the year {O}. | The year of birth of {S} is {O}.",
        "When was {S} born? | In which year was {S} born? | What is the year of birth of {S}?",
        "was born in {O}",
    ),
    "school": _relation(
        "person",
        "school",
        "{S} studied at {O}. | {S} was educated at {O}. | {S} was a student of {O}.",
        "Where did {S} study? | At which school was {S} educated? | Which school had {S} as a student?",
        "studied at {O}",
        "the school where {S} studied",
    ),
    "employer": _relation(
        "person",
        "company",
        "{S} worked for {O}. | {S} was employed by {O}. | {S} earned a living at {O}.",
        "Who did {S} work for? | Which company employed {S}? | Where did {S} earn a living?",
        "worked for {O}",
        "the company that employed {S}",
    ),
    "spouse": _relation(
        "person",
        "person",
        "{S} married {O}. | {S} was married to {O}. | {S} was the partner in life of {O}.",
        "Who did {S} marry? | Who was {S} married to? | Who was the partner in life of {S}?",
        "married {O}",
        "the person that {S} married",
    ),
    "award": _relation(
        "person",
        "award",
        "{S} won the {O}. | {S} received the {O}. | {S} was honoured with the {O}.",
        "What did {S} win? | Which honour did {S} receive? | What was {S} honoured with?",
        "won the {O}",
    ),
    "instrument": _relation(
        "person",
        "instrument",
        "{S} played the {O}. | {S} was fond of playing the {O}. | {S} practised the {O} every day.",
        "What did {S} play? | Which instrument did {S} play? | What did {S} practise every day?",
        "played the {O}",
    ),
    "region": _relation(
        "town",
        "region",
        "{S} is a town in {O}. | {S} lies in the region of {O}. | {S} belongs to {O}.",
        "In which region is {S}? | Which region does {S} belong to? | Where does {S} lie?",
        "belongs to {O}",
    ),
    "river": _relation(
        "town",
        "river",
        "{S} stands on the river {O}. | {S} grew up along the {O}. | The river that crosses {S} is the {O}.",
        "On which river does {S} stand? | Which river crosses {S}? | Along which river did {S} grow up?",
        "stands on the river {O}",
    ),
    "town_year": _relation(
        "town",
        "year",
        "{S} received its town rights in {O}. | {S} became a town in {O}. | {S} was made a town in {O}.",
        "When did {S} receive its town rights? | When did {S} become a town? | In which year was {S} made a town?",
        "became a town in {O}",
    ),
    "mayor": _relation(
        "town",
        "person",
        "{S} is led by its mayor {O}. | {S} elected {O} as its mayor. | The mayor of {S} is {O}.",
        "Who is the mayor of {S}? | Who leads {S} as its mayor? | Who was elected by {S} as its mayor?",
        "elected {O} as its mayor",
        "the mayor of {S}",
    ),
    "town_product": _relation(
        "town",
        "product",
        "{S} is known for its {O}. | {S} is famous for {O}. | {S} sells its {O} far away.",
        "What is {S} known for? | What is {S} famous for? | What does {S} sell far away?",
        "is known for its {O}",
    ),
    "founder": _relation(
        "company",
        "person",
        "{S} was founded by {O}. | {S} was started by {O}. | The founder of {S} was {O}.",
        "Who founded {S}? | Who started {S}? | Who was the founder of {S}?",
        "was founded by {O}",
        "the founder of {S}",
    ),
    "company_year": _relation(
        "company",
        "year",
        "{S} was founded in {O}. | {S} opened its doors in {O}. | {S} started its business in {O}.",
        "When was {S} founded? | When did {S} open its doors? | In which year did {S} start its business?",
        "was founded in {O}",
    ),
    "company_town": _relation(
        "company",
        "town",
        "{S} is based in {O}. | {S} has its seat in {O}. | {S} works from {O}.",
        "Where is {S} based? | In which town does {S} have its seat? | Where does {S} work from?",
        "is based in {O}",
        "the town where {S} is based",
    ),
    "company_product": _relation(
        "company",
        "product",
        "{S} makes {O}. | {S} produces {O}. | {S} trades in {O}.",
        "What does {S} make? | What does {S} produce? | What does {S} trade in?",
        "makes {O}",
    ),
    "school_town": _relation(
        "school",
        "town",
        "{S} is in {O}. | {S} teaches in {O}. | {S} has its building in {O}.",
        "Where is {S}? | In which town does {S} teach? | Where does {S} have its building?",
        "teaches in {O}",
        "the town where {S} teaches",
    ),
    "school_year": _relation(
        "school",
        "year",
        "{S} took its first students in {O}. | {S} was founded in {O}. | {S} opened in {O}.",
        "When did {S} take its first students? | When was {S} founded? | In which year did {S} open?",
        "was founded in {O}",
    ),
    "head": _relation(
        "school",
        "person",
        "{S} is directed by {O}. | {S} has {O} as its head. | The head of {S} is {O}.",
        "Who is the head of {S}? | Who directs {S}? | Who does {S} have as its head?",
        "is directed by {O}",
        "the head of {S}",
    ),
    "author": _relation(
        "novel",
        "person",
        "{S} was written by {O}. | {S} is a work of {O}. | The author of {S} is {O}.",
        "Who wrote {S}? | Who is the author of {S}? | Whose work is {S}?",
        "was written by {O}",
        "the author of {S}",
    ),
    "novel_year": _relation(
        "novel",
        "year",
        "{S} appeared in {O}. | {S} was published in {O}. | {S} came out in {O}.",
        "When did {S} appear? | When was {S} published? | In which year did {S} come out?",
        "appeared in {O}",
    ),
    "setting": _relation(
        "novel",
        "town",
        "{S} is set in {O}. | {S} takes place in {O}. | The story of {S} happens in {O}.",
        "Where is {S} set? | In which town does {S} take place? | Where does the story of {S} happen?",
        "is set in {O}",
        "the town where {S} is set",
    ),
}
