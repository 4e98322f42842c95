"""jobs/gate.py: exit codes and comment of a finished comparison, what differs, and what is refused by name."""

import dataclasses
import io
import json
import pathlib
import re
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pyarrow.fs as pafs
import pytest
import rich.console
import yaml
from conftest import ROOT, finish
from several_datasets import three
from tiny import RunJob, Tiny, make_tables
from towns import towns

import erag_ray as er
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.extras.gate import stage as gating
from erag_ray.extras.gate.changes import Difference
from erag_ray.extras.gate.comment import report_of
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.gate.stage import gate
from erag_ray.store.schemas import CORPUS, LABELS, LIST_OUTPUTS, QUERIES, RUNS, UTILITY, TableSchema
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

NUM_QUESTIONS = 40
# run: how many of the questions it has the answer to
RIGHT = {"good": 40, "half": 20, "slip": 39, "copy": 40}
PASSES = {"baseline_run": "half", "candidate_run": "good"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A finished comparison of four runs over 40 questions."""
    tiny = towns(tmp_path_factory.mktemp("finished"), RIGHT, NUM_QUESTIONS)
    return finish(tiny, make_tables)


@pytest.fixture
def out(finished: Tiny) -> str:
    """The finished folder; tests only read it."""
    return finished.config.out


@pytest.fixture
def other(finished: Tiny, tmp_path: pathlib.Path) -> TableStore:
    """A copy of the finished folder, to be changed at will."""
    return TableStore(str(shutil.copytree(finished.config.out, tmp_path / "other")))


def run_gate(job: RunJob, tmp_path: pathlib.Path, **keys: object) -> tuple[int, str, str]:
    """The job's exit code, what it said on standard error, and its comment."""
    config: Any = GateConfig(**{"out": str(tmp_path / "gate"), **keys})  # type: ignore[arg-type]
    code, said = job("gate", Tiny(folder=tmp_path, config=config))
    comment = tmp_path / "gate" / "gate.md"
    return code, said, comment.read_text() if comment.exists() else ""


def reseal(
    store: TableStore,
    schema: TableSchema,
    change: Callable[[pl.DataFrame], pl.DataFrame] = lambda table: table,
    config: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda settings: settings,
) -> None:
    """Seal a changed table, as a job with other inputs would have left it: nothing is stale."""
    names = [QUERIES, RUNS, CORPUS, UTILITY, LIST_OUTPUTS]
    for one in names:
        manifest, table = store.manifest(one), store.read(one)
        settings = config(manifest["config"]) if one == schema else manifest["config"]
        store.write(change(table) if one == schema else table, one, config=settings)
    store.invalidate(MEANS)


def decided(**keys: object) -> gating.Comparison:
    """What a gate says of half and good, unless the keys say else."""
    return gating.compare(GateConfig(**{**PASSES, **keys}))  # type: ignore[arg-type]


def refusal(**keys: object) -> str:
    """The message of a gate that is refused, without asking what it would have said."""
    with pytest.raises(InputError) as raised:
        decided(**keys)
    return str(raised.value)


# --- the job ---


@pytest.mark.parametrize(
    ("baseline_run", "candidate_run", "code", "title"),
    [
        ("half", "good", 0, "Gate: passed"),
        ("good", "half", 3, "Gate: failed"),
        ("good", "slip", 4, "Gate: not settled"),
        ("good", "copy", 0, "Gate: passed"),
    ],
)
def test_each_verdict_has_its_exit_code_and_comment(
    job: RunJob,
    out: str,
    tmp_path: pathlib.Path,
    baseline_run: str,
    candidate_run: str,
    code: int,
    title: str,
) -> None:
    found, said, comment = run_gate(
        job, tmp_path, baseline=out, baseline_run=baseline_run, candidate_run=candidate_run
    )
    assert (found, said) == (code, "")
    assert comment.startswith(f"# {title}\n\n{candidate_run} against {baseline_run} of ")
    assert "## By dataset" in comment
    assert "## What changed" in comment
    assert "cost of " in comment


def test_the_comment_lists_ten_questions_that_are_lost_with_both_outputs(
    job: RunJob, out: str, tmp_path: pathlib.Path
) -> None:
    _, _, comment = run_gate(job, tmp_path, baseline=out, baseline_run="good", candidate_run="half")
    lost = comment.partition("## Questions lost")[2]
    assert "## Questions won" not in comment
    rows = re.findall(r"^\| tiny \| q(\d+) \| -1.000 \| (.*) \|$", lost, re.MULTILINE)
    assert [int(number) for number, _ in rows] == sorted(range(20, 40), key=str)[:10]
    assert rows[0][1] == "'who lives in town 20' | 'Person 20' | 'Person 20' | 'Nobody'"
    assert "The 10 largest of 20." in lost
    assert "report/index.html\\#view=question&amp;id=ID" in lost


def test_the_console_has_a_few_lines(out: str, tmp_path: pathlib.Path) -> None:
    config = GateConfig(baseline=out, baseline_run="good", candidate_run="slip", out=str(tmp_path))
    shown = io.StringIO()
    assert gate(config, rich.console.Console(file=shown, width=1000)) == 4
    lines = shown.getvalue().splitlines()
    assert lines[0] == f"slip against good of {out}, with 3 documents: not settled"
    assert lines[1] == (
        "tiny: not settled: exact_match 1.000 -> .975, difference -0.025 "
        f"[{-largest_loss():+.3f}, {0.9 * largest_loss():+.3f}], margin .020"
    )
    needed = r"  not settled with 40 questions; about [\d,]+ would be needed for this difference"
    assert re.fullmatch(needed, lines[2])
    assert lines[3] == "what changed: run: good -> slip, 1 of 40 lists differ in the first 3 documents"
    assert lines[4] == "what changed: retriever: lists from " + " -> ".join(
        str(pathlib.Path(out).parent / f"{run}.trec") for run in ("good", "slip")
    )
    assert lines[-1] == f"Comment: {tmp_path}/gate.md"
    assert len(lines) == 7


def largest_loss() -> float:
    """The largest share of lost questions that one of 40 allows with 95 %: by bisection of P(X <= 1) = .05."""
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        is_allowed = (1 - share) ** 40 + 40 * share * (1 - share) ** 39 > 0.05
        low, high = (share, high) if is_allowed else (low, share)
    return high


def test_the_same_lists_pass_whatever_the_number_of_questions(out: str) -> None:
    found = gating.compare(GateConfig(baseline=out, baseline_run="good", candidate_run="copy"))
    assert (found.verdict, found.is_unchanged) == ("passed", True)
    assert found.decisions["tiny"].verdict == "not settled"
    findings = report_of(found).verdict.findings
    assert findings[0].text == "the reader's requests and scores are the same in both"


def test_another_job_with_the_same_questions_in_any_order_may_be_the_candidate(
    out: str, other: TableStore
) -> None:
    reseal(other, QUERIES, lambda table: table.reverse())
    found = decided(baseline=out, candidate=other.folder.root)
    assert found.verdict == "passed"
    (row,) = next(table for table in tables_of(report_of(found)) if table.name == "datasets").rows
    assert [value.value for value in row] == ["tiny", "exact_match", 40, 0.5, 1.0, 0.5, 20, 0, "passed"]
    assert found.candidate.folder == other.folder.root


def test_folders_and_comment_may_lie_in_an_object_store(
    job: RunJob, out: str, s3: str, tmp_path: pathlib.Path
) -> None:
    filesystem, path = pafs.FileSystem.from_uri(s3)
    pafs.copy_files(out, f"{path}/old", destination_filesystem=filesystem)
    code, said, _ = run_gate(job, tmp_path, baseline=f"{s3}/old", comment=f"{s3}/new/gate.md", **PASSES)
    assert (code, said) == (0, "")
    with filesystem.open_input_stream(f"{path}/new/gate.md") as stream:
        comment = stream.read().decode()
    assert comment.startswith("# Gate: passed")
    assert f"cost of {s3}/old: " in comment


def test_markup_in_ids_questions_and_answers_is_text(
    job: RunJob, out: str, other: TableStore, tmp_path: pathlib.Path
) -> None:
    reseal(other, QUERIES, lambda table: table.with_columns(question=pl.lit("<b>|x|</b> [a](b)")))
    _, _, comment = run_gate(job, tmp_path, baseline=other.folder.root, **PASSES)
    assert "<b>" not in comment
    assert "[a](b)" not in comment


def in_two_datasets(store: TableStore, first: str, size: int, second: str) -> None:
    """Put the questions of numbers below ``size`` in one dataset, the others in a second."""
    number = pl.col("query_id").str.slice(1).cast(pl.Int64)
    dataset = pl.when(number < size).then(pl.lit(first)).otherwise(pl.lit(second))
    settings = {"family": "question", "language": "en", "max_new_tokens": 50, "score": "exact_match"}
    reseal(
        store,
        QUERIES,
        lambda table: table.with_columns(dataset=dataset),
        lambda config: {**config, "datasets": {first: settings, second: settings}},
    )


@pytest.mark.parametrize(
    ("runs", "verdicts", "whole"),
    [
        (("half", "good"), ["not settled", "passed"], "not settled"),
        (("good", "half"), ["not settled", "failed"], "failed"),
    ],
)
def test_two_datasets_are_decided_one_by_one(
    other: TableStore, runs: tuple[str, str], verdicts: list[str], whole: str
) -> None:
    in_two_datasets(other, "easy", 20, "hard")
    first, second = runs
    found = gating.compare(GateConfig(baseline=other.folder.root, baseline_run=first, candidate_run=second))
    assert list(found.decisions) == ["easy", "hard"]
    assert [one.verdict for one in found.decisions.values()] == verdicts
    assert found.verdict == whole


def test_of_equal_changes_those_of_all_datasets_are_listed_in_turn(other: TableStore) -> None:
    in_two_datasets(other, "a", 37, "b")
    found = decided(baseline=other.folder.root)
    (won,) = [table for table in tables_of(report_of(found)) if table.name == "won"]
    assert "".join(str(row[0].value) for row in won.rows) == "abababaaaa"


def test_each_dataset_has_its_score_and_too_few_questions_settle_nothing(
    tmp_path: pathlib.Path, reads_here: list[int]
) -> None:
    tiny = three(tmp_path)
    make_tables(tiny)
    runs = {"baseline_run": "bm25", "candidate_run": "bm25_lead"}
    found = gating.compare(GateConfig(baseline=tiny.config.out, **runs))
    assert list(found.decisions) == ["fever", "nq", "wow"]
    assert {one.num_questions for one in found.decisions.values()} == {4, 6}
    assert {one.verdict for one in found.decisions.values()} == {"not settled"}
    scores = {row[1].value for row in tables_of(report_of(found))[0].rows}
    assert scores == {"accuracy", "exact_match", "token_f1"}
    assert "corrected by Holm" in tables_of(report_of(found))[0].caption


# --- what may differ ---


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"dtype": "bfloat16"}, "reader", "dtype: float32 -> bfloat16"),
        ({"model": "x" * 100}, "reader", f"model: None -> {'x' * 77}..."),
        ({"new_key": 3}, "reader", "new_key: (default) -> 3"),
        ({"prompt": "plain"}, "prompt", "prompt: None -> plain"),
        ({"titles": False}, "prompt", "titles: (default) -> False"),
    ],
)
def test_another_reader_or_prompt_must_be_named(
    out: str, other: TableStore, change: dict[str, object], kind: str, text: str
) -> None:
    reseal(other, UTILITY, config=lambda config: {**config, "reader": {**config["reader"], **change}})
    keys = {"baseline": out, "candidate": other.folder.root}
    assert refusal(**keys).splitlines()[1:] == [
        f"  - {kind}: the {kind} differs and allow_changes does not name it ({text}). If that is what you compare, "
        f"add {kind} to allow_changes; else run both jobs with the same {kind}"
    ]
    found = decided(**keys, allow_changes=["run", "retriever", kind])
    assert (kind, text) in [(one.kind, one.text) for one in found.changes]


def test_other_passages_are_listed_and_may_be_refused(out: str, other: TableStore) -> None:
    reseal(
        other,
        CORPUS,
        lambda table: table.with_columns(
            text=pl.when(pl.col("doc_id") == "d3right").then(pl.lit("new")).otherwise("text")
        ),
    )
    keys = {"baseline": out, "candidate": other.folder.root}
    found = decided(**keys)
    (text,) = [one.text for one in found.changes if one.kind == "corpus"]
    assert text == "1 of 60 passages that both have differ in title or text, the first 'd3right'"
    assert "corpus: the corpus differs" in refusal(**keys, allow_changes=["run", "retriever"])


def test_passages_of_another_file_and_other_versions_are_listed(out: str, other: TableStore) -> None:
    reseal(other, QUERIES, config=lambda config: {**config, "passages": ["other.jsonl"]})
    found = decided(baseline=out, candidate=other.folder.root)
    (text,) = [one.text for one in found.changes if one.kind == "corpus"]
    assert text.endswith("passages.jsonl -> other.jsonl")
    reading = {**found.candidate.reading, "repeats": 3}
    side = dataclasses.replace(found.candidate, packages={"torch": "9.9"}, reading=reading)
    listed = gating.differences(found.baseline, side, 3)
    assert any(one.kind == "software" and one.text.endswith("-> 9.9") for one in listed)
    assert Difference("repeats", "answers to each list: 1 -> 3") in listed
    # what each job has made or got in its own folder is alike; what a run with a corpus of its own searches may differ
    own = {"run_corpora": {"good": "c"}, "corpora": {"c": {"passages": ["/one/retrieval/corpus"]}}}
    made = {**found.candidate.settings, **own, "runs": {"good": "/one/given/runs/good.parquet"}}
    for old, new, kinds in (("/one/", "/two/", []), ("/one/retrieval/corpus", "chunks.jsonl", ["corpus"])):
        moved = json.loads(json.dumps(made).replace(old, new))
        sides = [dataclasses.replace(found.candidate, settings=settings) for settings in (made, moved)]
        assert [one.kind for one in gating.differences(*sides, 3)] == kinds


def test_a_score_of_which_less_is_better_is_refused(out: str, other: TableStore) -> None:
    reseal(other, QUERIES, lambda table: table.with_columns(score=pl.lit("abstained")))
    text = refusal(baseline=other.folder.root, candidate=other.folder.root)
    assert "tiny: more of abstained is not better, and a gate takes a loss for worse" in text


def test_another_run_is_refused_where_only_the_reader_may_differ(out: str) -> None:
    text = refusal(baseline=out, allow_changes=["reader"])
    assert "run: the run differs and allow_changes does not name it (half -> good, 20 of 40 lists" in text
    assert "retriever: the retriever differs" in text


def test_other_outputs_that_exist_are_another_run(tmp_path: pathlib.Path, no_reader: None) -> None:
    questions = [{"id": str(n), "question": f"who is {n}", "answers": ["Ann"]} for n in range(12)]
    for folder, texts in {"main": {"a": "Ann", "b": "Ann."}, "pull": {"a": "Ann!", "b": "Ann."}}.items():
        outputs = [
            {"query_id": str(n), "system": name, "output": texts[name]} for n in range(12) for name in texts
        ]
        er.compare(questions=questions, outputs=outputs, out=str(tmp_path / folder))
    main, pull = str(tmp_path / "main"), str(tmp_path / "pull")
    text = "other outputs that exist for the same lists"
    for keys, names in (({"candidate_run": "b"}, "a -> b"), ({"candidate": pull, "candidate_run": "a"}, "a")):
        comparison = decided(**{"baseline": main, "baseline_run": "a", **keys})
        # twelve equal scores of other outputs show little
        assert comparison.verdict == "not settled"
        assert list(comparison.changes) == [Difference("run", f"{names}, {text}")]
    same = decided(baseline=main, candidate=pull, baseline_run="b", candidate_run="b")
    assert (same.verdict, list(same.changes)) == ("passed", [])


def test_the_same_run_from_other_lists_is_another_run(out: str, other: TableStore) -> None:
    reseal(other, RUNS, lambda table: table.filter(pl.col("query_id") != "q0"))
    found = decided(baseline=out, baseline_run="good", candidate=other.folder.root, candidate_run=None)
    assert [(one.kind, one.text) for one in found.changes] == [
        ("run", "good, 1 of 40 lists differ in the first 3 documents")
    ]
    assert not found.is_unchanged


# --- what is refused ---


def questions_with(**columns: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Change columns of q3 alone."""
    is_it = pl.col("query_id") == "q3"
    return lambda table: table.with_columns(
        **{name: pl.when(is_it).then(value).otherwise(name) for name, value in columns.items()}
    )


def of_tiny(**settings: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change settings of the dataset."""
    return lambda config: {**config, "datasets": {"tiny": {**config["datasets"]["tiny"], **settings}}}


def having(**columns: pl.Expr) -> dict[str, object]:
    return {"change": lambda table: table.with_columns(**columns)}


def lacking(key: str) -> dict[str, object]:
    """A setting less, as a job of an older version."""
    return {"config": lambda config: {name: config[name] for name in config if name != key}}


OLDER = "is of another version and lacks {}. Run erag-ray compare"


@pytest.mark.parametrize(
    ("schema", "changes", "messages"),
    [
        (QUERIES, {"change": questions_with(question=pl.lit("who?"))},
         ["questions: other text of 1 of 40, the first 'q3': who lives in town 3 and who?"]),
        (QUERIES, {"change": questions_with(answers=pl.concat_list(pl.lit("Bo")))},
         ["questions: other gold answers of 1 of 40, the first 'q3': ['Person 3'] and ['Bo']"]),
        (QUERIES, {"change": lambda table: table.filter(pl.col("query_id") != "q3")},
         ["questions: 1 of 40 in the baseline are not in the candidate, the first 'q3'"]),
        (QUERIES, {"change": lambda table: pl.concat([table, table.head(2).with_columns(pl.col("query_id") + "x")])},
         ["questions: 2 of 42 in the candidate are not in the baseline, the first 'q0x'"]),
        (QUERIES, having(dataset=pl.lit("towns")),
         ["questions: other dataset of 40 of 40, the first 'q0': tiny and towns"]),
        (QUERIES, having(score=pl.lit("token_f1")),
         ["tiny: the score is exact_match in the baseline and token_f1 in the candidate. Set the same score"]),
        (QUERIES, {"config": of_tiny(language="ko")},
         ["tiny: the language is en in the baseline and ko in the candidate"]),
        (QUERIES, {"config": of_tiny(family="claim", max_new_tokens=7)},
         ["2 problems", "family of tiny: question -> claim", "max_new_tokens of tiny: 50 -> 7"]),
        (UTILITY, {"config": lambda config: {**config, "judge": {"kind": "served"}}},
         ["judge: another judge, or prompt of it, grades the outputs. Use the same judge in both jobs"]),
        # other weights under the same settings
        (UTILITY, having(reader=pl.lit("echo-0123")), ["reader: the reader differs",
         "-> echo-0123, with equal settings: its weights or a built-in prompt changed"]),
        # another version of the score
        (UTILITY, having(value=pl.col("value") / 2),
         ["equal outputs have another score, the first of 'q0': 1 and 0.5. Its code or a library changed"]),
        (UTILITY, having(value=pl.lit(None, pl.Float64)),
         ["candidate: no question of tiny has a score in both with 3 documents"]),
        (UTILITY, {"change": lambda table: table.filter(depth=3).with_columns(depth=pl.lit(7, pl.Int32))},
         ["depth: they have none in common"]),
        (QUERIES, lacking("datasets"), [f"the manifest of queries {OLDER.format('datasets')}"]),
        (QUERIES, lacking("passages"), [f"the manifest of queries {OLDER.format('passages')}"]),
        (UTILITY, lacking("reader"), [f"the manifest of utility {OLDER.format('reader')}"]),
    ],
)  # fmt: skip
def test_jobs_that_cannot_be_compared_are_refused(
    out: str, other: TableStore, schema: TableSchema, changes: dict[str, Any], messages: list[str]
) -> None:
    reseal(other, schema, **changes)
    text = refusal(baseline=out, candidate=other.folder.root)
    assert all(message in text for message in messages), text


@pytest.mark.parametrize("schema", [QUERIES, CORPUS, RUNS, UTILITY, LIST_OUTPUTS], ids=lambda one: one.name)
def test_a_job_that_is_not_finished_is_refused(out: str, other: TableStore, schema: TableSchema) -> None:
    other.invalidate(schema)
    text = refusal(baseline=other.folder.root, candidate=out)
    assert f"baseline: {other.folder.root}: no sealed {schema.name}, so it is no finished job" in text
    assert "Run erag-ray compare" in text


def test_tables_of_earlier_labels_lists_or_questions_are_refused(out: str, other: TableStore) -> None:
    for schema, message in (
        (LABELS, "means were computed from an earlier version of per_query"),
        (RUNS, "utility were computed from an earlier version of runs. Run erag-ray compare again"),
        (QUERIES, "utility were computed from an earlier version of queries, runs"),
    ):
        other.write(other.read(schema).reverse(), schema, config=other.manifest(schema)["config"])
        assert f"{other.folder.root}: {message}" in refusal(baseline=out, candidate=other.folder.root)


def test_a_damaged_table_is_refused(out: str, other: TableStore) -> None:
    part = next(pathlib.Path(other.folder.root, "utility").glob("part-*"))
    part.write_bytes(part.read_bytes() + b"x")
    assert "is not what was sealed" in refusal(baseline=other.folder.root, candidate=out)
    pathlib.Path(other.folder.root, "queries", "manifest.json").write_text("{")
    assert "the manifest is damaged" in refusal(baseline=other.folder.root, candidate=out)


@pytest.mark.parametrize("schema", [QUERIES, UTILITY, RUNS], ids=lambda one: one.name)
def test_a_baseline_of_an_older_version_without_a_column_is_refused(
    out: str, other: TableStore, schema: TableSchema
) -> None:
    table, config = other.read(schema).drop("score"), other.manifest(schema)["config"]
    key = tuple(name for name in schema.key if name != "score")
    old = TableSchema(name=schema.name, columns=table.to_arrow().schema, key=key)
    for one in (UTILITY, MEANS):
        other.write(other.read(one), one, config=other.manifest(one)["config"])
    other.write(table, old, config=config)
    text = refusal(baseline=other.folder.root, candidate=out)
    where = f"baseline: {other.folder.root}: sealed by another version"
    assert f"{where}: table {schema.name}: missing column" in text
    assert "Run erag-ray compare again" in text


def test_a_folder_that_is_not_there_is_named_once(job: RunJob, tmp_path: pathlib.Path) -> None:
    code, said, comment = run_gate(job, tmp_path, baseline=str(tmp_path / "nowhere"))
    assert (code, comment) == (2, "")
    assert said.startswith(f"1 problem with the inputs:\n  - baseline: {tmp_path}/nowhere: no sealed queries")


def test_an_unknown_or_missing_run_lists_the_runs(out: str, other: TableStore) -> None:
    text = refusal(baseline=out, baseline_run="gold", candidate=other.folder.root, candidate_run="nobody")
    assert f"baseline_run: {out} has no run 'gold'; its runs: copy, good, half, slip" in text
    assert "Did you mean 'good'?" in text
    assert f"candidate_run: {other.folder.root} has no run 'nobody'" in text
    assert f"baseline_run: must name one of the 4 runs of {out}; its runs: copy" in refusal(
        baseline=out, baseline_run=None, candidate_run=None
    )
    assert "has no run 'no_passages'" in refusal(baseline=out, baseline_run="no_passages")
    text = refusal(baseline=out, baseline_run="good", candidate_run=None)
    assert f"candidate: is run good of {out}, which is the baseline" in text


def test_a_depth_that_not_both_have_is_refused(out: str, other: TableStore) -> None:
    text = refusal(baseline=out, depth=2)
    assert "depth: not both have 2: the baseline has 1, 3 and candidate has 1, 3" in text
    reseal(other, UTILITY, lambda table: table.filter(pl.col("depth") == 1))
    found = decided(baseline=out, candidate=other.folder.root)
    assert found.depth == 1
    assert Difference("depths", "scored end to end with 1, 3 -> 1 documents") in found.changes


def test_questions_without_a_score_are_left_out_and_counted(out: str, other: TableStore) -> None:
    is_it = pl.col("query_id").is_in(["q0", "q39"])
    reseal(
        other, UTILITY, lambda table: table.with_columns(value=pl.when(is_it).then(None).otherwise("value"))
    )
    found = decided(baseline=out, candidate=other.folder.root)
    assert (found.num_unjudged, found.decisions["tiny"].num_questions) == (2, 38)
    texts = [one.text for one in report_of(found).verdict.findings if one.is_warning]
    assert texts == ["questions without a score in one of the two, left out: 2"]


def test_a_refused_gate_leaves_no_comment_of_an_earlier_one(
    job: RunJob, out: str, tmp_path: pathlib.Path
) -> None:
    assert run_gate(job, tmp_path, baseline=out, **PASSES)[0] == 0
    code, said, comment = run_gate(job, tmp_path, baseline=out, allow_changes=[], **PASSES)
    assert (code, comment) == (2, "")
    assert said.startswith("2 problems with the inputs:")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("margin", float("nan"), "margin: expected a number, got nan"),
        ("comment", "a/", "comment must name a file, got a/"),
    ],
)
def test_values_out_of_range_are_refused(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"- {re.escape(message)}$"):
        GateConfig(**{key: value})  # type: ignore[arg-type]


def test_the_example_config_names_the_demos_folder() -> None:
    config = GateConfig(**yaml.safe_load((ROOT / "jobs" / "gate" / "gate.yaml").read_text()))
    demo = yaml.safe_load((ROOT / "jobs" / "demo" / "compare.yaml").read_text())
    assert config.baseline == demo["out"]
    assert {config.baseline_run, config.candidate_run} <= set(demo["runs"])


def test_the_example_workflow_trusts_no_pull_request() -> None:
    workflow = yaml.safe_load((ROOT / "jobs" / "gate" / "github-actions.yaml").read_text())
    steps = workflow["jobs"]["gate"]["steps"]
    commands = {step["run"]: step for step in steps if "run" in step}
    assert any("erag-ray gate" in command for command in commands)
    # a tag can be moved, a commit cannot
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)
    # the branch of a pull request may be called main
    (fetch,) = (command for command in commands if "gh run list" in command)
    assert "--event push --branch main" in fetch
    # secrets: the one step that asks the reader, and the two that ask GitHub
    holders = {str(step.get("env")): step["run"] for step in steps if "env" in step}
    assert not [key for key in ("env",) if key in workflow or key in workflow["jobs"]["gate"]]
    keyed = [command for env, command in holders.items() if "secrets." in env]
    assert keyed == [command for command in commands if "erag-ray compare" in command]
    tokened = [command for env, command in holders.items() if "github.token" in env]
    assert tokened == [command for command in commands if re.search(r"\bgh ", command)]
    assert not [command for command in commands if "${{" in command]
    assert steps[0]["with"] == {"persist-credentials": False}
