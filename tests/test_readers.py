"""Several readers on one set of runs: interactions, orders and labels by hand, the report, and what is refused."""

import dataclasses
import io
import pathlib
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import rich.console
from scipy import stats
from tiny import kilt_line, passage_line, trec_lines, write_tiny

from erag_ray.analyses.settings import Settings
from erag_ray.config.job import JobConfig
from erag_ray.config.keys.messages import KeysError
from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.readers.agreement import READER_AGREEMENTS, READER_INTERACTIONS, Sides, label_agreements
from erag_ray.extras.readers.config import ReadersConfig
from erag_ray.extras.readers.stage import compare_readers
from erag_ray.measures.agreement import paired_test
from erag_ray.store.schemas import UTILITY
from erag_ray.store.tables import TableStore

COUNT = 12
FIRST, LAST = ReaderConfig(kind="echo"), ReaderConfig(kind="outside_model:Words")
"""They write the title of the first and of the last passage."""
RUNS = {"top": range(COUNT), "end": range(COUNT), "some": range(4)}
"""The answer comes first, last, and first for four of the questions."""


@pytest.fixture
def config(tmp_path: pathlib.Path) -> ReadersConfig:
    tiny = write_tiny(tmp_path)
    titles = {"right": "Person {n}", "wrong": "Nobody", "else": "Noone"}
    tiny.queries.write_text(
        "".join(kilt_line(f"q{n}", f"who lives in town {n}", f"Person {n}", None) for n in range(COUNT))
    )
    tiny.passages.write_text(
        "".join(
            passage_line(f"d{n}{kind}", f"p{n}", title.format(n=n), f"town {n}")
            for n in range(COUNT)
            for kind, title in titles.items()
        )
    )
    lists = {"top": "right wrong", "end": "wrong right", "some": "right wrong"}
    for run, numbers in RUNS.items():
        ranked = {n: lists[run] if n in numbers else "wrong else" for n in range(COUNT)}
        texts = {f"q{n}": " ".join(f"d{n}{kind}" for kind in kinds.split()) for n, kinds in ranked.items()}
        tiny.run(run).write_text(trec_lines(texts))
    changed = tiny.with_config(
        runs={run: str(tiny.run(run)) for run in RUNS}, num_resamples=100, depth=2, end_to_end_depths=[2]
    ).config
    keys = {one.name: getattr(changed, one.name) for one in dataclasses.fields(JobConfig)}
    return ReadersConfig(**{**keys, "reader": ReaderConfig(), "readers": {"first": FIRST, "last": LAST}})


def compared(config: ReadersConfig) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Both tables, and what the console shows."""
    shown = io.StringIO()
    compare_readers(config, rich.console.Console(file=shown, width=200))
    store = TableStore(config.out)
    return store.read(READER_INTERACTIONS), store.read(READER_AGREEMENTS), shown.getvalue()


@pytest.mark.long
def test_the_best_retriever_depends_on_the_reader(config: ReadersConfig, reads_here: list[int]) -> None:
    interactions, agreements, shown = compared(config)
    stores = {name: TableStore(job.out) for name, job in config.jobs.items()}
    scores = {
        (name, run): store.read(UTILITY).filter(run_id=run).sort("query_id")["value"].to_numpy()
        for name, store in stores.items()
        for run in RUNS
    }
    assert [scores["first", run].mean() for run in RUNS] == [1.0, 0.0, pytest.approx(1 / 3)]
    assert [scores["last", run].mean() for run in RUNS] == [0.0, 1.0, 0.0]
    for row in interactions.to_dicts():
        a, b = (scores["first", run] - scores["last", run] for run in (row["run_a"], row["run_b"]))
        test = paired_test(a - b)
        assert (row["difference"], row["p_value"]) == (test.mean, test.p_value)
    # end against top is -1 with one reader and 1 with the other
    assert interactions.filter(run_a="end", run_b="top")["difference"].to_list() == [-2.0]
    means = [[scores[name, run].mean() for run in sorted(RUNS)] for name in ("first", "last")]
    (order,) = agreements.filter(about="order").to_dicts()
    assert order["value"] == pytest.approx(stats.kendalltau(*means).statistic)
    head, _, said = shown.rpartition("Does the best retriever depend on the reader?")
    assert "Which retriever serves the reader echo best?" in head
    assert "tiny, first" in said
    text = "end - top is -1.000 with first and 1.000 with last: it depends on the reader, by -2.000 [-2.000, "
    assert text in said
    page = pathlib.Path(config.out, "report", "index.html").read_text()
    assert "Does the best retriever depend on the reader?" in page
    report = pathlib.Path(config.out, "report.md").read_text()
    assert "which differences of runs depend on the reader" in report
    # a second start requests nothing
    num_calls = len(reads_here)
    assert compared(config)[0].equals(interactions)
    assert len(reads_here) == num_calls


def test_labels_predict_the_answers_of_another_reader(config: ReadersConfig, reads_here: list[int]) -> None:
    _, agreements, shown = compared(config)
    found = {
        (row["reader_a"], row["reader_b"]): (row["value"], row["low"])
        for row in agreements.filter(about="labels").to_dicts()
    }
    # alone, both readers answer with a document's title; the run "some" alone has labels and answers that vary
    assert found == {("first", "first"): (1.0, None), ("last", "first"): (1.0, None)}
    assert "answers of first with tau-b 1.000, first's labels with 1.000, over the same runs" in shown
    assert "first and last order the 3 runs with tau-b -.816 [-.816, -.521], over 12 questions" in shown


def test_labels_of_several_readers_are_compared_over_the_same_runs_and_questions() -> None:
    rng = np.random.default_rng(0)
    scores, labels, others = (rng.integers(0, 3, (COUNT, 2)).astype(float) for _ in range(3))
    # of the other reader one question failed, and with one run its labels do not vary
    others[0, 0], others[:, 1] = np.nan, 1.0
    draws = SimpleNamespace(
        among=lambda judged: SimpleNamespace(weights=np.ones((9, judged.sum()), int), num_units=9)
    )
    columns, names = SimpleNamespace(draws=draws), {"dataset": "d", "score": "exact_match", "depth": 2}
    sides = Sides(columns, names, ["one", "two"], {"a": scores}, {"a": labels, "b": others})  # type: ignore[arg-type]
    rows = list(label_agreements(sides, Settings(depths=(2,), measures=None, cutoffs=())))
    expected = [stats.kendalltau(side[1:, 0], scores[1:, 0]).statistic for side in (labels, others)]
    assert [row["value"] for row in rows] == pytest.approx(expected)
    assert [row["num_queries"] for row in rows] == [COUNT - 1] * 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"readers": {}}, ["readers", "at least two"]),
        ({"readers": {"a": FIRST}}, ["readers", "at least two"]),
        ({"readers": {"a": FIRST, "b": FIRST}}, ["readers: a and b are one reader"]),
        ({"readers": {"a/b": FIRST, "c": LAST}}, ["'a/b'", "folder"]),
        ({"reader": FIRST}, ["reader: name it among readers"]),
        (
            {"readers": {"a": FIRST, "b": ReaderConfig(kind="served", model="m", base_url="http://h/v1")}},
            ["score: set it", "match", "(b)", "(a)"],
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(
    config: ReadersConfig, changes: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(KeysError) as raised:
        dataclasses.replace(config, **changes)
    for word in words:
        assert word in str(raised.value)
