"""A comparison of three datasets."""

import pathlib

from tiny import PASSAGES, QUESTIONS, Tiny, config_of, kilt_line, passage_line, write_tiny

from erag_ray.retrieve.stage import retrieve

CLAIMS = {
    "f1": ("the marn bridge was built by ada brunner", "SUPPORTS", "p1"),
    "f2": ("the skerry lighthouse was lit in 1900", "REFUTES", "p3"),
    "f3": ("a choir of graz was led by ida holm", "SUPPORTS", "p4"),
    "f4": ("the metal of the dome is tin", "REFUTES", "p5"),
}


TURNS = {
    "w1": ("i saw the marn bridge\nwho built it", "Ada Brunner built it", "p1"),
    "w2": ("tessel is a town\nwhich river flows there", "it is the orla", "p2"),
    "w3": ("i like choirs\nwho led the one of graz", "Ida Holm", "p4"),
    "w4": ("mills are old\nwhere is the oldest", "nobody knows", None),
}


VERDICTS = {
    "v1": ("p1", "SUPPORTS", "the marn bridge was built by ada brunner in stone"),
    "v2": ("p3", "REFUTES", "the skerry lighthouse was lit in 1874 and not in 1900"),
}


FILES = {"nq-dev-kilt.jsonl": QUESTIONS, "fever-dev-kilt.jsonl": CLAIMS, "wow-dev-kilt.jsonl": TURNS}


def three(folder: pathlib.Path) -> Tiny:
    """The tiny comparison with three kinds of questions and the runs of two retrievers."""
    tiny = write_tiny(folder)
    for name, questions in FILES.items():
        (folder / name).write_text("".join(kilt_line(one, *rest) for one, rest in questions.items()))
    passages = PASSAGES | VERDICTS
    tiny.passages.write_text("".join(passage_line(one, *rest) for one, rest in passages.items()))
    queries = [str(folder / name) for name in FILES]
    runs = {run.run_id: run.path for run in retrieve(config_of(tiny, queries=queries, dataset=None))}
    return tiny.with_config(queries=queries, dataset=None, runs=runs)
