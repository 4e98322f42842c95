"""Outputs that exist: the same numbers as by asking, asked only where they are missing, and what is wrong with them."""

import gzip
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from input_files import without_errors
from polars.testing import assert_frame_equal
from tiny import QUESTIONS, Tiny, make_tables, tables_text

import erag_ray as er
from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.comparisons import COMPARISONS
from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.means import MEANS
from erag_ray.config.reader import ReaderConfig
from erag_ray.data.runs.outputs import load_outputs
from erag_ray.inputs.stage import prepare
from erag_ray.store import schemas
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

SEALED = (schemas.LABELS, schemas.UTILITY, schemas.LIST_OUTPUTS, schemas.DOCUMENT_OUTPUTS)
SAME = (*SEALED, PER_QUERY, MEANS, CORRELATIONS, COMPARISONS)


def outputs_of(tiny: Tiny) -> list[dict[str, Any]]:
    """The outputs of a finished job as records of a log."""
    store = TableStore(tiny.config.out)
    lists = store.read(schemas.LIST_OUTPUTS).drop("reader").to_dicts()
    return [*lists, *store.read(schemas.DOCUMENT_OUTPUTS).drop("reader").to_dicts()]


def with_outputs(tiny: Tiny, records: list[dict[str, Any]], **changes: object) -> Tiny:
    """The same comparison with outputs, in a folder of its own, without a reader."""
    path = tiny.folder / "outputs.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    keys = {"reader": ReaderConfig(), "score": "exact_match", **changes}
    folders = {name: str(tiny.folder / f"given-{name}") for name in ("out", "cache_dir")}
    return tiny.with_config(outputs=[str(path)], **folders, **keys)


def table(tiny: Tiny, schema: schemas.TableSchema) -> pl.DataFrame:
    rows = TableStore(tiny.config.out).read(schema)
    names = [name for name in rows.columns if not name.startswith("reader")]
    return rows.select(names).sort([name for name in schema.key if name in names])


@pytest.mark.parametrize("depths", [[1, 3], [1, 2]])
def test_outputs_without_a_depth_are_of_the_deepest_lists_and_of_all_gold_passages(
    compared: Tiny, no_reader: None, depths: list[int]
) -> None:
    # no page of q6 is known here
    records = [{"query_id": "q6", "output": "Varn", "run": run} for run in ("good", "gold_passages")]
    more = [one for one in outputs_of(compared) if one.get("run_id") == "gold_passages"]
    del more[0]["depth"]
    make_tables(given := with_outputs(compared, [*records, *more], end_to_end_depths=depths))
    rows = table(given, schemas.UTILITY).drop_nulls("value").select("run_id", "query_id", "depth").rows()
    gold = {("gold_passages", one["query_id"], 3) for one in [*more, records[0]]}
    assert set(rows) == {("good", "q6", depths[-1]), *gold}


def test_given_outputs_give_the_numbers_of_asked_ones(compared: Tiny, no_reader: None) -> None:
    given = with_outputs(compared, outputs_of(compared))
    plan = make_tables(given)
    assert not plan.plans
    for schema in SAME:
        assert_frame_equal(table(given, schema), table(compared, schema))
    readers = TableStore(given.config.out).read(schemas.UTILITY)["reader"].unique().to_list()
    assert len(readers) == 1
    assert readers[0].startswith("given-")
    stages = [TableStore("/".join([one.config.out, "compare"])) for one in (given, compared)]
    for schema in (schemas.OUTPUTS, schemas.COMMON_OUTPUTS):
        here, there = (stage.read(schema).drop("reader").sort(pl.all()) for stage in stages)
        unknown = ["num_at_limit"] if schema is schemas.OUTPUTS else []
        assert_frame_equal(here.drop(unknown), there.drop(unknown))


def test_a_reader_is_asked_only_for_what_is_not_given(compared: Tiny, reads_here: list[int]) -> None:
    records = outputs_of(compared)
    half = with_outputs(compared, records[::2], reader=compared.config.reader)
    plan = make_tables(half)
    asked = {(row["query_id"], tuple(row["doc_ids"])) for row in plan.requests.to_dicts()}
    alone = {(row["query_id"], (row["doc_id"],)) for row in records[::2] if "doc_id" in row}
    first = prepare(compared.config).runs.filter(rank=1).select("query_id", "doc_id").rows()
    # lists of one document are asked end to end, and are the same requests
    assert (alone & asked) <= {(query_id, (doc_id,)) for query_id, doc_id in first}
    assert 0 < len(asked) < TableStore(f"{compared.config.out}/compare").read(schemas.REQUESTS).height
    for schema in SAME:
        expected = TableStore(compared.config.out).read(schema)
        assert_frame_equal(TableStore(half.config.out).read(schema), expected)


def test_outputs_of_systems_without_lists(tiny: Tiny, no_reader: None) -> None:
    answers = {name: answer for name, (_, answer, _) in QUESTIONS.items()}
    records = [
        {"query_id": name, "system": "right", "output": text, "id": 7, "seconds": int(name[1:]) / 10}
        for name, text in answers.items()
    ]
    records += [{"query_id": name, "system": "silent", "output": ""} for name in answers if name != "q6"]
    records += [{"query_id": "q1", "system": "broken", "output": None}]
    given = with_outputs(tiny, records, runs={}, passages=[], end_to_end_depths=[])
    make_tables(given)
    rows = table(given, schemas.UTILITY).iter_rows(named=True)
    values = {(row["run_id"], row["query_id"]): row["value"] for row in rows}
    assert {values["right", name] for name in answers} == {1.0}
    assert [values["silent", name] for name in ("q1", "q6")] == [0.0, None]
    assert {values["broken", name] for name in answers} == {None}
    verdict = er.Result(given.config.out).verdict
    assert verdict.startswith("Which system answers best?")
    assert "right" in verdict
    assert "end to end" in verdict
    assert "documents" not in verdict.split("tiny: ")[1]
    latency = tables_text(given).partition("how long answers take")[2]
    assert re.search(r"\| right \| 1.000 .* \| 350.0 \| 575.0 \| 6 \|", latency)
    assert "how long retrieval takes" not in tables_text(given)
    notes = TableStore(given.config.out).manifest(schemas.UTILITY)["config"]["notes"]
    assert notes[0].startswith("outputs: 11 given")
    assert "7 missing" in notes[0]


def test_documents_of_outputs_are_their_lists(compared: Tiny, no_reader: None) -> None:
    # what a RAG system logs: the documents that it got and what it answered
    inputs, records = prepare(compared.config), outputs_of(compared)
    texts = {row["doc_id"]: row for row in inputs.corpus.select("doc_id", "title", "text").to_dicts()}
    ranked = inputs.runs.sort("rank").group_by("run_id", "query_id").agg("doc_id")
    lists = {(run, query): [texts[name] for name in names] for run, query, names in ranked.iter_rows()}
    for record in records:
        documents = lists.get((record.get("run_id"), record["query_id"]), [])
        if "run_id" in record and record["run_id"] in ("good", "bad"):
            record["documents"] = documents[: record["depth"]]
    given = with_outputs(compared, records, runs={}, passages=[], annotators=["erag", "contains_answer_kilt"])
    make_tables(given)
    expected = table(compared, schemas.LABELS).filter(
        pl.col("annotator").is_in(["erag", "contains_answer_kilt"])
    )
    assert_frame_equal(table(given, schemas.LABELS), expected)
    of_runs = ~pl.col("run_id").is_in(["gold_passages"])
    assert_frame_equal(
        table(given, schemas.UTILITY).filter(of_runs), table(compared, schemas.UTILITY).filter(of_runs)
    )


def test_python_scores_outputs(tmp_path: pathlib.Path, no_reader: None) -> None:
    questions = [
        {"id": "1", "question": "who?", "answers": ["Ada"]},
        {"id": "2", "question": "where?", "answers": ["Varn"]},
    ]
    systems = {"query_id": ["1", "2", "1"], "system": ["a", "a", "b"]}
    outputs = pl.DataFrame({**systems, "output": ["It was Ada.", "no", "B"]})
    folders = {name: str(tmp_path / name) for name in ("out", "cache_dir")}
    scores = er.score(questions=questions, outputs=outputs, progress=False, **folders)
    assert scores.columns[:5] == ["query_id", "run_id", "depth", "output", "value"]
    # systems write sentences: match, not exact_match
    assert scores["score"].unique().to_list() == ["match"]
    rows = scores.sort("run_id", "query_id").select("query_id", "run_id", "value").rows()
    assert rows == [("1", "a", 1.0), ("2", "a", 0.0), ("1", "b", 0.0), ("2", "b", None)]
    with pytest.raises(InputError, match="not a reader"):
        er.compare(questions=questions, progress=False, **folders)


FIRST = {"query_id": "q1", "run": "a", "output": "x"}
DOCUMENTS = {**FIRST, "documents": ["d1", "d2"]}


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([FIRST, FIRST], ["outputs.jsonl.gz:2", "query 'q1'", "run 'a'", "repeats", ":1"]),
        ([{"query_id": "q1", "doc_id": "d1", "output": text} for text in "xy"], [":2", "document 'd1'", "repeats"]),
        ([{"query_id": "q1", "run": "a"}], [":1", "no output", "call it output", "null"]),
        ([{"run": "a", "output": "x"}], [":1", "query_id is missing"]),
        ([{"query_id": "q1", "output": "x"}], [":1", "run_id is missing"]),
        ([{**FIRST, "output": 3}], [":1", "output is 3"]),
        ([{**FIRST, "depth": 2}], [":1", "depth is 2", "1, 3", "end_to_end_depths"]),
        ([{**FIRST, "depth": "3"}], [":1", "depth is '3'"]),
        ([{**FIRST, "num_output_tokens": -1}], [":1", "num_output_tokens is -1"]),
        ([{**FIRST, "seconds": "2"}], [":1", "seconds is '2'; it must be a number of at least 0"]),
        ([{**FIRST, "documents": "d1"}], [":1", "documents is 'd1'", "list"]),
        ([{**FIRST, "documents": ["d1", "d1"]}], [":1", "document 2", "more than once"]),
        ([{**FIRST, "documents": [{"id": d, "rank": d} for d in (2, 1)]}], [":1", "rank 1 comes after rank 2"]),
        ([{**FIRST, "run": "log", "documents": [{"id": f"d{n}", "score": n / 10} for n in (1, 2, 3)]}],
         ["outputs of run 'log': scores rise with the rank"]),
        ([{**FIRST, "doc_ids": ["d1", "d2", "d3", "d4"]}], [":1", "4 documents", "cut to 3"]),
        ([{**FIRST, "run": "good", "documents": ["d1"]}], [":1", "run 'good'", "runs"]),
        ([{**DOCUMENTS, "depth": 3}, {**FIRST, "depth": 1, "documents": ["d2"]}],
         [":2", "other documents than at", ":1"]),
        ([], ["outputs: there is none in", "outputs.jsonl.gz"]),
        ([{**FIRST, "query_id": "q77"}], ["outputs", "none is of one of the questions", "'q77'"]),
        ([{**FIRST, "doc_id": 0}], ["all have the doc_id of a document in no list", "(q1: 0)"]),
        ([DOCUMENTS], ["passages", "d1"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_outputs_is_named(tiny: Tiny, records: Any, words: Any) -> None:
    needs_lists = records == [DOCUMENTS]
    given = with_outputs(tiny, records, **({"passages": [], "runs": {}} if needs_lists else {}))
    with pytest.raises(InputError) as caught:
        prepare(given.config)
    for word in words:
        assert word in str(caught.value)


def test_outputs_of_lists_and_of_documents_are_used_and_the_others_are_counted(tiny: Tiny) -> None:
    record = {**FIRST, "doc_id": None, "sources": ["x"], "num_output_tokens": 5.0}
    of_one = [{"query_id": "q1", "run": None, "doc_id": name, "output": "x"} for name in ("d1", "d9")]
    inputs = prepare(with_outputs(tiny, [record, {**FIRST, "query_id": "elsewhere"}, *of_one]).config)
    assert set(inputs.given.select("run_id", "doc_id").rows()) == {("", "d1"), (FIRST["run"], "")}
    notes = "\n".join(inputs.notes)
    assert "outputs: lists in the field sources, which is not read (documents is), queries: 1 (q1)" in notes
    assert "outputs: questions outside the sample, whose outputs are not used: 1 (elsewhere)" in notes
    assert "documents that are in no list of their question, whose outputs are not used: 1 (q1: d9)" in notes


ERRORS = (
    "Error: 429",
    "a.B: Rate limit exceeded",
    "Request timed out.",
    "content_filter",
    "<html>502",
    "X.E_Error: 1",
)


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("with thinking, tags or control tokens", ["<think>\na\n</think>\nb", "<answer>Ann</answer>"]),
        ("that look like errors of a server (write null for a missing output)", ERRORS),
        ("that look like errors of a server (write null for a missing output)", ["Traceback (most recent"]),
        (r"in \boxed{}", [r"It is $\boxed{Ann}$.", r"$\text{Ann}$"]),
        ("in HTML (<b>, &amp;)", ["<b>Ann</b>", "Ann<sup>1</sup>", "AT&amp;T"]),
        ("that look like an empty cell (nan, None)", ["nan", "None"]),
        ("that are JSON objects", ['{"answer":"Ann"}', '```json\n{"answer": "Ann"}\n```']),
        ("with citation marks at a word (Paris[1])", ["Ann.[1][2]", "Ann[^1]", "Ann^[1]^"]),
        ("in a script that exact_match is not made for", ["\u6771\u4eac\u3002", "\u0e41\u0e2d\u0e19"]),
        ("", ["a comedy of errors, Ann [1]", "Terror", "Room 404 {Ann}, the gateway", "a < b & c > d"]),
    ],
)
def test_outputs_that_scores_seldom_accept_are_noted(tiny: Tiny, name: str, outputs: Sequence[str]) -> None:
    records = [{**FIRST, "query_id": f"q{number}", "output": text} for number, text in enumerate(outputs, 1)]
    notes = prepare(with_outputs(tiny, records).config).notes
    noted = [note.rpartition(" (q1")[0] for note in notes if "which are scored as they are" in note]
    text = f"outputs {name}, which are scored as they are, of queries: {len(outputs)}"
    assert noted == [text] * bool(name)


def test_labels_that_ask_for_more_than_outputs_need_a_reader(tiny: Tiny) -> None:
    from erag_ray.comparison import check_reader

    given = with_outputs(tiny, [FIRST], annotators=["erag", "gold_likelihood"])
    (problem,) = check_reader(given.config, {})
    assert "gold_likelihood asks the reader" in problem


def test_a_longer_list_of_a_log_replaces_its_beginning(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.jsonl"
    records = [{**FIRST, "depth": 1, "documents": ["d1"]}, {**FIRST, "depth": 3, "documents": ["d1", "d2"]}]
    path.write_text("\n".join(map(json.dumps, records)))
    outputs, entries = without_errors(load_outputs, [str(path)], [], [1, 3], 3)
    assert entries.select("rank", "doc_id").rows() == [(1, "d1"), (2, "d2")]
    assert outputs["depth"].to_list() == [1, 3]


def test_the_converter_of_traces_in_the_guide(tmp_path: pathlib.Path) -> None:
    guide = (pathlib.Path(__file__).parents[1] / "jobs" / "OUTPUTS.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "SPANS" in block)
    documents = {"id": "d1", "content": "Ann built it."}
    found = {f"retrieval.documents.0.document.{key}": value for key, value in documents.items()}
    kinds = {"RETRIEVER": found, "LLM": {"llm.token_count.prompt": 9, "llm.token_count.completion": 2}}
    root = {"input.value": "who built it", "output.value": "Ann"}
    spans = [{"trace_id": "t", "parent_id": None, "attributes": root}] + [
        {"trace_id": "t", "parent_id": "1", "attributes": {"openinference.span.kind": kind, **values}}
        for kind, values in kinds.items()
    ]
    values = {"input.value": "?", "output.value": "x"}
    spans += [{"trace_id": "other", "parent_id": None, "attributes": values}]
    files = {"spans.jsonl": spans, "questions.jsonl": [{"id": "q1", "question": "who built it"}]}
    for name, rows in files.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    command = [sys.executable, "-c", code, *(str(tmp_path / name) for name in files), "rag"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path = tmp_path / "outputs.jsonl"
    path.write_text(done.stdout)
    outputs, entries = without_errors(load_outputs, [str(path)], [], [5], 5)
    assert outputs.rows() == [("q1", "rag", 5, "", "Ann", 9, 2, None)]
    columns = entries.select("run_id", "query_id", "rank", "doc_id", "text")
    assert columns.rows() == [("rag", "q1", 1, "d1", "Ann built it.")]


# --- outputs of other people's systems ---

OPENQA = pathlib.Path(__file__).parent / "data" / "openqa_301"
# out of 301; computed by other code from the same files
RIGHT = {
    "dpr": (138, 146), "fid": (144, 151), "fid_kd": (153, 162), "ance_fid": (145, 151), "evigen": (154, 161),
    "rocketqav2_fid": (150, 158), "contriever_fid": (140, 148), "gar_fid": (153, 162), "r2d2": (159, 168),
    "emdr2": (160, 174), "instructgpt_few_shot": (96, 139),
    "instructgpt_zero_shot": (38, 132),  # one by NFKC
}  # fmt: skip
"""System -> outputs that are right by exact_match and by match."""


def test_scores_of_twelve_published_systems(tmp_path: pathlib.Path, no_reader: None) -> None:
    files = {"queries": [str(OPENQA / "questions.jsonl.gz")], "outputs": [str(OPENQA / "outputs.jsonl.gz")]}
    keys = {**files, "annotators": ["erag"], "num_resamples": 100, "progress": False}
    for at, score in enumerate(("exact_match", "match")):
        folders = {name: str(tmp_path / score / name) for name in ("out", "cache_dir")}
        assert er.job("compare", score=score, **folders, **keys) == 0
        result = er.Result(folders["out"])
        values = (pl.col("value").sum(), pl.col("value").count().alias("count"))
        sums = result.utility.group_by("run_id").agg(*values)
        found = {run: (value, count) for run, value, count in sums.iter_rows()}
        assert found == {run: (right[at], 301) for run, right in RIGHT.items()}
