"""What the page is made of: records of questions, what its files hold, and what cannot get out of them."""

import base64
import gzip
import json
import pathlib
import re
from typing import Any

import polars as pl
import pytest
from made_up_folder import HOSTILE, READER, Size, report_of, write_folder
from scripts import python

from erag_ray.analyses.cells import CELLS
from erag_ray.analyses.parts.model import Column, Format, Table, Value
from erag_ray.report.page.payload import index_data, packed, table_data
from erag_ray.report.page.questions import (
    SNIPPET_CHARACTERS,
    QuestionOptions,
    Questions,
    Record,
    answer_pattern,
    load_questions,
    snippet,
)
from erag_ray.report.page.write import write_page
from erag_ray.store import schemas
from erag_ray.store.folder import Folder
from erag_ray.store.tables import TableStore


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def data_of(page: str) -> Any:
    found = re.search(r'<script type="text/plain" id="data">(.*?)</script>', page)
    assert found
    return unpacked(found[1])


def records_of(folder: pathlib.Path) -> list[Any]:
    """Every record of every file of questions."""
    texts = [path.read_text() for path in sorted((folder / "report" / "questions").iterdir())]
    return [record for text in texts for record in unpacked(re.fullmatch(r'shard\(\d+,"(.*)"\);\n', text)[1])]  # type: ignore[index]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> TableStore:
    return write_folder(str(tmp_path / "out"), Size(num_questions=7))


def one(questions: Questions, query_id: str = "q0") -> Record:
    return next(question for question in questions if question["id"] == query_id)


# --- records ---


def test_a_record_holds_the_rows_of_the_tables(folder: TableStore) -> None:
    questions = load_questions(folder, QuestionOptions(depth=3))
    assert (questions.runs, questions.depths, questions.notes) == (["bm25", "dense"], [5, 10], [])
    assert [column.annotator for column in questions.columns] == ["erag", "gain", "provenance"]
    assert [column.kind for column in questions.columns] == ["binary", "signed", "binary"]
    assert [question["id"] for question in questions] == [f"q{number}" for number in range(7)]
    used = folder.read(schemas.UTILITY).join(
        folder.read(schemas.LIST_OUTPUTS), on=["reader", "run_id", "query_id", "depth"]
    )
    for question in questions:
        tables = (folder.read(schemas.RUNS), folder.read(schemas.LABELS), used, folder.read(CELLS))
        runs, labels, outputs, cells = (table.filter(query_id=question["id"]) for table in tables)
        documents = question["documents"]
        for place, run in enumerate(questions.runs):
            expected = runs.filter(run_id=run).sort("rank")["doc_id"].to_list()
            assert [documents["ids"][number] for number in question["lists"][str(place)]] == expected
        for place, column in enumerate(questions.columns):
            found = dict(zip(documents["ids"], documents["labels"][str(place)], strict=True))
            of_column = labels.filter(annotator=column.annotator)
            assert found == dict(of_column.select("doc_id", "label").iter_rows())
        rows = outputs.select("run_id", "depth", "value", "output")
        assert set(question["end_to_end"]) == set(rows.iter_rows())
        assert set(question["cells"]) == set(cells.select("run_id", "depth", "cell").iter_rows())


def test_texts_gold_and_outputs_are_those_of_their_document(folder: TableStore) -> None:
    question = one(load_questions(folder, QuestionOptions(depth=3)), "q4")
    texts = dict(folder.read(schemas.CORPUS).select("doc_id", "text").iter_rows())
    outputs = dict(folder.read(schemas.DOCUMENT_OUTPUTS).select("doc_id", "output").iter_rows())
    ranks = folder.read(schemas.RUNS).filter(query_id="q4").group_by("doc_id").agg(pl.col("rank").min())
    best = dict(ranks.iter_rows())
    documents = question["documents"]
    for place, document in enumerate(documents["ids"]):
        is_gold = document == "q4-s0"
        assert (place in documents["gold"]) == is_gold
        shown = texts[document] if best[document] <= 3 or is_gold else None
        assert documents["texts"][place] == shown
        assert documents["outputs"][place] == outputs[document]
        assert documents["titles"][place] == f"The town of {document}"
    assert question["slices"] == {"hops": "2"}


def test_a_page_of_provenance_makes_its_documents_gold(tmp_path: pathlib.Path) -> None:
    folder = write_folder(str(tmp_path), Size(num_questions=2), without=(schemas.GOLD,))
    documents = one(load_questions(folder, QuestionOptions()))["documents"]
    assert [documents["ids"][place] for place in documents["gold"]] == ["q0-s0"]


def test_texts_can_be_left_out_or_cut(folder: TableStore) -> None:
    without = one(load_questions(folder, QuestionOptions(texts="none")))["documents"]
    assert set(without["texts"]) == {None}
    assert None not in without["titles"]
    whole = one(load_questions(folder, QuestionOptions()))["documents"]
    cut = one(load_questions(folder, QuestionOptions(texts="snippets")))["documents"]
    for text, short in zip(whole["texts"], cut["texts"], strict=True):
        assert text is not None
        assert short is not None
        assert len(short) <= SNIPPET_CHARACTERS + 2 < len(text)
        # a gold answer
        assert ("river" in short) == (" river " in text)


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("x" * 500, ["y"], "x" * 200 + "…"),
        ("short", [], "short"),
        ("a" * 300 + " Orla  River " + "b" * 300, ["orla river"], f"…{'a' * 94} Orla  River {'b' * 93}…"),
        ("a" * 300 + "orla " + "b" * 10, ["orla"], "a" * 200 + "…"),
        ("w" + " n" * 200, ["w" + " n" * 200], "w" + " n" * 200),
        ("a " * 150 + "서울은" + " b" * 150, ["서울"], f"… {'a ' * 49}서울은{' b' * 49}…"),
        ("가" * 300 + "Orla" + "가" * 300, ["Orla"], f"…{'가' * 98}Orla{'가' * 98}…"),
        ("a" * 300 + ". * " + "b" * 10, [".", "*"], "a" * 200 + "…"),
    ],
    ids=["start", "whole", "around", "inside a word", "long answer", "particle", "script", "signs"],
)
def test_a_snippet_surrounds_the_answer(text: str, answers: list[str], expected: str) -> None:
    assert snippet(text, answer_pattern(answers)) == expected


def test_disagreement_and_harm_are_counted_by_document(folder: TableStore) -> None:
    labels = (
        folder.read(schemas.LABELS).filter(query_id="q3").pivot("annotator", index="doc_id", values="label")
    )
    questions = load_questions(folder, QuestionOptions())
    assert questions.num_disagreements[3] == (labels["erag"] != labels["provenance"]).sum() > 0
    assert questions.num_harmful[3] == (labels["gain"] < 0).sum() > 0


OF_JOB = (
    schemas.LABELS,
    schemas.UTILITY,
    schemas.DOCUMENT_OUTPUTS,
    schemas.LIST_OUTPUTS,
    CELLS,
    schemas.SLICES,
)
TABLES = (schemas.QUERIES, schemas.RUNS, schemas.CORPUS, schemas.GOLD, schemas.PROVENANCE, *OF_JOB)


@pytest.mark.long
@pytest.mark.parametrize("schema", TABLES, ids=lambda schema: schema.name)
def test_what_a_missing_table_does_not_hold_is_shown(
    tmp_path: pathlib.Path, schema: schemas.TableSchema
) -> None:
    folder = write_folder(str(tmp_path), Size(num_questions=3), without=(schema,))
    questions = load_questions(folder, QuestionOptions())
    assert [question["id"] for question in questions] == ["q0", "q1", "q2"]
    assert one(questions)["documents"]["ids"]
    # the last two are made by newer versions only
    named = [] if schema in (CELLS, schemas.SLICES) else [f"table {schema.name} is missing"]
    assert list(questions.notes) == named
    write_page(Folder(str(tmp_path)), report_of(), questions)
    assert len(records_of(tmp_path)) == 3


def test_a_changed_table_counts_as_missing_and_is_named(tmp_path: pathlib.Path) -> None:
    folder = write_folder(str(tmp_path), Size(num_questions=3))
    next((tmp_path / "labels").glob("part-*")).write_bytes(b"other")
    questions = load_questions(folder, QuestionOptions())
    assert len(questions.notes) == 1
    assert "not what was sealed" in questions.notes[0]
    assert one(questions)["documents"]["labels"] == {}


def test_an_empty_folder_has_no_question(tmp_path: pathlib.Path) -> None:
    questions = load_questions(TableStore(str(tmp_path)), QuestionOptions())
    assert list(questions) == []
    write_page(Folder(str(tmp_path)), report_of(), questions)
    assert (tmp_path / "report" / "index.html").exists()


def test_a_null_label_and_an_output_that_ended_as_an_error_stay_unknown(tmp_path: pathlib.Path) -> None:
    folder = write_folder(
        str(tmp_path), Size(num_questions=1), without=(schemas.LABELS, schemas.DOCUMENT_OUTPUTS)
    )
    named = {"reader": READER, "query_id": "q0", "doc_id": "q0-s0"}
    label = {**named, "score": "exact_match", "annotator": "erag", "label": None}
    known = {**label, "doc_id": "q0-s1", "label": 1.0}
    folder.write(pl.DataFrame([label, known]).select(schemas.LABELS.columns.names), schemas.LABELS)
    folder.write(
        pl.DataFrame([{**named, "output": None}], schema_overrides={"output": pl.String}),
        schemas.DOCUMENT_OUTPUTS,
    )
    documents = one(load_questions(folder, QuestionOptions()))["documents"]
    labels = dict(zip(documents["ids"], documents["labels"]["0"], strict=True))
    assert (labels["q0-s0"], labels["q0-s1"]) == (None, 1.0)
    assert set(documents["outputs"]) == {None}


# --- files ---


@pytest.mark.parametrize("size", [500_000, 20_000])
def test_every_question_is_in_a_small_file_and_the_index_says_where(
    folder: TableStore, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("erag_ray.report.page.write.SHARD_BYTES", size)
    path = write_page(folder.folder, report_of(), load_questions(folder, QuestionOptions()))
    assert path == f"{folder.folder.path}/report/index.html"
    index = data_of(pathlib.Path(path).read_text())["questions"]["index"]
    assert index["id"] == [one["id"] for one in records_of(tmp_path / "out")] == [f"q{n}" for n in range(7)]
    files = sorted(file.name for file in (tmp_path / "out" / "report" / "questions").iterdir())
    assert files == [f"{number:04}.js" for number in range(index["shard"][-1] + 1)]
    assert len(files) == 1 if size == 500_000 else len(files) > 2
    assert index["place"] == [index["shard"][:at].count(shard) for at, shard in enumerate(index["shard"])]
    assert {len(values) for values in index["values"]} == {2}
    assert (index["depth"], set(index["slice_values"])) == (10, {"hops"})
    assert {path.name for path in (tmp_path / "out" / "report").iterdir()} == {"index.html", "questions"}


def test_a_system_without_documents_and_small_scores_are_in_the_index(folder: TableStore) -> None:
    utility = folder.read(schemas.UTILITY)
    changed = {"run_id": pl.lit("system"), "depth": pl.lit(0, pl.Int32), "value": pl.lit(3e-5)}
    system = utility.filter(depth=5, run_id="bm25").with_columns(**changed)
    folder.write(pl.concat([utility, system]), schemas.UTILITY)
    questions = load_questions(folder, QuestionOptions())
    assert questions.runs == ["bm25", "dense", "system"]
    assert index_data(questions, [(0, 0)] * 7)["elsewhere"] == [False, False, True]
    assert ("system", 0, 3e-5, None) in one(questions)["end_to_end"]


def test_one_file_holds_everything(folder: TableStore, tmp_path: pathlib.Path) -> None:
    questions = load_questions(folder, QuestionOptions())
    path = write_page(folder.folder, report_of(), questions, single_file=True)
    assert [file.name for file in (tmp_path / "out" / "report").iterdir()] == ["index.html"]
    page = pathlib.Path(path).read_text()
    shards = re.findall(r'<script type="text/plain" class="shard">(.*?)</script>', page)
    assert [record["id"] for text in shards for record in unpacked(text)] == [
        f"q{number}" for number in range(7)
    ]
    assert "file:" not in page[: page.index("<title>")]


def test_the_same_report_is_the_same_file_and_another_leaves_nothing_of_it(folder: TableStore) -> None:
    questions = load_questions(folder, QuestionOptions())
    paths = (
        pathlib.Path(write_page(folder.folder, report_of(), one)) for one in (questions, questions, None)
    )
    first, second, last = [(path.read_bytes(), [*map(str, path.parent.iterdir())]) for path in paths]
    assert (first, last[1]) == (second, [f"{folder.folder.path}/report/index.html"])


def test_the_verdict_stands_in_the_html_without_any_script(tmp_path: pathlib.Path) -> None:
    page = pathlib.Path(write_page(Folder(str(tmp_path)), report_of())).read_text()
    assert "412 questions would be needed" in page
    assert "half of the outputs are empty" in page
    assert page.index("bm25 serves the reader best") < page.index('id="data"')


def test_nothing_gets_out_of_its_place_in_the_html(tmp_path: pathlib.Path) -> None:
    table = Table(
        name="t", title=HOSTILE, columns=(Column(HOSTILE, Format.NAME),), rows=((Value(value=HOSTILE),),)
    )
    folder = write_folder(str(tmp_path), Size(num_questions=1, runs=(HOSTILE, "dense")))
    questions = load_questions(folder, QuestionOptions())
    page = pathlib.Path(write_page(folder.folder, report_of(HOSTILE, table), questions)).read_text()
    assert "<img" not in page
    assert "<b>" not in page
    # one element for the data and one for the script, each ended once
    assert page.count("<script") == page.count("</script") == 2
    assert data_of(page)["tables"][0]["rows"] == [[HOSTILE]]


def test_the_page_names_no_remote_address(tmp_path: pathlib.Path) -> None:
    page = pathlib.Path(write_page(Folder(str(tmp_path)), report_of())).read_text()
    assert not re.search(r"""(src|href|url\()\s*=?\s*["']?(https?:)?//""", page)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe-eval" not in policy[1]
    assert "connect-src &#39;none&#39;" in policy[1]


def test_packed_text_is_safe_in_html_and_comes_back() -> None:
    text = packed([HOSTILE, "\ud800 half a pair"])
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    assert unpacked(text)[0] == HOSTILE


def test_cells_have_what_they_are_sorted_by_and_their_reasons() -> None:
    columns = (
        Column("run", Format.NAME),
        Column("score", Format.NUMBER, "mean"),
        Column("p", Format.P_VALUE),
    )
    row = (
        Value(value="bm25"),
        Value(value=0.5, low=0.25, high=0.75, note="n=30"),
        Value(reason="one question"),
    )
    nan = (Value(), Value(value=float("nan")), Value(value=1e-5))
    data = table_data(Table(name="t", title="T", columns=columns, rows=(row, nan)))
    assert data["rows"] == [
        ["bm25", {"v": 0.5, "t": "0.500", "i": "[0.250, 0.750]", "n": "n=30"}, {"r": "one question"}],
        [None, None, {"v": 1e-5, "t": "1.0e-05"}],
    ]
    assert data["columns"][1] == {"name": "score", "meaning": "mean", "text": False}


# --- scale ---

PEAK = """
import pathlib, sys
sys.path.insert(0, {tests!r})
from made_up_folder import Size, report_of, write_folder
from erag_ray.report.page.questions import QuestionOptions, load_questions
from erag_ray.store.tables import TableStore
from erag_ray.report.page.write import write_page
store = TableStore({out!r})
questions = load_questions(store, QuestionOptions())
write_page(store.folder, report_of(), questions)
# not ru_maxrss, which begins with the memory of the process that started this one
status = pathlib.Path("/proc/self/status").read_text()
print(status.partition("VmHWM:")[2].split()[0])
"""


def peak_of(out: pathlib.Path) -> int:
    """Bytes that a process needs at most to write a folder's page."""
    code = PEAK.format(tests=str(pathlib.Path(__file__).parent / "helpers"), out=str(out))
    done = python("-c", code, check=True)
    return int(done.stdout) * 1024


@pytest.mark.long
def test_the_memory_of_a_question_lets_3000_fit_in_two_gibibytes(tmp_path: pathlib.Path) -> None:
    few, many = 400, 1_600
    for number in (few, many):
        size = Size(num_questions=number, runs=("a", "b", "c", "d", "e"), num_documents=50, share_shared=0.1)
        write_folder(str(tmp_path / str(number)), size)
    peaks = [peak_of(tmp_path / str(number)) for number in (few, many)]
    of_a_question = (peaks[1] - peaks[0]) / (many - few)
    assert peaks[1] + of_a_question * (3_000 - many) < 2 << 30
