"""Gold pages and documents in whole jobs: what no run found, what has no page, what an annotator cannot label."""

import dataclasses
import json

import polars as pl
import pytest
from tiny import QUESTIONS, Tiny, compare, table

from erag_ray.analyses.means import MEANS
from erag_ray.analyses.retrieval_measures import RETRIEVAL_MEASURES, find_retrieval_measures
from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.inputs.stage import prepare
from erag_ray.retrieve.stage import make_runs, retrieve
from erag_ray.store.schemas import DOCUMENT_OUTPUTS, LABELS, RUNS
from erag_ray.store.tables import TableStore


def test_gold_that_no_run_found_is_judged_0(tiny: Tiny, reads_here: list[int]) -> None:
    # of q6 nothing has the gold document; of q5 a passage file has it, and no list
    (tiny.folder / "qrels").write_text("q6 0 gone 1\nq5 0 d1 1\n")
    changed = tiny.with_config(
        qrels=[str(tiny.folder / "qrels")], annotators=["erag", "provenance"], depth=2, end_to_end_depths=[2]
    )
    compare(changed)
    labels = table(changed, LABELS, annotator="provenance")
    assert set(labels.filter(query_id="q6")["label"]) == {0.0}
    means = table(changed, MEANS, annotator="provenance", measure="Success", cutoff=2)
    assert set(means["num_queries"]) == {len(QUESTIONS)}
    assert means.sort("run_id")["mean"].to_list() == pytest.approx([4 / 6, 5 / 6])
    # the reader also gets the list of one gold document, which is no pair
    pairs = table(changed, RUNS).select("query_id", "doc_id")
    outputs = table(changed, DOCUMENT_OUTPUTS)
    assert outputs.join(pairs, on=["query_id", "doc_id"], how="anti").is_empty()
    assert outputs.height == pairs.unique().height


@pytest.mark.parametrize("paged", [True, False])
def test_retrieve_and_compare_give_one_number(tiny: Tiny, reads_here: list[int], paged: bool) -> None:
    rows = [json.loads(line) for line in tiny.passages.read_text().splitlines()]
    # only some passages have a page, or none
    kept = {"d5", "d6", "d7", "d8", "d9"} if paged else set()
    lines = [{**row, "page_id": row["page_id"] if row["doc_id"] in kept else None} for row in rows]
    tiny.passages.write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed = tiny.with_config(
        retrievers={name: RetrieverConfig(kind=name) for name in ("bm25", "random")},
        runs={}, annotators=["provenance", "contains_answer_dpr"], depth=5, cutoffs=[1, 5],
    )  # fmt: skip
    make_runs(changed.config)
    compare(changed)
    (job,) = changed.config.retrievals()
    find_retrieval_measures(job, retrieve(job))
    measured = TableStore(job.out).read(RETRIEVAL_MEASURES)
    for measure, annotator in (("gold_page", "provenance"), ("contains_answer", "contains_answer_dpr")):
        expected = table(changed, MEANS, annotator=annotator, measure="Success", depth=5)
        columns = ["run_id", "cutoff", "num_queries"]
        by_retrieve = measured.filter(measure=measure).select(*columns, "value").sort(columns)
        by_compare = expected.select(*columns, value="mean").sort(columns)
        assert by_retrieve.rows() == [(*row[:3], pytest.approx(row[3])) for row in by_compare.rows()]
    judged = measured.filter(measure="kilt_recall")["value"]
    assert judged.is_null().all() != paged
    note = "questions whose gold pages are not judged: no passage has a page_id: 5 (q1, q2, q3, q4, q5)"
    assert (note in prepare(changed.config).notes) != paged


def test_an_annotator_that_labels_no_question_is_named(tiny: Tiny) -> None:
    rows = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    plain = [
        {"id": row["id"], "question": row["input"], "answers": [row["output"][0]["answer"]]} for row in rows
    ]
    tiny.queries.write_text("".join(json.dumps(row) + "\n" for row in plain))
    changed = tiny.with_config(annotators=["erag", "provenance"])
    note = "provenance labels none of the questions{}: it applies to questions with gold pages or passages"
    # from the files, and as sealed before
    for _ in range(2):
        assert f"annotators: {note.format('')}" in prepare(changed.config).notes
    predicted = dataclasses.replace(changed.config, reader_queries=30, auxiliary="provenance")
    assert f"auxiliary: {note.format(' and predicts nothing')}" in prepare(predicted).notes


def test_every_question_with_gold_of_its_own_is_labelled(tiny: Tiny) -> None:
    rows = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    gold = [{**row, "gold_doc_ids": ["d10"]} if row["id"] == "q6" else row for row in rows]
    tiny.queries.write_text("".join(json.dumps(row) + "\n" for row in gold))
    inputs = prepare(tiny.with_config(annotators=["provenance"]).config)
    assert not [note for note in inputs.notes if "provenance" in note]
    assert inputs.provenance.filter(query_id="q6").rows() == [("q6", 1, None, "d10")]
    assert inputs.gold.filter(pl.col("query_id") == "q6")["doc_id"].to_list() == ["d10"]
