"""The steps: bad input ends in one message before a model loads; what is merely odd is counted; exports; seals."""

import dataclasses
import json
import os
import pathlib

import polars as pl
import pytest
from input_files import without_errors
from scripts import ROOT, python
from several_datasets import three
from tiny import (
    PASSAGES,
    QUESTIONS,
    RUNS,
    Tiny,
    compare,
    job_command,
    kilt_line,
    make_tables,
    passage_line,
    table,
    trec_lines,
)

from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.export import export
from erag_ray.comparison import annotate
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.data.datasets.queries import sample
from erag_ray.data.runs.load import load_run
from erag_ray.data.runs.references import GOLD_PASSAGES
from erag_ray.inference.planning.plan import end_to_end_lists
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.measures import lists as measures
from erag_ray.models.echo import EchoModel
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.store.schemas import RUNS as RUNS_TABLE
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError


def append(path: pathlib.Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def problems_of(tiny: Tiny) -> tuple[str, ...]:
    """What `prepare` refuses; nothing may be sealed."""
    with pytest.raises(InputError) as refused:
        prepare(tiny.config)
    assert not list(tiny.folder.rglob("manifest.json"))
    return refused.value.problems


# --- bad input: one message that names the place ---


def test_an_unknown_document_below_the_depth_does_no_harm(tiny: Tiny) -> None:
    tiny.run("bad").write_text(trec_lines({**RUNS["bad"], "q1": "d2 d1 d11 nowhere"}))
    assert prepare(tiny.config).runs.filter(run_id="bad", query_id="q1").height == 3


def test_all_problems_of_all_inputs_come_in_one_message(tiny: Tiny) -> None:
    append(tiny.queries, kilt_line("q1", "again", "Ada", None))
    append(tiny.passages, passage_line("d1", *PASSAGES["d1"]))
    tiny.run("bad").write_text(trec_lines({"q1": "nowhere"}))
    changed = tiny.with_config(annotators=["erag", "oracle"], statistics=["pearson"])
    problems = problems_of(changed)
    assert len(problems) == 5
    for word in (str(tiny.queries), str(tiny.passages), "'nowhere'", "'oracle'", "'pearson'"):
        assert any(word in problem for problem in problems), word


def test_a_job_ends_with_code_2_and_seals_nothing(tiny: Tiny) -> None:
    append(tiny.queries, kilt_line("q1", "again", "Ada", None))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = python(*job_command(tiny.config, tiny.folder)[1:], env=environment)
    assert done.returncode == 2
    assert f"{tiny.queries}:7" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tiny.folder.rglob("manifest.json"))


# --- the config ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"annotators": ["oracle"]}, ["annotators", "'oracle'", "erag"]),
        ({"annotators": ["json:loads"]}, ["annotators", "json:loads", "Annotator"]),
        ({"annotators": []}, ["annotators"]),
        ({"annotators": ["erag", "erag"]}, ["annotators", "erag", "more than once"]),
        ({"statistics": ["pearson"]}, ["statistics", "'pearson'", "kendall_tau_b"]),
        ({"statistics": ["json:loads"]}, ["statistics", "json:loads"]),
        ({"statistics": ["spearman_rho", "spearman_rho"]}, ["statistics", "more than once"]),
        ({"score": "bleu"}, ["score", "'bleu'", "exact_match"]),
        ({"measures": ["MAP", "AP"]}, ["measures: AP is named more than once"]),
        ({"measures": ["hit", "P", "HitRatio"]}, ["measures: Success is named more than once"]),
        ({"measures": ["nDGC"]}, ["measures: unknown measure 'nDGC'", "Did you mean 'nDCG'?"]),
        ({"score": "exact"}, ["score: unknown score 'exact'", "Did you mean 'exact_match'?"]),
        ({"annotators": ["eRAG"]}, ["annotators: unknown annotator 'eRAG'", "Did you mean 'erag'?"]),
        ({"statistics": ["kendall"]}, ["unknown statistic 'kendall'", "Did you mean 'kendall_tau_b'?"]),
        ({"runs": {}}, ["runs"]),
        *(({"runs": {name: "good.trec"}}, ["runs: the name"]) for name in ("", " ", "gold passages")),
        *(({"runs": {name: "good.trec"}}, [name]) for name in ("no_passages", "gold_passages")),
        ({"measures": ["ERR"]}, ["'ERR'", *measures.MEASURES]),
        ({"threshold": 0.0}, ["threshold"]),
        ({"score": "abstained", "annotators": ["gain"]}, ["more of abstained is not better, as gain would"]),
        ({"score": "abstained", "slices": ["known"]}, ["more of abstained is not better, as slice known"]),
    ],
)
def test_a_name_that_means_nothing_is_refused_before_a_reader_is_made(
    tiny: Tiny, changes: dict[str, object], words: list[str]
) -> None:
    problems = " ".join(problems_of(tiny.with_config(**changes)))
    assert all(word in problems for word in words), problems


@pytest.mark.parametrize("measure", ["R", "AP", "RR"])
def test_measures_that_need_a_threshold_on_graded_labels_are_refused(tiny: Tiny, measure: str) -> None:
    graded = {"measures": [measure], "score": "token_f1", "annotators": ["erag"]}
    (problem,) = problems_of(tiny.with_config(**graded))
    assert "threshold" in problem
    assert measure in problem
    prepare(tiny.with_config(**graded, threshold=0.5).config)


# --- the sample ---


def test_the_sample_is_the_same_for_any_order_of_the_file_and_any_runs(tiny: Tiny) -> None:
    config = dataclasses.replace(tiny.config, num_queries=3, runs={"good": str(tiny.run("good"))})
    first = prepare(config).queries["query_id"].to_list()
    tiny.queries.write_text("".join(reversed(tiny.queries.read_text().splitlines(keepends=True))))
    other = dataclasses.replace(config, runs={"third": str(tiny.run("third")), "good": str(tiny.run("good"))})
    inputs = prepare(other)
    assert inputs.queries["query_id"].to_list() == first
    assert len(first) == 3
    assert {*inputs.runs["query_id"], *inputs.gold["query_id"], *inputs.provenance["query_id"]} <= set(first)


def test_a_dataset_without_a_question_in_the_sample_is_named(tmp_path: pathlib.Path) -> None:
    inputs = prepare(three(tmp_path).with_config(num_queries=1).config)
    others = ", ".join(sorted({"nq", "fever", "wow"} - {*inputs.queries["dataset"]}))
    assert (
        f"num_queries: the sample of 1 of 14 questions of all datasets has none of {others}" in inputs.notes
    )


def test_another_seed_draws_another_sample_and_a_larger_one_contains_the_smaller() -> None:
    queries = pl.DataFrame({"query_id": [f"q{number}" for number in range(200)]})
    small, large = (set(sample(queries, size, 0)["query_id"]) for size in (20, 40))
    assert small < large
    assert set(sample(queries, 20, 1)["query_id"]) != small
    assert sample(queries, None, 0).height == sample(queries, 500, 0).height == 200


# --- files as people have them ---


def test_plain_questions_and_trec_qrels_all_the_way(tiny: Tiny, reads_here: list[int]) -> None:
    qrels = tiny.folder / "qrels.txt"
    # of q2 more are gold than the lists are deep
    qrels.write_text("".join(f"{line}\n" for line in (
        "q1 0 d1 1", "q1 0 d2 0", "q2 0 d12 3", "q2 0 d11 2", "q2 0 d3 1", "q2 0 d4 1", "q3 0 d6 1", "q4 0 d8 0",
    )))  # fmt: skip
    lines = [
        {"question": question, "answers": [answer], "id": query_id}
        for query_id, (question, answer, _) in QUESTIONS.items()
    ]
    tiny.queries.write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed = tiny.with_config(qrels=[str(qrels)])
    make_tables(changed)
    labels = table(changed, LABELS, annotator="provenance")
    useful = labels.filter(label=1.0).select("query_id", "doc_id").rows()
    assert useful == [("q1", "d1"), ("q2", "d11"), ("q2", "d3"), ("q2", "d4"), ("q3", "d6")]
    assert not labels["label"].null_count()
    assert set(labels["query_id"]) == {"q1", "q2", "q3"}
    # nothing is known of the gold pages, and only so many gold passages are read as lists are deep
    assert end_to_end_lists(changed.config, prepared(changed.config)).filter(run_id=GOLD_PASSAGES).select(
        "query_id", "doc_ids"
    ).rows() == [("q1", ["d1"]), ("q2", ["d12", "d11", "d3"]), ("q3", ["d6"])]
    # q5 and q6 have no line in the qrels
    assert table(changed, UTILITY)["query_id"].n_unique() == len(QUESTIONS)
    note = "questions without a line in the qrels and without gold passages: 2 (q5, q6)"
    assert note in prepared(changed.config).notes


# --- counted, not fatal ---


def test_lists_of_pages_outside_the_sample_are_counted_though_their_pages_are_not_loaded(tiny: Tiny) -> None:
    path = tiny.folder / "pages.jsonl"
    lines = [
        {"id": name, "output": [{"provenance": [{"wikipedia_id": page}]}]}
        for name, page in (("q1", "p1"), ("x", "p99"))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    notes = prepare(tiny.with_config(runs={"pages": str(path)}).config).notes
    assert any("outside the sample" in note and "(x)" in note for note in notes), notes


# --- what is sealed, and for which settings ---


def test_prepared_gives_what_prepare_sealed(tiny: Tiny) -> None:
    made, found = prepare(tiny.config), prepared(tiny.config)
    for name in ("queries", "provenance", "corpus", "runs", "gold"):
        assert getattr(made, name).equals(getattr(found, name)), name
    assert found.datasets == made.datasets
    assert found.notes == list(made.notes)
    # other measures need no other inputs
    prepared(tiny.with_config(measures=["P"], cutoffs=[2], confidence=0.9).config)


@pytest.mark.parametrize(
    "changes",
    [{"depth": 2, "end_to_end_depths": [1]}, {"num_queries": 2}, {"seed": 7}, {"score": "token_f1"}],
)
def test_prepared_refuses_other_settings(tiny: Tiny, changes: dict[str, object]) -> None:
    prepare(tiny.config)
    with pytest.raises(InputError, match=next(iter(changes))):
        prepared(tiny.with_config(**changes).config)


def test_prepared_refuses_what_is_not_sealed_or_has_changed_and_needs_no_files(tiny: Tiny) -> None:
    with pytest.raises(InputError, match="run erag-ray prepare"):
        prepared(tiny.config)
    prepare(tiny.config)
    append(tiny.run("bad"), "q6 Q0 d1 1 1 tag\n")
    with pytest.raises(InputError, match=r"bad\.trec has changed"):
        prepared(tiny.config)
    for path in (tiny.queries, tiny.passages, tiny.run("good"), tiny.run("bad")):
        path.unlink()
    assert prepared(tiny.config).queries.height == len(QUESTIONS)


def test_what_was_made_by_another_reader_or_from_other_inputs_is_refused(
    compared: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EchoModel, "revision", 2)
    inputs = prepared(compared.config)
    annotate(compared.config, inputs)
    with pytest.raises(InputError, match=r"labels are of the reader echo-\w+, utility of echo-\w+"):
        evaluate(compared.config, inputs)
    append(compared.passages, passage_line("d13", *PASSAGES["d1"]))
    run = compared.run("good")
    run.write_text(run.read_text().replace(" d1 ", " d13 "))
    inputs = prepare(compared.config)
    out = pathlib.Path(compared.config.out)
    assert not (out / "report.md").exists()
    assert not (out / "compare" / "manifest.json").exists()
    message = "{} were made with another corpus, gold, runs; run erag-ray {} again"
    with pytest.raises(InputError, match=message.format("labels", "annotate")):
        evaluate(compared.config, inputs)
    annotate(compared.config, inputs)
    with pytest.raises(InputError, match=message.format("utility", "end_to_end")):
        evaluate(compared.config, inputs)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"annotators": ["erag"]}, "annotators"),
        ({"end_to_end_depths": [2]}, "end_to_end_depths"),
        ({"reader": ReaderConfig(kind="echo", max_new_tokens=3)}, "reader"),
    ],
)
def test_evaluate_refuses_labels_and_utility_of_other_settings(
    compared: Tiny, changes: dict[str, object], named: str
) -> None:
    other = compared.with_config(**changes)
    with pytest.raises(InputError, match=named):
        evaluate(other.config, prepared(other.config))


def test_the_speed_of_a_reader_is_not_one_of_its_settings(compared: Tiny) -> None:
    reader = ReaderConfig(kind="echo", batch_size=7, simulated_latency_seconds=1.0)
    other = compared.with_config(reader=reader)
    evaluate(other.config, prepared(other.config))


# --- TREC files ---


def test_exported_runs_read_back_in_the_same_order_and_qrels_hold_the_labels(compared: Tiny) -> None:
    folder = pathlib.Path(compared.config.out) / "trec"
    runs = table(compared, RUNS_TABLE)
    for name in ("good", "bad"):
        back = without_errors(load_run, name, folder / f"{name}.trec")
        order = ["query_id", "rank", "doc_id"]
        expected = runs.filter(run_id=name).sort("query_id", "rank").select(order)
        assert back.select(order).rows() == expected.rows()
    labels = table(compared, LABELS, annotator="provenance")
    expected = {
        f"{query} 0 {doc} {int(label)}"
        for query, doc, label in labels[:, ["query_id", "doc_id", "label"]].rows()
    }
    assert set((folder / "provenance.qrels").read_text().splitlines()) == expected
    (of_erag,) = folder.glob("erag.exact_match.*.qrels")
    assert {"q1 0 d1 1", "q1 0 d2 0"} <= set(of_erag.read_text().splitlines())


def exported(config: JobConfig) -> list[str]:
    """Prepare and export a job without labels; what could not be written."""
    inputs = prepare(config)
    TableStore(config.out).write(LABELS.empty(), LABELS)
    return export(config, inputs)


@pytest.mark.parametrize("name", ["../../up", "/etc/passwd", "..", "a/b", ".hidden", "x\ny"])
def test_a_run_name_cannot_leave_the_folder(tiny: Tiny, name: str) -> None:
    config = dataclasses.replace(tiny.config, runs={name: str(tiny.run("good"))})
    before = {path for path in tiny.folder.rglob("*") if path.is_file()}
    problems = exported(config)
    folder = pathlib.Path(config.out) / "trec"
    written = {path for path in tiny.folder.rglob("*.trec") if path.is_file()} - before
    assert all(path.parent == folder for path in written)
    assert len(written) + len(problems) == 1  # white space cannot stand in a TREC file: said, not written


def test_two_names_do_not_become_one_file_and_files_of_former_runs_go(tiny: Tiny) -> None:
    runs = {"a/b": str(tiny.run("good")), "a_b": str(tiny.run("bad"))}
    config = dataclasses.replace(tiny.config, runs=runs)
    assert not exported(config)
    folder = pathlib.Path(config.out) / "trec"
    tags = {path.read_text().split()[5] for path in folder.glob("*.trec")}
    assert tags == {"a/b", "a_b"}
    fewer = dataclasses.replace(config, runs={"a_b": str(tiny.run("bad"))})
    assert not exported(fewer)
    assert [path.name for path in folder.glob("*.trec")] == ["a_b.trec"]


def test_graded_labels_without_a_threshold_are_not_exported_and_that_is_said(
    tiny: Tiny, reads_here: list[int]
) -> None:
    tiny = tiny.with_config(score="token_f1", annotators=["erag"])
    tiny.passages.write_text(tiny.passages.read_text().replace('"Ada Brunner"', '"Ada Brunner of Graz"'))
    compare(tiny)
    assert not list((pathlib.Path(tiny.config.out) / "trec").glob("*.qrels"))
    assert "was not written: graded labels" in (pathlib.Path(tiny.config.out) / "report.md").read_text()
