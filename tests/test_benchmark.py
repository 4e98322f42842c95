"""The benchmark measures what it says, in small: rows, peers, and that generated text is as it should be."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import models
import numpy as np
import polars as pl
import pytest
import torch
import transformers
from bench import evaluated, timing
from bench import run as benchmark
from bench import synthetic_labels as labelled
from bench.config import BenchmarkConfig
from bench.readers import engine_only as bare
from bench.readers import host, lists, precision, reading, served, table_2
from bench.readers import roofline as floor
from bench.readers import scaling as long
from bench.readers import synthetic_reader as invented
from bench.readers.isolated_process import Measured, in_turn_apart
from bench.run import COLUMNS, costs_of, run_all
from bench.synthetic_texts import passages, questions, unit_vectors
from bench.tables import (
    device_table,
    host_table,
    precision_table,
    reading_costs_table,
    served_table,
    speed_table,
)
from hypothesis import given
from hypothesis import strategies as st
from tiny import RUNS, Tiny, job_command
from torch.utils.flop_counter import FlopCounterMode

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError
from erag_ray.inference import actor
from erag_ray.models import make_model
from erag_ray.planning.pending import PendingRequests
from erag_ray.report import rows_of_text
from erag_ray.schemas import COSTS, conform
from erag_ray.store import ResponseStore


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
    assert table.select("what", "by").rows() == [
        ("bm25 build", "erag_ray"),
        ("bm25 build", "bm25s"),
        ("bm25 search", "erag_ray"),
        ("bm25 search", "bm25s"),
        ("bm25 search", "rank_bm25"),
        ("dense opening", "erag_ray"),
        ("dense search", "erag_ray"),
        ("dense search", "faiss"),
        ("encode", "erag_ray"),
        ("encode", "sentence-transformers"),
    ]
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


def test_generated_lists_share_documents_and_every_document_has_a_label() -> None:
    made = labelled.tables(40, 8, ["erag", "provenance"], 1, graded=True)
    assert made.labels.equals(labelled.tables(40, 8, ["erag", "provenance"], 1, graded=True).labels)
    pairs = made.runs.select("query_id", "doc_id")
    assert pairs.unique().height < pairs.height
    for annotator in ("erag", "provenance"):
        own = made.labels.filter(annotator=annotator)
        assert pairs.join(own, on=["query_id", "doc_id"], how="anti").is_empty()
        assert own.select("query_id", "doc_id").is_unique().all()
    assert set(made.labels.filter(annotator="provenance")["label"]) == {0.0, 1.0}


def test_generated_text_is_the_same_for_a_seed_and_has_few_frequent_and_many_rare_words() -> None:
    corpus = passages(300, 1)
    assert corpus.equals(passages(300, 1))
    assert not corpus.equals(passages(300, 2))
    words = Counter(word for text in corpus["text"] for word in text.split())
    lengths = [len(text.split()) for text in corpus["text"]]
    assert (min(lengths), max(lengths)) == (50, 100)
    most = [count for _, count in words.most_common()]
    assert most[0] > 1000
    assert sum(count == 1 for count in most) > len(most) / 3
    asked = questions(20, 1)["question"].to_list()
    assert all(len(text.split()) == 8 for text in asked)
    assert sum(word in words for text in asked for word in text.split()) > 40
    np.testing.assert_allclose(np.linalg.norm(unit_vectors(5, 8, 0), axis=1), 1, rtol=1e-6)


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


@pytest.mark.parametrize("kind", ["t5", "gated"])
def test_operations_are_those_that_torch_counts(kind: str) -> None:
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 50}
    act = {"feed_forward_proj": "gated-gelu"} if kind == "gated" else {}
    settings = transformers.T5Config(**shape, **act)
    model = transformers.T5ForConditionalGeneration(settings).eval()
    # products inside a fused attention are not counted
    model.set_attn_implementation("eager")
    ids = torch.randint(3, 50, (3, 20))
    with FlopCounterMode(display=False) as counted, torch.inference_mode():
        states = model.encoder(input_ids=ids)
    assert counted.get_total_flops() == floor.encoder_operations(settings, [20] * 3)
    with FlopCounterMode(display=False) as counted, torch.inference_mode():
        model(encoder_outputs=states, decoder_input_ids=ids[:, :1], use_cache=True)
    # a decoder that has written one token looks back at one
    looking = 3 * settings.num_layers * 4 * 4 * 8
    assert counted.get_total_flops() == floor.decoder_operations(settings, [20] * 3, 1) + looking


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


def test_runs_that_share_documents_encode_the_union_once(tmp_path: pathlib.Path, small_lists: None) -> None:
    union, everything = lists.shared(BenchmarkConfig(out=str(tmp_path), repeats=1), 2)
    # 75 documents a question; two runs at four depths besides
    assert union["count"] == 2 * 75
    assert everything["count"] == 2 * (75 + 2 * 4)
    assert everything["num_encoded_tokens"] == union["num_encoded_tokens"] == union["num_prompt_tokens"]
    assert everything["num_prompt_tokens"] > 2 * union["num_prompt_tokens"]


def test_depths_and_lengths_have_both_sides(
    tmp_path: pathlib.Path, small_lists: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "CURVE_DEPTHS", (1, 3))
    monkeypatch.setattr(lists, "CURVE_WORDS", (4, 9))
    rows = list(lists.depths(BenchmarkConfig(out=str(tmp_path), repeats=1), 2))
    assert [row["count"] for row in rows] == [2, 2, 2, 6] * 2
    assert rows[0]["num_encoded_tokens"] == rows[1]["num_encoded_tokens"]
    assert rows[7]["num_encoded_tokens"] > rows[3]["num_encoded_tokens"]


def test_a_precision_is_held_against_generate(tmp_path: pathlib.Path, tiny: Tiny) -> None:
    reader = ReaderConfig(kind="fid", model=models.t5_folder(tmp_path / "model"), max_new_tokens=6)
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
def test_host_work_has_a_row_for_each_part_and_each_device(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "in_own_process", benchmark.in_this_process)
    monkeypatch.setattr(host, "BLOCK", 40)
    table_of_responses = actor.responses_table
    config = BenchmarkConfig(parts=["host"], host_pairs=60, device_rates=[300], out=str(tmp_path))
    table = run_all(config, lambda line: None)
    assert table["by"].to_list() == [
        *host.PARTS,
        "all",
        "all, again",
        "300 pairs/s",
        "300 pairs/s, again",
    ]
    assert actor.responses_table is table_of_responses
    parts, whole, beside = table[:-4], table.row(-4, named=True), table.row(-2, named=True)
    assert parts["cpu_seconds"].min() >= 0
    assert parts["cpu_seconds"].sum() == pytest.approx(whole["cpu_seconds"], rel=0.05)
    # 60 pairs on a device of 300 a second; what the host does before and after comes on top
    assert beside["seconds"] >= 60 / 300
    assert beside["num_prompt_tokens"] == whole["num_prompt_tokens"]
    # all responses are in the store, with what the engine wrote
    (store,) = tmp_path.glob("work-*/host/parts")
    (folder,) = (store / "responses").iterdir()
    keys = host.pairs(60, config.seed).select(["question_key", "passages_key"])
    responses, repeated = ResponseStore(str(store), folder.name).lookup(pl.from_arrow(keys))
    assert (responses.height, repeated) == (60, 0)
    assert set(responses["num_output_tokens"]) == {8}
    assert responses["error"].null_count() == 60
    assert costs_of(table, "job").is_empty()
    assert [row[0] for row in rows_of_text(host_table(table[:-2]))] == [*host.PARTS, "all", "all, again"]
    assert rows_of_text(device_table(table[-2:]))[0][:2] == ("300 pairs/s", f"{60 / beside['seconds']:,.0f}")


@pytest.mark.long
def test_a_server_is_asked_by_one_actor_by_two_and_by_a_bare_loop(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "in_own_process", benchmark.in_this_process)
    # in threads of this process
    monkeypatch.setattr(served, "PROCESS", threading.Thread)
    config = BenchmarkConfig(parts=["served"], served_requests=200, repeats=2, out=str(tmp_path))
    table = run_all(config, lambda line: None)
    assert table["by"].to_list() == [served.ONE, served.BARE, served.TWO]
    assert table["count"].to_list() == [200, 200, 400]
    # 200 requests with 64 under way are four rounds of 50 ms
    assert table["seconds"].min() >= 200 / 64 * 0.05
    one, bare, two = table.rows(named=True)
    assert bare["least_ratio"] == bare["most_ratio"] == 1.0
    assert 0 < one["least_ratio"] <= one["most_ratio"]
    assert two["cpu_seconds"] > 0
    # both actors keep their responses
    places = [next(tmp_path.glob(f"work-*/served/{name}")) for name in "ab"]
    stores = [ResponseStore(str(place), _only_model(place)) for place in places]
    assert [store.keys(without_errors=True).height for store in stores] == [200, 200]
    assert costs_of(table, "job").is_empty()
    rows = rows_of_text(served_table(table))
    assert [row[0] for row in rows] == table["by"].to_list()
    assert rows[0][3] == f"{200 / one['seconds']:,.0f}"


def _only_model(store: pathlib.Path) -> str:
    (folder,) = (store / "responses").iterdir()
    return folder.name


@pytest.mark.long
def test_generated_pairs_have_as_many_tokens_and_new_words_as_passages(tmp_path: pathlib.Path) -> None:
    model: Any = make_model(ReaderConfig(kind="fid", model=host.write_model(tmp_path)))
    requests = PendingRequests(host.pairs(1000, 0), [host.FORM])
    assert 145 < np.mean([prompt.length for prompt in model.render(requests)]) < 165
    words = [word for request in requests for word in request.passages[0].text.split()]
    assert 0.15 < len(set(words)) / len(words) < 0.25


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_kappa_is_that_of_its_table(pairs: list[tuple[bool, bool]]) -> None:
    counts = Counter(pairs)
    both, one, other, none = (
        counts[key] for key in ((True, True), (True, False), (False, True), (False, False))
    )
    # the closed form for two by two (as for Matthews' correlation, with sums of margins below)
    below = (both + one) * (one + none) + (both + other) * (other + none)
    wanted = 2 * (both * none - one * other) / below if below else 1.0
    assert precision.kappa(*zip(*pairs, strict=True)) == pytest.approx(wanted, abs=1e-12)


def test_every_way_of_reading_is_a_row_of_costs() -> None:
    row = {**dict.fromkeys(COLUMNS), "what": "w", "count": 4, "passages": 2, "peak_memory_bytes": 9}
    tokens = {"num_prompt_tokens": 90, "num_output_tokens": 8}
    table = pl.DataFrame(
        [
            {**row, **tokens, "by": "a", "seconds": 2.0},
            {**row, **tokens, "by": "a, by the pool", "seconds": 2.0, "whole_seconds": 3.0},
            {**row, **tokens, "by": "its labels", "seconds": 1.0, "kappa": 0.5},
            {**row, "by": "no reading", "seconds": 1.0},
        ],
        schema=COLUMNS,
    )
    found = conform(costs_of(table, "job"), COSTS).to_pylist()
    assert [(one["stage"], one["model"], one["seconds"], one["device_seconds"]) for one in found] == [
        ("w: a, 2", "a", 2.0, 2.0),
        ("w: a, by the pool, 2", "a, by the pool", 3.0, 2.0),
    ]
    own = {name: found[0][name] for name in ("num_requests", *tokens, "peak_memory_bytes")}
    assert own == {"num_requests": 4, **tokens, "peak_memory_bytes": 9}


def test_tables_of_costs_and_precision() -> None:
    row = dict.fromkeys(COLUMNS)
    made = {"what": "w", "by": "a", "count": 4, "seconds": 2.0, "num_prompt_tokens": 90, "passages": 1}
    encoded = {"num_encoded_tokens": 60, "num_padding_tokens": 20, "operations": 2e12, "mfu": 0.5}
    table = pl.DataFrame(
        [
            {**row, **made, **encoded, "peak_memory_bytes": 5_000_000},
            {**row, **made, "by": "b", "seconds": 3.0},
        ],
        schema=COLUMNS,
    )
    assert rows_of_text(reading_costs_table(table)) == [
        ("w", "a", "4", "2.00", "1.00", "5", "90", "60", "25.0%", "2.000", "50%"),
        ("w", "b", "4", "3.00", "1.50", "-", "90", "-", "-", "-", "-"),
    ]
    shares = {"label_share": 0.25, "same_outputs": 0.5, "same_labels": 0.75, "kappa": 0.4}
    table = pl.DataFrame([{**row, **made, **shares, "tau": tau} for tau in (0.5, 0.25)], schema=COLUMNS)
    assert rows_of_text(precision_table(table))[1] == (
        *("w", "a", "4", "25.00%", "50.00%", "75.00%"),
        *("0.400", "0.250", "-0.250"),
    )


@pytest.mark.long
def test_ever_more_pairs_are_read_by_the_pool(
    tmp_path: pathlib.Path, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long, "ray_session", lambda address: contextlib.nullcontext())
    model = models.t5_folder(tmp_path / "model")
    (row,) = long.long(BenchmarkConfig(out=str(tmp_path), small_reader=model), 100)
    assert reads_here == [100]
    assert (row["count"], row["by"]) == (100, "erag_ray")
    assert row["whole_seconds"] > 0
