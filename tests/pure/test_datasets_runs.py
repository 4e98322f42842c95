"""Run files -> RUNS, KILT predictions included, and RUNS and LABELS -> TREC files."""

import functools
import gzip
import json
import pathlib
import tempfile
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from input_files import diagnosed, predicted, write
from ranked_lists import runs_of

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.load import load_run
from erag_ray.data.runs.predictions import resolve_pages
from erag_ray.data.runs.trec import trec_qrels, trec_run
from erag_ray.store import schemas

CORPUS = pl.DataFrame(
    [
        ("d1", "p1", "One", "start of one"),
        ("d2", "p1", "One", "end of one"),
        ("d3", "p2", "Two", "all of two"),
        ("d4", None, "", "no page"),
    ],
    schema=["doc_id", "page_id", "title", "text"],
    orient="row",
)


def lists_of(entries: pl.DataFrame) -> dict[str, list[str]]:
    """Query -> documents by rank, after checking that ranks are 1..n."""
    found: dict[str, list[str]] = {}
    for query_id, rank, doc_id in entries.select("query_id", "rank", "doc_id").iter_rows():
        found.setdefault(query_id, []).append(doc_id)
        assert rank == len(found[query_id])
    return found


load = functools.partial(diagnosed, load_run)


def problems_of(path: pathlib.Path) -> tuple[str, ...]:
    return load("bm25", path)[1].errors


def test_trec_order_is_score_then_id_last_first(tmp_path: pathlib.Path) -> None:
    path = write(
        tmp_path / "run.txt",
        "q2 Q0 d1 1 -1e3 tag",
        "q1\tQ0\td2  2 1.5 tag",
        "",
        "q1 Q0 d10 3 1.5 tag",
        "q1 Q0 é 4 1.5 tag",
        "q1 Q0 d7 1 .25e1 tag",
    )
    entries, diagnostics = load("bm25", path)
    # at score 1.5, by bytes from the end: é (0xC3...), d2, d10
    assert lists_of(entries) == {"q1": ["d7", "é", "d2", "d10"], "q2": ["d1"]}
    assert entries["run_id"].unique().to_list() == ["bm25"]
    assert entries["score"].to_list() == [2.5, 1.5, 1.5, 1.5, -1000.0]
    assert diagnostics.errors == ()
    note = "run 'bm25': queries whose rank column differs from the order by score, which is used: 1 (q1)"
    assert diagnostics.warnings == (note,)
    schemas.conform(resolve_pages(entries, CORPUS, diagnostics), schemas.RUNS)


def test_scores_tie_in_single_precision_for_trec9_only(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "run.gz", "q Q0 a 1 16777217 t", "q Q0 b 2 16777216 t")
    path.write_bytes(gzip.compress(path.read_bytes()))
    # 16777217 = 2^24 + 1 has no single-precision number of its own
    assert lists_of(load_run("r", path, Diagnostics(), ties="trec9")) == {"q": ["b", "a"]}
    assert lists_of(load_run("r", path, Diagnostics(), ties="trec10")) == {"q": ["a", "b"]}


def test_three_columns_end_in_a_rank_or_a_score(tmp_path: pathlib.Path) -> None:
    for rows, best in (
        (["q1 a 1", "q2 c 1", "q1 b 2"], "a"),
        (["q1\ta\t2.5", "q1\tb\t2.5", "q2\tc\t1e-3"], "b"),
    ):
        entries, diagnostics = load("bm25", write(tmp_path / "run.tsv", *rows))
        assert diagnostics.errors == ()
        assert lists_of(entries) == {"q1": [best, *({"a", "b"} - {best})], "q2": ["c"]}


FIRST = "q1 Q0 d1 1 2.0 t"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((FIRST, "q1 Q0 d2 2 nan t"), ":2: score 'nan' is not a finite number"),
        ((FIRST, "q1 Q0 d2 2 -inf t"), ":2: score '-inf' is not a finite number"),
        ((FIRST, "q1 Q0 d2 2 high t"), ":2: score 'high' is not a finite number"),
        ((FIRST, "q1 Q0 d2 2 1.0"), ":2: 5 columns where 6 are expected (query Q0 doc rank score tag)"),
        ((FIRST, "q1 d2 2"), ":2: 3 columns where 6 are expected (query Q0 doc rank score tag)"),
        ((FIRST, "q1 Q0 d1 2 0.5 t"), ": run 'bm25', query 'q1': document 'd1' is in the list more than once"),
        (("q1 a 1", FIRST), ":2: 6 columns where 3 are expected, as before"),
        (("q1 a 2", "q1 b 1", "q1 c 3"), ": run 'bm25', query 'q1': line 3: 3 is neither a rank (1, 2, ...) nor a "
            "score that falls from line to line"),
    ],
)  # fmt: skip
def test_bad_trec_line(tmp_path: pathlib.Path, lines: tuple[str, ...], message: str) -> None:
    path = write(tmp_path / "run.trec", *lines)
    assert problems_of(path) == (f"{path}{message}",)


def test_a_tag_may_hold_blanks(tmp_path: pathlib.Path) -> None:
    tag = "BM25 (k1 = 0.9)"
    rows = f"q1 Q0 d1 1 2.0 {tag}", "q1\tQ0\td2\t2\t1.0\tBM25 (k1  = 0.9)", f"q2 Q0 d1 1 2 {tag}"
    path = write(tmp_path / "run.trec", *rows)
    entries, diagnostics = load("bm25", path)
    assert lists_of(entries) == {"q1": ["d1", "d2"], "q2": ["d1"]}
    assert diagnostics.errors == ()
    kind = "run 'bm25': lines with more than 6 columns; the sixth and later ones count as the tag"
    assert diagnostics.warnings == (f"{kind}: 3 ({path}:1, {path}:2, {path}:3)",)


def lines_of(lists: dict[str, list[tuple[object, object]]]) -> list[str]:
    """TREC lines of (rank, score) pairs."""
    return [
        f"{query} Q0 d{number} {rank} {score} t"
        for query, pairs in lists.items()
        for number, (rank, score) in enumerate(pairs)
    ]


FALLING: list[tuple[object, object]] = [(1, 0.9), (2, 0.8), (3, 0.1)]
RISING: list[tuple[object, object]] = [(1, 0.1), (2, 0.1), (3, 0.9), (4, 1.5)]


@pytest.mark.parametrize(
    ("lists", "told"),
    [
        # ranks for scores, also in one short list
        ({"q1": [(1, 1), (2, 2)]}, "scores are ranks in 1 of 1 lists, such as query 'q1': rank 1 score 1, rank 2"),
        ({"q1": [(1, 1), (2, "2.0"), (3, 3)], "q2": [(1, 1)]}, "scores are ranks in 1 of 1 lists"),
        # the lines are named in the order of the ranks, from the first of them
        ({"q0": [(1, 7)], "q1": [(2, 2), (3, 3), (1, 1), (4, 4)]}, "4: run 'dense': scores are ranks in 1 of 1 lists"),
        ({"q0": [(1, 7)], "q1": [(2, 2), (3, 3), (1, 1), (4, 4)]}, "rank 2 score 2, rank 3 score 3 (lines 4, 2, 3)"),
        # distances, ranks from 0, lines in any order
        ({"q1": [(2, 0.7), (0, 0.1), (1, 0.2)]}, "rise with the rank in 1 of 1 lists, such as query 'q1': rank 0 "),
        ({"q1": [(1, 0.1), (2, 0.2)], "q2": [(1, -3), (2, 5e-1)]}, "scores rise with the rank in 2 of 2 lists"),
        # a rank that is the same everywhere, or none: the lines are the order
        ({"q1": [(0, 0.1), (0, 0.2), (0, 0.3)]}, "1: run 'dense': scores rise with the rank in 1 of 1 lists, such as"),
        ({"q1": [("-", 0.1), ("-", 0.2), ("-", 0.3)]}, "rank 1 score 0.1, rank 2 score 0.2, rank 3 score 0.3 (lines"),
        # all ties tell nothing, and one list of ten may fall
        (
            {"tied": [(1, 1), (2, 1)], "q": FALLING, **{f"q{number}": RISING for number in range(9)}},
            "scores rise with the rank in 9 of 10 lists, such as query 'q0': rank 1 score 0.1, rank 2 score 0.1",
        ),
    ],
)  # fmt: skip
def test_scores_that_rise_with_the_rank_are_a_problem(tmp_path: pathlib.Path, lists: Any, told: str) -> None:
    path = write(tmp_path / "run.trec", *lines_of(lists))
    _, diagnostics = load("dense", path)
    (problem,) = diagnostics.errors
    assert problem.startswith(f"{path}:")
    assert told in f"{problem.removeprefix(f'{path}:')}"
    assert "Write scores that fall with the rank" in problem
    assert diagnostics.warnings == ()


@pytest.mark.parametrize(
    "lists",
    [
        {f"q{number}": [(0, 0.1), (0, 0.3), (0, 0.2)] for number in range(20)},
        # one list of two documents may be an accident, and so may some lists of many
        {"q1": [(1, 0.1), (2, 0.2)]},
        {"q": FALLING, **{f"q{number}": RISING for number in range(8)}},
        {"q": [(1, 1), (2, 1), (3, 1)], "r": FALLING},
        {"q": [(1, 1)], "r": [(1, 1)]},
        {"q": [(3, 0.1), (1, 0.2), (2, 0.3)], "r": [(2, 0.1), (3, 0.2), (1, 0.3)]},
    ],
)
def test_a_rank_column_that_tells_nothing_leaves_the_order_to_the_scores(
    tmp_path: pathlib.Path, lists: dict[str, list[tuple[object, object]]]
) -> None:
    path = write(tmp_path / "run.trec", *lines_of(lists))
    assert problems_of(path) == ()
    order = {
        query: sorted(range(len(pairs)), key=lambda one: (float(str(pairs[one][1])), one), reverse=True)
        for query, pairs in lists.items()
    }
    assert lists_of(load_run("r", path, Diagnostics())) == {
        query: [f"d{number}" for number in numbers] for query, numbers in sorted(order.items())
    }


def test_parquet_by_rank_by_score_and_with_number_ids(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.parquet"
    frame = pl.DataFrame({"query_id": [2, 1, 1], "doc_id": ["a", "b", "c"], "rank": [1, 2, 1]})
    frame.write_parquet(path)
    entries = load_run("r", path, Diagnostics())
    assert lists_of(entries) == {"1": ["c", "b"], "2": ["a"]}
    assert entries["score"].null_count() == 3
    frame.select("query_id", "doc_id", score=pl.Series([0.5, 7.0, 7.0])).write_parquet(path)
    assert lists_of(load_run("r", path, Diagnostics())) == {"1": ["c", "b"], "2": ["a"]}


BAD_COLUMNS: list[tuple[dict[str, Any], str]] = [
    ({"rank": [1, 3]}, "ranks must be 1, 2, ... without gaps or repeats, got 3"),
    ({"rank": [1, 1]}, "ranks must be 1, 2, ... without gaps or repeats, got 1"),
    ({"rank": [0, 2]}, "ranks must be 1, 2, ... without gaps or repeats, got 2"),
    ({"rank": [1, 2**40]}, f"ranks must be 1, 2, ... without gaps or repeats, got {2**40}"),
    ({"rank": [1, 1], "score": [None] * 2}, "ranks must be 1, 2, ... without gaps or repeats, got 1"),
    ({"rank": [1, None]}, "row 2: rank is missing"),
    ({"rank": [1.0, 1.5]}, "row 2: rank is 1.5; it must be a whole number"),
    ({"score": [1.0, float("nan")]}, "row 2: score is not a finite number"),
    ({"score": [1.0, None]}, "row 2: score is not a finite number"),
    ({"score": ["1", "2"]}, "column 'score' holds String; it must hold numbers"),
    ({}, "no column 'rank' or 'score'; it has query_id, doc_id"),
    ({"rank": [1, 2], "doc_id": None}, "no column 'doc_id'; it has query_id, rank"),
    ({"rank": [1, 2], "doc_id": ["a", None]}, "row 2: doc_id is missing"),
    ({"rank": [1, 2], "doc_id": ["a", "a"]}, "document 'a' is in the list more than once"),
    ({"rank": [1, 2], "query_id": [7.0, 0.5]}, "row 2: query_id is 0.5; it must be a string or a whole"),
    ({"rank": [1, 2], "run_id": [["r"], ["r"]]}, "column 'run_id' holds List(String); it must hold strings"),
]


@pytest.mark.parametrize(("columns", "message"), BAD_COLUMNS)
def test_bad_parquet_run(tmp_path: pathlib.Path, columns: dict[str, Any], message: str) -> None:
    path, given = tmp_path / "run.parquet", {"query_id": ["q", "q"], "doc_id": ["a", "b"], **columns}
    pl.DataFrame({name: values for name, values in given.items() if values is not None}).write_parquet(path)
    of_list = "" if message.startswith(("row", "column", "no ")) else "run 'bm25', query 'q': "
    assert any(problem.startswith(f"{path}: {of_list}{message}") for problem in problems_of(path))


def predictions(path: pathlib.Path, **lists: list[dict[str, object]]) -> pathlib.Path:
    return write(path, *(predicted(*found, query_id=query) for query, found in lists.items()))


def test_kilt_predictions_by_document_by_text_and_by_page(tmp_path: pathlib.Path) -> None:
    path = predictions(
        tmp_path / "kilt.jsonl",
        q1=[
            {"wikipedia_id": "p2"},
            {"wikipedia_id": "p1", "text": " end of one "},
            {"doc_id": "d4", "wikipedia_id": "gone", "score": 0.5},
            {"wikipedia_id": "p1"},
        ],
        q2=[{"passage_id": "d3"}],
        q3=[],
    )
    entries, diagnostics = load("dpr", path)
    assert entries["doc_id"].to_list() == [None, None, "d4", None, "d3"]
    assert entries["page_id"].to_list() == ["p2", "p1", None, "p1", None]
    runs = resolve_pages(entries, CORPUS, diagnostics)
    assert lists_of(runs) == {"q1": ["d3", "d2", "d4", "d1"], "q2": ["d3"]}
    assert diagnostics.errors == diagnostics.warnings == ()
    schemas.conform(runs, schemas.RUNS)


def test_scores_of_predictions_may_be_anything(tmp_path: pathlib.Path) -> None:
    scores = [1, 10**25, 10**400, float("nan"), "high", True]
    pairs = enumerate(scores)
    found: list[dict[str, object]] = [{"doc_id": f"d{place}", "score": one} for place, one in pairs]
    entries = load_run("dpr", predictions(tmp_path / "kilt.jsonl", q=found), Diagnostics())
    assert entries["score"].to_list() == [1.0, 1e25, None, None, None, None]


@pytest.mark.parametrize(
    ("pages", "documents", "message"),
    [
        ([1, 2, "1"], "d1 d3", "repeated pages in a list, left out (query: page): 1 (q: 1)"),
        ([9, 2], "d3", "run 'dpr', query 'q': page '9' has no passage in the passages"),
        ([1], "d1", "equal no passage of their page, whose first passage is used (query: page): 1 (q: 1)"),
    ],
)
def test_pages_that_are_repeated_unknown_or_without_their_text_are_named(
    pages: list[Any], documents: str, message: str, tmp_path: pathlib.Path
) -> None:
    corpus = CORPUS.with_columns(page_id=pl.Series(["1", "1", "2", None]))
    sources = [{"wikipedia_id": page, **({"text": "else"} if len(pages) == 1 else {})} for page in pages]
    entries, diagnostics = load("dpr", predictions(tmp_path / "kilt.jsonl", q=sources))
    assert lists_of(resolve_pages(entries, corpus, diagnostics)) == {"q": documents.split()}
    (problem,) = (*diagnostics.errors, *diagnostics.warnings)
    assert problem.endswith(message)


BAD_PREDICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"id": "q", "output": [{"provenance": []}]}, "query 'q' of run 'bm25' repeats the one at {path}:1"),
    ({"id": "r"}, "query 'r' of run 'bm25' has no output"),
    ({"id": "r", "rank": 1}, "query 'r' of run 'bm25' has no output. Rows, ids and scores of single documents are"),
    ({"id": "r", "q": {"d1": 2.5}}, "query 'r' of run 'bm25' has no output. Rows, ids and scores of single documents"),
    ({"id": "r", "answers": ["a"], "ctxs": [{"id": "d1"}]},
     "query 'r' of run 'bm25' has no output. Lists with texts are under documents, not ctxs"),
    ({"output": []}, "id is missing"),
    (predicted({"title": "x"}), "run 'bm25', query 'r': an entry has neither doc_id"),
    (predicted({"doc_id": ["a"], "wikipedia_id": "1"}), "run 'bm25', query 'r': doc_id is ['a']; it must be a string"),
    (predicted({"doc_id": "a"}, {"doc_id": "a"}), "run 'bm25', query 'r': document 'a' is in the list more than"),
    ({"id": "r", "output": [{"provenance": [{"doc_id": one}]} for one in "ab"]},
     "query 'r' of run 'bm25' has 2 provenance lists, not one"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "message"), BAD_PREDICTIONS)
def test_bad_prediction(tmp_path: pathlib.Path, record: object, message: str) -> None:
    path = predictions(tmp_path / "kilt.jsonl", q=[{"doc_id": "d1"}])
    path.write_text(path.read_text(encoding="utf-8") + json.dumps(record) + "\n", encoding="utf-8")
    (problem,) = problems_of(path)
    assert problem.startswith(f"{path}:2: {message.format(path=path)}")


def run_table(lists: dict[str, list[str]], scores: list[float] | None = None) -> pl.DataFrame:
    runs = runs_of({"mine": lists})
    return runs if scores is None else runs.with_columns(score=pl.Series(scores))


ids = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\f\v"), min_size=1, max_size=4
)


@given(
    lists=st.dictionaries(
        ids.filter(lambda name: name.strip()), st.lists(ids, min_size=1, max_size=6, unique=True)
    ),
    ties=st.sampled_from(["trec9", "trec10"]),
    suffix=st.sampled_from(["trec", "trec.gz"]),
)
def test_runs_to_trec_to_runs_keeps_the_order(lists: dict[str, list[str]], ties: str, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"run.{suffix}"
        written = trec_run(run_table(lists))
        path.write_bytes(gzip.compress(written) if suffix.endswith("gz") else written)
        entries, diagnostics = load("mine", path, ties=ties)
    assert diagnostics.warnings == ()
    assert lists_of(entries) == lists
    assert bool(diagnostics.errors) == (not lists)  # a run without lists is the only one that is refused


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (run_table({"q 1": ["a"]}), "query_id 'q 1' is empty or contains white space"),
        (run_table({"q": ["a\tb"]}), "doc_id .* is empty or contains white space"),
        (run_table({"q": [""]}), "doc_id '' is empty"),
        (run_table({"q": ["a"]}).with_columns(run_id=pl.lit("my run")), "run_id 'my run'"),
    ],
)
def test_runs_that_trec_cannot_hold(runs: pl.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trec_run(runs)


def label_table(*rows: tuple[str, str, float | None]) -> pl.DataFrame:
    schema = {"query_id": pl.String, "doc_id": pl.String, "label": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_written_runs_and_qrels_line_by_line() -> None:
    written = trec_run(run_table({"q1": ["b", "a"], "q2": ["c"]}, [0.5, 0.5, -1.0]))
    assert written == b"q1 Q0 b 1 2 mine\nq1 Q0 a 2 1 mine\nq2 Q0 c 1 1 mine\n"
    written = trec_qrels(label_table(("q2", "a", 1.0), ("q1", "b", 0.0), ("q1", "a", None)))
    assert written == b"q1 0 b 0\nq2 0 a 1\n"  # the null label was not judged
    with pytest.raises(ValueError, match="contains white space"):
        trec_qrels(label_table(("q", "a b", 0.0)))
    # graded labels need a threshold
    labels = label_table(("q", "a", 0.5), ("q", "b", 0.49), ("q", "c", 1.0))
    with pytest.raises(ValueError, match=r"graded labels such as 0\.5 need a threshold"):
        trec_qrels(labels)
    assert trec_qrels(labels, threshold=0.5) == b"q 0 a 1\nq 0 b 0\nq 0 c 1\n"
