"""Gold answers of a record, and its facts: the fields that they are in, and the forms that they have there."""

import ast
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from erag_ray.data.files.ids import plain_key, shown

FIELDS = ("answer", "answers")
ALTERNATIVES = ("golden_answers", "possible_answers")
"""FlashRAG and PopQA: read if none of `FIELDS` is there."""
TRUTHS = ("ground_truth", "ground_truths", "expected_output")
"""Gold answers of logs, in which ``answer`` is what a system has answered."""
FORMS_IN = ("text", "value", "answer")
"""SQuAD and MKQA, TriviaQA, ComplexWebQuestions: an object's answer, beside ``aliases``; in Parquet others are null."""
UNREAD = (*TRUTHS, "gold", "golds", "reference", "references", "target", "targets", "obj", "alt_ans")
"""Names under which other datasets have answers, besides those of `_ANSWERS`: they are named, not read."""
_ANSWERS = re.compile(
    r"^(?!saliases|.*(?:plausible|predict|generat|model|response)).*(?:answers?|alias(?:es)?)(?:list|texts?)?\d*$"
)
_MARKS = {
    **dict.fromkeys(("isimpossible", "isunanswerable", "unanswerable"), ("true", "1", "1.0", "yes")),
    **dict.fromkeys(("isanswerable", "answerable"), ("false", "0", "0.0", "no")),
}
"""Fields that mark a question without an answer, by `plain_key` -> their values then, as text."""
READ = (*FIELDS, *ALTERNATIVES)
FACTS_FIELD = "answers_all"
"""Gold answers that each say another thing."""
Facts = tuple[tuple[str, ...], ...]
"""Accepted forms of each fact, stripped and without repeats."""
_ARRAY = re.compile(r"\barray\((\[.*?\])\s*(?:,\s*dtype=[^)]*)?\)", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_LIST = re.compile(rf"[\[({{]\s*(?:(?:{_QUOTED.pattern})[\s,]*)*[\])}}]", re.DOTALL)
_NUMPY_TEXT = re.compile(rf"np\.str_\(({_QUOTED.pattern})\)", re.DOTALL)
_UNREAD_LIST = re.compile(
    r"frozenset\(|<\w+Array>\s|shape: \(\d+,\)\s|\w*Index\(\[|\[['\"]|[^|\t]{1,80}(?:[|\t]+[^|\t]{1,80})+\Z"
)
"""Lists that are not read: printed by a library, cut off, or with ``|`` or tabs between the answers."""
_JOINED = re.compile(r"(?=.*[; ])(?!.*//)[^/;]{2,40}(?:[/;][^/;]{2,40})+", re.DOTALL)
"""An only answer that may be several, as EVOUNA joins them: ``Ann/Ann B.``, ``Ann; Bob``; not ``AC/DC``, ``9/11``."""
EMPTY_CELL = r"^(?:nan|NaN|NaT|None|null|NULL|NA|N/A|n/a|#N/A|<NA>)$"
"""Texts that pandas and spreadsheets write for a missing value; each may also be an answer."""
NO_ANSWER = r"^(?i:no answer present|cannotanswer|unanswerable|not answerable|<unk>|invalid question)\.?$"
"""Texts that MS MARCO, QuAC, Qasper, TriviaQA, CRAG and others write for a question without an answer."""
READ_AS_LISTS = "answers that are a list written as text, read as a list, of queries"
ANSWER_BESIDE = "answer is not among answers, and both are read (else set question_fields), of queries"
KEPT_AS_TEXTS = "answers that look like a list and are kept as one text, of queries"


class GoldAnswers(NamedTuple):
    """Gold answers of a record, unchecked."""

    values: list[Any]
    """Strings, and whatever else is there, which is an error."""
    is_impossible: bool
    """The record says that there is none: by `_MARKS`, or as SQuAD 2.0: ``{"text": [], ...}``."""
    notes: tuple[str, ...]
    """What the user should know, as kinds of warnings."""


def gold_answers(values: Mapping[str, Any]) -> GoldAnswers:
    """Return the answers under `FIELDS`, with aliases (`is_alias`), else under the first of `ALTERNATIVES` with any.

    A field is a string, a list, an object with one of `FORMS_IN` and ``aliases``, or a list of these. Lists that
    became text on their way through a CSV file (of Python, NumPy or JSON) are read as lists, and noted.
    """
    notes: dict[str, None] = {}
    answers = [answer for name in FIELDS for answer in _forms(values.get(name), notes)]
    if answers:
        beside = [*_forms(values.get("answers"), {})]
        if beside and unread_fields({"answer": answers}, beside):
            notes[ANSWER_BESIDE] = None
        answers += aliases_in(values)
    else:
        answers = next(filter(None, (list(_forms(values.get(name), notes)) for name in ALTERNATIVES)), [])
    if len(answers) == 1 and _JOINED.fullmatch(str(answers[0]).strip()):
        notes[KEPT_AS_TEXTS] = None
    unread = unread_fields(values, answers)
    if answers and unread:
        advice = f"Set question_fields: {{answers: {unread[0]}}} to read it instead"
        notes[f"answers also in the fields {', '.join(unread)}, which are not read. {advice}; queries"] = None
    squad = [value for name in READ if isinstance(value := _of_text(values.get(name))[0], Mapping)]
    is_empty = not answers and any(value.get("text") == [] for value in squad)
    return GoldAnswers(answers, is_empty or is_impossible(values), tuple(notes))


def is_impossible(values: Mapping[str, Any]) -> bool:
    """Return whether an object marks its question as one without an answer."""
    marked = ((value, _MARKS.get(plain_key(name))) for name, value in values.items())
    return any(marks is not None and str(value).lower() in marks for value, marks in marked)


def aliases_in(values: Mapping[str, Any]) -> list[Any]:
    """Return the values of the fields with further forms of the answers, unchecked."""
    return [form for name in values if is_alias(name) for form in _forms(values[name], {})]


def is_alias(name: str) -> bool:
    """Return whether a field has further forms of the answers: ``answer_aliases``, ``answerAlias``."""
    return plain_key(name) in ("answeraliases", "answeralias")


def unread_fields(values: Mapping[str, Any], answers: list[Any]) -> list[str]:
    """Return the fields that hold other answers under a known name."""
    names = [name for name in values if name in UNREAD or _ANSWERS.match(plain_key(name))]
    others = {name: list(_forms(values[name], {})) for name in names}
    texts = {answer.strip().lower() for answer in answers if isinstance(answer, str)}
    return [
        name
        for name, forms in others.items()
        if any(isinstance(form, str) and form.strip() and form.strip().lower() not in texts for form in forms)
    ]


def _forms(value: Any, notes: dict[str, None], *, is_item: bool = False) -> Iterator[Any]:
    """Yield the answers in a value of a field; null is one, and an error, only in a list."""
    value, note = _of_text(value)
    if note:
        notes[note] = None
    if isinstance(value, list | tuple) and not is_item:
        for item in value:
            yield from _forms(item, notes, is_item=not isinstance(item, str))
    elif isinstance(value, Mapping) and (names := [name for name in FORMS_IN if name in value]):
        yield from _forms(value[max(names, key=lambda name: value[name] is not None)], notes, is_item=is_item)
        yield from _forms(value.get("aliases"), notes)
    elif value is not None or is_item:
        yield value


def _of_text(value: Any) -> tuple[Any, str]:
    """Return the list or object that a text is, and a note about it; else the value and ""."""
    text = value.strip() if isinstance(value, str) else ""
    if not (
        (text.startswith(("[", "(", "array(")) and text.endswith(("]", ")")))
        or (text[:1] + text[-1:] == "{}")
    ):
        return value, KEPT_AS_TEXTS if _UNREAD_LIST.match(text) else ""
    plain = _ARRAY.sub(r"\1", _NUMPY_TEXT.sub(r"\1", text))
    try:
        parsed = json.loads(plain)
    except (ValueError, RecursionError):
        parsed = _literal(plain)
    is_object = isinstance(parsed, dict) and {*parsed} & {*FORMS_IN}
    if is_object or (isinstance(parsed, list) and all(isinstance(item, str) for item in parsed)):
        return parsed, READ_AS_LISTS
    return value, KEPT_AS_TEXTS if text[0] == "[" or (text[0] == "{" and "," in text) else ""


def _literal(text: str) -> Any:
    """Return the list or object that Python or NumPy writes in this way; None if it is neither."""

    # one by one: NumPy leaves out the commas, and Python joins two strings next to each other
    def items_of(quoted: str) -> list[Any]:
        return [ast.literal_eval(item) for item in _QUOTED.findall(quoted)]

    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        if _LIST.fullmatch(text) and (text[0] != "(" or "," in _QUOTED.sub("", text)):
            return items_of(text)
        if text.startswith("{"):
            return ast.literal_eval(_LIST.sub(lambda match: repr(items_of(match[0])), text))
    return None


def parse_facts(value: Any) -> tuple[Facts, str]:
    """Return the facts of a record, empty where there are none or something is wrong, and the problem ("": none).

    The field ``answers_all`` has a list of facts, each a string or a list of accepted forms; None: no facts.
    """
    if value is None:
        return (), ""
    if not isinstance(value, list) or not value:
        return (), f"{FACTS_FIELD} is {shown(value)}; it must be a list of facts, or be left out"
    facts = tuple(_fact_forms(fact) for fact in value)
    if () in facts:
        number = facts.index(()) + 1
        what = f"fact {number} of {FACTS_FIELD} is {shown(value[number - 1])}"
        return (), f"{what}; it must be a text, or a list of accepted forms, without blank ones"
    return facts, ""


def _fact_forms(fact: Any) -> tuple[str, ...]:
    """Return the accepted forms of a fact; none if one is not a text or blank."""
    forms = fact if isinstance(fact, list) else [fact]
    if not all(isinstance(form, str) and form.strip() for form in forms):
        return ()
    return tuple(dict.fromkeys(form.strip() for form in forms))


def all_forms(facts: Facts) -> tuple[str, ...]:
    """Return the accepted forms of all facts, without repeats."""
    return tuple(dict.fromkeys(form for forms in facts for form in forms))
