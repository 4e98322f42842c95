"""A dry run: what it says, and what it leaves alone."""

from __future__ import annotations

import contextlib
import pathlib
import runpy
from collections.abc import Callable

import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tiny import Tiny, compare

from erag_ray.config import JobConfig, JudgeConfig, ReaderConfig
from erag_ray.inference import Pool, Times, Work, sample_name, without_first
from erag_ray.inference import dry_run as rehearsing
from erag_ray.inference.actor import responses_table
from erag_ray.models import Resources, load_model, make_model
from erag_ray.planning.pending import PendingRequests
from erag_ray.planning.plan import spread
from erag_ray.schemas import CORRELATIONS
from erag_ray.store import ResponseStore, TableStore

ROOT = pathlib.Path(__file__).parents[1]


Seconds = Callable[[int, int], float]
"""Seconds of a reader for a request with so many documents in the sample of this number."""


@pytest.fixture
def seconds_of(reads_here: list[int], monkeypatch: pytest.MonkeyPatch) -> Callable[[Seconds], None]:
    """No Ray: two readers, with batches of two, that take as long as they are told."""

    def take(seconds: Seconds) -> None:
        def read(work: Work, num_samples: int, config: JobConfig, job: str, pool: Pool) -> list[Times]:
            return [sampled(work, number, config, job) for number in range(num_samples)]

        def sampled(work: Work, number: int, config: JobConfig, job: str) -> Times:
            requests = pq.read_table(f"{work.requests}/{sample_name(number)}")
            model = make_model(work.config)
            load_model(model)
            places, responses = zip(*model.run(PendingRequests(requests, work.forms)), strict=True)
            found = responses_table(requests.take(places), work.model, responses)
            ResponseStore(config.cache_dir, work.model).append(found, job)
            reads_here.append(found.num_rows)
            num_docs = max(pc.list_value_length(requests["titles"]).to_pylist())
            taken = seconds(num_docs, number) * found.num_rows
            return Times("a", number, found.num_rows, taken, batch_rows=2, peak_memory_bytes=2**30)

        def planned(config: JobConfig, resources: Resources) -> Pool:
            return Pool(size=2, num_cpus=1, num_gpus=0.0)

        monkeypatch.setattr(rehearsing, "read_samples", read)
        monkeypatch.setattr(rehearsing, "ray_session", lambda address: contextlib.nullcontext())
        monkeypatch.setattr(rehearsing, "plan_pool", planned)

    return take


@pytest.fixture
def one_second(seconds_of: Callable[[Seconds], None], reads_here: list[int]) -> list[int]:
    """Each request takes a second."""
    seconds_of(lambda num_docs, number: 1.0)
    return reads_here


def job(tiny: Tiny) -> None:
    runpy.run_path(str(ROOT / "jobs" / "compare.py"))["main"](tiny.config)


def files(folder: str) -> dict[str, int]:
    root = pathlib.Path(folder)
    return {
        str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.long
def test_a_dry_run_reads_nothing_and_leaves_results_alone(
    tiny: Tiny, reads_here: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    compare(tiny)
    before = files(tiny.config.out)
    more = tiny.with_config(runs={**tiny.config.runs, "third": str(tiny.run("third"))}, dry_run=True)
    job(more)
    told = capsys.readouterr().err
    assert "pairs: 20 in total, 20 unique (union), 18 cached, 2 new" in told
    assert "5 requests to run" in told
    assert "a dry run: no other requests were run" in told
    assert reads_here == [37]
    assert files(tiny.config.out) == before
    assert TableStore(tiny.config.out).is_sealed(CORRELATIONS)


def test_a_calibrated_one_says_time_memory_and_cost_and_keeps_what_it_read(
    tiny: Tiny, one_second: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    job(tiny.with_config(dry_run=True, calibrate=15, price_per_hour=36.0))
    told = capsys.readouterr().err
    assert "pairs: 1 reader-seconds each [1, 1] by 4 samples, 4 requests in all" in told
    assert "(one batch of the job has up to 2); all 18 would take 0.005 reader-hours [0.005, 0.005]" in told
    assert "peak memory of a reader 1.00 GiB" in told
    # 37 readings of a second each, by two readers
    assert (
        "in all 0.0103 reader-hours [0.0103, 0.0103], 0.37 at 36 an hour; 0.00514 hours with 2 readers"
        in told
    )
    num_read = sum(one_second)
    assert num_read == 15
    compare(tiny)
    assert one_second[-1] == 37 - num_read


def test_a_figure_has_its_interval_which_is_wide_for_a_small_sample(
    tiny: Tiny, seconds_of: Callable[[Seconds], None], capsys: pytest.CaptureFixture[str]
) -> None:
    seconds_of(lambda num_docs, number: 1.0 + number % 2)
    job(tiny.with_config(dry_run=True, calibrate=15, annotators=["erag"]))
    many = capsys.readouterr().err
    # two samples of one second and two of two: 1.5 +- 3.182 * 0.5774 / 2
    assert "pairs: 1.5 reader-seconds each [0.581, 2.42] by 4 samples, 4 requests in all" in many
    job(
        tiny.with_config(
            dry_run=True, calibrate=6, annotators=["erag"], cache_dir=f"{tiny.config.cache_dir}-2"
        )
    )
    few = capsys.readouterr().err
    assert "[0, inf] by 1 samples, 1 requests in all" in few


def test_the_figures_of_one_model_are_said_before_the_next_is_timed(
    tiny: Tiny, seconds_of: Callable[[Seconds], None], capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def seconds(num_docs: int, number: int) -> float:
        said.append(capsys.readouterr().err)
        return 1.0

    seconds_of(seconds)
    judge = JudgeConfig(kind="failing:Picky", scale="grades")
    job(tiny.with_config(annotators=["erag", "llm_relevance"], judge=judge, dry_run=True, calibrate=30))
    assert sum("reader-seconds each" in line for line in said) == 1


def test_the_kinds_are_read_in_turn(tiny: Tiny, seconds_of: Callable[[Seconds], None]) -> None:
    read: list[int] = []

    def seconds(num_docs: int, number: int) -> float:
        read.append(num_docs)
        return 1.0

    seconds_of(seconds)
    job(tiny.with_config(dry_run=True, calibrate=15, end_to_end_depths=[3]))
    assert [min(num_docs, 2) for num_docs in read] == [0, 1, 2] * 5


def test_what_the_first_sample_of_a_kind_takes_does_not_count() -> None:
    taken = [Times("a", 0, 5, 90.0, 32, 1), *(Times("a", order, 5, 5.0, 32, 1) for order in (1, 2))]
    again = [Times("a", 3, 5, 6.0, 32, 1)]
    other = [Times("b", 0, 5, 80.0, 32, 1)]
    assert without_first(taken) == taken[1:]
    # of the next kind too, and of each process
    assert without_first(again) == []
    assert without_first([*taken, *other]) == taken[1:]


def test_a_sample_is_taken_evenly_over_everything() -> None:
    rows = pl.DataFrame({"row": range(39)})
    # the first twenty would be of half of the questions only
    assert spread(rows, 20)["row"].to_list() == [row * 39 // 20 for row in range(20)]
    assert spread(rows, 39).equals(rows)
    assert spread(rows, 100).equals(rows)
    assert spread(rows.clear(), 5).is_empty()


def test_a_calibrated_one_says_where_erag_costs_less_than_end_to_end(
    tiny: Tiny, seconds_of: Callable[[Seconds], None], capsys: pytest.CaptureFixture[str]
) -> None:
    # runs good and bad: 11 pairs at depth 1, 15 at depth 2, 18 at depth 3; 11 lists at each depth
    seconds_of(lambda num_docs, number: {0: 1.0, 1: 1.0, 2: 1.2, 3: 10.0}[num_docs])
    config = {"dry_run": True, "calibrate": 60, "depth": 3, "end_to_end_depths": [2, 3]}
    job(tiny.with_config(**config))
    told = capsys.readouterr().err
    assert "depth 3, each with an empty cache: eRAG 0.005 reader-hours [0.005, 0.005]" in told
    assert "end-to-end 0.0306 reader-hours [0.0306, 0.0306]: eRAG costs less" in told
    assert "depth 2, each with an empty cache: eRAG 0.00417 reader-hours" in told
    assert "end-to-end 0.00367 reader-hours [0.00367, 0.00367]: eRAG costs more" in told


def test_a_sample_that_does_not_tell_which_costs_less_says_so(
    tiny: Tiny, seconds_of: Callable[[Seconds], None], capsys: pytest.CaptureFixture[str]
) -> None:
    seconds_of(lambda num_docs, number: num_docs * (1.0 + number % 2))
    job(tiny.with_config(dry_run=True, calibrate=60))
    assert "these samples do not show which costs less. Calibrate with more" in capsys.readouterr().err


def test_batches_smaller_than_the_jobs_do_not_show_that_erag_costs_more(
    tiny: Tiny, seconds_of: Callable[[Seconds], None], capsys: pytest.CaptureFixture[str]
) -> None:
    seconds_of(lambda num_docs, number: 1.0)
    job(tiny.with_config(dry_run=True, calibrate=15, end_to_end_depths=[3]))
    told = capsys.readouterr().err
    assert "eRAG 0.005 reader-hours [0.005, 0.005], end-to-end 0.00306 reader-hours" in told
    assert "these samples do not show" in told


@pytest.mark.long
def test_where_pairs_are_all_read_the_comparison_is_not_known(
    tiny: Tiny, one_second: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    compare(tiny)
    capsys.readouterr()
    job(tiny.with_config(dry_run=True, calibrate=20, end_to_end_depths=[2]))
    told = capsys.readouterr().err
    assert "depth 2: eRAG against end-to-end: unknown, since a group has no pending requests" in told
    assert "costs less" not in told


def test_nothing_to_read_needs_no_reader(
    tiny: Tiny, one_second: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    compare(tiny)
    job(tiny.with_config(dry_run=True, calibrate=10))
    assert "reader-hours" not in capsys.readouterr().err
    assert one_second == [37]


def test_a_dry_run_finds_what_is_wrong(tiny: Tiny, no_reader: None) -> None:
    tiny.run("good").write_text("not a run\n")
    with pytest.raises(ValueError, match=r"good\.trec"):
        job(tiny.with_config(dry_run=True))


@pytest.mark.cluster
@pytest.mark.usefixtures("local_ray")
@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*", r"ignore::FutureWarning:ray\..*")
def test_one_process_reads_the_samples_of_all_kinds_and_loading_does_not_count(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = ReaderConfig(kind="slow_start:SlowStart", model=str(tiny.folder))
    job(tiny.with_config(reader=reader, dry_run=True, calibrate=30, end_to_end_depths=[3]))
    told = capsys.readouterr().err
    assert len(list(tiny.folder.glob("loaded-*"))) == 1
    for name in ("answer, no passages", "answer, pairs", "answer, lists of 3"):
        (line,) = (line for line in told.splitlines() if f": {name}: " in line and "reader-seconds" in line)
        # loading takes three seconds, the first batch of each kind one, a request a hundredth
        assert 0.01 <= float(line.split(f": {name}: ")[1].split()[0]) < 0.2, line


def test_hours_of_several_models_are_each_of_its_own_pool() -> None:
    seconds = [
        rehearsing.Seconds(3600.0, 1800.0, 7200.0, is_small=False),
        rehearsing.Seconds(7200.0, 3600.0, 9000.0, is_small=True),
    ]
    text = rehearsing._costs([(seconds[0], 1), (seconds[1], 4)], 10.0)
    assert text.startswith(
        "in all 3 reader-hours [1.5, 4.5], 30.00 at 10 an hour; 1.5 hours with 1, then 4 readers. "
    )
    assert "2 hours with 1 readers" in rehearsing._costs([(seconds[1], 1)], None)
