"""Names of data sets -> what is known of them: score, language, length of the answer, family of prompts.

A new data set is one line in `DATASETS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from erag_ray.scores import ENGLISH, in_language


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What a data set is scored with, how long its answers may get, and which prompts suit it.

    Attributes:
        score: name of the score, as in `erag_ray.scores`.
        max_new_tokens: the most tokens that a reader writes for one of its questions.
        family: "question", "claim" or "dialogue".
        language: ISO 639-1.
    """

    score: str = "exact_match"
    max_new_tokens: int = 50
    family: str = "question"
    language: str = ENGLISH


@dataclass(frozen=True, kw_only=True)
class ScoreRule:
    """Which score the questions of a data set get.

    Attributes:
        given: the score that a job names for all questions.
        by_dataset: data set -> score.
        language: of all questions; None: what is known of the data set.
        is_chat: whether the reader is a chat model, whose sentences seldom match an answer exactly.
    """

    given: str | None = None
    by_dataset: Mapping[str, str] = field(default_factory=dict)
    language: str | None = None
    is_chat: bool = False

    def score(self, name: str, known: Dataset) -> str:
        """The score of a data set.

        KILT's scores keep KILT's rule, whatever the data set's language, unless the job names a language.
        """
        chosen = self.given or self.by_dataset.get(name) or self.default(known)
        language = known.language if chosen in ("match", "char_f1") else ENGLISH
        return in_language(chosen, self.language or language)

    def default(self, known: Dataset) -> str:
        """The score where the job names none: match for exact_match where the reader is a chat model."""
        return "match" if self.is_chat and known.score == "exact_match" else known.score

    def note(self, name: str, known: Dataset) -> str:
        """What to tell of the score of a data set; "" where it is the data set's own."""
        is_given = self.given or name in self.by_dataset
        if is_given or self.default(known) == known.score:
            return ""
        return (
            f"data set {name!r}: score {self.score(name, known)}, since the reader is a chat model "
            f"(score: {known.score} for whole outputs)"
        )


def known_name(name: str) -> str | None:
    """The entry of `DATASETS` that ``name`` belongs to: itself or a name that it starts with (fever_fm2 -> fever)."""
    starts = [known for known in DATASETS if re.match(re.escape(known) + r"(?![a-z])", name.lower())]
    return max(starts, key=len, default=None)


def find_dataset(name: str, task: str | None = None) -> Dataset | None:
    """What is known of a data set by its name, else by its KILT ``task``; None if neither is known."""
    known = known_name(name)
    return DATASETS[known] if known else TASKS.get(task or "")


def dataset_of_file(path: str) -> str:
    """The name of a query file's data set: nq-dev-kilt.jsonl -> nq, queries.fever_fm2.jsonl.gz -> fever_fm2.

    A file that is just called queries.jsonl is named after its folder.
    """
    folder, file = os.path.split(os.path.abspath(path))
    stem = re.sub(r"(\.jsonl?)?(\.gz)?$", "", file).removeprefix("queries.")
    stem = re.sub(r"-(train|dev|test)(_\w+)*-kilt$", "", stem)
    return (os.path.basename(folder) or stem) if stem == "queries" else stem


# Scores are those of KILT's leaderboards (Petroni et al., NAACL 2021, table 2).
DATASETS = {
    "nq": Dataset(),
    "triviaqa": Dataset(),
    "hotpotqa": Dataset(),
    "squad": Dataset(),
    "klue-mrc": Dataset(language="ko"),
    "fever": Dataset(score="accuracy", family="claim"),
    "wow": Dataset(score="token_f1", max_new_tokens=150, family="dialogue"),
}

# for data sets that are not known by name: the field "task" of a record
TASKS = {
    "qa": Dataset(),
    "multihop": Dataset(),
    "fact": DATASETS["fever"],
    "dialogue": DATASETS["wow"],
}
