"""jobs/settle.py: a sample is read, look by look, until one knows which run is better; and no reading more."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from one_measure import compute
from tiny import RunJob, Tiny, kilt_line, passage_line, trec_lines

from erag_ray.annotators import ANNOTATORS, Annotator, Evidence
from erag_ray.config.command_line.parsing import parse
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.extras.sequential_test import stage as settling
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.extras.sequential_test.job import main
from erag_ray.extras.sequential_test.stage import INTERIM_ANALYSES, settle
from erag_ray.inference import actor
from erag_ray.inputs.stage import prepare
from erag_ray.measures.lists import list_ideal
from erag_ray.store.schemas import COSTS, REQUESTS
from erag_ray.store.stages.lock import job_memory
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError

NUM_QUESTIONS = 80
Settle = Callable[..., pl.DataFrame]


def lists(number: int, useful: bool, mine: str) -> str:
    """Two documents that both runs hold, and one of the run's own, which answers the question or does not."""
    return f"d{number}{'right' if useful else mine} d{number}x d{number}y"


@pytest.fixture
def config(tmp_path: pathlib.Path) -> SettleConfig:
    """80 questions; the echo reader answers with a passage's title, so a passage is useful if that is the answer.

    ``good`` has the answer for four of five, ``bad`` for one of five, ``mixed`` for three of five.
    """
    numbers = range(NUM_QUESTIONS)
    questions = [kilt_line(f"q{n}", f"who lives in town {n}", f"Person {n}", None) for n in numbers]
    passages = [
        passage_line(f"d{n}{kind}", "p", f"Person {n}" if kind == "right" else f"Nobody {kind}", f"town {n}")
        for n in numbers
        for kind in ("right", "x", "y", "g", "b", "m")
    ]
    (tmp_path / "queries.jsonl").write_text("".join(questions))
    (tmp_path / "passages.jsonl").write_text("".join(passages))
    useful = {"good": (0, 1, 2, 3), "bad": (4,), "mixed": (0, 2, 4)}
    for run, rests in useful.items():
        ranked = {f"q{n}": lists(n, n % 5 in rests, run[0]) for n in numbers}
        (tmp_path / f"{run}.trec").write_text(trec_lines(ranked))
    return SettleConfig(
        queries=[str(tmp_path / "queries.jsonl")],
        dataset="towns",
        passages=[str(tmp_path / "passages.jsonl")],
        runs={run: str(tmp_path / f"{run}.trec") for run in useful},
        reader=ReaderConfig(kind="echo"),
        depth=3,
        compare=["good", "bad"],
        num_looks=4,
        out=str(tmp_path / "out"),
        cache_dir=str(tmp_path / "store"),
        progress=False,
    )


CLOSE = {"compare": ["good", "mixed"], "equivalence_margin": 0.0}


@pytest.fixture
def settled(config: SettleConfig, reads_here: list[int], monkeypatch: pytest.MonkeyPatch) -> Settle:
    """Prepare once, then settle with changed settings, without Ray."""
    monkeypatch.setattr(settling, "readers_session", lambda config: contextlib.nullcontext())
    inputs = prepare(config)
    return lambda **changes: settle(dataclasses.replace(config, **changes), inputs)


def test_it_stops_at_the_first_look_that_tells_and_reads_nothing_that_both_runs_hold(
    settled: Settle, config: SettleConfig, reads_here: list[int]
) -> None:
    looks = settled(fraction=1.0)
    # of good and bad, four of five questions differ: 1/3 for three of them, -1/3 for one; so told at the first look
    assert looks["settled"].to_list() == [True]
    row = looks.row(0, named=True)
    assert (row["better"], row["num_queries"], row["num_documents"]) == ("good", 20, 80)
    assert 0 < row["low"] < row["difference"] < row["high"]
    # all that may differ is read: each run's own document, of 20 questions; of the other two none
    assert sum(reads_here) == row["num_readings"] == 40
    assert TableStore(config.out).read(INTERIM_ANALYSES).equals(looks)
    assert TableStore(f"{config.out}/settle").read(REQUESTS).height == 40


def test_this_process_loads_the_model_once_for_all_looks(
    config: SettleConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = [], actor.models.load_model
    monkeypatch.setattr(actor.models, "load_model", lambda model: (loaded.append(model), load(model)))
    inputs = prepare(config)
    with job_memory():
        looks = settle(dataclasses.replace(config, **CLOSE, num_readers=0, fraction=0.3), inputs)
    assert (looks.height, len(loaded)) == (4, 1)


def test_all_documents_of_all_questions_give_the_difference_of_the_measures(
    settled: Settle, annotators: None
) -> None:
    for measure, cutoff, auxiliary in (
        ("P", 3, None),
        ("P", 3, "by_title"),
        ("P", 1, None),
        ("DCG", 3, None),
    ):
        looks = settled(**CLOSE, fraction=1.0, measure=measure, cutoff=cutoff, auxiliary=auxiliary)
        first, second = (
            np.array([[n % 5 in rests, 0, 0] for n in range(NUM_QUESTIONS)], dtype=np.float64)
            for rests in ((0, 1, 2, 3), (0, 2, 4))
        )
        name = "P" if measure == "P" else "nDCG"
        wanted = [compute(name, list_ideal(labels), cutoff).mean() for labels in (first, second)]
        # where one document is useful, at rank 1, DCG is nDCG
        assert looks["difference"][-1] == pytest.approx(wanted[0] - wanted[1])


def test_a_difference_known_well_enough_is_settled_without_a_better_run(settled: Settle) -> None:
    looks = settled(compare=["good", "mixed"], fraction=1.0, equivalence_margin=0.2, boundary="late")
    assert looks["settled"][-1]
    assert looks["better"][-1] is None


@pytest.mark.long
def test_a_larger_share_goes_on_from_what_a_smaller_one_has_read(
    settled: Settle, reads_here: list[int]
) -> None:
    few = settled(**CLOSE, fraction=0.3)["num_readings"][-1]
    assert sum(reads_here) == few
    many = settled(**CLOSE, fraction=0.5)
    assert sum(reads_here) == many["num_readings"][-1] > few
    before = len(reads_here)
    assert settled(**CLOSE, fraction=0.5).equals(many)
    assert len(reads_here) == before, "nothing is read twice"


def test_two_runs_without_an_auxiliary_give_the_numbers_of_before(
    settled: Settle, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("num_queries", "num_readings", "num_documents", "difference", "low", "high", "better")
    looks = settled(**CLOSE, fraction=0.3)
    assert looks.select(columns).rows() == [
        (20, 12, 67, 0.01851851852, None, None, None),
        (40, 33, 140, 0.07407407407999998, -0.01979763049585341, 0.16794577865585336, None),
        (60, 59, 214, 0.03703703703999999, -0.044830170406041155, 0.11890424448604114, None),
        (80, 84, 288, 0.05555555555999999, -0.015322691094355405, 0.12643380221435538, None),
    ]
    looks = settled(measure="DCG", cutoff=2, boundary="late", fraction=0.6, equivalence_margin=0.001)
    assert looks.select(columns).rows() == [
        (20, 37, 60, 0.7222222222149999, -0.3456955285199701, 1.7901399729499698, None),
        (40, 73, 120, 0.6944444444375002, 0.303135453360694, 1.0857534355143064, "good"),
    ]
    unknown = looks.select("auxiliary", "lambda", "correlation", "price_saved").null_count()
    assert unknown.row(0) == (2, 2, 2, 2)


def test_the_order_of_the_questions_goes_by_the_seed(settled: Settle) -> None:
    orders = [
        settled(fraction=1.0, num_looks=8, equivalence_margin=0.0, seed=seed)["difference"][0]
        for seed in range(4)
    ]
    assert len(set(orders)) > 1


def test_what_cannot_be_compared_is_refused_before_anything_is_read(
    settled: Settle, config: SettleConfig, no_reader: None
) -> None:
    text = "name two or more of the runs bad, good, mixed, each once; got"
    for names in (["good", "best"], ["good"], ["good", "good"], ["good", "bad", "good"]):
        with pytest.raises(InputError, match=f"{text} {', '.join(names)}$"):
            settled(compare=names)
    runs = {**config.runs, "same": config.runs["good"]}
    two = dataclasses.replace(config, runs=runs, compare=["good", "same"])
    inputs = prepare(two)
    with pytest.raises(InputError, match="good and same hold the same documents of towns"):
        settle(two, inputs)
    single = inputs.queries.with_columns(dataset=pl.Series(["a"] + ["b"] * (NUM_QUESTIONS - 1)))
    with pytest.raises(InputError, match="queries of a: at least 2 are needed"):
        settle(config, dataclasses.replace(inputs, queries=single))


def test_a_document_that_was_not_judged_ends_it_unsealed(
    settled: Settle, config: SettleConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"query_id": ["q1"], "doc_id": ["d1x"], "label": [None]}
    labels = pl.DataFrame(row, schema_overrides={"label": pl.Float64})
    monkeypatch.setattr(settling, "label_by_reader", lambda name, evidence: labels)
    with pytest.raises(JobError, match="1 of 1 documents were not judged"):
        settled(fraction=1.0)
    assert not TableStore(config.out).is_sealed(INTERIM_ANALYSES)


@pytest.mark.parametrize(
    "wrong", ["fraction=0", "fraction=1.5", "cutoff=4", "num_looks=0", "equivalence_margin=-1"]
)
def test_settings_that_cannot_be_are_refused(wrong: str) -> None:
    key, value = wrong.split("=")
    with pytest.raises(SystemExit):
        parse(SettleConfig, "Settle.", ["--depth", "3", "--end_to_end_depths", "[3]", f"--{key}={value}"])


@pytest.mark.cluster
def test_the_job_settles_on_a_real_ray_and_says_what_it_read(
    config: SettleConfig, local_ray: None, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(config)
    report = pathlib.Path(config.out, "report.md")
    report.write_text("of another job")
    main(config)
    looks = TableStore(config.out).read(INTERIM_ANALYSES)
    assert looks["better"][-1] == "good"
    assert "settled, good is better" in capsys.readouterr().err
    assert TableStore(f"{config.out}/settle").read(COSTS)["num_requests"][0] == looks["num_readings"][-1]
    assert report.exists()


# --- several runs, several datasets, auxiliary labels ---


def title_is_a_person(evidence: Evidence) -> pl.DataFrame:
    """1 for passages about persons and about m, else 0; null where the question's number ends in 7."""
    label = pl.col("title").str.contains("Person|m$").cast(pl.Float64)
    labels = evidence.pairs.join(evidence.corpus.select("doc_id", label=label), on="doc_id")
    return labels.with_columns(pl.when(~pl.col("query_id").str.ends_with("7")).then("label").alias("label"))


def one_for_all(evidence: Evidence) -> pl.DataFrame:
    """1 for every passage."""
    return evidence.pairs.with_columns(label=pl.lit(1.0))


@pytest.fixture
def annotators(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, function in (("by_title", title_is_a_person), ("one_for_all", one_for_all)):
        annotator = Annotator(
            name=name, function=function, applies=lambda evidence: pl.lit(True), kind="binary"
        )
        monkeypatch.setitem(ANNOTATORS, name, annotator)


def test_an_auxiliary_narrows_the_intervals_of_the_same_readings(
    settled: Settle, reads_here: list[int], annotators: None, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**CLOSE, "fraction": 0.2, "num_looks": 2}
    without, powered = settled(**settings), settled(**settings, auxiliary="by_title")
    assert powered["num_readings"].to_list() == without["num_readings"].to_list()
    widths = [(looks["high"] - looks["low"])[-1] for looks in (without, powered)]
    assert widths[1] < 0.85 * widths[0]
    assert powered["auxiliary"].to_list() == ["by_title"] * 2
    assert powered["lambda"][-1] > 0.3
    assert 0.3 < powered["correlation"][-1] < 1
    assert sum(reads_here) == without["num_readings"][-1], "the auxiliary label asks for nothing"
    output = capsys.readouterr().err
    assert "towns: by_title has no label of" in output
    assert "towns: by_title alone names" in output


def test_a_constant_auxiliary_is_named_and_has_lambda_0(
    settled: Settle, annotators: None, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = settled(compare=["good", "mixed"], fraction=0.5, auxiliary="one_for_all")
    assert set(looks["lambda"]) == {0.0}
    assert set(looks["correlation"]) == {None}
    assert "towns: one_for_all is 1 for every document: it says nothing" in capsys.readouterr().err


def test_a_cheap_reader_reads_all_documents_once_and_the_reader_a_sample(
    settled: Settle, config: SettleConfig, reads_here: list[int]
) -> None:
    cheap = dataclasses.replace(config.reader, max_new_tokens=40)
    looks = settled(**CLOSE, fraction=0.2, num_looks=2, auxiliary_reader=cheap)
    assert reads_here[0] == looks["num_documents"][-1]
    assert sum(reads_here[1:]) == looks["num_readings"][-1]
    # the echo reader writes no more than a title, so both readers agree
    assert looks["correlation"][-1] == pytest.approx(1)
    assert looks["lambda"][-1] == pytest.approx(1, abs=1e-3)
    requests = TableStore(f"{config.out}/settle_auxiliary").read(REQUESTS)
    assert requests.height == looks["num_documents"][-1]


def test_without_names_all_runs_are_compared_and_the_best_is_named(
    settled: Settle, reads_here: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    looks = settled(compare=[], fraction=1.0, num_looks=2, equivalence_margin=0.0)
    pairs = looks.select("run_a", "run_b").unique(maintain_order=True).rows()
    assert pairs == [("bad", "good"), ("bad", "mixed"), ("good", "mixed")]
    last = looks.filter(pl.col("look") == looks["look"].max())
    assert last["better"].to_list() == ["good", "mixed", "good"]
    assert last["num_readings"].n_unique() == 1
    assert sum(reads_here) == last["num_readings"][0], "one sample serves all pairs"
    assert "towns: good is the best of 3 runs by P@3" in capsys.readouterr().err


def test_each_dataset_has_its_own_looks_and_verdict(
    settled: Settle, config: SettleConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = prepare(config)
    names = inputs.queries["query_id"].str.slice(1).cast(pl.Int64) % 5
    # good and mixed have the same answers to those whose number leaves 0, 2 or 4
    mixed = pl.when(names.is_in([0, 2, 4])).then(pl.lit("alike")).otherwise(pl.lit("apart"))
    queries = inputs.queries.with_columns(dataset=mixed)
    datasets = dict.fromkeys(("alike", "apart"), inputs.datasets["towns"])
    two = dataclasses.replace(inputs, queries=queries, datasets=datasets)
    job = dataclasses.replace(config, compare=["good", "bad"], fraction=1.0, equivalence_margin=0.0)
    looks = settle(job, two)
    for name in ("alike", "apart"):
        rows = looks.filter(dataset=name)
        assert rows["num_documents"][-1] < 320
        assert rows["look"].to_list() == list(range(1, rows.height + 1))
    assert looks.filter(dataset="apart")["better"][-1] == "good"
    assert "apart, look 1:" in capsys.readouterr().err


def test_the_last_look_at_a_dataset_has_the_verdict_of_the_end(
    settled: Settle, config: SettleConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two datasets the smaller one has its last look before pairs of the other are decided."""
    inputs = prepare(config)
    name = pl.when(pl.col("query_id") < "q15").then(pl.lit("few")).otherwise(pl.lit("many"))
    queries = inputs.queries.with_columns(dataset=name)
    assert queries.filter(dataset="few").height < 10
    datasets = dict.fromkeys(("few", "many"), inputs.datasets["towns"])
    two = dataclasses.replace(inputs, queries=queries, datasets=datasets)
    looked_at: dict[str, int] = {}

    def divisor(values: object, counts: list[int], *rest: object) -> int:
        # few is significant at alpha alone, and many at alpha / 2 at its eighth look
        dataset = "few" if counts[-1] < 10 else "many"
        looked_at[dataset] = looked_at.get(dataset, 0) + 1
        return 1 if dataset == "few" else 2 * (looked_at["many"] == 8)

    monkeypatch.setattr(settling, "largest_divisor", divisor)
    looks = settle(dataclasses.replace(config, **CLOSE, num_looks=9, fraction=1.0), two)
    verdicts = {dataset: looks.filter(dataset=dataset)["better"].to_list() for dataset in ("few", "many")}
    assert (len(verdicts["few"]), len(verdicts["many"])) == (6, 8)
    assert set(verdicts["few"][:-1]) == set(verdicts["many"][:-1]) == {None}
    assert None not in (verdicts["few"][-1], verdicts["many"][-1])


def test_runs_that_beat_each_other_in_a_circle_are_not_settled(
    settled: Settle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    winners = {("bad", "good"): "bad", ("good", "mixed"): "good", ("bad", "mixed"): "mixed"}

    def decide(states: list[settling.PairState]) -> None:
        for state in states:
            state.better = winners[state.names]

    monkeypatch.setattr(settling, "_decide", decide)
    looks = settled(compare=[], num_looks=2)
    assert looks["look"].max() == 2
    assert "towns: not settled which of bad, good, mixed is best" in capsys.readouterr().err


def test_money_that_was_saved_is_said_where_the_reader_has_a_price(
    settled: Settle, config: SettleConfig
) -> None:
    reader = ReaderConfig(kind="echo", price_per_million={"input": 2e6, "output": 0.0})
    priced = settled(fraction=0.5, reader=reader)
    costs = TableStore(f"{config.out}/settle").read(COSTS)
    per_reading = 2 * costs["num_prompt_tokens"][0] / costs["num_reader_calls"][0]
    assert priced["num_saved"].to_list() == [320 - priced["num_readings"][0]]
    assert priced["price_saved"][0] == pytest.approx(per_reading * priced["num_saved"][0])
    assert settled(fraction=0.5)["price_saved"].to_list() == [None]


def test_auxiliary_labels_that_cannot_be_are_refused_before_anything_is_read(
    settled: Settle, config: SettleConfig, no_reader: None
) -> None:
    cheap = ReaderConfig(kind="echo", max_new_tokens=3)
    wrong: list[tuple[dict[str, object], str]] = [
        ({"auxiliary": "contains"}, "auxiliary: unknown annotator 'contains'"),
        ({"auxiliary": "erag"}, "auxiliary: erag asks the reader about every document"),
        ({"auxiliary": "gain"}, "one of contains_answer_dpr.*, or erag_auxiliary with a cheaper auxiliary_reader"),
        ({"auxiliary": "gold_likelihood"}, "auxiliary: gold_likelihood asks the reader"),
        ({"auxiliary": "provenance", "auxiliary_reader": cheap}, "provenance asks no reader"),
        ({"auxiliary_reader": config.reader}, "auxiliary_reader: is the reader itself"),
        ({"auxiliary": "erag_auxiliary"}, "auxiliary_reader: erag_auxiliary and the like need it"),
        ({"auxiliary_reader": ReaderConfig(kind="nothing")}, "auxiliary_reader.kind: unknown reader 'nothing'"),
        ({"auxiliary": "llm_relevance", "judge": JudgeConfig(model="a", num_queries=5)},
         "llm_relevance must label all documents; leave judge.num_queries out"),
    ]  # fmt: skip
    for changes, message in wrong:
        with pytest.raises(InputError, match=message):
            settled(**changes)


@pytest.mark.parametrize(("auxiliary", "code"), [("contains_answer_dpr", 0), ("gain", 2)])
def test_the_job_takes_the_keys_of_its_config(
    tiny: Tiny, job: RunJob, reads_here: list[int], auxiliary: str, code: int
) -> None:
    keys = {field.name for field in dataclasses.fields(SettleConfig)}
    settings = {name: value for name, value in vars(tiny.config).items() if name in keys}
    assert job("prepare", tiny)[0] == 0
    config = SettleConfig(**{**settings, "auxiliary": auxiliary}, fraction=1.0, num_looks=2)
    ended, output = job("settle", dataclasses.replace(tiny, config=config))
    assert ended == code, output
    if code:
        assert "auxiliary: gain asks the reader about every document" in output
        assert not reads_here
    else:
        looks = TableStore(config.out).read(INTERIM_ANALYSES)
        assert set(looks["auxiliary"]) == {auxiliary}
        assert "contains_answer_dpr alone names" in output
