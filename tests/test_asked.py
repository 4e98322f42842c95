"""Not asked is not 0: sealed tables against the oracle, where reader and judge are asked about samples."""

import dataclasses
import pathlib
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import pytest
import xxhash
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from oracle import chance, check
from oracle.readings import Outside
from polars.testing import assert_frame_equal
from tiny import Tiny, kilt_line, make_tables, passage_line, table, trec_lines, write_tiny
from towns import towns

from erag_ray.analyses.cells import CELLS
from erag_ray.analyses.columns import PER_QUERY
from erag_ray.annotators import Annotator, Evidence, RequestSpec, every_pair
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.extras.gate import stage as gating
from erag_ray.extras.gate.comment import report_of
from erag_ray.extras.gate.config import GateConfig
from erag_ray.models import register_function
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.support.errors import InputError

RUNS = ("a", "b")
DEPTHS = (1, 3)
READER, JUDGE, PAGES = "erag", "llm_relevance", "provenance"
RULE, OUTSIDE = "contains_answer_dpr", "test_asked:IS_RIGHT"


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


BY_OUTPUT = Outside(
    applies=lambda query: not query.endswith("0"), label=lambda output: float(output == "Right")
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

    def run(self, folder: pathlib.Path) -> Tiny:
        """Run the job in this process."""
        tiny = write_tiny(folder)
        questions = {name: f"question {name}{' known' if name in self.known else ''}" for name in self.gold}
        tiny.queries.write_text(
            "".join(kilt_line(name, questions[name], "Right", page) for name, page in self.gold.items())
        )
        tiny.passages.write_text(
            "".join(passage_line(name, page, "", text) for name, (page, text) in self.passages.items())
        )
        for run, lists in self.lists.items():
            tiny.run(run).write_text(trec_lines({query: " ".join(docs) for query, docs in lists.items()}))
        register_function(read, "reader", "1")
        register_function(grade, "judge", "1")
        limits = {"num_queries": self.judge_queries, "depth": self.judge_depth}
        given = {
            "runs": {run: str(tiny.run(run)) for run in self.lists},
            "reader": ReaderConfig(kind="function", model="reader", revision="1"),
            "annotators": list(self.annotators),
            "reader_queries": self.reader_queries,
            "judge": JudgeConfig(kind="function", model="judge", revision="1", scale="grades", **limits),
            "end_to_end_depths": list(DEPTHS),
            "depth": max(DEPTHS),
            "measures": ["P", "R", "nDCG", "Success"],
            "cutoffs": [1],
            "num_resamples": 100,
            "num_permutations": 100,
            "num_readers": 0,
            "max_error_fraction": 1.0,
            "score": "exact_match",
        }
        tiny = tiny.with_config(**{**given, **self.keys})
        make_tables(tiny)
        return tiny


# --- worlds ---

# tests of differences take the oracle long, and slopes of what does not vary are noise; test_all_numbers.py holds both
ROUGH = re.compile(
    r"(\w*comparisons|best_depths|auxiliary_means) \(.*\) "
    r"(low|high|p_value|low_adjusted|high_adjusted|p_adjusted|detectable|num_needed|lambda): "
)


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
    lists = {run: {name: [f"{name}d0"] for name in names[2 * number :]} for number, run in enumerate(RUNS)}
    keys: dict[str, object] = {"auxiliary": RULE}
    return replace(world, passages=passages, lists=lists, annotators=[READER, RULE], keys=keys)


@pytest.fixture(scope="module", autouse=True)
def without_tests() -> Iterator[None]:
    """The oracle tests no difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chance.Flips, "_p", lambda flips: 1.0)
        patch.setattr(chance.Flips, "interval", lambda flips, alpha: (None, None))
        yield


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@example(nothing_found())
@example(failed_in_the_sample())
@given(worlds())
def test_every_table_knows_who_was_asked(world: World) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.asdict(world.run(pathlib.Path(folder)).config)
        found = check.differences(config, check.tables_of(config, {OUTSIDE: BY_OUTPUT}))
        assert [line for line in found if not ROUGH.match(line)] == []


# --- a sample of the reader's questions, and a job of these questions ---


def test_a_sample_of_the_reader_is_the_job_of_that_sample(
    tmp_path: pathlib.Path, reads_here: list[int]
) -> None:
    tiny = towns(tmp_path, {"good": 30, "half": 10}, 30).with_config(
        reader=ReaderConfig(kind="outside_model:Words"),
        annotators=["erag", "gain", "gold_likelihood", "usable", "udcg", "distracting"],
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


# --- a gate ---


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
    findings = {finding.text: finding.is_warning for finding in report_of(comparison).verdict.findings}
    scores = "questions without a score in one of the two"
    assert f"{scores}, predicted from {RULE}: 20 of 60" in findings
    assert findings[f"{scores}, left out: 3"]
    with pytest.raises(InputError, match=f"{JUDGE} must label all questions.*without judge.num_queries"):
        gating.compare(GateConfig(auxiliary=JUDGE, **keys))  # type: ignore[arg-type]
