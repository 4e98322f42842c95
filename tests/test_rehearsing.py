"""A dry run: what it says, and what it leaves alone."""

import pathlib

import polars as pl
import pytest
from tiny import Tiny, compare

from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.cli import run
from erag_ray.cli.job import job_folder
from erag_ray.comparison import label_documents
from erag_ray.inference.planning import plan as planning
from erag_ray.inference.planning.plan import spread
from erag_ray.inputs.stage import prepare
from erag_ray.store.schemas import COSTS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.ownership import MARKER


def job(tiny: Tiny) -> None:
    with job_folder(tiny.config):
        run.compare(tiny.config)


def files(folder: str) -> dict[str, int]:
    """The files of a job and when they were written, but for the marker with their names."""
    paths = (path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in paths if path.name != MARKER}


@pytest.mark.long
def test_a_dry_run_reads_nothing_and_leaves_results_alone(
    tiny: Tiny, reads_here: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    job(tiny)
    before = files(tiny.config.out)
    more = tiny.with_config(runs={**tiny.config.runs, "third": str(tiny.run("third"))}, dry_run=True)
    job(more)
    told = capsys.readouterr().err
    assert "pairs: 20 in total, 20 unique (union), 18 cached, 2 new" in told
    assert "5 requests to run" in told
    assert "a dry run: no requests were run" in told
    assert reads_here == [37]
    assert files(tiny.config.out) == before
    assert TableStore(tiny.config.out).is_sealed(CORRELATIONS)


def test_a_sample_is_taken_evenly_over_everything() -> None:
    rows = pl.DataFrame({"row": range(39)})
    # the first twenty would be of half of the questions only
    assert spread(rows, 20)["row"].to_list() == [row * 39 // 20 for row in range(20)]
    assert spread(rows, 39).equals(rows)
    assert spread(rows, 100).equals(rows)
    assert spread(rows.clear(), 5).is_empty()


def test_a_dry_run_finds_what_is_wrong(tiny: Tiny, no_reader: None) -> None:
    tiny.run("good").write_text("not a run\n")
    with pytest.raises(ValueError, match=r"good\.trec"):
        job(tiny.with_config(dry_run=True))


def test_no_other_job_asks_the_reader_in_a_dry_run(tiny: Tiny, no_reader: None) -> None:
    prepare(tiny.config)
    for step in (run.annotate, run.end_to_end, label_documents):
        with pytest.raises(InputError, match="dry_run: this job has none, and would ask the reader"):
            step(tiny.with_config(dry_run=True).config)


@pytest.mark.parametrize("counts_tokens", [True, False])
def test_after_a_sample_it_says_what_the_rest_takes(
    tiny: Tiny,
    reads_here: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    counts_tokens: bool,
) -> None:
    job(tiny.with_config(dry_run=True))
    assert (
        "how long this takes is not known: run the job on a sample first (num_queries: 20"
        in capsys.readouterr().err
    )
    compare(tiny.with_config(num_queries=2))
    store = TableStore(f"{tiny.config.out}/compare")
    costs = store.read(COSTS).with_columns(device_seconds=pl.lit(3600.0), peak_memory_bytes=pl.lit(2**30))
    store.write(costs, COSTS)
    if not counts_tokens:
        monkeypatch.setattr(planning, "prompt_tokens", lambda prompts: None)
    capsys.readouterr()
    job(tiny.with_config(dry_run=True, price_per_hour=100.0))
    told = capsys.readouterr().err
    calls, tokens = costs.select("num_reader_calls", "num_prompt_tokens").row(0)
    count = 37 - calls
    # the tokens of all 37 requests, read again elsewhere, less those of the sample
    other = tiny.with_config(out=f"{tiny.config.out}-2", cache_dir=f"{tiny.config.cache_dir}-2")
    compare(other)
    whole = int(TableStore(f"{other.config.out}/compare").read(COSTS)["num_prompt_tokens"].sum())
    expected = (whole - tokens) / tokens if counts_tokens else count / calls
    assert (
        f"about {expected:.3g} reader-hours for {count} requests, {expected * 100:,.2f} at 100 an hour"
        in told
    )
    assert (
        f"by the {calls} requests run here so far, which took 3.6e+03 s; peak memory of a reader 1.00 GiB"
        in told
    )
    assert reads_here == [calls, 37]
