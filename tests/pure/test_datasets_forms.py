"""Common forms of questions, passages and qrels are read by every door, or named in one message; guesses are said."""

import gzip
import json
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from input_files import diagnosed, only_error, without_errors, write

from erag_ray.api.questions import question_records
from erag_ray.data.datasets.qrels import read_qrels
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.records import read_records
from erag_ray.data.passages.load import load_passages
from erag_ray.data.passages.pages import page_spans, read_pages

SEVEN = {"id": "q7", "question": "Which river?"}
UNREAD = "alternative_answers", "alias", "accepted_answer", "normalizedAliases", "alt_ans", "alias1"
SQUAD = {"text": ["Ruhr", "the Ruhr"], "answer_start": [3, 3]}
ANSWERS: list[tuple[dict[str, Any], list[str], str]] = [
    # fields of a record, its answers, the beginning of the only note ("": none)
    ({"answers": ["Ruhr"], "input": "Which sea?", "output": [{"answer": "North"}]}, ["Ruhr"],
     "records with the fields of plain and kilt"),
    ({"answer": "Ruhr", "output": "North"}, ["Ruhr"], "the fields of plain and kilt, read as plain."),
    ({"answers": ["Ruhr"], "_id": "x", "text": "Which sea?"}, ["Ruhr"], "the fields of plain and beir"),
    ({"answer": "Ruhr river", "answer_aliases": ["Ruhr", "Ruhr river"]}, ["Ruhr river", "Ruhr"], ""),
    ({"golden_answers": ["Ruhr", "die Ruhr"]}, ["Ruhr", "die Ruhr"], ""),
    ({"possible_answers": '["Ruhr", "Rur\\u0068"]'}, ["Ruhr", "Rurh"], "a list written as text"),
    ({"answers": ["Ruhr"], "answer": "ruhr"}, ["ruhr", "Ruhr"], ""),
    ({"answers": ["Ruhr"], "answer": "the Lenne"}, ["the Lenne", "Ruhr"], "answer is not among answers, and both"),
    ({"answers": ["Ruhr"], "golden_answers": ["ruhr"]}, ["Ruhr"], ""),
    ({"answers": ["Ruhr"], "golden_answers": ["Ruhr", "Lenne"]}, ["Ruhr"],
     "also in the fields golden_answers"),
    ({"answers": ["Ruhr"], "gold": "Lenne"}, ["Ruhr"], "fields gold, which are not read. Set question"),
    ({"answers": SQUAD}, ["Ruhr", "the Ruhr"], ""),
    ({"answers": [{"text": "Ruhr"}, {"text": "Lenne"}]}, ["Ruhr", "Lenne"], ""),
    ({"answer": {"value": "Ruhr", "aliases": ["Lenne"], "normalized_aliases": ["x"]}}, ["Ruhr", "Lenne"], ""),
    *(
        ({"answers": answers}, ["Ruhr", "Lenne"], "")
        for answer in ({"text": None, name: "Ruhr", "aliases": ["Lenne"]} for name in ("value", "text", "answer"))
        for answers in (answer, [answer])
    ),
    ({"answers": "['Ruhr' 'Len ne'\n 'O\\'Hara']"}, ["Ruhr", "Len ne", "O'Hara"], "answers that are a list"),
    ({"answers": "array(['Ruhr', \"O'Hara\"], dtype=object)"}, ["Ruhr", "O'Hara"], "answers that are a list"),
    *(({"answers": form(SQUAD)}, ["Ruhr", "the Ruhr"], "answers that are a list") for form in (json.dumps, str)),
    ({"answers": "{'text': array(['Ruhr'], dtype=object), 'answer_start': array([3], dtype=int32)}"},
     ["Ruhr"], "answers that are a list"),
    *(
        ({"answers": text}, ["Ruhr", "Lenne"], "answers that are a list")
        for text in ("['Ruhr', 'Lenne']", '["Ruhr", "Lenne"]', "('Ruhr', 'Lenne')", "{'Ruhr', 'Lenne'}",
                     ["['Ruhr', 'Lenne']"], "[np.str_('Ruhr'), np.str_('Lenne')]")
    ),
    # other forms of aliases are read, other fields named
    ({"answer": "Ruhr river", "answerAliases": ["Ruhr"]}, ["Ruhr river", "Ruhr"], ""),
    ({"answer": "Ruhr river", "answer_alias": "Ruhr"}, ["Ruhr river", "Ruhr"], ""),
    *(
        ({"answer": "Ruhr", name: ["Lenne"]}, ["Ruhr"], f"also in the fields {name}, which are not read")
        for name in UNREAD
    ),
    *(
        ({"answer": "Ruhr", name: ["Lenne"]}, ["Ruhr"], "")
        for name in ("predicted_answer", "plausible_answers", "answer_type", "answer_start", "s_aliases")
    ),
    *(
        ({"answer": "Ruhr", name: ["d1"]}, ["Ruhr"], f"gold passages, it seems, in the field {name}, which")
        for name in ("gold_docs", "goldDocumentIds", "relevant_docs", "positive_ctxs", "gt_doc_ids", "supporting_facts")
    ),
    *(
        ({"answers": ["Ruhr", text]}, ["Ruhr", text], "such as nan, un")
        for text in ("nan", "N/A", "2020.0", "No Answer Present.", "<unk>", "invalid question")
    ),
    ({"answers": ["none", "20.05", "Nan"]}, ["none", "20.05", "Nan"], ""),
    # only what is certain
    *(
        ({"answers": text}, [text], "")
        for text in ("('Ruhr')", "{Ruhr}", "AC/DC", "9/11 attacks", "24 km/h", "see a://a.de/b", f"Ruhr; {'x' * 50}")
    ),
    ({"answers": ["Ruhr / Lenne", "Ruhr"]}, ["Ruhr / Lenne", "Ruhr"], ""),
    *(
        ({"answers": text}, [text], "answers that look like a list and are kept as one text")
        for text in ("Ruhr|Lenne", "Ruhr || L", "['Ruhr', 'Le", "Ruhr; Lenne", "Ruhr;Lenne", "Ruhr/the Ruhr", "Ru / Le",
                     "{Ruhr, Lenne}", "[Ruhr, Lenne]", "[1, 2]", "<StringArray>\n['Ruhr']")
    ),
]  # fmt: skip
IMPOSSIBLE: list[Any] = [
    {"text": [], "answer_start": []},
    "{'text': [], 'answer_start': []}",
    "{'text': array([], dtype=object), 'answer_start': array([], dtype=int32)}",
]


def loaded(path: object, **options: Any) -> tuple[pl.DataFrame, tuple[str, ...], tuple[str, ...]]:
    questions, diagnostics = diagnosed(load_queries, path, **{"dataset": "nq", **options})
    return questions.queries, diagnostics.errors, diagnostics.warnings


@pytest.mark.parametrize(("fields", "answers", "note"), ANSWERS)
def test_answers_are_read_from_their_common_fields_and_forms(
    fields: dict[str, Any], answers: list[str], note: str, tmp_path: pathlib.Path
) -> None:
    record = {**SEVEN, **fields}
    for records in ([record], question_records([record])[0]):
        queries, errors, notes = loaded(write(tmp_path / "q.jsonl", *records))
        assert errors == ()
        assert queries.select("query_id", "question", "answers").rows() == [("q7", "Which river?", answers)]
        assert len(notes) == bool(note), notes
        assert not note or note in notes[0]


@pytest.mark.parametrize("answers", IMPOSSIBLE)
def test_unanswerable_questions_are_left_out_by_every_door(answers: Any, tmp_path: pathlib.Path) -> None:
    records = [
        {**SEVEN, "answers": SQUAD if isinstance(answers, dict) else str(SQUAD)},
        {"id": "q8", "question": "?", "answers": answers},
    ]
    write(tmp_path / "q.jsonl", *records)
    (tmp_path / "list.json").write_text(json.dumps(records, indent=1))
    (tmp_path / "list.json.gz").write_bytes(gzip.compress(json.dumps(records).encode()))
    frame = pl.DataFrame(records)
    frame.write_parquet(tmp_path / "q.parquet")
    write(tmp_path / "python.jsonl", *question_records(pd.DataFrame(records))[0])
    for file in ("q.jsonl", "list.json", "list.json.gz", "q.parquet", "python.jsonl"):
        queries, errors, notes = loaded(tmp_path / file)
        assert errors == (), file
        assert queries.select("query_id", "answers").rows() == [("q7", ["Ruhr", "the Ruhr"])]
        assert notes[-1] == "impossible questions, left out: 1 (q8)", file


@pytest.mark.parametrize(
    "marks",
    [
        *({"is_impossible": 1}, {"is_impossible": "True"}, {"isImpossible": True}),
        *({"is_answerable": False}, {"answerable": "no"}, {"unanswerable": True}),
    ],
    ids=str,
)
def test_marks_of_questions_without_an_answer(marks: dict[str, Any], tmp_path: pathlib.Path) -> None:
    records = [
        {**SEVEN, "answers": ["Ruhr"], **dict.fromkeys(marks)},
        {"id": "q8", "question": "?", "answers": [], **marks},
    ]
    for rows in (records, question_records(pd.DataFrame(records, dtype=object))[0]):
        queries, errors, notes = loaded(write(tmp_path / "q.jsonl", *rows))
        assert (errors, notes) == ((), ("impossible questions, left out: 1 (q8)",))
        assert queries["query_id"].to_list() == ["q7"]


def test_answers_of_kilt_and_beir_stand_in_several_places(tmp_path: pathlib.Path) -> None:
    kilt = {"id": "q1", "input": "?", "output": [{"answer": "Ruhr river", "answer_aliases": ["Ruhr"]}]}
    beir = {"_id": "q2", "text": "?", "answers": ["Ruhr"], "metadata": {}}
    none = [
        {"id": "q3", "output": [], "meta": {"is_impossible": True}},
        {"id": "q4", "output": [], "is_impossible": 1},
    ]
    queries, errors, notes = loaded(
        write(tmp_path / "q.jsonl", {**kilt, "answer_aliases": ["Rur"]}, beir, *none)
    )
    assert (errors, notes) == ((), ("impossible questions, left out: 2 (q3, q4)",))
    assert queries["answers"].to_list() == [["Ruhr river", "Rur", "Ruhr"], ["Ruhr"]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gold": ["Ruhr"]}, "no answer. Set question_fields: {answers: gold} if this field has them"),
        ({"correct_answers": "Ruhr"}, "no answer. Set question_fields: {answers: correct_answers}"),
        ({"answers": "[]"}, "query 'q7' has no answer. If there is none, mark it is_impossible"),
        ({"output": "Ruhr"}, "if it is in one of id, question, output, set question_fields: {answers: NAME}"),
        ({"answers": [{"name": "R", "aliases": ["r"]}]}, "answer {'name': 'R', 'aliases': ['r']} must be a"),
        ({"answers": ["Ruhr", None]}, "answer None must be a string"),
        ({"answer": "Ruhr", "ground_truths": ["Lenne"]}, "ground_truths is not among its answers"),
        (
            {"answers": ["x", ["Ruhr"]]},
            "answer ['Ruhr'] must be a string (lists of forms stand in answers_all)",
        ),
    ],
)
def test_missing_answers_name_the_field_that_has_them(
    fields: Any, message: str, tmp_path: pathlib.Path
) -> None:
    path = write(tmp_path / "q.jsonl", {**SEVEN, **fields})
    _, (error,), _ = loaded(path)
    assert error.startswith(f"{path}:1: ")
    assert message in error


def test_fields_that_the_config_names_are_the_only_ones(tmp_path: pathlib.Path) -> None:
    record = {**SEVEN, "answers": ["Lenne"], "answer_aliases": ["Volme"], "gold": "['Ruhr', 'Rur']"}
    queries, errors, notes = loaded(write(tmp_path / "q.jsonl", record), fields={"answers": "gold"})
    assert errors == ()
    assert queries["answers"].to_list() == [["Ruhr", "Rur"]]
    assert notes == ("answers that are a list written as text, read as a list, of queries: 1 (q7)",)


QUESTION = {**SEVEN, "answers": ["Ruhr"]}


def test_a_task_that_is_taken_from_a_files_name_is_said_with_the_score_that_holds(
    tmp_path: pathlib.Path,
) -> None:
    kilt = {"id": "k1", "input": "Ruhr is a river.", "output": [{"answer": "SUPPORTS"}]}
    cases: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("fever-questions.jsonl", QUESTION, {}, "taken for fever (claims), scored by accuracy. Set dataset"),
        ("wow.jsonl", QUESTION, {"score": "match"}, "taken for wow (dialogues), scored by match."),
        ("fever-2.jsonl", kilt, {}, "is taken for fever (claims), scored by accuracy"),
        ("fever-dev-kilt.jsonl", kilt, {}, ""),
        ("fever.jsonl", QUESTION, {"dataset": "fever"}, ""),
        ("nq-mine.jsonl", QUESTION, {}, ""),
        ("mine.jsonl", QUESTION, {}, "'mine': treated as question answering, scored by exact_match"),
        ("mine.jsonl", QUESTION, {"score": "token_f1"}, "treated as question answering, scored by token_f1"),
        ("mine.jsonl", QUESTION, {"is_scored": False}, "data set 'mine': treated as question answering"),
    ]
    for file, record, options, note in cases:
        _, errors, notes = loaded(write(tmp_path / file, record), **{"dataset": None, **options})
        assert errors == ()
        assert len(notes) == bool(note), (file, notes)
        assert not note or note in notes[0], notes
        assert "scored by" not in notes[0] or options.get("is_scored", True) if notes else True


# --- files ---


def test_files_of_questions_have_many_forms(tmp_path: pathlib.Path) -> None:
    records = [QUESTION, {"id": "q8", "question": "Which sea?", "answers": ["North Sea"]}]
    forms = {
        "a.json": json.dumps(records, indent=2),
        "b.json": "\ufeff" + json.dumps(records),
        "c.jsonl": json.dumps(records),
        "d.tsv": "id\tquestion\tanswers\nq7\tWhich river?\t['Ruhr']\nq8\tWhich sea?\t\"['North Sea']\"\n",
        "e.tsv": "q7\tWhich river?\tRuhr\nq8\tWhich sea?\tNorth Sea\n",
        "f.tsv": "Qid\tQuery\tAnswer\nq7\tWhich river?\tRuhr\nq8\tWhich sea?\tNorth Sea\n",
        # as spreadsheets and pandas write them
        "g.csv": '\ufeffID;Question;Answer;\r\nq7;Which river?;Ruhr;\r\n;;;\r\nq8;"Which sea?";North Sea;\r\n',
        "h.csv": ",id,query,answer\n0,q7,Which river?,\"['Ruhr']\"\n1,q8,Which sea?,North Sea\n",
    }
    for file, text in forms.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
        queries, errors, _ = loaded(tmp_path / file)
        assert errors == (), file
        expected = [("q7", "Which river?", ["Ruhr"]), ("q8", "Which sea?", ["North Sea"])]
        assert queries.select("query_id", "question", "answers").rows() == expected, file


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("q.json", '{\n"q1": "Ruhr"}', ":1: one JSON object over several lines, with the keys q1. "
         "Write one object a line, or a list of objects, with the key as query_id or doc_id"),
        ("q.json", '{\n"Data": [{"Question": "?"}]}', ":1: one JSON object over several lines, with the keys Data. "
         "Write the list Data by itself"),
        ("q.json", '{"data": [{"question": "?"}]}', ': not in the format of SQuAD: it has no list "data" of objects'),
        ("q.tsv", "7\tWhich river?\nDL-8\twhy\n", ": questions like '7' are ids. Two columns are question and"),
        ("q.json", "[1]", ": item 1 is a int where an object is expected"),
        ("q.tsv", "a\tb\tc\td\n", ":1: 4 columns between tabs; expected question, answers or id, question, answers."),
        ("q.jsonl", "no JSON\n", ":1: not JSON"),
        ("q.csv", "id,question,answer\nq7,?,Ruhr, L\n", ": cannot be read: found more fields than defined in"),
        ("q.csv", "id;answer;Answer\nq7;Ruhr;Rur\n", ": cannot be read: two columns of one name, answer"),
        ("q.tsv", "id\tquestion\n".encode("utf-16"), ": cannot be read: it is UTF-16. Save it as UTF-8"),
        ("q.xlsx", "PK\x03\x04", ": cannot be read: it is an Excel workbook or a zip archive. Save the table in it as"),
        ("q.tsv", "id\tquestion\tAnswer\tanswer\nq7\t?\tRuhr\tRur\n", ":1: two columns of one name in id, question"),
        # a header with one known name is no question
        ("q.tsv", "question\tground_truth\n?\tRuhr\n", ":2: query 'q:2' has no answer. Set question_fields: {answers:"),
        ("q.tsv", "Question\tGold Answer\n?\tRuhr\n", ":2: query 'q:2' has no answer. Set question_fields: {answers:"),
        ("q.tsv", "prompt\tanswers\n?\tRuhr\n", ":2: unknown format of a record with the fields ['prompt', 'ans"),
    ],
)  # fmt: skip
def test_other_forms_are_one_message(file: str, text: Any, message: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    _, (error,), _ = loaded(tmp_path / file)
    assert error.startswith(f"{tmp_path / file}{message}")


def test_tables_of_text_are_read_as_outputs(tmp_path: pathlib.Path) -> None:
    for sign in "\t,;":
        (tmp_path / "o.tsv").write_text("query_id,system,output\nq7,a,Ruhr\n".replace(",", sign))
        (record,) = read_records(str(tmp_path / "o.tsv"), Diagnostics())
        assert record.values == {"query_id": "q7", "system": "a", "output": "Ruhr"}


def test_passages_of_dpr_and_ms_marco_and_lists_of_passages(tmp_path: pathlib.Path) -> None:
    expected = [("7", "Essen", 'On the "Ruhr", a river.'), ("8", "", '"Sea" first')]
    forms = {
        "dpr.tsv": 'id\ttext\ttitle\n7\t"On the ""Ruhr"", a river."\tEssen\n8\t"Sea" first\t\n',
        "bare.tsv": '7\t"On the ""Ruhr"", a river."\tEssen\n8\t"Sea" first\t""\n',
        "named.tsv": 'DocID\tcontents\ttitle\n7\tOn the "Ruhr", a river.\tEssen\n8\t"Sea" first\t\n',
        "named.csv": 'DocID,Title,Text\n7,Essen,"On the ""Ruhr"", a river."\n8,,"""Sea"" first"\n',
        "order.tsv": 'title\tid\ttext\nEssen\t7\tOn the "Ruhr", a river.\n\t8\t"Sea" first\n',
        "list.json": json.dumps(
            [
                {"doc_id": "7", "title": "Essen", "text": expected[0][2]},
                {"id": "8", "contents": expected[1][2]},
            ],
            indent=1,
        ),
    }
    for file, text in forms.items():
        (tmp_path / file).write_text(text)
        corpus = without_errors(load_passages, tmp_path / file)
        assert corpus.select("doc_id", "title", "text").rows() == expected, file
    (tmp_path / "gz.tsv").write_bytes(gzip.compress(b"7\ta text\n8\tanother\n"))
    assert load_passages(tmp_path / "gz.tsv", Diagnostics())["text"].to_list() == ["a text", "another"]
    (tmp_path / "swapped.tsv").write_text("7\tEssen\tOn the Ruhr\n8\t\ta\n")
    _, diagnostics = diagnosed(load_passages, tmp_path / "swapped.tsv")
    assert diagnostics.warnings[0].endswith("(without a header: id, text, title): 1 (7)")
    (tmp_path / "bad.tsv").write_text("7\ta\tb\tc\td\n")
    error = only_error(load_passages, tmp_path / "bad.tsv")
    assert error.startswith(f"{tmp_path}/bad.tsv:1: 5 columns between tabs; expected id, text, title or id,")


def test_a_list_of_pages_is_read_in_one_piece(tmp_path: pathlib.Path) -> None:
    pages = [{"title": name, "text": "a b"} for name in "abcd"]
    (tmp_path / "pages.json").write_text(json.dumps(pages, indent=1))
    pl.DataFrame(pages).write_csv(tmp_path / "pages.csv")
    for path in map(str, tmp_path.iterdir()):
        (span,) = page_spans(path, 20)
        assert [page.title for page, _ in read_pages(path, Diagnostics(), span)] == ["a", "b", "c", "d"]


HEADERS = [
    "query-id\tcorpus-id\tscore",
    "query_id\tdoc_id\trelevance",
    "qid\tdocid\trel",
    "Query ID\tDocument ID\tGrade",
    "qid docid label",
    "query_id,doc_id,relevance",
    "query\titer\tdocno\trelevance",
    "score\tcorpus-id\tquery-id",
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("grade", [1, 2.0])
def test_qrels_with_other_names_of_columns(header: str, grade: float, tmp_path: pathlib.Path) -> None:
    separator = next(sign for sign in "\t, " if sign in header)
    names = header.split(separator)
    roles = {"q": 7, "i": 0, "d": 1, "c": 1}
    row = {name: grade if name == "score" else roles.get(name[0].lower(), grade) for name in names}
    text = f"{header}\n{separator.join(map(str, row.values()))}\n"
    (tmp_path / "a.tsv").write_text(text)
    write(tmp_path / "a.jsonl", row)
    (tmp_path / "a.json").write_text(json.dumps([row], indent=1))
    pl.DataFrame([row]).write_parquet(tmp_path / "a.parquet")
    for file in ("a.tsv", "a.jsonl", "a.json", "a.parquet"):
        assert without_errors(read_qrels, [str(tmp_path / file)]) == {"7": ("1",)}, file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (sign.join(['"query-id"', '"corpus-id"', '"score"\n"q,1"', '"d""1"', '"1"']), {"q,1": ('d"1',)})
            for sign in "\t,"
        ),
        ("topic\tarticle\tuse\nq7\td1\t1\n", "a header without known names of all three columns: topic, article,"),
        ("query_id,doc_id,score,relevance\nq,d,1,1\n", {"q": ("d",)}),
        ("qid,docid,docno,label\nq,5,d,1\n", {"q": ("d",)}),
        ("query_id,doc_id,score,relevance\nq,d,0,1\n", "several grades: score, relevance"),
    ],
)  # fmt: skip
def test_other_headers_of_qrels(text: str, expected: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "qrels.csv").write_text(text)
    if isinstance(expected, str):
        assert expected in only_error(read_qrels, [str(tmp_path / "qrels.csv")])
    else:
        assert without_errors(read_qrels, [str(tmp_path / "qrels.csv")]) == expected


def test_a_missing_relative_file_names_the_folder_of_its_path(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("q.jsonl", "q.parquet", "who built it"):
        _, (error,), _ = loaded(file)
        assert f" (looked for in the working folder, {tmp_path})" in error
        assert ("Strings are paths; texts go in mappings" in error) == (" " in file)


def test_questions_in_memory_with_fields_of_kilt_keep_their_question(tmp_path: pathlib.Path) -> None:
    kilt = {"input": "Which sea?", "output": [{"answer": "North Sea"}]}
    (record,) = question_records([{**QUESTION, **kilt, "array": np.array([1, 2])}])[0]
    assert record == {**QUESTION, **kilt, "array": [1, 2]}
    queries, errors, _ = loaded(write(tmp_path / "q.jsonl", record))
    assert errors == ()
    assert queries.select("question", "answers").rows() == [("Which river?", ["Ruhr"])]
