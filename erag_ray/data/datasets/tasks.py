"""Known data sets and their properties: score, language, answer length, family of prompts.

A new data set is one line in `DATASETS`.
"""

import os
import re
from dataclasses import dataclass, replace

from erag_ray.measures.scores import ENGLISH, UNREAD, in_language
from erag_ray.store.huggingface import dataset_name, is_dataset


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Properties of a data set; its family is "question", "claim" or "dialogue", its language in ISO 639-1."""

    score: str = "exact_match"
    max_new_tokens: int = 50
    family: str = "question"
    language: str = ENGLISH


@dataclass(frozen=True, kw_only=True)
class ScoreRule:
    """The choice of the score of each data set."""

    for_all: str | None = None
    """The job's score for all questions."""
    language: str | None = None
    """Of all questions; None: the data set's."""
    is_chat: bool = False
    """Whether the reader is a chat model, whose sentences rarely match an answer exactly."""

    def score(self, dataset: Dataset) -> str:
        """Return the score of a data set: the job's, else its own, but match instead of exact_match for chat models.

        KILT's scores follow KILT's rules for any language of the data set, unless the job sets a language.
        """
        is_sentence = self.is_chat and dataset.score == "exact_match"
        chosen = self.for_all or ("match" if is_sentence else dataset.score)
        language = dataset.language if chosen in ("match", "char_f1") else ENGLISH
        return in_language(chosen, self.language or language)

    def applied(self, dataset: Dataset) -> Dataset:
        """Return the data set with the score and the language of its questions."""
        return replace(dataset, score=self.score(dataset), language=self.language or dataset.language)

    def note(self, name: str, dataset: Dataset) -> str:
        """Return a message if the reader makes the score another than the data set's, or language does not; else ""."""
        score = self.score(dataset)
        if self.language not in (None, ENGLISH) and score in UNREAD:
            return f"data set {name!r}: language: {self.language} does not change the score {score}"
        if self.for_all or not self.is_chat or dataset.score != "exact_match":
            return ""
        return (
            f"data set {name!r}: score {score}, since outputs may be sentences "
            f"(score: {dataset.score} for whole outputs)"
        )


def known_name(name: str) -> str | None:
    """Return the key of `DATASETS` that ``name`` equals or starts with (fever_fm2 -> fever)."""
    prefixes = [prefix for prefix in DATASETS if re.match(re.escape(prefix) + r"(?![a-z])", name.lower())]
    return max(prefixes, key=len, default=None)


def find_dataset(name: str, task: str | None = None) -> Dataset | None:
    """Return the properties of a data set by its name, else by its KILT ``task``; None if both are unknown."""
    key = known_name(name)
    return DATASETS[key] if key else TASKS.get(task or "")


def dataset_of_file(path: str) -> str:
    """Return the data set of a query file's name: nq-dev-kilt.jsonl -> nq, queries.fever_fm2.jsonl.gz -> fever_fm2.

    For queries.jsonl it is the name of the folder, for hf:OWNER/NAME:SPLIT it is NAME.
    """
    if is_dataset(path):
        return dataset_name(path)
    folder, file = os.path.split(os.path.abspath(path))
    stem = re.sub(r"(\.(jsonl?|parquet|csv|tsv))?(\.gz)?$", "", file).removeprefix("queries.")
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

# by the field "task" of a record, for data sets of other names
TASKS = {"qa": Dataset(), "multihop": Dataset(), "fact": DATASETS["fever"], "dialogue": DATASETS["wow"]}
