"""The benchmark measures what it says, in small: rows, peers, and that generated text is as it should be."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bench import evaluated, timing
from bench import run as benchmark
from bench.config import BenchmarkConfig
from bench.readers import engine_only as bare
from bench.readers import lists, precision, reading, table_2
from bench.readers import scaling as long
from bench.readers import synthetic_reader as invented
from bench.readers.isolated_process import Measured, in_turn_apart
from bench.run import COLUMNS, run_all
from bench.tables import speed_table
from tiny import RUNS, Tiny, job_command

from erag_ray.analyses.parts.formats import rows_of_text
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference import stage
from erag_ray.support.errors import InputError


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_part_has_a_row_for_ours_and_for_its_peers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    if not apart:
        monkeypatch.setattr(benchmark, "in_own_process", benchmark.in_this_process)
    said: list[str] = []
    config = BenchmarkConfig(
        sizes=[300], num_queries=5, depth=3, width=8, num_encoded=6, repeats=1, out=str(tmp_path)
    )
    table = run_all(config, said.append)
    assert table.schema == COLUMNS
    peers = {
        "bm25 build": ["bm25s"],
        "bm25 search": ["bm25s", "rank_bm25"],
        "dense opening": [],
        "dense search": ["faiss"],
        "encode": ["sentence-transformers"],
    }
    rows = [(what, by) for what, others in peers.items() for by in ("erag_ray", *others)]
    assert table.select("what", "by").rows() == rows
    assert (table["seconds"] > 0).all()
    assert (table["peak_memory_bytes"] > 1e7).all()
    assert sum(not line.startswith(" ") for line in said) == 7
    assert len(said) == 7 + table.height
    rows = rows_of_text(speed_table(table))
    assert [row[5] for row in rows[:2]] == ["-", f"{table['seconds'][1] / table['seconds'][0]:.2f}"]


@pytest.mark.long
def test_evaluation_is_measured_against_its_peers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytrec_eval")
    monkeypatch.setattr(benchmark, "in_own_process", benchmark.in_this_process)
    # with two peers at most: ranx is seldom there, and slow to compile
    found = evaluated.importlib.util.find_spec
    monkeypatch.setattr(
        evaluated.importlib.util, "find_spec", lambda name: None if name == "ranx" else found(name)
    )
    config = BenchmarkConfig(
        parts=["measures", "table_1"], list_queries=60, list_depth=6, num_resamples=20, out=str(tmp_path)
    )
    table = run_all(config, lambda line: None)
    assert table.schema == COLUMNS
    assert table.select("what", "by").rows() == [
        ("measures", "erag_ray"),
        ("measures", "pytrec_eval"),
        ("table 1, correlations", "erag_ray"),
        ("table 1, evaluation", "erag_ray"),
        ("table 1, correlations", "scipy (1 resample)"),
    ]
    # two runs; five datasets, two runs, four annotators, nine measures with their ideals at 5 and 6, two statistics
    assert table["count"].to_list() == [2 * 60 * 6, 2 * 60 * 6, *([5 * 2 * 4 * 9 * 2 * 2] * 3)]
    assert "(" in rows_of_text(speed_table(table))[1][5]


def test_a_value_that_differs_from_a_peers_stops_the_benchmark() -> None:
    ours = {("run0", "P", 5): np.array([0.2, 0.4])}
    with pytest.raises(ValueError, match=r"peer: values differ by up to 0\.5"):
        evaluated._check_same("peer", ours, {("run0", "P", 5): np.array([0.2, 0.9])})


def here(makes: dict[str, Any], repeats: int) -> dict[str, Measured]:
    """All ways in this process, which is faster to begin with."""
    works = {name: make(*arguments) for name, (make, arguments) in makes.items()}
    firsts = {name: work() for name, work in works.items()}
    times = timing.rounds(works, repeats)
    return {name: Measured(first=firsts[name], seconds=times[name], peak_bytes=1) for name in works}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model and few words, and no further processes."""
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    monkeypatch.setattr(invented, "SHAPE", shape)
    monkeypatch.setattr(invented, "NUM_WORDS", 300)
    monkeypatch.setattr(reading, "in_turn_apart", here)
    monkeypatch.setattr(reading, "keep_freed_memory", lambda: None)


@pytest.mark.long
def test_readings_are_those_of_the_peer(tmp_path: pathlib.Path, small: None) -> None:
    rows = list(reading.readings(BenchmarkConfig(out=str(tmp_path), repeats=2), 40))
    # float32 and bfloat16 have a second peer
    num_tuned = len(set(reading.fast_precisions()) & set(reading.TUNED_DTYPES))
    assert len(rows) == 4 * len(reading.fast_precisions()) + num_tuned
    ours, theirs, tuned, encoder, products = rows[:5]
    assert (ours["by"], theirs["by"]) == ("erag_ray", "erag + generate, float32")
    assert tuned["by"] == "transformers, tuned"
    assert 0 < tuned["least_ratio"] <= tuned["most_ratio"]
    assert (encoder["by"], products["by"]) == ("erag_ray", "products alone")
    assert {row["count"] for row in rows} == {40}
    assert 0 < theirs["least_ratio"] <= theirs["most_ratio"]


@pytest.mark.long
def test_other_outputs_than_the_peers_stop_the_benchmark(
    tmp_path: pathlib.Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_read", lambda *_: {("who?", "a text"): "nobody"})
    with pytest.raises(ValueError, match="40 of 40 outputs differ"):
        list(reading.readings(BenchmarkConfig(out=str(tmp_path), repeats=1), 40))


@pytest.mark.long
def test_ways_are_timed_in_processes_of_their_own() -> None:
    found = in_turn_apart({"a": (summing, (3,)), "b": (summing, (5,))}, 2)
    assert {name: one.first[0] for name, one in found.items()} == {"a": 3, "b": 10}
    assert len({os.getpid(), *(one.first[1] for one in found.values())}) == 3
    assert all(len(one.seconds) == 2 and min(one.seconds) > 0 for one in found.values())
    # a system that takes pages back meanwhile makes it less
    assert 2e8 < max(one.peak_bytes for one in found.values()) < 1e9


def summing(most: int) -> Callable[[], tuple[int, int]]:
    """What is measured: a sum, the process that it is made in, and 400 MB that it needs meanwhile."""

    def work() -> tuple[int, int]:
        np.ones(50_000_000).sum()
        return sum(range(most)), os.getpid()

    return work


@pytest.fixture
def small_lists(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for what is read in lists."""
    for room in (table_2, lists):
        monkeypatch.setattr(room, "in_turn_apart", here)
    for room in (bare, lists):
        monkeypatch.setattr(room, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(table_2, "OPERATIONS", 1e8)
    monkeypatch.setattr(invented, "WORDS", (5, 30))


def test_table_2_has_both_sides_of_every_list(tmp_path: pathlib.Path, small_lists: None) -> None:
    config = BenchmarkConfig(out=str(tmp_path), repeats=1, lists=["fid@3", "ipa@2"], with_pool=False)
    rows = list(table_2.table_2(config, 2))
    assert [row["what"] for row in rows[::5]] == ["nq, fid, 3 documents", "nq, ipa, 2 documents"]
    ways = [row["by"].partition(",")[2] for row in rows[:5]]
    assert ways[1:] == [
        " one list at a time",
        " as a job reads",
        " a query at a time",
        " a document at a time",
    ]
    assert [row["count"] for row in rows] == [2, 2, 6, 6, 6, 2, 2, 4, 4, 4]
    fid = rows[:5]
    # nothing is asked twice, and nothing cut: both sides encode the same tokens
    assert len({row["num_encoded_tokens"] for row in fid}) == 1
    assert {row["num_encoded_tokens"] for row in fid} == {row["num_prompt_tokens"] for row in fid}
    assert fid[-1]["num_padding_tokens"] == 0
    assert fid[2]["num_padding_tokens"] > 0
    assert all(row["operations"] > 0 and row["mfu"] > 0 for row in rows)
    # eRAG decodes three outputs where end-to-end decodes one
    assert fid[2]["operations"] > fid[0]["operations"]


def test_a_precision_is_held_against_generate(tmp_path: pathlib.Path, tiny: Tiny, t5: str) -> None:
    reader = ReaderConfig(kind="fid", model=t5, max_new_tokens=6)
    job_command(dataclasses.replace(tiny.config, reader=reader), tmp_path)
    config = BenchmarkConfig(out=str(tmp_path / "out"), job=str(tmp_path / "config.yaml"), run="good")
    library, own, *others = precision.precision(config, 6)
    assert library["count"] == own["count"] == sum(len(docs.split()[:3]) for docs in RUNS["good"].values())
    assert (own["same_outputs"], own["same_labels"], own["kappa"]) == (1, 1, 1)
    assert all(0 <= row["same_outputs"] < 1 for row in others)


def test_precision_needs_a_job_and_table_2_a_run_and_a_dataset_of_it(
    tmp_path: pathlib.Path, tiny: Tiny
) -> None:
    with pytest.raises(InputError, match="job: this part needs one"):
        list(precision.precision(BenchmarkConfig(out=str(tmp_path)), 1))
    job_command(tiny.config, tmp_path)
    job = str(tmp_path / "config.yaml")
    with pytest.raises(InputError, match="run: none is none of good, bad"):
        list(table_2.table_2(BenchmarkConfig(out=str(tmp_path / "out"), job=job, run="none"), 1))
    with pytest.raises(InputError, match="dataset: other is none of tiny"):
        list(table_2.table_2(BenchmarkConfig(out=str(tmp_path / "out"), job=job, dataset="other"), 1))


@pytest.mark.long
def test_ever_more_pairs_are_read_by_the_pool(
    tmp_path: pathlib.Path, t5: str, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long, "ray_session", lambda address: contextlib.nullcontext())
    monkeypatch.setattr(long, "run", stage.run)
    config = BenchmarkConfig(out=str(tmp_path), small_reader=t5)
    (row,) = long.long(config, 100)
    assert reads_here == [100]
    assert (row["count"], row["by"]) == (100, "erag_ray")
    assert row["whole_seconds"] > 0
