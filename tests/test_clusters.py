"""Questions that belong together: intervals and tests of whole clusters, against repeated questions and simulations."""

import contextlib
import dataclasses
import json
import pathlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from evaluated import queries
from evaluated import settings as settings_of
from given_results import figures_of_dataset
from polars.testing import assert_frame_equal
from tiny import Tiny, make_tables, table
from towns import towns

from erag_ray.analyses.columns import PER_QUERY, by_dataset
from erag_ray.analyses.comparisons import COMPARISONS
from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.means import MEANS
from erag_ray.config.job import JobConfig
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.gate.stage import compare
from erag_ray.extras.sequential_test import stage as settling
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.extras.sequential_test.looks import critical_values, look
from erag_ray.extras.sequential_test.stage import settle
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.measures import agreement
from erag_ray.report.load import load
from erag_ray.store.schemas import CLUSTERS, UTILITY
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError


def test_clusters_of_one_question_each_change_nothing() -> None:
    asked = queries(*((f"q{place:02}", "d", "s") for place in range(40)))
    lists, scores = PER_QUERY.empty(), UTILITY.empty()
    (plain,) = by_dataset([lists], scores, asked, settings_of())
    for names in (pl.col("query_id"), pl.lit(None, pl.String)):
        each = settings_of(clusters=asked.select("query_id", cluster=names))
        (found,) = by_dataset([lists], scores, asked, each)
        assert found.query_ids.equals(plain.query_ids)
        assert (found.draws.clusters, plain.draws.clusters) == (None, None)
        assert np.array_equal(found.draws.weights, plain.draws.weights)
        assert np.array_equal(found.draws.orders, plain.draws.orders)


def clustered(generator: np.random.Generator, sizes: np.ndarray, share: float) -> np.ndarray:
    """Normal values, of whose variance this share is that of the clusters."""
    of_clusters = np.repeat(generator.normal(size=len(sizes)), sizes)
    return np.sqrt(share) * of_clusters + np.sqrt(1 - share) * generator.normal(size=sizes.sum())


SIZES = np.sort(np.random.default_rng(1).geometric(0.2, 200))[::-1]
"""Questions about a page: five on average, as in SQuAD."""


def test_intervals_of_clusters_hold_what_they_promise() -> None:
    generator, numbers = np.random.default_rng(2), np.repeat(np.arange(len(SIZES)), SIZES)
    samples, truth = 1000, 0.1
    held: Counter[str] = Counter()
    ones = {
        name: agreement.resample_weights(len(numbers), 400, 0, of)
        for name, of in (("", None), ("clusters", numbers))
    }
    for _ in range(samples):
        a, b = (clustered(generator, SIZES, 0.5) > limit for limit in (0.0, 0.0))
        moved = np.where(generator.random(len(a)) < truth, 1.0, a.astype(float))
        # runs A and B are equal but for a tenth of B's wrong answers
        expected = 0.5 + truth / 2
        for name, weights in (("mean", ones["clusters"]), ("naive mean", ones[""])):
            [(_, low, high)] = agreement.mean_intervals(moved[:, None], weights, 0.95)
            held[name] += low is not None and high is not None and low <= expected <= high
        differences = agreement.paired_differences(moved, b.astype(float))
        for name, of in (("difference", numbers), ("naive", None)):
            low, high = agreement.paired_test(differences, of).interval(0.05)
            held[name] += low <= truth / 2 <= high
        _, low, high = agreement.share_of(moved, 0.95, numbers)
        held["share"] += low <= expected <= high
        _, low, high = agreement.share_of(moved, 0.95)
        held["naive share"] += low <= expected <= high
    shares = {name: count / samples for name, count in held.items()}
    assert all(0.92 < shares[name] < 0.985 for name in ("mean", "difference", "share")), shares
    assert all(shares[name] < 0.85 for name in ("naive mean", "naive", "naive share")), shares


@pytest.mark.parametrize("statistic", ["spearman_rho", "kendall_tau_b"])
def test_unrelated_columns_of_clusters_seldom_seem_related(statistic: str) -> None:
    generator, numbers = np.random.default_rng(3), np.repeat(np.arange(len(SIZES)), SIZES)
    samples, rejected = 200, {"clusters": 0, "naive": 0}
    for _ in range(samples):
        x, y = np.round(clustered(generator, SIZES, 0.7)), clustered(generator, SIZES, 0.7) > 0
        for name, of in (("clusters", numbers), ("naive", None)):
            orders = agreement.permutations(len(numbers), 199, 0, of)
            (p_value,) = agreement.permutation_p_values(x[:, None], y.astype(float), statistic, orders)
            rejected[name] += p_value <= 0.05
    assert rejected["clusters"] / samples < 0.09 < 0.2 < rejected["naive"] / samples


def test_all_looks_together_miss_the_truth_seldom() -> None:
    generator, numbers = np.random.default_rng(4), np.repeat(np.arange(len(SIZES)), SIZES)
    counts = np.cumsum(SIZES)[39::40].tolist()
    critical, missed = critical_values("even", counts, 0.05), {"clusters": 0, "naive": 0}
    for _ in range(400):
        sizes = generator.permutation(len(SIZES))
        order = np.concatenate([np.flatnonzero(numbers == one) for one in sizes])
        ends = np.cumsum(SIZES[sizes])[39::40].tolist()
        values = (clustered(generator, SIZES, 0.5) > 0).astype(float)[order] - 0.5
        renumbered = np.repeat(np.arange(len(SIZES)), SIZES[sizes])
        for name, of in (("clusters", renumbered), ("naive", None)):
            seen = look(values, ends, critical, clusters=of)
            missed[name] += bool(seen.is_significant.any())
    assert missed["clusters"] / 400 < 0.085 < 0.2 < missed["naive"] / 400


# --- jobs ---

QUESTIONS, SIZE = 40, 4


def in_fours(tiny: Tiny, values: Sequence[object] | None = None) -> Tiny:
    """The questions of ``towns``, four of a street, one after the other; or with these values."""
    rows = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    streets = values or [f"street {place // SIZE}" for place in range(len(rows))]
    for row, street in zip(rows, streets, strict=True):
        row["meta"] = {"street": street, "all": "one"} if street is not None else {"all": "one"}
    tiny.queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tiny.with_config(clusters="meta.street")


@pytest.mark.long
def test_other_clusters_cost_no_reading_and_without_them_all_is_as_before(
    tmp_path: pathlib.Path, reads_here: list[int]
) -> None:
    clustered = in_fours(towns(tmp_path, {"good": QUESTIONS, "half": 20}, QUESTIONS))
    plain = clustered.with_config(clusters=None)
    make_tables(plain)
    before = {schema: table(plain, schema) for schema in (MEANS, COMPARISONS)}
    inputs = prepared(clustered.config)
    assert evaluate(clustered.config, inputs) == []
    assert len(reads_here) == 1
    assert table(clustered, CLUSTERS)["cluster"].value_counts()["count"].to_list() == [SIZE] * 10
    note = "clusters: meta.street: intervals and tests of the 40 questions of tiny resample 10 clusters of up to 4"
    assert f"{note} questions" in inputs.notes
    config = GateConfig(baseline=clustered.config.out, baseline_run="good", candidate_run="half", margin=0.05)
    decided = compare(config)
    assert decided.decisions["tiny"].low == pytest.approx(
        agreement.paired_test(np.repeat([-1.0, 0.0], 5)).interval(0.1)[0]
    )
    (figure,) = [one for one in figures_of_dataset(load(clustered.config.out), "tiny") if "rank" in one.data]
    bands = {row[0]: row[1:] for row in figure.data.select("run", "share", "low", "high").iter_rows()}
    assert bands["half"] == agreement.share_of(np.repeat([1.0, 0.0], 20), 0.95, np.arange(QUESTIONS) // SIZE)
    evaluate(plain.config, prepared(plain.config))
    for schema, expected in before.items():
        assert_frame_equal(table(plain, schema), expected)
    assert not TableStore(plain.config.out).is_sealed(CLUSTERS)


def test_questions_of_one_gold_page_are_a_cluster(tmp_path: pathlib.Path) -> None:
    tiny = towns(tmp_path, {"good": 4}, 6)
    rows = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    for row, page in zip(rows, ["p1", "p1", "p2", None, None, None], strict=True):
        row["output"][0]["provenance"] = [{"wikipedia_id": page}] if page else []
    # a gold document is of its passage's page
    rows[3]["gold_doc_ids"] = ["d2right"]
    tiny.queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = prepare(tiny.with_config(clusters="page").config)
    assert found.clusters["cluster"].to_list() == ["p1", "p1", "p2", "p2", None, None]
    assert any(note.endswith("; 2 have no value and count by themselves") for note in found.notes)
    # questions and gold pages stay, but the passage is of another page
    text = tiny.passages.read_text()
    tiny.passages.write_text(text.replace('"d2right", "page_id": "p2"', '"d2right", "page_id": "p1"'))
    assert text != tiny.passages.read_text()
    assert prepare(tiny.with_config(clusters="page").config).clusters["cluster"].to_list()[3] == "p1"


def test_changed_records_change_their_slices_and_clusters(tmp_path: pathlib.Path) -> None:
    tiny = towns(tmp_path, {"good": 4}, 6).with_config(slices=["meta.street"])
    for streets in ([1, 1, 2, 2, 3, 3], [1, 1, 1, 2, 2, 2]):
        found = prepare(in_fours(tiny, streets).config)
        assert list(map(int, found.clusters["cluster"])) == list(map(int, found.slices["value"])) == streets


@pytest.mark.parametrize(
    ("path", "values", "problem"),
    [
        ("meta.road", None, "clusters: meta.road: no record has meta.road"),
        ("meta.all", None, "clusters: meta.all: all 6 questions of tiny are one cluster, and a test needs several"),
        ("page", None, None),
        ("meta.street", [1, 2, 3, 4, 5, 6], None),
        ("meta.street", [None, 1, 1, None, " ", ""], "; 4 have no value and count by themselves"),
    ],
)  # fmt: skip
def test_clusters_that_group_nothing_are_a_problem_or_a_note(
    tmp_path: pathlib.Path, path: str, values: Sequence[object] | None, problem: str | None
) -> None:
    tiny = in_fours(towns(tmp_path, {"good": 4}, 6), values).with_config(clusters=path)
    if problem and problem.startswith("clusters"):
        with pytest.raises(InputError) as raised:
            prepare(tiny.config)
        assert problem in str(raised.value)
        assert not TableStore(tiny.config.out).is_sealed(CLUSTERS)
    else:
        note = f"clusters: {path}: no two questions of tiny share a value: each counts by itself"
        expected = problem or note
        assert any(note.endswith(expected) for note in prepare(tiny.config).notes)


@pytest.mark.usefixtures("reads_here")
def test_the_sequential_test_looks_after_whole_clusters(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "readers_session", lambda config: contextlib.nullcontext())
    tiny = in_fours(towns(tmp_path, {"good": QUESTIONS, "half": 20}, QUESTIONS))
    keys = {field.name: getattr(tiny.config, field.name) for field in dataclasses.fields(JobConfig)}
    config = SettleConfig(**{**keys, "measure": "P", "num_looks": 5, "fraction": 1.0})
    looks = settle(config, prepare(config))
    assert {count % SIZE for count in looks["num_queries"]} == {0}
    # ten clusters never have ten that differ, so there is no interval; by itself each of 20 questions would be one
    assert looks["low"].null_count() == looks.height == 5
    assert settle(
        dataclasses.replace(config, clusters=None), prepare(dataclasses.replace(config, clusters=None))
    )["settled"].to_list()[-1]
