"""Pages of a knowledge source become passages: the rules by hand, the seal, and what is wrong by file, line and id."""

import dataclasses
import gzip
import importlib.util
import inspect
import os
import pathlib
import sys
import tempfile
import types
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from input_files import diagnosed
from pages import page_line, page_of, words

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.corpus import make_corpus
from erag_ray.data.passages.load import load_passages
from erag_ray.data.passages.splitters import SPLITTERS, recursive_characters, splitter_named, whitespace100
from erag_ray.store.schemas import CORPUS
from erag_ray.store.sharded_tasks import Tasks, do_tasks
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    """Three pages: 205 words over a section head, nothing but a title, four words."""
    return write_pages(tmp_path)


@pytest.fixture
def out(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "out")


def problems_of(source: object, out: str, **options: Any) -> list[str]:
    """What is wrong with a source, of which nothing is sealed."""
    with pytest.raises(InputError) as raised:
        make_corpus(source, out, **options)
    assert not TableStore(out).is_sealed(CORPUS)
    return sorted(raised.value.problems)


def read(out: str) -> pl.DataFrame:
    return TableStore(out).read(CORPUS)


def write_pages(folder: pathlib.Path) -> pathlib.Path:
    path = folder / "kilt_knowledgesource.json"
    path.write_text(
        page_line("12", "Long", ["Long\n", words(1, 150), "Section::::History.\n", words(151, 205) + "\n"])
        + page_line("13", "Bare", ["Bare\n"])
        + page_line(14, "Short", ["Short\n", "BULLET::::- one\ttwo\n", "\u00a0three "])
    )
    return path


# --- the rule ---


def test_the_first_paragraph_is_the_title_whatever_it_says() -> None:
    assert list(whitespace100(page_of("not in it", "in it", "Section::::not", " Section::::in"))) == [
        "in it Section::::in"
    ]


@pytest.mark.parametrize("paragraphs", [(), ("T",), ("T", ""), ("T", " \n\t"), ("T", "Section::::A")])
def test_a_page_without_words_gives_nothing(paragraphs: tuple[str, ...]) -> None:
    assert list(whitespace100(page_of(*paragraphs))) == []


@given(st.lists(st.lists(st.text("ab1.", min_size=1, max_size=3), max_size=60), max_size=8))
def test_every_word_is_in_one_passage_in_order(paragraphs: list[list[str]]) -> None:
    texts = [" \n".join(paragraph) for paragraph in paragraphs]
    found = list(whitespace100(page_of("T", *texts)))
    assert " ".join(found).split() == [word for paragraph in paragraphs for word in paragraph]
    assert all(len(text.split()) == 100 for text in found[:-1])
    assert all(found)


# --- files ---


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b" .txt"])
def test_a_file_whose_name_is_no_title_is_named(tmp_path: pathlib.Path, out: str, name: bytes) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "good.txt").write_text("a page")
    place = folder / os.fsdecode(name)
    place.write_text("another")
    (problem,) = problems_of(str(folder), out)
    assert problem.startswith(str(place).encode(errors="backslashreplace").decode())


def test_what_is_left_out_or_not_cut_is_counted(tmp_path: pathlib.Path) -> None:
    folder, pages = tmp_path / "pages", tmp_path / "pages.json"
    (folder / "below").mkdir(parents=True)
    for name in ("A.txt", "b.md", ".hidden"):
        (folder / name).write_text("a page")
    assert make_corpus(str(folder), str(tmp_path / "one")).notes == (
        f"in {folder}, what is not a file TITLE.txt and is left out: 2 (b.md, below)",
    )
    long = ["\u6771\u4eac" * 600, words(1, 300), "x" * 900]
    pages.write_text("".join(page_line(str(i), "T", ["T" * (i + 1), text]) for i, text in enumerate(long)))
    first, not_cut = make_corpus(pages, str(tmp_path / "two")).notes
    assert not_cut == "pages whose first paragraph is left out, but is not the title: 2 (1, 2)"
    assert first.startswith("passages of over 1,000 characters with few spaces")
    assert first.endswith(": 1 (0#1)")


def test_a_knowledge_source_becomes_a_sealed_corpus(source: pathlib.Path, out: str) -> None:
    made = make_corpus(source, out)
    assert (made.num_pages, made.num_passages, made.is_new) == (3, 4, True)
    assert made.notes == ("pages without words, thus without passages: 1 (13)",)
    rows = read(out)
    assert rows.select("doc_id", "page_id", "title").rows() == [
        ("12#1", "12", "Long"), ("12#2", "12", "Long"), ("12#3", "12", "Long"), ("14#1", "14", "Short"),
    ]  # fmt: skip
    assert rows["text"].to_list() == [
        words(1, 100),
        words(101, 200),
        words(201, 205),
        "BULLET::::- one two three",
    ]
    manifest = TableStore(out).manifest(CORPUS)
    assert manifest["config"]["splitter"] == "whitespace100"
    assert (manifest["config"]["num_pages"], manifest["num_rows"]) == (3, 4)


@settings(max_examples=15)
@given(per_piece=st.integers(50, 3000), per_part=st.integers(1, 5))
def test_pieces_change_nothing(per_piece: int, per_part: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = write_pages(pathlib.Path(folder))
        whole = make_corpus(source, f"{folder}/whole")
        cut = make_corpus(source, f"{folder}/cut", per_piece=per_piece, per_part=per_part)
        assert (cut.num_pages, cut.num_passages, cut.notes) == (3, 4, whole.notes)
        one, two = (read(f"{folder}/{name}") for name in ("whole", "cut"))
        assert one.equals(two)
        assert one.equals(load_passages(cut.folder, Diagnostics()))
        some = load_passages(cut.folder, Diagnostics(), doc_ids=["12#3"], page_ids=["14"])
        assert some["doc_id"].to_list() == ["12#3", "14#1"]
        sizes = [pq.read_metadata(path).num_rows for path in pathlib.Path(cut.folder).glob("*.parquet")]
        assert max(sizes) <= per_part


@pytest.mark.parametrize("per_piece", [30, 100, 700, 2000, 10_000])
def test_what_is_wrong_in_a_piece_is_named_by_its_line_in_the_file(
    source: pathlib.Path, out: str, per_piece: int
) -> None:
    lines = source.read_text().splitlines(keepends=True)
    wrong = page_line("12", "A", ["A"]), "{not json\n", page_line("14", "B", ["B", "b"])
    source.write_text("\ufeff" + lines[0] + wrong[0] + "\n" + lines[1] + wrong[1] + lines[2] + wrong[2])
    lines_of = [problem.split(": ")[0] for problem in problems_of(source, out, per_piece=per_piece)]
    assert lines_of == [f"{source}:{line}" for line in (2, 5, 7)]
    assert not pathlib.Path(out, "work", "corpus").exists()


def test_what_was_stopped_goes_on_with_the_pieces_that_are_left(source: pathlib.Path, out: str) -> None:
    done, other = [], f"{out}/other"

    def some(tasks: Tasks) -> None:
        done.append(list(tasks.numbers))
        do_tasks(dataclasses.replace(tasks, numbers=tasks.numbers[:2]))
        if len(tasks.numbers) > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_corpus(source, out, per_piece=400, do=some)
    made = make_corpus(source, out, per_piece=400, do=do_tasks)
    assert made.num_passages == 4
    assert not pathlib.Path(out, "work", "corpus").exists()
    # other pages in between: nothing of the first is left
    with pytest.raises(KeyboardInterrupt):
        make_corpus(source, other, per_piece=400, do=some)
    source.write_text(page_line("1", "A", ["A", "b"]))
    assert make_corpus(source, other, per_piece=400).num_passages == 1
    assert read(other)["doc_id"].to_list() == ["1#1"]
    assert len(list(pathlib.Path(other, "corpus").glob("*.parquet"))) == 1


def test_gzip_and_several_files_are_one_source(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    lines = source.read_text().splitlines(keepends=True)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(lines[0].encode()))
    (tmp_path / "b.json").write_text("".join(lines[1:]))
    make_corpus([tmp_path / "a.json.gz", tmp_path / "b.json"], str(tmp_path / "two"))
    make_corpus(source, str(tmp_path / "one"))
    assert read(str(tmp_path / "one")).equals(read(str(tmp_path / "two")))


def test_the_same_again_does_nothing_and_other_settings_make_it_anew(
    source: pathlib.Path, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_corpus(source, out, per_part=1)
    before = {path: path.stat().st_mtime_ns for path in pathlib.Path(first.folder).iterdir()}
    again = make_corpus(source, out, per_part=1)
    assert (again.is_new, again.num_pages, again.num_passages, again.notes) == (False, 3, 4, first.notes)
    assert {path: path.stat().st_mtime_ns for path in pathlib.Path(first.folder).iterdir()} == before
    monkeypatch.setitem(SPLITTERS, "whole", lambda page: iter([" ".join(page.paragraphs)]))
    other = make_corpus(source, out, splitter="whole")
    assert (other.is_new, other.num_passages) == (True, 3)
    # the parts of the first are gone, not left beside
    assert sorted(path.name for path in pathlib.Path(first.folder).glob("*.parquet")) == [
        "part-0000000-00000.parquet"
    ]
    source.write_text(page_line("1", "A", ["A", "b"]))
    assert make_corpus(source, out, splitter="whole").num_passages == 1


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{not json\n", "not JSON"),
        (page_line(None, "A", ["A"]), "wikipedia_id is None"),
        (page_line("12", "A", ["A"]), "page '12' repeats an earlier one"),
        (page_line("9", None, ["A"]), "wikipedia_title is None"),
        (page_line("9", "A", "one string"), "page '9': text must be a list of paragraphs"),
        (page_line("9", "A", ["A", 3]), "page '9': text must be a list of paragraphs"),
        (page_line("9", "A", None), "page '9': text must be a list of paragraphs"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_sealed(
    source: pathlib.Path, out: str, line: str, named: str
) -> None:
    source.write_text(source.read_text() + line + page_line("", "last", ["last"]))
    first, second = problems_of(source, out, per_part=1)
    assert first.startswith(f"{source}:4: ")
    assert named in first
    assert second.startswith(f"{source}:5: wikipedia_id is ''")


def test_a_page_that_comes_twice_is_named_also_where_nothing_else_is_wrong(
    source: pathlib.Path, out: str
) -> None:
    source.write_text(source.read_text() * 2)
    assert [problem.partition(": ")[2] for problem in problems_of(source, out)] == [
        f"page '{name}' repeats an earlier one" for name in ("12", "13", "14")
    ]


def test_a_missing_or_empty_source_and_an_unknown_splitter_are_errors(source: pathlib.Path, out: str) -> None:
    (problem,) = problems_of(source.with_name("nothing.json"), out)
    assert "nothing.json: cannot be read: No such file" in problem
    source.write_text("")
    assert "no pages in" in problems_of(source, out)[0]
    match = r"unknown splitter 'nosuch'; known: recursive_characters, whitespace100"
    with pytest.raises(ValueError, match=match):
        make_corpus(source, out, splitter="nosuch")


def test_a_folder_that_is_not_sealed_is_not_read_as_passages(source: pathlib.Path, out: str) -> None:
    made = make_corpus(source, out)
    TableStore(out).invalidate(CORPUS)
    passages, diagnostics = diagnosed(load_passages, made.folder)
    assert passages.height == 0
    assert diagnostics.errors == (
        f"{made.folder}: not a sealed table. Let the job that writes it finish, or name its Parquet files",
    )


def test_characters_are_cut_at_the_widest_gap() -> None:
    first, second = "a" * 200, "b" * 150
    assert list(recursive_characters(page_of("T", first, "Section::::S", second))) == [first, second]
    assert list(recursive_characters(page_of("T", "short\n", " one "))) == ["short\n\none"]
    assert list(recursive_characters(page_of("T"))) == []


def test_whole_pieces_of_at_most_20_characters_overlap() -> None:
    found = list(recursive_characters(page_of("T", " ".join(["word"] * 100))))
    # 60 words of four letters with 59 spaces are 299 characters; four words with their spaces are the overlap
    assert [len(text.split()) for text in found] == [60, 44]
    assert all(len(text) <= 300 for text in found)


def test_a_splitter_whose_code_has_changed_splits_again(
    source: pathlib.Path, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "my_pages", types.SimpleNamespace(whole=whitespace100))
    for code, is_new in (("a", True), ("a", False), ("b", True)):
        monkeypatch.setattr(inspect, "getsource", lambda module, code=code: code)
        assert make_corpus(source, out, splitter="my_pages:whole").is_new == is_new


def test_a_splitter_whose_package_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    match = "recursive_characters needs the package langchain_text_splitters, which"
    with pytest.raises(ValueError, match=match):
        splitter_named("recursive_characters")
