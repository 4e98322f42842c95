"""Names of data sets -> what is known of them: score, length of the answer, family of prompts.

A new data set is one line in `DATASETS`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What a data set is scored with, how long its answers may get, and which prompts suit it.

    Attributes:
        score: name of the score, as in `erag_ray.scores`.
        max_new_tokens: the most tokens that a reader writes for one of its questions.
        family: "question", "claim" or "dialogue".
    """

    score: str = "exact_match"
    max_new_tokens: int = 50
    family: str = "question"


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
    "klue-mrc": Dataset(),
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
