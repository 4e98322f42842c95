"""Differences between the two sides: what may not, what may where the config names it, and what is only listed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.analyses.parts.formats import counted
from erag_ray.config.job import RETRIEVAL
from erag_ray.extras.gate.side import Side
from erag_ray.measures.agreement import TIE_DIGITS
from erag_ray.measures.scores import JUDGED, score_sign
from erag_ray.store.schemas import CORPUS, GIVEN, LIST_OUTPUTS
from erag_ray.store.stages.stage import digests
from erag_ray.support.errors import InputError

PROMPT_KEYS = ("prompt", "titles", "num_examples", "family", "ask_to_abstain")
"""Keys of a reader that say what it is asked, not who it is."""
DEFAULT = "(default)"
MAX_TEXT = 80


@dataclass(frozen=True)
class Difference:
    """One thing that differs, of a kind that ``allow_changes`` knows, or of another, which is only listed."""

    kind: str
    text: str


SEEN_BY_READER = ("run", "corpus", "reader", "prompt")
"""Kinds that may change the reader's outputs."""


def check_same(baseline: Side, candidate: Side) -> None:
    """Refuse, by one InputError, sides that answer other questions, or whose answers are scored in another way."""
    sides = baseline, candidate
    problems = [*_questions(*sides), *_scoring(*sides), *_other_scores(*sides)]
    if problems:
        raise InputError(problems)


def _questions(baseline: Side, candidate: Side) -> Iterator[str]:
    a, b = baseline.queries, candidate.queries
    same = "Answer the same questions in both jobs"
    for one, other, names in ((a, b, ("baseline", "candidate")), (b, a, ("candidate", "baseline"))):
        only = one.join(other, on="query_id", how="anti", maintain_order="left")
        if only.height:
            count, first = f"{only.height:,} of {one.height:,} in the {names[0]}", only["query_id"][0]
            yield f"questions: {count} are not in the {names[1]}, the first {first!r}. {same}"
    both = a.join(_named(b, "query_id"), on="query_id", maintain_order="left")
    for column, noun in (("question", "text"), ("answers", "gold answers"), ("dataset", "dataset")):
        other = both.filter(pl.col(column) != pl.col(f"{column}_b"))
        if other.height:
            row = other.row(0, named=True)
            values = f"{_short(row[column])} and {_short(row[f'{column}_b'])}"
            where = f"of {other.height:,} of {both.height:,}, the first {row['query_id']!r}"
            yield f"questions: other {noun} {where}: {values}. {same}"


def _named(candidate: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Return a candidate's table with ``_b`` behind the names of its other columns, for a join with the baseline's."""
    return candidate.rename(lambda name: name if name in key else f"{name}_b")


def _scoring(baseline: Side, candidate: Side) -> Iterator[str]:
    a, b = (dict(side.queries.select("dataset", "score").unique().rows()) for side in (baseline, candidate))
    languages = [_by_dataset(side, "language") for side in (baseline, candidate)]
    for dataset in sorted(set(a) & set(b)):
        for noun, one, other in (
            ("score", a[dataset], b[dataset]),
            ("language", *(language.get(dataset) for language in languages)),
        ):
            if one != other:
                values = f"the {noun} is {one} in the baseline and {other} in the candidate"
                yield f"{dataset}: {values}. Set the same {noun} in both jobs"
        if score_sign(a[dataset]) < 1:
            yield f"{dataset}: more of {a[dataset]} is not better, and a gate takes a loss for worse"
    for key in ("judge", "judged_by"):
        one, other = (side.reading.get(key) for side in (baseline, candidate))
        if one != other:
            yield f"{key}: another judge, or prompt of it, grades the outputs. Use the same judge in both jobs"


def _other_scores(baseline: Side, candidate: Side) -> Iterator[str]:
    """Yield how many outputs that both have are scored in another way; of repeated outputs only means are known."""
    if "repeats" in {*baseline.reading, *candidate.reading}:
        return
    same = ["score", "query_id", "output"]
    scored = [
        side.utility.drop_nulls("value").join(side.store.read(LIST_OUTPUTS), on=list(LIST_OUTPUTS.key))
        for side in (baseline, candidate)
    ]
    both = scored[0].unique(same).join(_named(scored[1].unique(same), *same), on=same).sort("query_id")
    is_other = (pl.col("value") - pl.col("value_b")).round(TIE_DIGITS) != 0
    other = both.filter(is_other, ~pl.col("score").is_in(JUDGED))
    if other.height:
        first = "{query_id!r}: {value:g} and {value_b:g}".format(**other.row(0, named=True))
        text = f"{other.height:,} of {both.height:,} equal outputs have another score, the first of {first}"
        yield f"score: {text}. Its code or a library changed: run erag-ray compare with the older job's config again"


def _by_dataset(side: Side, key: str) -> dict[str, Any]:
    return {name: settings.get(key) for name, settings in side.settings["datasets"].items()}


def differences(baseline: Side, candidate: Side, depth: int) -> list[Difference]:
    """Return all that differs between two sides that `check_same` has passed, at ``depth`` documents for the reader."""
    sides = baseline, candidate
    return [*_lists(*sides, depth), *_corpora(*sides), *_readers(*sides), *_listed_only(*sides)]


def refuse(differences: Sequence[Difference], allowed: Sequence[str]) -> None:
    """Raise InputError, with a line for each kind of differences that must be among ``allowed`` and is not."""
    problems = []
    for kind in ("retriever", *SEEN_BY_READER):
        texts = [one.text for one in differences if one.kind == kind]
        if texts and kind not in allowed:
            what = f"the {kind} differs and allow_changes does not name it ({'; '.join(texts)})"
            todo = f"If that is what you compare, add {kind} to allow_changes; else run both jobs with the same {kind}"
            problems.append(f"{kind}: {what}. {todo}")
    if problems:
        raise InputError(problems)


def _lists(baseline: Side, candidate: Side, depth: int) -> Iterator[Difference]:
    a, b = baseline.lists(depth), candidate.lists(depth)
    joined = a.join(_named(b, "query_id"), on="query_id", how="full", coalesce=True)
    other = joined.filter(pl.col("doc_ids").ne_missing(pl.col("doc_ids_b"))).height
    names = baseline.run if baseline.run == candidate.run else f"{baseline.run} -> {candidate.run}"
    if other:
        total = baseline.queries.height
        yield Difference(
            "run", f"{names}, {other:,} of {total:,} lists differ in the first {counted(depth, 'document')}"
        )
    elif not baseline.given.equals(candidate.given):
        yield Difference("run", f"{names}, other outputs that exist for the same lists")
    elif baseline.run != candidate.run:
        yield Difference("retriever", f"{names}, with the same lists")
    one, another = (side.settings["runs"].get(side.run) for side in (baseline, candidate))
    if _source(one) != _source(another):
        yield Difference("retriever", f"lists from {one} -> {another}")


def _source(path: str | None) -> str:
    """Return a file's path; of one that its job has made or was given in memory, that below the job's folder."""
    return str(path).rpartition(f"/{RETRIEVAL}/")[2].rpartition("/given/")[2]


def _passages(side: Side) -> list[str]:
    """Return the files of the passages that the lists of a side are from."""
    corpus = side.settings.get("run_corpora", {}).get(side.run)
    return list((side.settings["corpora"][corpus] if corpus else side.settings)["passages"])


def _corpora(baseline: Side, candidate: Side) -> Iterator[Difference]:
    one, another = _passages(baseline), _passages(candidate)
    if [*map(_source, one)] != [*map(_source, another)]:
        yield Difference("corpus", f"passages from {', '.join(one)} -> {', '.join(another)}")
    if digests(baseline.store, [CORPUS]) == digests(candidate.store, [CORPUS]):
        return
    a, b = (side.store.read(CORPUS).select("doc_id", "title", "text") for side in (baseline, candidate))
    both = a.join(_named(b, "doc_id"), on="doc_id")
    other = both.filter((pl.col("text") != pl.col("text_b")) | (pl.col("title") != pl.col("title_b")))
    if other.height:
        text = f"{other.height:,} of {both.height:,} passages that both have differ in title or text"
        yield Difference("corpus", f"{text}, the first {other['doc_id'].min()!r}")


def _readers(baseline: Side, candidate: Side) -> Iterator[Difference]:
    a, b = baseline.reading["reader"], candidate.reading["reader"]
    differences = [
        Difference("prompt" if key in PROMPT_KEYS else "reader", text)
        for key, text in _settings(a, b).items()
    ]
    for kind, key in (("prompt", "family"), ("reader", "max_new_tokens")):
        by_dataset = _settings(*(_by_dataset(side, key) for side in (baseline, candidate)))
        differences += [Difference(kind, f"{key} of {text}") for text in by_dataset.values()]
    names = [sorted(side.utility["reader"].unique()) for side in (baseline, candidate)]
    # outputs that exist are compared themselves
    if names[0] != names[1] and not differences and a.get("kind") != GIVEN.name:
        change = f"{', '.join(names[0])} -> {', '.join(names[1])}"
        text = f"{change}, with equal settings: its weights or a built-in prompt changed"
        differences.append(Difference("reader", text))
    yield from differences


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, str]:
    """Return key -> ``key: old -> new`` of settings that differ; a key that is left out has its default."""
    pairs = {key: (a.get(key, DEFAULT), b.get(key, DEFAULT)) for key in sorted({*a, *b})}
    return {
        key: f"{key}: {_short(one)} -> {_short(other)}" for key, (one, other) in pairs.items() if one != other
    }


def _listed_only(baseline: Side, candidate: Side) -> Iterator[Difference]:
    if baseline.depths != candidate.depths:
        one, other = (", ".join(map(str, side.depths)) for side in (baseline, candidate))
        yield Difference("depths", f"scored end to end with {one} -> {other} documents")
    repeats = [side.reading.get("repeats", 1) for side in (baseline, candidate)]
    if repeats[0] != repeats[1]:
        yield Difference("repeats", "answers to each list: {} -> {}".format(*repeats))
    names = ("erag-ray", "torch", "transformers")
    versions = [{name: side.packages.get(name) for name in names} for side in (baseline, candidate)]
    for text in _settings(*versions).values():
        yield Difference("software", text)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
