"""Dual labels: KLUE-MRC's own form, pages in several forms, both labels, and the table."""

import contextlib
import dataclasses
import functools
import json
import pathlib
import unicodedata
from collections.abc import Iterator
from typing import Any

import kiwipiepy
import polars as pl
import pytest
from gold import gold_of
from input_files import article, diagnosed, only_error, qa, without_errors
from scripts import import_script
from tiny import Tiny

from erag_ray.analyses.parts.formats import rows_of_text
from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.pages import read_pages
from erag_ray.data.passages.splitters import Page
from erag_ray.extras.papers import dual_labels as dual
from erag_ray.extras.papers.config import DualLabelsConfig
from erag_ray.extras.papers.dual_labels import DUAL_LABELS, dual_labels, dual_probabilities, label_twice
from erag_ray.retrieve.stage import retrieve
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

ask = functools.partial(qa, key="guid", question_type=1)
page = functools.partial(article, source="wikipedia", news_category=None)
KLUE = '{"data": [{"title": "a", "paragraphs": [{"qas": [{%s}]}]}]}'
ARTICLES = [
    page(
        "가람시",
        ask("k1", "1874년", question="가람시는 언제 세워졌는가?"),
        context="가람시는 강가의 도시이다. 1874년에 세워졌다.",
    ),
    page(
        "누리호",
        ask("k2", "박온린", question="누리호를 만든 사람은?"),
        ask("k3", question="왜?", is_impossible=True),
        context="누리호는 배이다. 박온린이 만들었다.",
    ),
    # the same page again, with another context
    page(
        "가람시",
        ask("k4", "김가람", "가람", question="가람시의 시장은 누구인가?"),
        context="가람시의 시장은 김가람이다.",
    ),
    page("뉴스", ask("k5", "오늘", question="무슨 소식?"), context="오늘의 소식", source="hankyung"),
]


@pytest.fixture
def klue(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "klue-mrc-v1.1_dev.json"
    path.write_text(json.dumps({"version": "v", "data": ARTICLES}, ensure_ascii=False, indent=1))
    return path


@pytest.fixture(scope="module")
def one_kiwi() -> Iterator[None]:
    """The Korean analyser, which takes seconds to load, is loaded once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kiwipiepy, "Kiwi", functools.cache(kiwipiepy.Kiwi))
        yield


def all_pages(path: pathlib.Path, diagnostics: Diagnostics) -> list[Page]:
    return [page for page, _ in read_pages(str(path), diagnostics)]


# --- files ---


def test_questions_have_their_articles_title_as_gold_page(klue: pathlib.Path) -> None:
    loaded, diagnostics = diagnosed(load_queries, klue, filters=["source=wikipedia"])
    assert diagnostics.errors == ()
    assert loaded.queries.select("query_id", "dataset", "answers").rows() == [
        ("k1", "klue-mrc-v1.1_dev", ["1874년"]),
        ("k2", "klue-mrc-v1.1_dev", ["박온린"]),
        ("k4", "klue-mrc-v1.1_dev", ["김가람", "가람"]),
    ]
    assert loaded.provenance.equals(gold_of(pages=[("k1", "가람시"), ("k2", "누리호"), ("k4", "가람시")]))
    notes = " ".join(diagnostics.warnings)
    assert "impossible questions, left out: 1 (k3)" in notes
    assert "left out by filters source=wikipedia: 1 (k5)" in notes


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"data": [', "cannot be read"),
        ('{\n "data": 3}', 'it has no list "data" of objects'),
        (KLUE % '"question": "q", "answers": []', "guid is missing"),
        ('{"data": [{"title": "a", "paragraphs": 3}]}', "paragraphs is 3; it must be a list of objects"),
        (
            KLUE % '"guid": "g", "question": "q", "answers": [{"text": 3}, {"text": "b"}]',
            ":1: answer 3 must be a string",
        ),
        ("[" * 100_000, "maximum recursion depth"),
        ('{"data": [{"title": "\\ud800"}]}', "holds half of a surrogate pair"),
        (KLUE % '"guid": "g", "question": "q", "answers": []', "has no answer"),
    ],
)
def test_what_is_wrong_with_a_klue_file_is_named(klue: pathlib.Path, content: str, named: str) -> None:
    klue.write_text(content)
    _, diagnostics = diagnosed(load_queries, klue, format="klue")
    assert any(named in problem for problem in diagnostics.errors)


@pytest.mark.parametrize(
    ("title", "context", "named"),
    [
        (" ", "b", "title is ' '; it must be a string or a whole number"),
        ("a", ["c"], "a paragraph of 'a' has the context ['c']; it must be a string"),
    ],
)
def test_what_has_no_title_or_no_text_is_no_page(
    klue: pathlib.Path, title: str, context: Any, named: str
) -> None:
    paragraphs = [{"context": "b"}, {"context": context}]
    klue.write_text(json.dumps({"data": [{"title": title, "paragraphs": paragraphs}]}))
    assert only_error(all_pages, klue) == f"{klue}:1: {named}"


def test_pages_come_in_several_forms(klue: pathlib.Path, tmp_path: pathlib.Path) -> None:
    texts = {"가람시": "하나.\n\n둘.", "누리호": "셋."}
    folder = tmp_path / "pages"
    folder.mkdir()
    for title, text in texts.items():
        # a file system may keep names in another form
        (folder / f"{unicodedata.normalize('NFD', title)}.txt").write_text(text)
    frame = pl.DataFrame({"title": list(texts), "text": list(texts.values())})
    frame.write_parquet(tmp_path / "pages.parquet")
    frame.write_ndjson(tmp_path / "wiki_00.jsonl")
    expected = [("가람시", "가람시", ("가람시", "하나.", "둘.")), ("누리호", "누리호", ("누리호", "셋."))]
    for place in ("pages", "pages.parquet", "wiki_00.jsonl"):
        found = without_errors(all_pages, tmp_path / place)
        assert sorted((page.page_id, page.title, page.paragraphs) for page in found) == expected
    contexts = [page.paragraphs for page in without_errors(all_pages, klue)]
    assert contexts[0] == (
        "가람시",
        "가람시는 강가의 도시이다. 1874년에 세워졌다.",
        "가람시의 시장은 김가람이다.",
    )


def test_pages_without_a_title_or_a_text_are_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_text('{"title": "a"}\n{"text": "b"}\n{"title": "c", "text": 3}\n')
    _, diagnostics = diagnosed(all_pages, path)
    assert sorted(problem.removeprefix(f"{path}:") for problem in diagnostics.errors) == [
        "1: text is missing; it must be a string",
        "2: title is missing; it must be a string or a whole number",
        "3: text is 3; it must be a string",
    ]


# --- labels ---


@pytest.mark.parametrize(
    ("paged", "said"), [(["p1"], "left out: 4 of 5"), ([], "no question of tiny by BM25")]
)
def test_first_passages_without_a_page_are_counted_and_may_not_be_all(
    tiny: Tiny, paged: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in tiny.passages.read_text().splitlines()]
    rows = [{**row, "page_id": row["page_id"] if row["page_id"] in paged else None} for row in rows]
    tiny.passages.write_text("\n".join(map(json.dumps, rows)))
    files = {
        "queries": [str(tiny.queries)],
        "passages": [str(tiny.passages)],
        "out": str(tiny.folder / "dual"),
    }
    keys: Any = {**files, "dataset": "tiny", "retrievers": {"BM25": RetrieverConfig(kind="bm25")}}
    config = DualLabelsConfig(**keys, progress=False)
    with contextlib.nullcontext() if paged else pytest.raises(InputError, match=said):
        label_twice(config, retrieve(config))
    assert not paged or said in capsys.readouterr().err


def test_probabilities_by_hand() -> None:
    queries = pl.DataFrame({"dataset": ["d"] * 5, "query_id": list("abcde")})
    runs = pl.DataFrame(
        {
            "run_id": ["one"] * 5 + ["none"],
            "query_id": ["a", "b", "c", "c", "e", "z"],
            "rank": [1, 1, 1, 2, 1, 1],
            "doc_id": ["x", "y", "z", "x", "w", "x"],
        }
    )
    # a: both; b: document alone; c: word alone (its second passage does not count); d: no list; e: of no page
    of_page = pl.DataFrame(
        {
            "query_id": ["a", "b", "c", "c", "e"],
            "doc_id": ["x", "y", "z", "x", "w"],
            "label": [1.0, 1.0, 0.0, 1.0, None],
        }
    )
    with_answer = of_page.with_columns(label=pl.Series([1.0, 0.0, 1.0, 1.0, 1.0]))
    labels = dual_labels(runs, queries, of_page, with_answer, ["one", "none"])
    assert labels.filter(run_id="one").select("query_id", "doc_label", "word_label").rows() == [
        ("a", 1, 1), ("b", 1, 0), ("c", 0, 1), ("d", 0, 0), ("e", None, 1),
    ]  # fmt: skip
    table = dual_probabilities(labels, 0.95)
    values = {(row["run_id"], row["probability"]): row for row in table.iter_rows(named=True)}
    for name in ("doc", "word", "doc_and_word", "doc_given_word", "word_given_doc"):
        assert values["one", name]["value"] == (0.25 if name == "doc_and_word" else 0.5)
    # Wilson's interval of 2 of 4, by its formula
    z = 1.959963984540054
    middle, half = (0.5 + z * z / 8) / (1 + z * z / 4), z * (0.25 / 4 + z * z / 64) ** 0.5 / (1 + z * z / 4)
    assert values["one", "doc"]["low"] == pytest.approx(middle - half)
    assert values["one", "doc"]["high"] == pytest.approx(middle + half)
    # where the condition never holds there is nothing to say
    assert values["none", "doc"]["value"] == 0
    assert values["none", "word_given_doc"]["value"] is None
    assert values["none", "doc_given_word"]["num_queries"] == 0
    # each run over the questions whose passage has a page
    rows = dual.dual_tables(table, 0.95)[0].rows
    assert [[cell.value for cell in row[:2]] for row in rows] == [["one", 4], ["none", 5]]


def config_of(folder: pathlib.Path, klue: pathlib.Path, pages: pathlib.Path) -> DualLabelsConfig:
    return DualLabelsConfig(
        queries=[str(klue)],
        filters=["source=wikipedia"],
        knowledge_source=[str(pages)],
        retrievers={"BM25": RetrieverConfig(kind="bm25", analyser="korean")},
        out=str(folder / "dual"),
        progress=False,
    )


@pytest.mark.long
def test_the_job_goes_from_klue_and_its_contexts_to_the_table(
    klue: pathlib.Path, tmp_path: pathlib.Path, one_kiwi: None
) -> None:
    config = config_of(tmp_path, klue, klue)
    made, published = label_twice(config, retrieve(config))
    assert rows_of_text(published)[0] == ("bm25_kiwi", "0.7025", "0.5447", "0.5342", "0.9809", "0.7605")
    assert published.columns == (made.columns[0], *made.columns[2:])
    names = ", ".join(column.name for column in published.columns)
    assert names == "model, P(Doc), P(Word), P(Doc \u2229 Word), P(Doc | Word), P(Word | Doc)"
    assert rows_of_text(made)[0][0] == "BM25"
    found = TableStore(config.out).read(DUAL_LABELS)
    assert dict(found.select("probability", "value").rows())["doc"] == 1.0
    assert found["num_queries"].max() == 3


@pytest.mark.long
def test_a_made_korean_set_is_large_enough_and_its_table_is_plausible(
    tmp_path: pathlib.Path, one_kiwi: None
) -> None:
    import_script("notebooks/korean_pages.py").main(tmp_path, 0)
    config = config_of(tmp_path, tmp_path / "klue.json", tmp_path / "pages.parquet")
    label_twice(config, retrieve(config))
    found = TableStore(config.out).read(DUAL_LABELS)
    values = dict(found.select("probability", "value").rows())
    assert found.filter(probability="doc")["num_queries"].item() == 450
    # far better than chance (one page of 150), far from perfect, and neither label says the other
    assert 0.3 < values["doc"] < 1
    assert 0.1 < values["doc_and_word"] < min(values["doc"], values["word"])


@pytest.mark.long
def test_pages_that_are_named_by_no_question_and_questions_without_a_page(
    klue: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = tmp_path / "pages.parquet"
    pl.DataFrame(
        {"title": ["누리호", "다른 것"], "text": ["누리호는 박온린이 만들었다.", "가람시는 여기 없다."]}
    ).write_parquet(pages)
    config = dataclasses.replace(
        config_of(tmp_path, klue, pages), retrievers={"BM25": RetrieverConfig(kind="bm25")}
    )
    label_twice(config, retrieve(config))
    assert "whose gold page has no passage (their doc label is always 0): 2" in capsys.readouterr().err
    with pytest.raises(InputError, match="cannot be read"):
        retrieve(config_of(tmp_path, klue, tmp_path / "nothing.parquet"))
