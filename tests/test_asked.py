"""Not asked is not 0: sealed tables against loops and dicts, where reader and judge are asked about samples."""

from __future__ import annotations

import functools
import json
import math
import pathlib
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import pytest
import xxhash
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tiny import Tiny, make_tables, table, write_tiny
from towns import towns

from erag_ray.analyses.auxiliary import AUXILIARY_MEANS
from erag_ray.analyses.cell_comparisons import COMPLEMENTS
from erag_ray.analyses.cell_shares import CELL_SHARES
from erag_ray.analyses.cells import CELLS
from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.comparisons import COMPARISONS
from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.means import MEANS
from erag_ray.annotators import Annotator, Evidence, RequestSpec, every_pair
from erag_ray.config.judge import JudgeConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.gate import stage as gating
from erag_ray.extras.gate.comment import report_of
from erag_ray.extras.gate.config import GateConfig
from erag_ray.models import register_function
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.support.errors import InputError

RUNS = ("a", "b")
DEPTHS = (1, 3)
READER, JUDGE, PAGES, RULE, OUTSIDE = (
    "erag",
    "llm_relevance",
    "provenance",
    "contains_answer_dpr",
    "test_asked:IS_RIGHT",
)
OF_READER = (READER, OUTSIDE)
Value = float | None
Values = Mapping[tuple[object, ...], Value]
Table = Callable[..., pl.DataFrame]


def read(prompts: list[str]) -> list[str]:
    """Answer by what a prompt has: a good passage, or a question that is known by heart; fail over a bad one."""
    if any("boom" in prompt for prompt in prompts):
        raise ValueError("boom")
    return ["Right" if "good" in prompt or "known" in prompt else "Wrong" for prompt in prompts]


def grade(prompts: list[str]) -> list[str]:
    """Grade a passage: 3 for one that seems relevant."""
    return ["3" if "seems" in prompt else "0" for prompt in prompts]


def is_right(evidence: Evidence) -> pl.DataFrame:
    """An annotator from outside, which asks the reader and fills no column of it."""
    answers = evidence.of(ANSWER).select(
        "query_id", "doc_id", label=(pl.col("value") == "Right").cast(pl.Float64)
    )
    return evidence.pairs.join(answers, on=["query_id", "doc_id"])


IS_RIGHT = Annotator(
    name="is_right",
    function=is_right,
    applies=lambda evidence: pl.col("query_id").str.ends_with("0").not_(),
    applies_to="questions whose number does not end with 0",
    kind="binary",
    requests=(RequestSpec(ANSWER, every_pair),),
)


@dataclass(frozen=True, kw_only=True)
class World:
    """Questions, passages and lists; every passage belongs to one question."""

    passages: dict[str, tuple[str, str]]
    """Document -> page, text."""
    lists: dict[str, dict[str, list[str]]]
    """Run -> question -> documents; no entry: the run found nothing."""
    gold: dict[str, str | None]
    """Question -> gold page."""
    known: set[str]
    """Questions that the reader answers without passages."""
    keys: dict[str, object] = field(default_factory=dict)
    """Further keys of the job."""

    annotators: Sequence[str] = (READER, PAGES)
    reader_queries: int | None = None
    judge_queries: int | None = None
    judge_depth: int | None = None

    def sample(self, count: int | None) -> set[str]:
        """The questions with the lowest hashes."""
        hashes = sorted((xxhash.xxh3_64_intdigest(f"0:{name}".encode()), name) for name in self.gold)
        return {name for _, name in hashes[:count]}

    def applies(self, annotator: str) -> set[str]:
        """The questions to which an annotator applies."""
        if annotator == PAGES:
            return {name for name, page in self.gold.items() if page}
        return {name for name in self.gold if annotator != OUTSIDE or not name.endswith("0")}

    def asked(self, annotator: str) -> set[str]:
        """Those of them that it is asked about."""
        count = self.reader_queries if annotator in OF_READER else None
        count = self.judge_queries if annotator == JUDGE else count
        return self.applies(annotator) & self.sample(count)

    def documents(self, run: str, query: str, depth: int) -> list[str]:
        """The first documents of a list."""
        return self.lists[run].get(query, [])[:depth]

    def pool(self, query: str, depth: int) -> set[str]:
        """Those of all runs."""
        return {doc for run in self.lists for doc in self.documents(run, query, depth)}

    def answer(self, query: str, documents: Sequence[str]) -> Value:
        """The score of the reader's output: None where the request fails."""
        texts = [self.passages[doc][1] for doc in documents]
        if any("boom" in text for text in texts):
            return None
        return float(query in self.known or any("good" in text for text in texts))

    def label(self, annotator: str, query: str, doc: str) -> Value:
        """The label of a document in the lists of a question to which the annotator applies."""
        page, text = self.passages[doc]
        if annotator == PAGES:
            return float(page == self.gold[query])
        if annotator == RULE:
            return float("Right" in text)
        if annotator in OF_READER:
            return self.answer(query, [doc])
        is_asked = query in self.asked(JUDGE) and doc in self.pool(query, self.judge_depth or max(DEPTHS))
        return float("seems" in text) if is_asked else None

    def run(self, folder: pathlib.Path) -> Tiny:
        """Run the job in this process."""
        tiny = write_tiny(folder)
        queries = [
            {
                "id": name,
                "input": f"question {name}{' known' if name in self.known else ''}",
                "output": [{"answer": "Right", **({"provenance": [{"wikipedia_id": page}]} if page else {})}],
            }
            for name, page in self.gold.items()
        ]
        tiny.queries.write_text("".join(json.dumps(record) + "\n" for record in queries))
        passages = [
            {"doc_id": name, "page_id": page, "title": "", "text": text}
            for name, (page, text) in self.passages.items()
        ]
        tiny.passages.write_text("".join(json.dumps(record) + "\n" for record in passages))
        for run, lists in self.lists.items():
            rows = [
                f"{query} Q0 {doc} {rank} {9 - rank} x\n"
                for query, docs in lists.items()
                for rank, doc in enumerate(docs, 1)
            ]
            tiny.run(run).write_text("".join(rows))
        register_function(read, "reader", "1")
        register_function(grade, "judge", "1")
        given = {
            "runs": {run: str(tiny.run(run)) for run in self.lists},
            "reader": ReaderConfig(kind="function", model="reader", revision="1"),
            "annotators": list(self.annotators),
            "reader_queries": self.reader_queries,
            "judge": JudgeConfig(
                kind="function",
                model="judge",
                revision="1",
                scale="grades",
                num_queries=self.judge_queries,
                depth=self.judge_depth,
            ),
            "end_to_end_depths": list(DEPTHS),
            "depth": max(DEPTHS),
            "measures": ["P", "R", "nDCG", "Success"],
            "cutoffs": [1],
            "num_resamples": 100,
            "num_permutations": 100,
            "num_readers": 0,
            "max_error_fraction": 1.0,
        }
        tiny = tiny.with_config(**{**given, **self.keys})
        make_tables(tiny)
        return tiny


# --- the tables, by loops and dicts ---


def labels_of(world: World) -> Values:
    """LABELS: no row for a question that the reader is not asked about, null for what the judge is not asked about."""
    return {
        (annotator, query, doc): world.label(annotator, query, doc)
        for annotator in world.annotators
        for query in (world.asked if annotator in OF_READER else world.applies)(annotator)
        for doc in world.pool(query, max(DEPTHS))
    }


def utility_of(world: World) -> Values:
    """UTILITY of the runs: a question without a list is answered without documents."""
    return {
        (run, query, depth): world.answer(query, world.documents(run, query, depth))
        for run in world.lists
        for query in world.sample(world.reader_queries)
        for depth in DEPTHS
    }


def gain(labels: Sequence[float]) -> float:
    """DCG."""
    return math.fsum(label / math.log2(rank + 1) for rank, label in enumerate(labels, 1))


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def measures(labels: list[Value], pool: list[Value], cutoff: int) -> Iterator[tuple[str, str, Value]]:
    """Measure, ideal and value of a list with these labels."""
    first = labels[:cutoff]
    known = [label for label in first if label is not None]
    is_known = len(known) == len(first)
    yield "P", "any", sum(known) / cutoff if is_known else None
    yield "Success", "any", max(known, default=0.0) if is_known else None
    for ideal, base in (("list", labels), ("pool", pool)):
        best = sorted((label for label in base if label is not None), reverse=True)
        is_known = len(best) == len(base)
        yield "R", ideal, share(sum(known), sum(best)) if is_known else None
        yield "nDCG", ideal, share(gain(known), gain(best[:cutoff])) if is_known else None


def per_query_of(world: World) -> Values:
    """PER_QUERY: rows for the questions that an annotator was asked about, 0 where a run has no list."""
    return {
        (annotator, run, depth, measure, cutoff, ideal, query): value
        for annotator in world.annotators
        for query in world.asked(annotator)
        for run in world.lists
        for depth in DEPTHS
        for cutoff in {1, depth}
        for measure, ideal, value in measures(
            [world.label(annotator, query, doc) for doc in world.documents(run, query, depth)],
            [world.label(annotator, query, doc) for doc in world.pool(query, depth)],
            cutoff,
        )
    }


def columns_of(world: World) -> dict[tuple[object, ...], dict[str, float]]:
    """Annotator, run, depth, measure, cutoff, ideal -> question -> value, of what was judged."""
    used = {
        ("end_to_end", run, depth, "match", depth, "any", query): value
        for (run, query, depth), value in utility_of(world).items()
    }
    columns: dict[tuple[object, ...], dict[str, float]] = {}
    for (*key, query), value in {**per_query_of(world), **used}.items():
        column = columns.setdefault(tuple(key), {})
        if value is not None:
            column[str(query)] = value
    return columns


def is_of_reader(key: Sequence[object]) -> bool:
    # labels of the annotator from outside name no reader, so nothing is predicted of them
    return key[0] in (READER, "end_to_end")


def line(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Least squares, clamped to [0, 1]."""
    x, y = (statistics.fmean(values) for values in zip(*points, strict=True))
    width = math.fsum((a - x) ** 2 for a, _ in points)
    slope = math.fsum((a - x) * (b - y) for a, b in points) / width if width else 0.0
    return lambda value: min(1.0, max(0.0, y + slope * (value - x)))


def predicted_mean(read: Mapping[str, float], auxiliary: Mapping[str, float]) -> float:
    """The difference estimator over all questions with an auxiliary value; each line is that of the other questions."""
    probability, total = len(read) / len(auxiliary), 0.0
    for query, value in auxiliary.items():
        others = [(auxiliary[name], read[name]) for name in read if name != query]
        predicted = line(others)(value)
        total += predicted + ((read[query] - predicted) / probability if query in read else 0.0)
    return total / len(auxiliary)


# --- the comparison ---


def rows_of(frame: pl.DataFrame, *columns: str) -> dict[tuple[object, ...], object]:
    """The last column by the others, each key once."""
    rows = frame.select(columns).rows()
    values = {row[:-1]: row[-1] for row in rows}
    assert len(values) == len(rows)
    return values


NAME = ("annotator", "run_id", "depth", "measure", "cutoff", "ideal")


def check(world: World, sealed: Table) -> None:
    """Compare all sealed tables with those by loops and dicts."""
    count, columns = len(world.gold), columns_of(world)
    assert rows_of(sealed(LABELS), "annotator", "query_id", "doc_id", "label") == labels_of(world)
    of_runs = pl.col("run_id").is_in(list(world.lists))
    used = rows_of(sealed(UTILITY).filter(of_runs), "run_id", "query_id", "depth", "value")
    assert used == utility_of(world)
    assert rows_of(sealed(PER_QUERY), *NAME, "query_id", "value") == pytest.approx(per_query_of(world))
    means = sealed(MEANS).filter(of_runs)
    assert rows_of(means, *NAME, "num_queries") == {key: len(values) for key, values in columns.items()}
    assert set(means["num_queries"] + means["num_dropped"]) == {count}
    auxiliary = world.keys.get("auxiliary")
    plain = {
        key: statistics.fmean(values.values()) if values else None
        for key, values in columns.items()
        if not (auxiliary and is_of_reader(key))
    }
    found = rows_of(means, *NAME, "mean")
    assert {key: found[key] for key in plain} == pytest.approx(plain)
    check_comparisons(sealed(COMPARISONS), columns, count, with_differences=auxiliary is None)
    check_correlations(sealed(CORRELATIONS), columns, count)
    check_cells(world, sealed)
    if auxiliary:
        check_auxiliary(world, sealed(AUXILIARY_MEANS), columns, found)


def check_comparisons(
    rows: pl.DataFrame,
    columns: Mapping[tuple[object, ...], Mapping[str, float]],
    count: int,
    *,
    with_differences: bool,
) -> None:
    for row in rows.iter_rows(named=True):
        a, b = (
            columns[tuple({**row, "run_id": row[run]}[name] for name in NAME)] for run in ("run_a", "run_b")
        )
        both = a.keys() & b.keys()
        assert (row["num_queries"], row["num_dropped"]) == (len(both), count - len(both))
        if with_differences and row["difference"] is not None:
            difference = statistics.fmean(a[name] - b[name] for name in both)
            # differences are rounded to ten digits
            assert row["difference"] == pytest.approx(difference, abs=1e-9)
    assert rows.height == sum(key[1] == RUNS[0] and key[-1] != "list" for key in columns)


def check_correlations(
    rows: pl.DataFrame, columns: Mapping[tuple[object, ...], Mapping[str, float]], count: int
) -> None:
    for row in rows.filter(over="queries").iter_rows(named=True):
        utility = columns["end_to_end", row["run_id"], row["depth"], "match", row["depth"], "any"]
        both = columns[tuple(row[name] for name in NAME)].keys() & utility.keys()
        assert (row["num_queries"], row["num_dropped"]) == (len(both), count - len(both))


def check_cells(world: World, sealed: Table) -> None:
    """A question without a list has no useful document, but only where eRAG was asked."""
    alone: dict[tuple[object, ...], bool | None] = {}
    for run, query, depth in utility_of(world):
        labels = [
            world.label(READER, str(query), doc)
            for doc in world.documents(str(run), str(query), int(str(depth)))
        ]
        is_known = READER in world.annotators and (1.0 in labels or None not in labels)
        alone[run, query, depth] = 1.0 in labels if is_known else None
    rows = sealed(CELLS)
    assert rows_of(rows, "run_id", "query_id", "depth", "alone") == alone
    known = rows.group_by("run_id", "depth").agg(pl.col("cell").count())
    num_known = rows_of(known, "run_id", "depth", "cell")
    for row in sealed(CELL_SHARES, cell="found").iter_rows(named=True):
        assert row["num_queries"] == num_known[row["run_id"], row["depth"]]
        assert row["num_dropped"] == len(world.gold) - row["num_queries"]
    for row in sealed(COMPLEMENTS).iter_rows(named=True):
        both = sum(
            alone[row["run_a"], query, row["depth"]] is not None
            and alone[row["run_b"], query, row["depth"]] is not None
            for query in world.sample(world.reader_queries)
        )
        assert row["num_queries"] == both


def check_auxiliary(
    world: World,
    rows: pl.DataFrame,
    columns: Mapping[tuple[object, ...], Mapping[str, float]],
    means: Mapping[tuple[object, ...], object],
) -> None:
    """A question that failed is in no estimate; the others are estimated, the sample's share is the probability."""
    sample, keys = world.sample(world.reader_queries), set()
    for row in rows.iter_rows(named=True):
        key = tuple(row[name] for name in NAME)
        keys.add(key)
        read = columns[key]
        measure = "P" if key[0] == "end_to_end" else key[3]
        predictor = columns[(RULE, *key[1:3], measure, *key[4:])]
        counted = {query: value for query, value in predictor.items() if query in read or query not in sample}
        assert (row["num_read"], row["num_queries"]) == (len(read), len(counted))
        assert row["mean_read"] == pytest.approx(statistics.fmean(read.values()))
        assert row["mean"] == means[key] == pytest.approx(predicted_mean(read, counted), abs=1e-4)
    expected = {key for key, read in columns.items() if is_of_reader(key) and len(read) >= 30}
    assert keys == (expected if len(sample) < len(world.gold) else set())


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Small worlds: lists that found nothing, failing requests, samples of both models."""
    numbers = random.Random(draw(st.integers(0, 10_000)))
    has_auxiliary = draw(st.booleans())
    count = draw(st.integers(34, 42) if has_auxiliary else st.integers(2, 12))
    names = [f"q{number}" for number in range(count)]
    rate = {word: draw(st.sampled_from([0.0, 0.2, 0.5])) for word in ("good", "seems", "Right")}
    rate["boom"] = draw(st.sampled_from([0.0, 0.03]))
    passages = {
        f"{name}d{rank}": (
            f"{name}p{numbers.randrange(2)}",
            " ".join(["text", *(word for word in rate if numbers.random() < rate[word])]),
        )
        for name in names
        for rank in range(4)
    }
    lists: dict[str, dict[str, list[str]]] = {}
    for run in RUNS:
        missing = draw(st.sampled_from([0.0, 0.3, 0.9]))
        lists[run] = {
            name: [f"{name}d{rank}" for rank in numbers.sample(range(4), numbers.randint(1, 4))]
            for name in names
            # a run without any list is refused
            if name == names[numbers.randrange(count)] or numbers.random() >= missing
        } or {names[0]: [f"{names[0]}d0"]}
    samples = st.none() | st.integers(1, count)
    readers = [READER, OUTSIDE] if has_auxiliary else draw(st.sampled_from([[READER], [READER, OUTSIDE], []]))
    return World(
        passages=passages,
        lists=lists,
        gold={
            name: f"{name}p0" if numbers.random() < 0.5 and passages[f"{name}d0"][0][-1] == "0" else None
            for name in names
        },
        known={name for name in names if numbers.random() < 0.2},
        annotators=[*readers, PAGES, JUDGE, RULE],
        reader_queries=draw(st.integers(31, count)) if has_auxiliary else draw(samples),
        judge_queries=draw(samples),
        judge_depth=draw(st.sampled_from([None, 1, 2])),
        keys={"auxiliary": RULE} if has_auxiliary else {},
    )


def nothing_found() -> World:
    """The one question that reader and judge are asked about has no document in any run."""
    names = [f"q{number}" for number in range(1, 5)]
    world = World(
        passages={}, lists={}, gold=dict.fromkeys(names), known=set(), reader_queries=1, judge_queries=1
    )
    (lost,) = world.sample(1)
    lists = {name: [f"{name}d0"] for name in names if name != lost}
    passages = {doc: (f"{name}p0", "good") for name, (doc,) in lists.items()}
    annotators = [READER, OUTSIDE, PAGES, JUDGE, RULE]
    return replace(world, passages=passages, lists=dict.fromkeys(RUNS, lists), annotators=annotators)


def failed_in_the_sample() -> World:
    """Two of the questions that the reader is asked about fail, and others have no list; a rule predicts the rest."""
    names = [f"q{number}" for number in range(40)]
    world = World(passages={}, lists={}, gold=dict.fromkeys(names), known=set(), reader_queries=36)
    failed = sorted(world.sample(36))[:2]
    texts = {name: "good Right" if number % 3 else "text" for number, name in enumerate(names)}
    passages = {
        f"{name}d0": (f"{name}p0", text) for name, text in {**texts, **dict.fromkeys(failed, "boom")}.items()
    }
    lists = {run: {name: [f"{name}d0"] for name in names[number:]} for number, run in enumerate(RUNS)}
    keys: dict[str, object] = {"auxiliary": RULE}
    return replace(world, passages=passages, lists=lists, annotators=[READER, RULE], keys=keys)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@example(nothing_found())
@example(failed_in_the_sample())
@given(worlds())
def test_every_table_knows_who_was_asked(world: World) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(world, functools.partial(table, world.run(pathlib.Path(folder))))


# --- a sample of the reader's questions, and a job of these questions ---

OF_LIKELIHOODS = ["erag", "gain", "gold_likelihood", "gain_likelihood", "usable", "udcg", "distracting"]


def test_a_sample_of_the_reader_is_the_job_of_that_sample(
    tmp_path: pathlib.Path, reads_here: list[int]
) -> None:
    tiny = towns(tmp_path, {"good": 30, "half": 10}, 30).with_config(
        reader=ReaderConfig(kind="outside_model:Words"),
        annotators=OF_LIKELIHOODS,
        end_to_end_depths=[1],
        depth=1,
    )
    lists = tiny.run("half").read_text().splitlines(keepends=True)
    tiny.run("half").write_text("".join(lists[::2]))
    jobs = [
        tiny.with_config(out=str(tmp_path / key), **{key: 12}) for key in ("num_queries", "reader_queries")
    ]
    for one in jobs:
        make_tables(one)
    for schema in (LABELS, UTILITY, PER_QUERY, CELLS):
        expected, found = (table(one, schema).sort(schema.key) for one in jobs)
        assert found.height
        assert_frame_equal(found, expected)
    gains = table(jobs[0], LABELS, annotator="gain_likelihood")["label"]
    assert gains.null_count() == 0


# --- by hand ---


def test_a_run_without_lists_and_a_sample_by_hand(tmp_path: pathlib.Path, reads_here: list[int]) -> None:
    tiny = towns(tmp_path, {"all": 160, "some": 160}, 160, {"right": "Person {n}", "wrong": "nobody"})
    lists = tiny.run("some").read_text().splitlines(keepends=True)
    # every fourth question has no list; where there is one, its document is right
    tiny.run("some").write_text("".join(row for number, row in enumerate(lists) if number % 4))
    tiny = tiny.with_config(
        depth=1, end_to_end_depths=[1], annotators=[READER, RULE], reader_queries=50, auxiliary=RULE
    )
    make_tables(tiny)
    hashes = sorted(range(160), key=lambda number: xxhash.xxh3_64_intdigest(f"0:q{number}".encode()))
    num_found = sum(number % 4 > 0 for number in hashes[:50])
    assert 0 < num_found < 50
    values = table(tiny, PER_QUERY, annotator=READER, run_id="some", measure="P")
    assert (values.height, values["value"].null_count(), values["value"].sum()) == (50, 0, num_found)
    keys = {"run_id": "some", "measure": "P", "annotator": READER}
    (row,) = table(tiny, MEANS, **keys).to_dicts()
    assert (row["num_queries"], row["num_dropped"]) == (50, 110)
    assert row["mean"] == pytest.approx(120 / 160, abs=1e-6)
    (row,) = table(tiny, AUXILIARY_MEANS, **keys).to_dicts()
    assert (row["num_read"], row["num_queries"]) == (50, 160)
    assert row["mean_read"] == pytest.approx(num_found / 50)
    (row,) = table(tiny, COMPARISONS, annotator=READER, measure="P").to_dicts()
    assert (row["num_queries"], row["num_dropped"]) == (50, 110)
    assert row["difference"] == pytest.approx(1 - 120 / 160, abs=1e-6)
    # the end-to-end score of an empty list is that without passages, which is wrong
    (row,) = table(tiny, MEANS, run_id="some", annotator="end_to_end").to_dicts()
    assert row["mean"] == pytest.approx(120 / 160, abs=1e-6)


def test_a_gate_predicts_what_was_not_asked_and_not_what_failed(tmp_path: pathlib.Path) -> None:
    names = [f"q{number}" for number in range(60)]
    texts = {f"{name}a": "good Right" if number % 2 else "text" for number, name in enumerate(names)}
    world = World(
        passages={
            doc: (doc[:-1], text) for doc, text in {**texts, **{f"{name}b": "text" for name in names}}.items()
        },
        lists={run: {name: [f"{name}{run}"] for name in names} for run in RUNS},
        gold=dict.fromkeys(names),
        known=set(),
        annotators=[READER, JUDGE, RULE],
        reader_queries=40,
        judge_queries=45,
    )
    failed = sorted(world.sample(40))[:3]
    world.passages.update({f"{name}b": (name, "boom") for name in failed})
    out = world.run(tmp_path).config.out
    keys = {"baseline": out, "baseline_run": "b", "candidate_run": "a"}
    comparison = gating.compare(GateConfig(auxiliary=RULE, **keys))  # type: ignore[arg-type]
    assert comparison.decisions["tiny"].num_questions == 37
    texts_of_report = [finding.text for finding in report_of(comparison).verdict.findings]
    scores = "questions without a score in one of the two"
    assert f"{scores}, predicted from {RULE}: 20 of 60" in texts_of_report
    assert f"{scores}, left out: 3" in texts_of_report
    with pytest.raises(InputError, match=f"{JUDGE} must label all questions.*without judge.num_queries"):
        gating.compare(GateConfig(auxiliary=JUDGE, **keys))  # type: ignore[arg-type]
