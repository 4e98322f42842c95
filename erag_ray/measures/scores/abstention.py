"""The score `abstained`: whether an output says that it has no answer. Pure, English.

A sentence abstains if it says that the reader does not know, that the passages are silent, or that there is too little
information. Sentences are compared without case, punctuation and articles (`english_form`). What a sentence only quotes
("answer yes or I don't know"), or says of other passages, is not counted, and an output that says that the answer is
present does not abstain.
"""

import re
from collections.abc import Sequence

from erag_ray.measures.scores.normalization import english_form

_NOT = r"(?:not|never|cannot|dont|doesnt|didnt|isnt|arent|wasnt|werent|cant|couldnt)"
_ADVERBS = r"(?:(?!only )\w+ly |actually |really |seem to |appear to )*"
_PASSAGES = (
    r"(?<!\bother )(?<!\bremaining )(?:contexts?|passages?|texts?|documents?|articles?|paragraphs?|excerpts?|"
    r"snippets?|sources?|search results?|information provided)\b"
)
_STATES = (
    r"(?:answer|mention|specify|provide|contain|include|state|give|say|tell|discuss|describe|indicate|address|"
    r"explain|identify|list|have)s?"
)
_STATED = (
    r"(?:present|mentioned|specified|provided|contained|included|stated|given|found|available|discussed|described|"
    r"addressed|answered|listed)"
)
_ENOUGH = r"(?:enough|sufficient) (?:information|context|evidence)"
PATTERNS = (
    # the reader has no answer
    r"^noresponse\b|^unanswerable$",
    rf"\b(?:i|we) (?:(?:do|did|could) )?{_NOT} {_ADVERBS}(?:know|find|locate)\b",
    r"\b(?:im|i am) (?:not sure|unsure|not certain|unable to find)\b|\bi have no idea\b",
    rf"\b(?:cannot|can not|cant|(?:un|not )able to|(?:not |im)possible to) (?:be )?{_ADVERBS}(?:answer|determine)",
    r"\b(?:it is|its) (?:not clear|unclear|unknown)\b",
    # the passages have none
    rf"\b{_PASSAGES} (?:[a-z]+ ){{0,2}}?(?:(?:do|does|did) not|dont|doesnt|didnt|never) {_ADVERBS}{_STATES}\b",
    rf"\b(?:none|nothing) (?:of|in) (?:\w+ ){{0,3}}?{_PASSAGES}",
    rf"\b(?:no {_PASSAGES}|neither {_PASSAGES}|none of them) (?:that )?{_ADVERBS}{_STATES}\b",
    rf"\b{_NOT} (?:have answer |{_ADVERBS}{_STATED} )?(?:in|by|from) (?:\w+ ){{0,3}}?{_PASSAGES}",
    # there is none, or too little information
    rf"\banswers? (?:(?:is|are|was|were|can|could) not|isnt|cannot|cant) (?:be )?{_ADVERBS}{_STATED}\b",
    rf"\bno (?:\w+ )?answers? (?:(?:is|was|are) )?(?:to question|in|{_STATED})\b",
    rf"\b(?:no|lacks?|without|{_NOT}) (?:have |specific )?information (?:is {_STATED} )?(?:about|on|regarding|to)\b",
    rf"\b{_NOT} (?:\w+ )?{_ENOUGH}|\binsufficient (?:information|context|evidence|to)\b",
)
"""Patterns of sentences that abstain, in `english_form`."""
_WHOLE = re.compile(
    rf"(?:(?:answer|information) (?:is )?)?(?:not (?:answerable|applicable|known|{_STATED})|unknown|unclear)"
    rf"|(?:there is )?no (?:relevant )?(?:answer|information|data|mention)(?: (?:is )?(?:possible|{_STATED}))?"
    r"|noanswer|idk|not sure|unsure|undetermined"
)
"""What a whole output that abstains may be, in `english_form`; in the middle of a sentence it may be an answer."""
_ABSTAINS = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS))
_QUOTED = re.compile(r"\b(?:or|(?:please \w+|respond|reply)(?: with)?) i (?:dont|do not) know\b.*")
_ANSWERS = re.compile(r"\banswers? (?:is|are|can be) (?:present|found|given|provided|stated|in)\b")
_DENIES = re.compile(rf"\b(?:{_NOT}|no|none|neither|nor|unless|if|whether|which)\b")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?\u3002])\s+|\n+")


def abstained(output: str, answers: Sequence[str] = ()) -> float:
    """Return 1 if a sentence of the output says that it has no answer and none says that the answer is present, else 0.

    Measures how often a reader abstains, not how often it is right: more is not better, gold answers are ignored, and
    no dataset uses it by default. "I don't know, perhaps Paris" abstains and also matches "Paris". English; a bare "No"
    is taken for an answer.
    """
    sentences = [english_form(sentence) for sentence in _SENTENCE_ENDS.split(output)]
    for match in filter(None, map(_ANSWERS.search, sentences)):
        if not _DENIES.search(match.string[: match.start()]):
            return 0.0
    text = re.sub("^n/a", "unknown", output.strip(), flags=re.IGNORECASE)
    # "No Answer" may be a title
    if _WHOLE.fullmatch(english_form(text)) and not (" " in text and text.istitle()):
        return 1.0
    return float(any(_ABSTAINS.search(_QUOTED.sub("", sentence)) for sentence in sentences))
