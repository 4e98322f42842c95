"""Every input, the output and the store in an S3: the same as on a disk, and what is told when it cannot be had."""

import dataclasses
import gzip
import json
import os
import pathlib
import socket
import subprocess
from collections.abc import Callable, Iterator

import polars as pl
import pytest
from crashes import ROOT, environment
from input_files import without_errors
from object_store import KEY, SECRET, Server
from scripts import python
from tiny import Tiny, compare, job_command, passage_line

from erag_ray.analyses.means import MEANS
from erag_ray.cli import job as reaching
from erag_ray.cli.job import check_access
from erag_ray.config.job import JobConfig
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.corpus import make_corpus
from erag_ray.data.passages.load import load_passages
from erag_ray.data.passages.pages import page_spans, read_pages
from erag_ray.data.runs.load import load_run
from erag_ray.inputs.stage import INPUT_TABLES, prepare, prepared
from erag_ray.store.files import open_file, scan_file
from erag_ray.store.fingerprints import NOT_LOCAL, file_stamp
from erag_ray.store.folder import Folder
from erag_ray.store.lease import LEASES
from erag_ray.store.responses import ResponseStore
from erag_ray.store.schemas import CORPUS, LABELS, QUERIES, RESPONSES, UTILITY
from erag_ray.store.sharded_tasks import do_tasks
from erag_ray.store.stages.lock import locked
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.ownership import MARKER, read_marker

ONLY_HERE = pytest.mark.skipif("ERAG_RAY_S3" in os.environ, reason="about the S3 of these tests")


def put(data: bytes, s3: str, name: str) -> str:
    Folder(s3).write_bytes(data, name)
    return f"{s3}/{name}"


def copied(config: JobConfig, s3: str) -> JobConfig:
    """The same config with its inputs, out and store in a bucket."""

    def move(path: str) -> str:
        place = pathlib.Path(path)
        return put(place.read_bytes(), s3, place.name) if place.is_file() else f"{s3}/{place.name}"

    moved = {
        "queries": [move(path) for path in config.queries],
        "passages": [move(path) for path in config.passages],
        "runs": {name: move(path) for name, path in config.runs.items()},
    }
    return dataclasses.replace(config, out=move(config.out), cache_dir=move(config.cache_dir), **moved)


# --- inputs ---

QUERIES_FILE = (
    '{"id": "q1", "input": "", "output": [{"answer": "a"}]}\n{"id": "q2", "input": "b?", "output": []}\n'
)
TRIVIA_FILE = '{"Data": [{"QuestionId": "q1", "Question": "who?"}]}'
BEIR_FILE = '{"_id": "q1", "text": "who?", "metadata": {"answers": ["a"]}}\n'
KLUE_FILE = '{"data": [{"title": "T", "paragraphs": [{"context": "c d", "qas": [{"guid": "g", "question": "q?", "answers": [{"text": "d"}]}]}]}]}'  # noqa: E501
RUN_FILE = "q1 Q0 d2 1 9.5 x\nq1 Q0 d1 2 9 x\nq2 Q0 d1 1 3 x\n"
PASSAGES_FILE = passage_line("d1", "p1", "T", "u v") + passage_line("d2", "p1", "T", "w\u00fc")
PAGES_FILE = "".join(
    json.dumps(
        {"wikipedia_id": number, "wikipedia_title": f"T{number}", "text": [f"T{number}\n", "one two\n"]}
    )
    + "\n"
    for number in range(40)
)


def parquet(frame: pl.DataFrame, folder: pathlib.Path) -> bytes:
    place = folder / "made.parquet"
    frame.write_parquet(place, row_group_size=1)
    return place.read_bytes()


def run_table() -> pl.DataFrame:
    return pl.DataFrame({"query_id": ["q1", "q1", "q2"], "doc_id": [2, 1, 1], "score": [9.5, 9.0, 3.0]})


def passage_table() -> pl.DataFrame:
    return pl.DataFrame([json.loads(line) for line in PASSAGES_FILE.splitlines()])


def questions(path: str, diagnostics: Diagnostics) -> object:
    return load_queries(path, diagnostics, dataset="nq")


def some(path: str, diagnostics: Diagnostics) -> pl.DataFrame:
    return load_passages(path, diagnostics, doc_ids=["d2"])


def pages(path: str, diagnostics: Diagnostics) -> object:
    return [(page, record.line, record.values) for page, record in read_pages(path, diagnostics)]


def run(path: str, diagnostics: Diagnostics) -> pl.DataFrame:
    return load_run("r", path, diagnostics)


KINDS: dict[str, tuple[Callable[[str, Diagnostics], object], Callable[[pathlib.Path], bytes]]] = {
    "queries.jsonl": (questions, lambda _: QUERIES_FILE.encode()),
    "nq-dev-kilt.jsonl.gz": (questions, lambda _: gzip.compress(QUERIES_FILE.encode())),
    "klue.json": (questions, lambda _: KLUE_FILE.encode()),
    "run.trec": (run, lambda _: RUN_FILE.encode()),
    "run.parquet": (run, lambda folder: parquet(run_table(), folder)),
    "of several.parquet": (lambda path, diagnostics: load_run("b", path, diagnostics),
        lambda folder: parquet(run_table().with_columns(run_id=pl.Series(["a", "b", "b"])), folder)),
    "passages.jsonl.gz": (some, lambda _: gzip.compress(PASSAGES_FILE.encode())),
    "passages.parquet": (load_passages, lambda folder: parquet(passage_table(), folder)),
    "some passages \u00fc.parquet": (some, lambda folder: parquet(passage_table(), folder)),
    "pages.json": (pages, lambda _: PAGES_FILE.encode()),
    "pages.parquet": (pages,
        lambda folder: parquet(pl.DataFrame({"title": ["A", "B"], "text": ["a\n\nb", "c"]}), folder)),
    # what is wrong is told in the same words
    "wrong.trec": (run, lambda _: b"q1 Q0 d1 1 x y\nq1\n\xff\n"),
    "cut.trec.gz": (run, lambda _: gzip.compress(RUN_FILE.encode())[:-12]),
    "twice.parquet": (load_passages,
        lambda folder: parquet(pl.concat([passage_table(), passage_table()]), folder)),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_an_input_reads_as_from_a_disk(name: str, s3: str, tmp_path: pathlib.Path) -> None:
    load, made = KINDS[name]
    data = made(tmp_path)
    (tmp_path / name).write_bytes(data)
    put(data, s3, f"folder/{name}")
    here, there = Diagnostics(), Diagnostics()
    expected, found = load(str(tmp_path / name), here), load(f"{s3}/folder/{name}", there)
    assert shown(found) == shown(expected)
    assert [text.replace(f"{s3}/folder", str(tmp_path)) for text in (*there.errors, *there.warnings)] == [
        *here.errors,
        *here.warnings,
    ]


def shown(found: object) -> object:
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return [shown(getattr(found, field.name)) for field in dataclasses.fields(found)]
    return (found.schema, found.rows()) if isinstance(found, pl.DataFrame) else found


def test_qrels_and_triviaqas_questions(s3: str) -> None:
    trivia = put(TRIVIA_FILE.encode(), s3, "triviaqa.json")
    qrels = put(b"query-id\tcorpus-id\tscore\nq3\td1\t1\n", s3, "qrels.tsv")
    kilt = put(QUERIES_FILE.encode().splitlines()[0], s3, "triviaqa-dev-kilt.jsonl")
    beir = put(BEIR_FILE.replace("q1", "q3").encode(), s3, "queries.jsonl")
    keys = {"triviaqa_questions": trivia, "qrels": qrels, "score": "exact_match"}
    loaded = without_errors(load_queries, [kilt, beir], **keys)
    assert loaded.queries["question"].to_list() == ["who?", "who?"]
    assert loaded.provenance["doc_id"].to_list() == ["d1"]


def test_of_parquet_only_what_is_asked_for_comes_to_memory(s3: str, tmp_path: pathlib.Path) -> None:
    table = pl.DataFrame(
        {"a": range(5), "b": ["x", "y", "x", "y", "x"]}, schema_overrides={"b": pl.Categorical}
    )
    place = put(parquet(table, tmp_path), s3, "t.parquet")
    frame = scan_file(place)
    assert frame.collect().equals(table.with_row_index("row", offset=1))
    asked = frame.filter(pl.col("a") > 2).select("row", "b")
    assert "SELECTION" in asked.explain()  # rows are left out as they are read
    assert asked.collect().rows() == [(4, "y"), (5, "x")]
    assert frame.select("row").collect()["row"].to_list() == [1, 2, 3, 4, 5]
    assert frame.head(3).collect()["a"].to_list() == [0, 1, 2]
    assert frame.select(pl.len()).collect().item() == 5


def test_a_large_file_is_read_in_pieces(s3: str) -> None:
    lines = b"".join(b"%07d\n" % number for number in range(1_500_000))
    place = put(lines, s3, "large.txt")
    with open_file(place) as stream:
        assert stream.readline() == b"0000000\n"
        assert stream.tell() == 8
        stream.seek(8 * 1_400_000)
        assert stream.readline() == b"1400000\n"
        assert sum(1 for _ in stream) == 99_999


def test_pages_are_cut_and_sealed_and_read_again(s3: str, tmp_path: pathlib.Path) -> None:
    place, local = put(PAGES_FILE.encode(), s3, "source.json"), tmp_path / "source.json"
    local.write_text(PAGES_FILE)
    spans = page_spans(place, 500)
    assert spans == page_spans(str(local), 500)
    assert len(spans) > 3
    made = make_corpus(place, f"{s3}/out", do=do_tasks, per_piece=500)
    make_corpus(str(local), str(tmp_path / "out"), do=do_tasks, per_piece=500)
    expected = TableStore(str(tmp_path / "out")).read(CORPUS)
    assert load_passages(made.folder, Diagnostics()).equals(expected)
    assert not make_corpus(place, f"{s3}/out", do=do_tasks, per_piece=500).is_new


def test_a_folder_of_texts_is_pages(s3: str, tmp_path: pathlib.Path) -> None:
    for name, text in {"B.txt": "b\r\n\r\nc", "A.txt": "\ufeffa", "C.md": "no"}.items():
        put(text.encode(), s3, f"texts/{name}")
        (tmp_path / name).write_bytes(text.encode())
    found = pages(f"{s3}/texts", Diagnostics())
    assert found == pages(str(tmp_path), Diagnostics())
    assert isinstance(found, list)
    assert [page.title for page, *_ in found] == ["A", "B"]
    before = file_stamp(f"{s3}/texts")
    put(b"bb", s3, "texts/B.txt")
    assert file_stamp(f"{s3}/texts") not in (before, NOT_LOCAL)


def test_prepared_tables_are_those_of_local_files_and_a_changed_file_is_noticed(tiny: Tiny, s3: str) -> None:
    there = copied(tiny.config, s3)
    prepare(tiny.config)
    prepare(there)
    for schema in INPUT_TABLES:
        assert TableStore(there.out).read(schema).equals(TableStore(tiny.config.out).read(schema))
    prepared(there)
    put(tiny.run("bad").read_bytes() + b"q6 Q0 d12 9 1 x\n", s3, "bad.trec")
    with pytest.raises(InputError, match=f"{s3}/bad.trec has changed since"):
        prepared(there)


# --- one job at a time ---


def test_a_claim_keeps_others_out_and_leaves_nothing(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erag_ray.store.lease.HEARTBEAT_SECONDS", 0.2)
    out = f"{s3}/out"
    with locked(out), pytest.raises(InputError, match="is writing to"), locked(out):
        raise AssertionError("two jobs at once")
    assert not Folder(out).names(LEASES)
    with locked(out):
        pass


def test_objects_of_others_stay(s3: str) -> None:
    put(b"mine", s3, "other/compare/notes.txt")
    with (
        pytest.raises(InputError, match=r"out: .*/other has files, such as compare, and no marker"),
        locked(f"{s3}/other"),
    ):
        raise AssertionError("not an out")
    out = Folder(f"{s3}/out")
    with locked(out.root):
        TableStore(out.root).write(QUERIES.empty(), QUERIES)
        put(b"mine", s3, "out/queries/notes.txt")
        put(b"mine", s3, "out/report.md")
        with pytest.raises(InputError, match="no job has written this file"):
            out.write_bytes(b"", "report.md")
        out.delete("report.md")
    assert read_marker(out) == ["queries/manifest.json", "queries/part-00000.parquet"]
    with locked(out.root):
        out.delete_folder("queries")
        assert out.names("queries") == ["notes.txt"]
    assert out.names() == [MARKER, "report.md"]
    assert read_marker(out) == []


# --- what cannot be had ---


@pytest.mark.parametrize("key", ["queries", "qrels", "triviaqa_questions", "passages", "runs"])
def test_what_is_not_there_is_told_by_its_address(key: str, tiny: Tiny, s3: str) -> None:
    there, missing = copied(tiny.config, s3), {}
    for path, reason in ((f"{s3}/none", "there is no such file"), (f"{s3}-none/x", "there is no bucket")):
        missing[path] = reason
    wrong = {"a": f"{s3}/none", "b": f"{s3}-none/x"} if key == "runs" else list(missing)
    # triviaqa's file is read where a question is without its text
    put(QUERIES_FILE.encode(), s3, "queries.jsonl")
    there = dataclasses.replace(there, dataset="triviaqa")
    with pytest.raises(InputError) as told:
        prepare(dataclasses.replace(there, **{key: wrong}))
    for path, reason in missing.items():
        assert any(path in line and reason in line for line in told.value.problems), told.value.problems


def test_a_bucket_that_is_not_there_is_not_written_to(tiny: Tiny, s3: str) -> None:
    there = dataclasses.replace(copied(tiny.config, s3), cache_dir=f"{s3}-none/x")
    with pytest.raises(InputError, match=f"cache_dir: cannot write to {s3}-none/x: .*(?i:bucket)"):
        prepare(there)


@ONLY_HERE
@pytest.mark.parametrize("wrong", ["nobody", None])
def test_who_may_not_ask_is_told_without_the_secret(
    wrong: str | None, tiny: Tiny, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = copied(tiny.config, s3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, f"{wrong}-secret") if wrong else monkeypatch.delenv(name)
    for check in (check_access, prepare):
        with pytest.raises(InputError, match=f"{s3}/") as told:
            check(there)
        assert "ACCESS_DENIED" in str(told.value)
        assert "secret" not in str(told.value).lower().replace("aws_secret_access_key", "")


@pytest.mark.long
@ONLY_HERE
def test_a_store_that_is_busy_is_asked_again(s3: str, s3_server: Server) -> None:
    place = put(RUN_FILE.encode(), s3, "run.trec")
    s3_server.throttled = 2
    assert without_errors(load_run, "r", place).height == 3
    assert s3_server.throttled == 0


@ONLY_HERE
def test_responses_that_cannot_be_had_now_are_not_set_aside(
    s3: str, s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResponseStore(s3, "echo")
    place = store.append(RESPONSES.empty(), "job")
    store.folder.write_bytes(b"torn", "job-torn.parquet")
    monkeypatch.setattr("erag_ray.store.folder.NUM_ATTEMPTS", 1)
    busy = ResponseStore(s3, "echo")
    s3_server.refused = f"responses/echo/{place}"
    try:
        with pytest.raises(OSError, match="503"):
            busy.repair()
    finally:
        s3_server.refused = ""
    (line,) = store.repair()
    assert "job-torn.parquet" in line
    assert store.folder.names(suffix=".parquet") == [place]


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where connections are taken and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_no_answer_is_not_waited_for_long(
    tiny: Tiny, s3: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = copied(tiny.config, s3)
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent)
    monkeypatch.setattr(reaching, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("erag_ray.store.folder.NUM_ATTEMPTS", 1)
    with pytest.raises(InputError, match=r"no answer within 0 seconds.*AWS_ENDPOINT_URL"):
        check_access(there)


@pytest.mark.cluster
def test_a_wrong_address_ends_the_job_soon_and_with_one_message(tiny: Tiny, s3: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"http://127.0.0.1:{server.getsockname()[1]}"
    command = job_command(copied(tiny.config, s3), tiny.folder, "prepare")
    secrets = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    known = {**environment(), **secrets, "AWS_ENDPOINT_URL": free}
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"{s3}/" in done.stderr
    assert "could not connect" in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr


@pytest.mark.parametrize("rest", ["run?access_key=hunter2", "run#1", "a%20b"])
def test_options_in_a_path_are_refused(rest: str, tiny: Tiny) -> None:
    place = f"s3://bucket/{rest}"
    with pytest.raises(ValueError, match=r"path contains the character .*AWS_ENDPOINT_URL") as told:
        dataclasses.replace(tiny.config, cache_dir=place)
    assert "hunter2" not in str(told.value)
    with pytest.raises(ValueError, match="path contains the character"):
        Folder(place)
    assert file_stamp(place) == NOT_LOCAL


# --- the whole walk ---


@pytest.mark.cluster
def test_a_job_that_touches_no_disk(tiny: Tiny, s3: str, reads_here: list[int]) -> None:
    there = dataclasses.replace(copied(tiny.config, s3), out=f"{s3}/out of it/\u00fc")
    done = python(*job_command(there, tiny.folder)[1:], env=environment())
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert f"Report: {there.out}/report.md" in done.stdout
    out = TableStore(there.out)
    assert out.folder.read_bytes("report.md").startswith(b"# ")
    compare(tiny)
    for schema in (LABELS, UTILITY, MEANS):
        assert out.read(schema).equals(TableStore(tiny.config.out).read(schema))
    assert not pathlib.Path(tiny.folder, "s3:").exists()
    assert not (ROOT / "s3:").exists()
    # all was read: another plan finds nothing to do
    assert compare(dataclasses.replace(tiny, config=there)).counts
    assert reads_here == [37]
