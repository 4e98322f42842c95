"""A comparison whose runs bring their texts: no passage file, the same numbers, latencies beside utility."""

import json
import pathlib

import polars as pl
import pytest
from conftest import finish
from polars.testing import assert_frame_equal
from tiny import PASSAGES, RUNS, Tiny, compare, make_tables, table, write_tiny

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.parts.formats import rows_of_text
from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.data.runs.references import GOLD_PASSAGES
from erag_ray.inputs.stage import prepare
from erag_ray.report.build import build_report
from erag_ray.report.load import load
from erag_ray.store.schemas import CORPUS, LABELS, RETRIEVAL_SECONDS, UTILITY
from erag_ray.store.schemas import RUNS as RUN_TABLE
from erag_ray.support.errors import InputError

NO_PAGES = ["erag", "contains_answer_dpr", "contains_answer_kilt", "gain"]


def write_lists(tiny: Tiny, name: str, seconds: float | None = None, **texts: str) -> str:
    """Write a run as JSON Lines with the texts of its documents, or with these."""
    path = tiny.folder / f"{name}.jsonl"
    with path.open("w") as file:
        for number, (query_id, documents) in enumerate(RUNS[name].items()):
            found = [
                {
                    "doc_id": doc_id,
                    "title": PASSAGES[doc_id][1],
                    "text": texts.get(doc_id, PASSAGES[doc_id][2]),
                }
                for doc_id in documents.split()
            ]
            record: dict[str, object] = {"query_id": query_id, "documents": found}
            if seconds is not None:
                record["seconds"] = seconds * (number + 1)
            file.write(json.dumps(record) + "\n")
    return str(path)


def with_texts(tiny: Tiny, *, passages: bool, seconds: float | None = None) -> Tiny:
    """The comparison with lists that bring texts, in an out of its own."""
    return tiny.with_config(
        runs={name: write_lists(tiny, name, seconds) for name in ("good", "bad")},
        passages=[str(tiny.passages)] if passages else [],
        out=str(tiny.folder / f"texts-{passages}"),
        annotators=NO_PAGES,
    )


@pytest.fixture(scope="module")
def by_files(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny comparison of passage files."""
    tiny = write_tiny(tmp_path_factory.mktemp("files")).with_config(annotators=NO_PAGES)
    return finish(tiny, make_tables)


@pytest.mark.long
@pytest.mark.parametrize("passages", [True, False])
def test_the_numbers_are_those_of_passage_files(
    by_files: Tiny, tiny: Tiny, reads_here: list[int], passages: bool
) -> None:
    changed = with_texts(tiny, passages=passages)
    compare(changed)
    for schema in (RUN_TABLE, LABELS, UTILITY, PER_QUERY):
        found, expected = (
            table(one, schema).filter(pl.col("run_id") != GOLD_PASSAGES)
            if schema is UTILITY
            else table(one, schema)
            for one in (changed, by_files)
        )
        # scores of TREC files are not those of lists without scores
        columns = [name for name in expected.columns if (schema, name) != (RUN_TABLE, "score")]
        assert_frame_equal(
            found.select(columns).sort(columns), expected.select(columns).sort(columns), check_exact=True
        )
    corpus = table(changed, CORPUS)
    assert corpus["page_id"].null_count() == (0 if passages else corpus.height)
    assert table(changed, RETRIEVAL_SECONDS).height == 0
    assert not [one for one in tables_of_report(changed) if one.startswith("latency")]


def tables_of_report(tiny: Tiny) -> dict[str, list[tuple[str, ...]]]:
    results = load(tiny.config.out)
    return {one.name: rows_of_text(one) for one in tables_of(build_report(results))}


@pytest.mark.long
def test_latencies_stand_beside_utility_and_change_no_label(tiny: Tiny, reads_here: list[int]) -> None:
    changed = with_texts(tiny, passages=False, seconds=0.01)
    compare(changed)
    # good has lists of six questions (10 to 60 ms), bad of five
    rows = tables_of_report(changed)["latency-tiny"]
    assert [(row[0], *row[2:]) for row in rows] == [
        ("good", "35.0", "57.5", "6"),
        ("bad", "30.0", "48.0", "5"),
    ]
    out = pathlib.Path(changed.config.out)
    assert "how long retrieval takes" in (out / "report.md").read_text()
    assert "how long retrieval takes" in (out / "report" / "index.html").read_text()
    before = (out / LABELS.name / "manifest.json").read_bytes()
    compare(with_texts(tiny, passages=False, seconds=0.02))
    assert [row[2] for row in tables_of_report(changed)["latency-tiny"]] == ["70.0", "60.0"]
    assert (out / LABELS.name / "manifest.json").read_bytes() == before


def test_a_text_that_differs_from_the_passages_ends_the_job(tiny: Tiny) -> None:
    changed = with_texts(tiny, passages=True)
    write_lists(tiny, "bad", d1="he built another bridge")
    with pytest.raises(InputError) as error:
        prepare(changed.config)
    assert error.value.problems == (
        "document 'd1' has two texts: 'she built the marn bridge' (the passages) and 'he built another bridge' (run "
        "'bad', query 'q1', rank 2). Give each text an id of its own, or leave out an id that several share: documents "
        "of lists are then called by a hash of their title and text",
    )
    assert not (pathlib.Path(changed.config.out) / CORPUS.name).exists()


def test_a_run_without_texts_uses_those_of_another(tiny: Tiny) -> None:
    changed = with_texts(tiny, passages=False)
    runs = {**changed.config.runs, "third": str(tiny.run("third"))}
    # the text of d12 is third in a list of `good`
    inputs = prepare(changed.with_config(runs=runs, depth=2, end_to_end_depths=[1]).config)
    assert (inputs.runs["run_id"].n_unique(), inputs.runs["rank"].max()) == (3, 2)
    del runs["good"]
    with pytest.raises(
        InputError, match="'third', query 'q4': document 'd7' is not in the passages"
    ) as error:
        prepare(changed.with_config(runs=runs, depth=2, end_to_end_depths=[1]).config)
    assert len(error.value.problems) == 2
