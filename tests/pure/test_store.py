"""Sealed tables and the open store of responses, on disk and on something like an object store."""

import contextlib
import dataclasses
import json
import pathlib
import re
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pyarrow as pa
import pytest
from gold import gold_of
from hypothesis import given, settings
from hypothesis import strategies as st

from erag_ray.store.fingerprints import NOT_LOCAL, file_digest, file_stamp, fingerprint, new_job_id
from erag_ray.store.folder import Folder
from erag_ray.store.lease import Lease, is_leased
from erag_ray.store.responses import KEY_COLUMNS, ResponseStore
from erag_ray.store.schemas import PROVENANCE, RESPONSES, RUNS
from erag_ray.store.tables import TableStore, part_paths
from erag_ray.support.errors import InputError

PAGES = gold_of(pages=[("q1", "p1"), ("q2", "p2")])


@pytest.fixture(params=["local", "memory", "s3"])
def root(request, tmp_path: pathlib.Path) -> str:
    """A place for tables: a local folder, one that only fsspec knows, and one in an object store."""
    top = request.getfixturevalue("s3") if request.param == "s3" else f"memory://{uuid.uuid4().hex}"
    return str(tmp_path / "results") if request.param == "local" else f"{top}/results"


@pytest.fixture
def tables(root: str) -> TableStore:
    return TableStore(root)


@pytest.fixture
def store(root: str) -> ResponseStore:
    return ResponseStore(root, "echo")


@pytest.fixture(params=["local", "memory"])
def renaming(request, tmp_path: pathlib.Path) -> str:
    """A place where a file is written under another name first; in an object store it appears with its last byte."""
    return str(tmp_path / "results") if request.param == "local" else f"memory://{uuid.uuid4().hex}/results"


def response(key: int, output: str | None = "yes", error_kind: str | None = None) -> dict[str, object]:
    """A response whose key is (key, key + 1)."""
    return {
        "model": "echo",
        "question_key": key,
        "passages_key": key + 1,
        "output": output,
        "logprobs": [],
        "num_answer_tokens": [],
        "error": error_kind and "failed",
        "error_kind": error_kind,
        "num_prompt_tokens": 3,
        "num_output_tokens": 1,
        "num_truncated_question_tokens": 0,
        "num_truncated_passage_tokens": 0,
    }


def responses(*rows: dict[str, object] | int) -> pa.Table:
    filled = [response(row) if isinstance(row, int) else row for row in rows]
    return pa.Table.from_pylist(filled, RESPONSES.columns)


def keys(*numbers: int) -> pl.DataFrame:
    found = {"question_key": list(numbers), "passages_key": [number + 1 for number in numbers]}
    return pl.DataFrame(found, schema=dict.fromkeys(KEY_COLUMNS, pl.UInt64))


def known(store: ResponseStore) -> set[int]:
    rows = store.keys().rows()
    assert all(passages == question + 1 for question, passages in rows)
    assert len(rows) == len(set(rows))
    return {question for question, _ in rows}


def tear(store: ResponseStore, name: str, how: str) -> None:
    """Damage a file as a crash of the machine does; `write_bytes` replaces what is there."""
    data = store.folder.read_bytes(name)
    torn = {
        "truncated": data[: len(data) // 2],
        "without its last byte": data[:-1],
        "empty": b"",
        "zeros": bytes(len(data)),
        "garbage": b"PAR1 no Parquet file PAR1",
    }
    store.folder.write_bytes(torn[how], name)


TEARS = ("truncated", "without its last byte", "empty", "zeros", "garbage")


class Killed(BaseException):
    """The process ends here."""


@contextlib.contextmanager
def killed_at(owner: type, method: str) -> Iterator[None]:
    """While open, the process is killed where it calls the method; it must come to that."""

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, method, killed)
        with pytest.raises(Killed):
            yield


# fingerprints

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_differing_values_have_differing_fingerprints(one: object, other: object) -> None:
    if one != other:
        assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(json.loads(json.dumps(one)))


def test_a_fingerprint_is_the_same_in_every_version_and_order_of_a_mapping() -> None:
    # SHA-256 of {"files": ["\\u00e4", null], "kind": "echo", "limit": 5}, its first half;
    # a changed literal means that the stores of all models are orphaned
    value = {"kind": "echo", "limit": 5, "files": ["ä", None]}
    assert fingerprint(value) == "c63aa34aa5a44c256bbbba30387477aa"


@dataclasses.dataclass(frozen=True)
class Settings:
    depth: int
    names: object = ()


def test_a_dataclass_counts_by_its_fields() -> None:
    assert fingerprint(Settings(1)) == fingerprint({"depth": 1, "names": []})
    assert fingerprint(Settings(1)) != fingerprint(Settings(2))


@pytest.mark.parametrize(
    "value",
    [{1, 2}, float("nan"), float("inf"), b"bytes", object(), Settings, Settings(1, {2}), {"a": [{"b": {1}}]}],
    ids=["set", "nan", "infinity", "bytes", "object", "class", "dataclass", "set inside"],
)
def test_a_value_without_a_stable_form_has_no_fingerprint(value: object) -> None:
    with pytest.raises(TypeError, match="stable form"):
        fingerprint(value)


def test_a_files_digest_is_its_sha256(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    # the test vector of FIPS 180-2, appendix B.1
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(tmp_path / "file") == expected


def test_job_ids_start_with_their_time_and_never_repeat() -> None:
    found = {new_job_id() for _ in range(100)}
    assert len(found) == 100
    assert all(re.fullmatch(r"2\d{7}T\d{6}-[0-9a-f]{8}", job) for job in found)


# folders


def test_a_folder_writes_lists_moves_and_deletes(root: str) -> None:
    folder = Folder(root)
    assert folder.names() == []
    assert not folder.exists("a")
    folder.delete("a")
    folder.write_bytes(b"first", "below", "b.txt")
    folder.write_bytes(b"second", "below", "b.txt")
    folder.write_bytes(b"other", "below", "a.json")
    assert folder.names("below") == ["a.json", "b.txt"]
    assert folder.names("below", suffix=".txt") == ["b.txt"]
    assert folder.read_bytes("below", "b.txt") == b"second"
    folder.move(("below", "a.json"), ("new", "b.txt"))
    folder.move(("below", "b.txt"), ("new", "b.txt"))
    assert (folder.names("below"), folder.names("new")) == ([], ["b.txt"])
    assert folder.read_bytes("new", "b.txt") == b"second"
    folder.delete("new", "b.txt")
    assert not folder.exists("new", "b.txt")
    with pytest.raises(FileNotFoundError):
        folder.read_bytes("new", "b.txt")


def test_a_local_folder_may_be_named_in_three_ways(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, root in enumerate((str(tmp_path / "x"), "~/x", "x", (tmp_path / "x").as_uri())):
        Folder(root).write_bytes(b"", str(name))
    assert sorted(path.name for path in (tmp_path / "x").iterdir() if path.is_file()) == ["0", "1", "2", "3"]


def test_a_file_appears_whole_or_not_at_all(renaming: str) -> None:
    folder = Folder(renaming)
    with killed_at(Folder, "move"):
        folder.write_bytes(b"data", "file")
    assert not folder.exists("file")
    assert folder.names() == []


# sealed tables


def test_a_sealed_table_reads_back_in_the_order_it_was_written(tables: TableStore) -> None:
    rows = [("b", "q2", 2, "ü", None), ("a", "q1", 1, "", 0.1)]
    table = pl.DataFrame(rows, schema=RUNS.columns.names, orient="row")
    tables.write(table, RUNS, config={"depth": 5}, inputs={"queries": "abc"})
    assert tables.read(RUNS).rows() == table.rows()
    assert tables.is_sealed(RUNS)
    manifest = tables.manifest(RUNS)
    assert manifest["num_rows"] == 2
    assert (manifest["config"], manifest["inputs"]) == ({"depth": 5}, {"queries": "abc"})
    assert manifest["columns"]["rank"] == "int32"
    assert "polars" in manifest["packages"]


def test_an_empty_table_is_a_table(root: str) -> None:
    TableStore(root).write(PROVENANCE.empty(), PROVENANCE)
    assert TableStore(root).read(PROVENANCE).schema == PAGES.schema


def test_a_table_that_was_not_written_is_not_there(tables: TableStore) -> None:
    assert not tables.is_sealed(PROVENANCE)
    for read in (tables.read, tables.manifest):
        with pytest.raises(FileNotFoundError, match=r"table provenance in .* is not sealed"):
            read(PROVENANCE)
    # a manifest can be taken away as often as one likes
    tables.invalidate(PROVENANCE)


@pytest.mark.parametrize("step", ["write_parquet", "write_manifest"])
def test_a_table_whose_rewriting_was_killed_is_not_there(tables: TableStore, step: str) -> None:
    tables.write(PAGES, PROVENANCE)
    with killed_at(Folder if step == "write_parquet" else TableStore, step):
        tables.write(PAGES.head(1), PROVENANCE)
    assert not tables.is_sealed(PROVENANCE)
    with pytest.raises(FileNotFoundError):
        tables.read(PROVENANCE)
    tables.write(PAGES.head(1), PROVENANCE)
    assert tables.read(PROVENANCE).rows() == [("q1", 1, "p1", None)]


def test_a_table_that_does_not_conform_leaves_the_old_one(tables: TableStore) -> None:
    tables.write(PAGES, PROVENANCE)
    with pytest.raises(ValueError, match="share a key"):
        tables.write(pl.concat([PAGES, PAGES]), PROVENANCE)
    assert tables.read(PROVENANCE).height == 2


def test_what_a_killed_writer_left_goes_with_the_next_writing(renaming: str) -> None:
    tables = TableStore(renaming)
    for _ in range(3):
        with killed_at(Folder, "move"):
            tables.write(PAGES, PROVENANCE)
    tables.write(PAGES, PROVENANCE)
    assert tables.folder.names("provenance", "_unfinished") == []


@pytest.mark.parametrize("damage", [b"", b'{"num_rows": 2', b"\xff\xfe", bytes(20)])
def test_a_damaged_manifest_is_an_error_that_names_it(tables: TableStore, damage: bytes) -> None:
    tables.write(PAGES, PROVENANCE)
    tables.folder.write_bytes(damage, "provenance", "manifest.json")
    with pytest.raises(ValueError, match=r"provenance/manifest.json: the manifest is damaged .*Run the job"):
        tables.read(PROVENANCE)


def test_settings_without_a_stable_form_leave_the_table_unsealed(tables: TableStore) -> None:
    with pytest.raises(TypeError, match="set has no stable form"):
        tables.write(PAGES, PROVENANCE, config={"names": {"a"}})
    assert not tables.is_sealed(PROVENANCE)


# tables in several parts


def write_parts(tables: TableStore, *parts: pl.DataFrame) -> None:
    writer = tables.writer(PROVENANCE)
    for part in parts:
        writer.append(part)
    tables.seal(PROVENANCE, writer.parts, writer.num_rows, config={"rule": "x"})


def test_a_table_of_several_parts_is_one_table(tmp_path: pathlib.Path) -> None:
    tables = TableStore(str(tmp_path))
    write_parts(tables, PAGES.head(1), PAGES.tail(-1))
    assert tables.read(PROVENANCE).rows() == PAGES.rows()
    manifest = tables.manifest(PROVENANCE)
    assert (manifest["num_rows"], manifest["config"]) == (PAGES.height, {"rule": "x"})
    place = tmp_path / "provenance"
    names = ["part-00000.parquet", "part-00001.parquet"]
    assert manifest["parts"] == {name: file_digest(place / name) for name in names}
    assert part_paths(str(place)) == [str(place / name) for name in names]


def test_parts_without_a_seal_are_no_table(root: str, tables: TableStore) -> None:
    write_parts(tables, PAGES)
    tables.writer(PROVENANCE).append(PAGES)
    assert not tables.is_sealed(PROVENANCE)
    with pytest.raises(InputError, match="provenance: not a sealed table"):
        part_paths(f"{root}/provenance")


def test_fewer_parts_leave_none_of_the_old_ones_and_no_other_file_is_touched(tables: TableStore) -> None:
    write_parts(tables, PAGES.head(1), PAGES.tail(-1))
    tables.folder.write_bytes(b"mine", "provenance", "notes.txt")
    write_parts(tables, PAGES)
    assert tables.folder.names("provenance") == ["manifest.json", "notes.txt", "part-00000.parquet"]


def test_a_part_that_is_not_the_one_sealed_is_named(tables: TableStore) -> None:
    write_parts(tables, PAGES.head(1), PAGES.tail(-1))
    tables.folder.write_parquet(PAGES.to_arrow(), "provenance", "part-00001.parquet")
    with pytest.raises(InputError, match=r"table provenance: .*part-00001.parquet is not what was sealed"):
        tables.read(PROVENANCE)


def test_a_stamp_changes_with_the_file_and_a_folders_with_each_of_its_files(tmp_path: pathlib.Path) -> None:
    for nowhere in (str(tmp_path / "nothing"), f"file://{tmp_path}/nothing", "nosuch://bucket/x"):
        assert file_stamp(nowhere) == NOT_LOCAL
    file = tmp_path / "a"
    file.write_text("1")
    first = file_stamp(str(file))
    assert file_stamp(str(file)) == first
    remote = file_stamp(f"file://{file}")
    file.write_text("22")
    assert file_stamp(str(file)) != first
    assert file_stamp(f"file://{file}") not in (remote, NOT_LOCAL)
    (tmp_path / "texts").mkdir()
    empty = file_stamp(str(tmp_path / "texts"))
    (tmp_path / "texts" / "a.txt").write_text("1")
    assert file_stamp(str(tmp_path / "texts")) != empty
    write_parts(TableStore(str(tmp_path)), PAGES)
    sealed = file_stamp(str(tmp_path / "provenance"))
    PAGES.head(1).write_parquet(tmp_path / "provenance" / "part-00000.parquet")
    assert file_stamp(str(tmp_path / "provenance")) != sealed


# the open store of responses


def test_responses_come_back_by_key(root: str, store: ResponseStore) -> None:
    assert known(store) == set()
    store.append(responses(1, response(2, "nö\n")), "job-1")
    store.append(responses(2**64 - 2), "job-1")
    assert known(ResponseStore(root, "echo")) == {1, 2, 2**64 - 2}
    found = store.lookup(keys(2, 2**64 - 2, 77))
    assert found.select("question_key", "output").rows() == [(2, "nö\n"), (2**64 - 2, "yes")]
    # each model has its own
    assert known(ResponseStore(root, "other")) == set()


def test_lookup_asks_by_both_halves_of_the_key_and_each_key_once(store: ResponseStore) -> None:
    store.append(responses(1), "job-1")
    halves = pl.DataFrame({"question_key": [1, 1], "passages_key": [1, 3]}, schema=keys().schema)
    assert store.lookup(halves).height == 0
    # ASKS may name a key many times, with columns of their own
    found = store.lookup(pl.concat([keys(1), keys(1)]).with_columns(query_id=pl.lit("q")))
    assert found.height == 1
    assert found.columns == RESPONSES.columns.names


def test_no_responses_are_no_fault(store: ResponseStore) -> None:
    store.append(responses(), "job-1")
    assert known(store) == set()
    assert store.lookup(keys(1)).height == 0


def test_the_same_responses_of_the_same_job_replace_themselves(store: ResponseStore) -> None:
    first = store.append(responses(1, 2), "job-1")
    # a task that is tried again may even read otherwise (in bfloat16): the keys are its content
    again = store.append(responses(response(1, "no"), response(2, "no")), "job-1")
    assert first == again
    assert store.folder.names() == [first]
    found = store.lookup(keys(1, 2))
    assert found["output"].to_list() == ["no", "no"]
    # other responses or another job are another file
    assert len({first, store.append(responses(1), "job-1"), store.append(responses(1, 2), "job-2")}) == 3


def test_what_does_not_conform_is_not_appended(store: ResponseStore) -> None:
    for wrong in (responses(1, 1), responses(1).drop(["output"])):
        with pytest.raises(ValueError, match="table responses"):
            store.append(wrong, "job-1")
    assert store.folder.names() == []


def test_a_key_in_several_files_counts_once_by_the_first_file_name(store: ResponseStore) -> None:
    # appended in another order than that of their names
    store.append(responses(response(1, "late"), 2), "20260103T000000-c")
    store.append(responses(response(1, "early")), "20260101T000000-a")
    store.append(responses(3, response(1, "middle")), "20260102T000000-b")
    found = store.lookup(keys(1, 2, 3))
    assert dict(found.select("question_key", "output").rows()) == {1: "early", 2: "yes", 3: "yes"}
    assert known(store) == {1, 2, 3}


@pytest.mark.parametrize("kind", ["input", "refused"])
def test_some_errors_are_final(store: ResponseStore, kind: str) -> None:
    store.append(responses(response(1, None, kind)), "job-1")
    assert known(store) == {1}
    found = store.lookup(keys(1))
    assert found.select("output", "error", "error_kind").rows() == [(None, "failed", kind)]


@pytest.mark.parametrize("kind", ["resource", "code"])
def test_other_errors_hold_for_their_own_job_only(store: ResponseStore, kind: str) -> None:
    store.append(responses(response(1, None, kind), response(2, None, kind)), "job-1")
    # the job itself finds that its requests were tried; the next one tries again
    assert store.lookup(keys(1, 2))["error_kind"].to_list() == [kind, kind]
    assert known(store) == set()
    store.append(responses(1), "job-2")
    assert known(store) == {1}
    # its own response wins, although the error stands in a file of an earlier name
    found = store.lookup(keys(1, 2))
    assert dict(found.select("question_key", "output").rows()) == {1: "yes", 2: None}


def test_of_errors_that_hold_for_their_own_job_only_the_last_one_is_told(store: ResponseStore) -> None:
    for number, kind in enumerate(["resource", "code", "code"]):
        row = {**response(1, None, kind), "error": f"error {number}"}
        store.append(responses(row, response(2, None, "input")), f"2026010{number}T000000-a")
    found = store.lookup(keys(1, 2))
    assert dict(found.select("question_key", "error").rows()) == {1: "error 2", 2: "failed"}


def test_a_models_description_is_written_once(store: ResponseStore) -> None:
    store.describe(lambda: {"kind": "echo"})
    store.describe(lambda: {"kind": "other"})
    assert json.loads(store.folder.read_bytes("model.json")) == {"kind": "echo"}
    assert known(store) == set()
    assert store.repair() == []


# crashes


def killed_append(store: ResponseStore, number: int, job: str) -> None:
    with killed_at(Folder, "move"):
        store.append(responses(number), job)


@pytest.mark.parametrize("job", ["20260101T000000-0a1b2c3d", "job", "a-job-of-many-parts"])
def test_an_unfinished_file_is_never_read_and_goes_when_its_job_is_gone(renaming: str, job: str) -> None:
    store = ResponseStore(renaming, "echo")
    killed_append(store, 1, job)
    killed_append(store, 2, "another")
    assert store.lookup(keys(1, 2)).height == 0
    with Lease(Folder(f"{renaming}/responses/echo"), job):
        (line,) = store.repair()
        assert line.startswith("removed the unfinished file another-")
        (left,) = store.folder.names("_unfinished")
        assert left.startswith(f"{job}-")
    assert len(store.repair()) == 1
    assert store.folder.names("_unfinished") == []
    assert known(store) == set()


def test_a_lease_ends_with_its_job(root: str, store: ResponseStore) -> None:
    assert not is_leased(store.folder, "job-1")
    with Lease(store.folder, "job-1"):
        assert is_leased(ResponseStore(root, "echo").folder, "job-1")
        assert not is_leased(store.folder, "job-2")
    assert not is_leased(store.folder, "job-1")
    with pytest.raises(RuntimeError, match="fault"), Lease(store.folder, "job-1"):
        raise RuntimeError("fault")
    assert not is_leased(store.folder, "job-1")


def test_the_lease_of_a_killed_job_runs_out(renaming: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ResponseStore(renaming, "echo")
    killed_append(store, 1, "job-1")
    sign = json.dumps({"process": ["elsewhere", 1, "1"], "beat": 1})
    store.folder.write_bytes(sign.encode(), "_leases", "job-1")
    assert is_leased(store.folder, "job-1")
    assert store.repair() == []
    monkeypatch.setattr("erag_ray.store.lease.LEASE_SECONDS", 0.0)
    assert not is_leased(store.folder, "job-1")
    assert len(store.repair()) == 1
    assert store.folder.entries() == []


def test_the_lease_of_a_living_job_is_renewed_even_if_a_beat_fails(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erag_ray.store.lease.HEARTBEAT_SECONDS", 0.01)
    store = ResponseStore(str(tmp_path), "echo")
    beats, renewed = [], threading.Event()
    write = Folder.overwrite

    def flaky(folder: Folder, data: bytes, *names: str) -> None:
        beats.append(data)
        if len(beats) == 2:
            raise OSError("no space left on device")
        write(folder, data, *names)
        if len(beats) == 4:
            renewed.set()

    monkeypatch.setattr(Folder, "overwrite", flaky)
    with Lease(store.folder, "job-1") as lease:
        assert renewed.wait(30)
        assert store.folder.read_bytes("_leases", "job-1") not in beats[:2]
        assert not lease.is_lost


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"1e999", b'{"process": [1]}', b"\xff"])
def test_a_damaged_sign_counts_as_one_until_it_was_unchanged_for_long(
    store: ResponseStore, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.folder.write_bytes(content, "_leases", "job-1")
    assert is_leased(store.folder, "job-1")
    monkeypatch.setattr("erag_ray.store.lease.LEASE_SECONDS", 0.0)
    assert not is_leased(store.folder, "job-1")


@pytest.mark.parametrize("how", TEARS)
def test_a_torn_file_is_set_aside_and_the_rest_stays(store: ResponseStore, how: str) -> None:
    store.append(responses(1), "job-1")
    name = store.append(responses(2), "job-1")
    store.append(responses(3), "job-2")
    tear(store, name, how)
    (line,) = store.repair()
    assert line.startswith(f"set the unreadable file {name} aside in ")
    assert store.folder.names("_torn") == [name]
    assert known(store) == {1, 3}
    assert store.repair() == []
    # its requests are answered again, by the same task or by another
    store.append(responses(2), "job-1")
    assert known(store) == {1, 2, 3}


def test_two_jobs_that_append_at_once_lose_nothing(tmp_path: pathlib.Path) -> None:
    start = threading.Barrier(4)

    def append(job: str, first: int) -> None:
        store = ResponseStore(str(tmp_path), "echo")
        start.wait()
        for key in range(first, first + 12, 3):
            store.append(responses(key, key + 1, key + 2), job)
            # a reader beside them sees whole files only
            assert {key, key + 1, key + 2} <= known(store)

    # two jobs, and one task that runs twice at once
    work = [("job-1", 0), ("job-2", 100), ("job-3", 200), ("job-3", 200)]
    with ThreadPoolExecutor(len(work)) as pool:
        list(pool.map(append, *zip(*work, strict=True)))
    store = ResponseStore(str(tmp_path), "echo")
    everything = {*range(12), *range(100, 112), *range(200, 212)}
    assert known(store) == everything
    assert sum(store.totals_by(job)["num_responses"] for job in {*dict(work)}) == len(everything)
    assert store.folder.names("_unfinished") == []


NUMBERS = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(["job-1", "job-2"]), NUMBERS),
        st.tuples(st.just("killed"), st.sampled_from(["job-1", "job-2"]), st.integers(0, 9)),
        st.tuples(st.just("tear"), st.sampled_from(TEARS), st.integers(0, 9)),
        st.tuples(st.just("repair"), st.none(), st.none()),
    ),
    max_size=8,
)


@settings(max_examples=40)
@given(STEPS)
def test_no_order_of_appends_crashes_and_repairs_loses_an_intact_response(steps) -> None:
    store = ResponseStore(f"memory://{uuid.uuid4().hex}", "echo")
    store.folder.write_bytes(b"{}", "model.json")
    intact: dict[str, set[int]] = {}
    for step, argument, numbers in steps:
        if step == "append":
            intact[store.append(responses(*numbers), argument)] = set(numbers)
        elif step == "killed":
            killed_append(store, numbers, argument)
        elif step == "repair":
            store.repair()
        elif intact:
            torn = sorted(intact)[numbers % len(intact)]
            tear(store, torn, argument)
            del intact[torn]
    store.repair()
    expected = set().union(*intact.values())
    assert known(store) == expected
    found = store.lookup(keys(*range(10)))
    assert set(found["question_key"]) == expected
    num_rows = sum(store.totals_by(job)["num_responses"] for job in ("job-1", "job-2"))
    assert num_rows == sum(map(len, intact.values()))


def test_how_fast_a_model_was_is_known_by_what_it_has_written(tmp_path: pathlib.Path) -> None:
    store = ResponseStore(str(tmp_path), "echo")
    assert store.speed() is None
    store.append(responses(1, 2), "20260101-a")
    assert store.speed() is None
    store.append(responses(3, 4, 5), "20260102-b", 2.0)
    store.append(responses(6), "20260103-c", 0.5)
    assert store.speed() == 4 / 2.5
    # the newest files tell how fast it is now
    for number in range(20):
        store.append(responses(100 + number), "20260104-d", 0.1)
    assert store.speed() == pytest.approx(10.0)
    assert known(store) >= {1, 3, 6, 119}
