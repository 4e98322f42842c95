"""Files that are not as they were written: a damaged manifest, a torn Parquet file. Told in a line, or made anew."""

import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from given_results import RESULTS
from tiny import RunJob, Tiny, assert_same, results, table

from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.train.data.examples import write_mapped
from erag_ray.inference import stage as reading
from erag_ray.inference.actor import Attempt, Note
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.stage import run_stage
from erag_ray.inference.work import Work
from erag_ray.inputs.stage import INPUT_TABLES, prepare
from erag_ray.models import check_facts
from erag_ray.report.load import load
from erag_ray.store.folder import Folder
from erag_ray.store.responses import KEY_COLUMNS, ResponseStore
from erag_ray.store.schemas import LABELS, PENDING, QUERIES, UTILITY
from erag_ray.store.sharded_tasks import undone, write_array
from erag_ray.support.errors import JobError

RUN_AGAIN = r"[Rr]un (jobs/\w+\.py|the job that writes it)"


def manifests(tiny: Tiny) -> list[pathlib.Path]:
    return sorted(pathlib.Path(tiny.config.out).rglob("manifest.json"))


def without(key: str) -> Callable[[bytes], bytes]:
    """A manifest as an older version would have written it, without a key."""

    def change(data: bytes) -> bytes:
        content = json.loads(data)
        return json.dumps({k: v for k, v in content.items() if k not in (key, "manifest_sha256")}).encode()

    change.__name__ = f"without {key}"
    return change


def wrong(key: str, value: object) -> Callable[[bytes], bytes]:
    """A manifest of an older version in which a value has another type."""

    def change(data: bytes) -> bytes:
        content = json.loads(data)
        del content["manifest_sha256"]
        return json.dumps({**content, key: value}).encode()

    change.__name__ = f"{key} is {value}"
    return change


def changed(data: bytes) -> bytes:
    """Another value of the same type."""
    return re.sub(rb'("num_\w+": )(\d+)', rb"\g<1>9\2", data)


ANY: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "without its last byte": lambda data: data[:-1],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: os.urandom(len(data)),
    "list": lambda data: b"[]",
    "null": lambda data: b"null",
    "text": lambda data: b'"manifest"',
    "number": lambda data: b"1",
    "no keys": lambda data: b"{}",
    "deep": lambda data: b"[" * 100_000,
}
WRONG = {"parts": [None, ["part-00000.parquet"]], "config": [None, []], "inputs": ["none"], "num_rows": ["2"]}
OF_TABLES = [
    *map(without, (*WRONG, "table")),
    *(wrong(name, value) for name, values in WRONG.items() for value in values),
    wrong("table", "another"),
    changed,
]


OF_STAGES = [without("counts"), without("summary"), wrong("counts", None), wrong("summary", [])]
SOME = [ANY["truncated"], ANY["null"], changed]


def damages_by_table(tiny: Tiny) -> Iterator[tuple[pathlib.Path, Callable[[bytes], bytes]]]:
    """Every damage of one manifest, some of all others that evaluation needs; the rest it writes itself."""
    out = pathlib.Path(tiny.config.out)
    for damage in (*ANY.values(), *OF_TABLES):
        yield out / "queries" / "manifest.json", damage
    for schema in (*INPUT_TABLES, LABELS, UTILITY):
        yield from ((out / schema.name / "manifest.json", damage) for damage in SOME)


@pytest.mark.long
def test_a_damaged_manifest_of_a_stage_is_named_in_the_report(compared: Tiny) -> None:
    damages = [("compare", damage) for damage in (*ANY.values(), *OF_STAGES, changed)]
    for stage, damage in (*damages, ("compare/costs", ANY["list"]), ("trec", ANY["no keys"])):
        path = pathlib.Path(compared.config.out, stage, "manifest.json")
        data = path.read_bytes()
        path.write_bytes(damage(data))
        (text,) = [text for text in load(compared.config.out).missing if "left out" in text]
        path.write_bytes(data)
        assert str(path) in text
        assert re.search(RUN_AGAIN, text), text
    assert load(compared.config.out).missing == ()


@pytest.mark.long
def test_a_manifest_damaged_in_any_way_ends_evaluation_with_one_message(compared: Tiny, job: RunJob) -> None:
    for path, damage in damages_by_table(compared):
        data = path.read_bytes()
        path.write_bytes(damage(data))
        code, told = job("evaluate", compared)
        path.write_bytes(data)
        # a line that counts the problems, and one for this
        lines = [line for line in told.splitlines() if not line.endswith(": as sealed before")]
        assert (code, len(lines)) == (2, 2), f"{path}: {told}"
        assert re.search(RUN_AGAIN, told), told
    assert job("evaluate", compared)[0] == 0


@pytest.mark.long
def test_a_damaged_input_ends_the_annotation_and_preparing_mends_it(compared: Tiny, job: RunJob) -> None:
    before = results(compared)
    for path in sorted(pathlib.Path(compared.config.out).glob("*/manifest.json")):
        path.write_bytes(b"null")
    code, told = job("annotate", compared)
    assert code == 2
    assert re.search(RUN_AGAIN, told), told
    for name in ("prepare", "annotate", "end_to_end", "evaluate"):
        assert job(name, compared)[0] == 0, name
    assert_same(results(compared), before)


@pytest.mark.long
@pytest.mark.parametrize("damage", ["truncated", "list", "no keys", "deep"])
def test_the_main_job_makes_damaged_manifests_anew_and_reads_nothing(
    compared: Tiny, job: RunJob, reads_here: list[int], damage: str
) -> None:
    before, found = results(compared), manifests(compared)
    for path in found:
        path.write_bytes(ANY[damage](path.read_bytes()))
    assert job("compare", compared)[0] == 0
    assert_same(results(compared), before)
    assert manifests(compared) == found
    assert reads_here == []


SPOILS: dict[str, Callable[[pathlib.Path], object]] = {
    "torn": lambda part: part.write_bytes(part.read_bytes()[:-100]),
    "gone": lambda part: part.unlink(),
    "without a seal": lambda part: part.with_name("manifest.json").unlink(),
}


@pytest.mark.long
@pytest.mark.parametrize("spoil", SPOILS)
def test_tables_that_are_not_what_was_sealed_are_made_anew(compared: Tiny, job: RunJob, spoil: str) -> None:
    schemas = [*INPUT_TABLES, LABELS, UTILITY, *RESULTS]
    before = [table(compared, schema) for schema in schemas]
    for schema in schemas:
        SPOILS[spoil](pathlib.Path(compared.config.out, schema.name, "part-00000.parquet"))
    assert job("compare", compared)[0] == 0
    assert_same([table(compared, schema) for schema in schemas], before)


@pytest.mark.long
@pytest.mark.parametrize("name", ["queries", "labels"])
def test_a_torn_part_of_a_sealed_table_is_told_and_made_anew(compared: Tiny, job: RunJob, name: str) -> None:
    before = results(compared)
    part = pathlib.Path(compared.config.out, name, "part-00000.parquet")
    data = part.read_bytes()
    for torn in (data[:-100], b"", data[:40] + bytes(8) + data[48:], None):
        part.unlink() if torn is None else part.write_bytes(torn)
        code, told = job("evaluate", compared)
        assert (code, told.count("problem with the inputs"), "Traceback" in told) == (2, 1, False), told
        assert f"{name}/part-00000.parquet is " in told
    assert job("compare", compared)[0] == 0
    assert_same(results(compared), before)


# --- responses ---


@pytest.mark.long
def test_a_changed_byte_in_the_store_costs_its_file_and_never_gives_another_result(
    compared: Tiny, job: RunJob, reads_here: list[int]
) -> None:
    before = results(compared)
    (name,) = pathlib.Path(compared.config.cache_dir).glob("responses/*/*.parquet")
    data, group = name.read_bytes(), pq.read_metadata(name).row_group(0)
    for column in map(group.column, range(group.num_columns)):
        # a byte in the middle of the column's pages
        start = column.dictionary_page_offset or column.data_page_offset
        place = start + column.total_compressed_size - 2
        for other in name.parent.glob("*.parquet"):
            other.unlink()
        name.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        code, told = job("compare", compared)
        if code:
            # seen only when all columns were read: told in a line, and done by the next
            assert code == 1
            assert "37 requests have no response" in told
            assert "1 damaged files were set aside). Start the job again" in told
            assert job("compare", compared)[0] == 0
        assert_same(results(compared), before)
    assert set(reads_here) == {37}


def test_a_file_that_another_job_sets_aside_first_is_no_error(compared: Tiny) -> None:
    (path,) = pathlib.Path(compared.config.cache_dir).glob("responses/*/*.parquet")
    one, other = (ResponseStore(compared.config.cache_dir, path.parent.name) for _ in range(2))
    path.write_bytes(b"torn")
    names = one.folder.names(suffix=".parquet")
    assert len(other.repair()) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one.folder, "names", lambda *below, suffix="": names if suffix else [])
        assert one.repair() == []
        assert one.keys().height == 0
    assert [file.name for file in path.parent.glob("_torn/*")] == [path.name]


def test_a_store_that_cannot_be_read_is_not_set_aside(
    compared: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = pathlib.Path(compared.config.cache_dir).glob("responses/*/*.parquet")
    store = ResponseStore(compared.config.cache_dir, path.parent.name)

    def fail(*names: str, **options: object) -> None:
        raise OSError("the network is gone")

    for method in ("read_parquet", "read_bytes"):
        monkeypatch.setattr(store.folder, method, fail)
    with pytest.raises(OSError, match="the network is gone"):
        store.keys()
    assert path.exists()


# --- requests ---


@pytest.mark.cluster
@pytest.mark.parametrize("damage", ["torn", "changed", "gone"])
def test_a_damaged_request_shard_is_told_and_written_anew(
    local_ray: None, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    plan = plan_stage(tiny.config, prepare(tiny.config), "compare", single_document=True, end_to_end=True)
    write = reading.write_work

    def write_and_damage(*arguments: Any) -> Work:
        work = write(*arguments)
        for shard in pathlib.Path(work.requests).glob("*.parquet"):
            data = shard.read_bytes()
            shard.unlink()
            if damage != "gone":
                shard.write_bytes(data[:-50] if damage == "torn" else data[:60] + bytes(200) + data[260:])
        return work

    with monkeypatch.context() as patch:
        patch.setattr(reading, "write_work", write_and_damage)
        with pytest.raises(JobError, match=r"start the (same command|job) again"):
            run_stage(tiny.config, plan)
    # what a killed writer has left there does no harm either
    unfinished = pathlib.Path(tiny.config.out, "compare", "pending", plan.plans[0].id, "_unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    (unfinished / "part-00000.parquet-0123abcd").write_bytes(b"PAR1 half")
    done = run_stage(tiny.config, plan)
    assert done.responses.height == done.responses.select(KEY_COLUMNS).n_unique() == 37


# --- what is read back from a cache or a folder of work ---

FOREIGN = {
    "another Parquet": lambda path: pl.DataFrame({"a": [1]}).write_parquet(path),
    "other types": lambda path: (
        pl.read_parquet(path)
        .with_columns(question_key=pl.lit("x"), passages_key=pl.lit("y"))
        .write_parquet(path)
    ),
    "a column less": lambda path: pl.read_parquet(path).drop("passages_key").write_parquet(path),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_file_among_the_responses_is_set_aside(compared: Tiny, what: str) -> None:
    (name,) = pathlib.Path(compared.config.cache_dir).glob("responses/*/*.parquet")
    store = ResponseStore(compared.config.cache_dir, name.parent.name)
    before = store.keys().sort(pl.all())
    foreign = name.with_name("mine.parquet")
    shutil.copy(name, foreign)
    FOREIGN[what](foreign)
    data = foreign.read_bytes()
    # other types are seen where the keys are read
    store.repair()
    assert store.keys().sort(pl.all()).equals(before)
    assert (name.parent / "_torn" / "mine.parquet").read_bytes() == data


class Probed:
    """A model with facts, which it reads as those of a server are read."""

    config = ReaderConfig(kind="echo")

    def facts(self) -> dict[str, object]:
        return {"base_url": ["u"], "handshake": {"answers": [{"text": "ok"}], "is_steady": True}}

    def check_facts(self, first: Mapping[str, Any]) -> None:
        assert [answer["text"] for answer in first["handshake"]["answers"]] == ["ok"]


ODD_FACTS = ['{"handshake": null, "base_url": 1}', '{"handshake": {}, "base_url": []}']


@pytest.mark.parametrize("content", ["", "{", "null", "[]", "7", "{}", *ODD_FACTS, "\xff"])
def test_damaged_facts_of_a_model_are_set_aside_and_recorded_again(
    tmp_path: pathlib.Path, content: str
) -> None:
    store, model = ResponseStore(str(tmp_path), "served"), Probed()
    check_facts(model, store)  # type: ignore[arg-type]
    path = tmp_path / "responses" / "served" / "facts.json"
    recorded = path.read_bytes()
    path.write_bytes(content.encode("latin-1"))
    check_facts(model, store)  # type: ignore[arg-type]
    assert path.read_bytes() == recorded
    assert (path.parent / "_torn" / path.name).read_bytes() == content.encode("latin-1")


@pytest.mark.parametrize(
    "content", ["", "null", "{}", "[1]", "[[], 1]", '{"a": 1, "b": 2, "c": 3, "d": 4}', "[5, 0, 1, 2]"]
)
def test_a_damaged_note_of_a_block_counts_as_one_without_requests(
    tmp_path: pathlib.Path, content: str
) -> None:
    store = ResponseStore(str(tmp_path), "echo")
    attempt = Attempt(store, "job", PENDING.columns.empty_table())
    attempt.write_running()
    notes = tmp_path / "responses" / "echo" / "_attempts" / "job"
    (note,) = (path for path in notes.iterdir() if path.is_file())
    note.write_text(content)
    assert attempt.read() == Note([])


def write_part(folder: Folder, name: str) -> None:
    if name.endswith(".json"):
        folder.write_bytes(b'{"num": 1}', "parts", name)
    elif name.endswith(".npy"):
        write_array(np.arange(99), folder, "parts", name)
    else:
        folder.write_parquet(pa.table({"a": [1]}), "parts", name)


@pytest.mark.parametrize("suffix", [".json", ".npy", ".parquet"])
@pytest.mark.parametrize("how", ["empty", "cut", "null", "other"])
def test_a_damaged_part_of_work_is_set_aside_and_done_again(
    tmp_path: pathlib.Path, suffix: str, how: str
) -> None:
    folder = Folder(str(tmp_path))
    for number in range(3):
        write_part(folder, f"{number:05}{suffix}")
    assert undone(folder, "parts", suffix, 4, {"num": int}) == [3]
    path = tmp_path / "parts" / f"00001{suffix}"
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": data[:-5], "null": b"null", "other": b'{"other": "x"}'}[how])
    assert undone(folder, "parts", suffix, 4, {"num": int}) == [1, 3]
    assert (tmp_path / "parts" / "_torn" / path.name).exists()
    write_part(folder, path.name)
    assert undone(folder, "parts", suffix, 4, {"num": int}) == [3]


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(number: int) -> None:
        calls.append(f"sync {pathlib.Path(os.readlink(f'/proc/self/fd/{number}')).name.partition('-')[0]}")
        fsync(number)

    def replaced(source: str, target: str) -> None:
        calls.append(f"rename {pathlib.Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    Folder(f"{tmp_path}/a").write_bytes(b"x", "file")
    write_mapped(QUERIES.empty(), QUERIES, tmp_path / "b" / "mapped")
    assert calls == ["sync file", "rename file", "sync a", "sync mapped", "rename mapped", "sync b"]
