"""reader_queries and auxiliary: the reader answers a sample of the questions, a cheap label predicts the others."""

import dataclasses
import pathlib

import polars as pl
import pytest
from conftest import finish
from tiny import Tiny, make_tables, table
from towns import towns

from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.extras.auxiliary import AUXILIARY_MEANS
from erag_ray.extras.gate import stage as gating
from erag_ray.extras.gate.comment import report_of as gate_report
from erag_ray.extras.gate.config import GateConfig
from erag_ray.inference.planning.uses import check_reader
from erag_ray.inputs.stage import prepare
from erag_ray.report.build import build_report
from erag_ray.report.load import load
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

NUM_QUESTIONS = 200
NUM_READ = 60
RIGHT = {"good": 130, "half": 90}
PERFECT = {"right": "Person {n} lives in town {n}", "wrong": "nobody lives in town {n}"}
"""Texts that contain the answer exactly where the reader, which reads titles, gives it."""
USELESS = dict.fromkeys(PERFECT, "Person {n} lives in town {n}")
CONTAINS = "contains_answer_dpr"
JUDGED = {"judge": JudgeConfig(kind="causal", model="a", num_queries=100), "reader_queries": NUM_READ}
CHEAP = ReaderConfig(kind="echo", max_new_tokens=3)


def job(folder: pathlib.Path, texts: dict[str, str] = PERFECT, **keys: object) -> Tiny:
    """A finished comparison of two runs."""
    tiny = towns(folder, RIGHT, NUM_QUESTIONS, texts)
    tiny = tiny.with_config(depth=1, end_to_end_depths=[1], annotators=["erag", CONTAINS], **keys)
    return finish(tiny, make_tables)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return job(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return job(tmp_path_factory.mktemp("perfect"), reader_queries=NUM_READ, auxiliary=CONTAINS)


def by_reader(tiny: Tiny, schema: object = MEANS) -> pl.DataFrame:
    """Rows about what the reader was asked, without the references."""
    rows = table(tiny, schema).filter(pl.col("annotator") != CONTAINS)  # type: ignore[arg-type]
    return rows.filter(pl.col("run_id").is_in(list(RIGHT))) if "run_id" in rows.columns else rows


def test_the_report_shows_what_the_auxiliary_adds(perfect: Tiny) -> None:
    results = load(perfect.config.out)
    said = build_report(results).verdict
    (finding,) = [one.text for one in said.datasets[0].findings if "questions were answered" in one.text]
    assert finding.startswith(f"60 of 200 questions were answered; with {CONTAINS} of all, intervals are .")
    # means and differences are over all questions, by labels of all and by the answers to some
    assert (said.datasets[0].num_queries, said.datasets[0].answer.count("from the answers to 60")) == (200, 2)
    assert not [one for one in said.datasets[0].findings if "on other questions" in one.text]
    (retrievers,) = [one for one in tables_of(build_report(results)) if one.name.startswith("retrievers")]
    notes = {cell.note for row in retrievers.rows for cell in row[2:4]}
    assert (notes, "(200 queries)" in retrievers.title) == ({""}, True)
    (shown,) = [one for one in tables_of(build_report(results)) if one.name.startswith("auxiliary")]
    (row,) = [row for row in shown.rows if [cell.value for cell in row[:2]] == ["good", "end_to_end"]]
    assert row[3].value == pytest.approx(130 / 200)
    labels = table(perfect, LABELS)
    num_saved = labels.filter(annotator=CONTAINS).height - labels.filter(annotator="erag").height
    others = f"the others have {num_saved:,} documents and 280 lists in the runs"
    assert any(others in note for note in results.notes)


def test_a_dataset_of_which_the_auxiliary_says_nothing_is_named(tmp_path: pathlib.Path) -> None:
    # verdicts are not looked for in passages
    tiny = job(tmp_path, reader_queries=NUM_READ, auxiliary=CONTAINS, score="accuracy")
    assert table(tiny, AUXILIARY_MEANS).is_empty()
    note = f"tiny: nothing is predicted from {CONTAINS}: it labels none of its questions"
    assert note in load(tiny.config.out).notes
    assert set(by_reader(tiny)["num_queries"]) == {NUM_READ}


def test_a_job_that_cannot_predict_the_end_to_end_score_says_so(tmp_path: pathlib.Path) -> None:
    tiny = job(tmp_path, reader_queries=NUM_READ, auxiliary=CONTAINS, measures=["nDCG"])
    text = "tiny: the end-to-end score is not predicted from contains_answer_dpr: that takes its P or Success"
    assert f"{text}; add one to measures" in load(tiny.config.out).notes


def test_labels_of_a_sample_are_not_taken_for_those_of_all_questions(perfect: Tiny) -> None:
    config = dataclasses.replace(perfect.config, reader_queries=None, auxiliary=None)
    inputs = prepare(config)
    with pytest.raises(InputError, match="labels were made with another reader_queries, sample_seed"):
        evaluate(config, inputs)


def test_the_note_on_the_sample_is_that_of_the_last_job(tmp_path: pathlib.Path) -> None:
    # no annotator asks the reader, so labels and measures stay as they are
    for count, notes in ((60, ["60 of 200"]), (90, ["90 of 200"]), (None, [])):
        tiny = towns(tmp_path, RIGHT, NUM_QUESTIONS, PERFECT)
        tiny = tiny.with_config(depth=1, end_to_end_depths=[1], annotators=[CONTAINS], reader_queries=count)
        finish(tiny, make_tables)
        shown = [note for note in load(tiny.config.out).notes if "reader_queries" in note]
        assert [note.split(" questions")[0].removeprefix("the reader answers ") for note in shown] == notes


def test_a_job_without_an_auxiliary_has_no_table_of_it(tmp_path: pathlib.Path) -> None:
    tiny = job(tmp_path, reader_queries=NUM_READ, auxiliary=CONTAINS)
    assert TableStore(tiny.config.out).is_sealed(AUXILIARY_MEANS)
    again = tiny.with_config(auxiliary=None)
    finish(again, make_tables)
    assert not TableStore(tiny.config.out).is_sealed(AUXILIARY_MEANS)
    (row,) = table(again, MEANS, annotator="end_to_end", run_id="good").to_dicts()
    assert row["mean"] == pytest.approx(table(again, UTILITY, run_id="good")["value"].mean())


def test_a_cheap_reader_labels_all_questions(whole: Tiny, tmp_path: pathlib.Path) -> None:
    cheap = dataclasses.replace(whole.config.reader, max_new_tokens=40)
    annotators = ["erag", CONTAINS, "erag_auxiliary"]
    tiny = towns(tmp_path, RIGHT, NUM_QUESTIONS, USELESS).with_config(depth=1, end_to_end_depths=[1])
    sample = {"reader_queries": NUM_READ, "auxiliary": "erag_auxiliary", "auxiliary_reader": cheap}
    tiny = tiny.with_config(annotators=annotators, **sample)
    finish(tiny, make_tables)
    # the echo reader writes no more than a title, so both readers agree
    for run, right in RIGHT.items():
        (row,) = table(tiny, MEANS, annotator="end_to_end", run_id=run).to_dicts()
        assert row["mean"] == pytest.approx(right / NUM_QUESTIONS, abs=1e-6)
    labels = table(tiny, LABELS, annotator="erag_auxiliary")
    assert labels["query_id"].n_unique() == NUM_QUESTIONS
    assert labels.select("reader", "score").unique().row(0) == ("", "exact_match")


def gated(tiny: Tiny, **keys: object) -> gating.Comparison:
    """What a gate says of half and good, unless the keys say else."""
    runs = {"baseline_run": "half", "candidate_run": "good"}
    return gating.compare(GateConfig(**{"baseline": tiny.config.out, **runs, **keys}))  # type: ignore[arg-type]


def said_by(comparison: gating.Comparison) -> list[str]:
    """The findings of its report."""
    return [finding.text for finding in gate_report(comparison).verdict.findings]


def test_a_perfect_auxiliary_gives_the_gate_of_all_readings(whole: Tiny, perfect: Tiny) -> None:
    full, sample, without = gated(whole), gated(perfect, auxiliary=CONTAINS), gated(perfect)
    one, other = full.decisions["tiny"], sample.decisions["tiny"]
    assert (other.verdict, other.num_questions) == ("passed", NUM_READ)
    assert [other.difference, other.high] == pytest.approx([one.difference, one.high], abs=1e-6)
    predicted = f"questions without a score in one of the two, predicted from {CONTAINS}: 140 of 200"
    assert predicted in said_by(sample)
    assert "left out" not in " ".join(said_by(sample))
    assert "questions without a score in one of the two, left out: 140" in said_by(without)
    # what the means are of
    answers = [gate_report(found).verdict.datasets[0].answer for found in (sample, without)]
    assert " on the answered questions, difference +0.200 " in answers[0]
    assert " on the answered questions" not in answers[1]


def test_a_gate_passes_a_sample_of_which_nothing_changed(perfect: Tiny, tmp_path: pathlib.Path) -> None:
    found = []
    for count in (NUM_READ, NUM_READ + 1):
        one = perfect.with_config(out=str(tmp_path / str(count)), reader_queries=count)
        finish(one, make_tables)
        found.append(gated(perfect, candidate=one.config.out, candidate_run="half"))
    assert [(one.verdict, one.is_unchanged) for one in found] == [("passed", True), ("not settled", False)]


def test_a_gate_predicts_nothing_from_few_answers(perfect: Tiny, tmp_path: pathlib.Path) -> None:
    few = job(tmp_path, reader_queries=29)
    texts = " ".join(said_by(gated(perfect, candidate=few.config.out, auxiliary=CONTAINS)))
    assert "predicted" not in texts
    assert "left out: 171" in texts


def test_a_gate_names_the_annotators_that_can_be_auxiliary(perfect: Tiny) -> None:
    with pytest.raises(InputError, match=f"by erag; annotators that ask no reader: {CONTAINS}"):
        gated(perfect, auxiliary="erag")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"auxiliary": CONTAINS}, "auxiliary: set reader_queries"),
        ({"auxiliary": CONTAINS, "reader_queries": 29}, "reader_queries must be at least 30"),
        ({"auxiliary": "provenance", "reader_queries": 60}, "auxiliary: provenance is not among annotators"),
        ({"annotators": ["erag"], "auxiliary_reader": CHEAP}, "auxiliary_reader: no annotator asks it"),
        (
            {"annotators": ["erag_auxiliary"], "auxiliary_reader": ReaderConfig(kind="echo")},
            "is the reader itself",
        ),
        # the judge's sample would hold the questions that the reader answers
        (
            {"annotators": ["erag", "llm_relevance"], "auxiliary": "llm_relevance", **JUDGED},
            r"llm_relevance must label all.*; leave judge\.num_queries out",
        ),
        (
            {"reader_queries": NUM_READ, "auxiliary": "erag"},
            f"auxiliary: erag asks the reader.*such as {CONTAINS}",
        ),
    ],
)
def test_an_auxiliary_that_cannot_be_is_refused(
    tmp_path: pathlib.Path, keys: dict[str, object], message: str
) -> None:
    tiny = towns(tmp_path, RIGHT, NUM_QUESTIONS, PERFECT)
    with pytest.raises(InputError, match=message):
        prepare(tiny.with_config(**{"annotators": ["erag", CONTAINS], **keys}).config)


def test_an_annotator_that_lacks_its_auxiliary_reader_is_refused() -> None:
    config = JobConfig(annotators=["erag_auxiliary"], reader=ReaderConfig(kind="echo"))
    assert check_reader(config, {}) == [
        "auxiliary_reader: erag_auxiliary and the like need it; set auxiliary_reader.kind and .model"
    ]
