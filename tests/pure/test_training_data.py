"""Training data for retrievers: splits without leaks, and rows as a brute-force oracle makes them of the tables."""

import dataclasses
import itertools

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_folder import Size, write_folder

from erag_ray.extras.label_export.card import card
from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.extras.label_export.rows import (
    SPLITS,
    LabelledJob,
    question_form,
    split_of,
    training_rows,
    with_split,
)
from erag_ray.extras.label_export.stage import load_job
from erag_ray.support.errors import InputError

WORDS = st.sampled_from(["who", "Who", "WHO", "built", "it", "it ", " the", "ß", "SS", "?", "마른", ""])
QUESTIONS = st.lists(st.lists(WORDS, max_size=4).map(" ".join), max_size=30)


@given(QUESTIONS, st.integers(0, 5), st.sampled_from([(0.0, 0.0), (0.1, 0.1), (0.4, 0.5), (0.0, 0.9)]))
def test_no_question_is_in_two_splits_however_it_is_written(
    questions: list[str], seed: int, fractions: tuple[float, float]
) -> None:
    config = ExportConfig(seed=seed, validation_fraction=fractions[0], test_fraction=fractions[1])
    table = with_split(pl.DataFrame({"question": questions}, schema={"question": pl.String}), config)
    forms = {
        split: {question_form(question) for question in table.filter(split=split)["question"]}
        for split in SPLITS
    }
    assert not any(one & other for one, other in itertools.combinations(forms.values(), 2))
    assert set().union(*forms.values()) == {question_form(question) for question in questions}
    # a question's split depends on no other question
    assert table["split"].to_list() == [split_of(question.upper().lower(), config) for question in questions]


def test_splits_have_their_shares_and_another_seed_moves_questions() -> None:
    questions = [f"question {number}" for number in range(4000)]
    config = ExportConfig(validation_fraction=0.2, test_fraction=0.3)
    splits = [split_of(question, config) for question in questions]
    # five standard deviations: sqrt(.25 / 4000) = .008
    for split, share in {"train": 0.5, "validation": 0.2, "test": 0.3}.items():
        assert splits.count(split) / 4000 == pytest.approx(share, abs=0.04)
    others = [split_of(question, dataclasses.replace(config, seed=1)) for question in questions]
    assert sum(one != other for one, other in zip(splits, others, strict=True)) > 1000


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> LabelledJob:
    """A made-up job of 60 questions and random labels; some questions are equal."""
    folder = tmp_path_factory.mktemp("made_up")
    write_folder(str(folder), Size(num_questions=60, num_documents=6, num_words=4))
    loaded = load_job(str(folder))
    number = pl.col("query_id").str.slice(1).cast(pl.Int64) % 55
    questions = pl.format("Which river crosses town {}?", number)
    labels = loaded.labels.with_columns(
        # some are not judged, some graded
        label=pl.when(pl.col("doc_id").str.ends_with("-4") & (pl.col("annotator") == "erag"))
        .then(pl.lit(None, pl.Float64))
        .when(pl.col("doc_id").str.ends_with("-5") & (pl.col("annotator") == "erag"))
        .then(pl.lit(0.3))
        .otherwise(pl.col("label"))
    )
    # equal questions have equal documents, under other ids and with other labels
    twin = pl.col("doc_id").str.replace_many({f"q{number}-": f"q{number - 55}-" for number in range(55, 60)})
    texts = loaded.corpus.select(twin="doc_id", title="title", text="text")
    corpus = loaded.corpus.drop("title", "text").with_columns(twin=twin).join(texts, on="twin").drop("twin")
    queries = loaded.queries.with_columns(question=questions)
    return dataclasses.replace(loaded, queries=queries, labels=labels, corpus=corpus)


def by_hand(job: LabelledJob, config: ExportConfig) -> set[tuple[str, ...]]:
    """The rows, from plain loops over the tables."""
    question = dict(job.queries.select("query_id", "question").rows())
    text = {
        row["doc_id"]: f"{row['title']} {row['text']}".strip() for row in job.corpus.iter_rows(named=True)
    }
    rank: dict[tuple[str, str], int] = {}
    for row in job.runs.iter_rows(named=True):
        pair = (row["query_id"], row["doc_id"])
        rank[pair] = min(row["rank"], rank.get(pair, row["rank"]))
    labels = {
        (row["annotator"], row["query_id"], row["doc_id"]): row["label"]
        for row in job.labels.rows(named=True)
    }
    useful: dict[str, set[str]] = {}
    bad: dict[str, dict[str, tuple[bool, int]]] = {}
    spared: dict[str, set[str]] = {}
    for (annotator, query, doc), label in labels.items():
        if annotator != config.annotator or label is None:
            continue
        anchor, passage = question[query], text[doc]
        gain = labels.get(("gain", query, doc))
        harms = gain is not None and gain < 0
        if label >= job.threshold:
            useful.setdefault(anchor, set()).add(passage)
        if not (label <= 0 or harms):
            spared.setdefault(anchor, set()).add(passage)
        else:
            before = bad.setdefault(anchor, {}).get(passage, (False, 10**9))
            bad[anchor][passage] = (before[0] or harms, min(before[1], rank[query, doc]))
    rows = set()
    for anchor, passages in useful.items():
        negatives = sorted(
            (not harms, best, passage)
            for passage, (harms, best) in bad.get(anchor, {}).items()
            if passage not in passages | spared.get(anchor, set()) and (harms or not config.harmful_only)
        )[: config.num_negatives]
        if len(negatives) == config.num_negatives:
            for passage in passages:
                rows.add(
                    (split_of(anchor, config), anchor, passage, *(negative for *_, negative in negatives))
                )
    return rows


@settings(max_examples=25)
@given(st.integers(1, 4), st.booleans(), st.integers(0, 3), st.sampled_from(["erag", "provenance", "gain"]))
def test_rows_are_those_of_plain_loops(
    job: LabelledJob, num_negatives: int, harmful_only: bool, seed: int, annotator: str
) -> None:
    config = ExportConfig(
        num_negatives=num_negatives,
        harmful_only=harmful_only,
        seed=seed,
        annotator=annotator,
        test_fraction=0.3,
    )
    expected = by_hand(job, config)
    if not expected:
        with pytest.raises(InputError, match="num_negatives"):
            training_rows(job, config)
        return
    data = training_rows(job, config)
    assert data.rows.columns == ["split", "anchor", "positive", *data.negatives]
    assert len(data.negatives) == num_negatives
    assert data.rows.height == len(expected)
    assert set(data.rows.rows()) == expected


def test_the_order_of_rows_depends_on_the_seed_alone(job: LabelledJob) -> None:
    first, second = (training_rows(job, ExportConfig(seed=seed)).rows.drop("split") for seed in (0, 1))
    shuffled = dataclasses.replace(
        job, labels=job.labels.reverse(), runs=job.runs.sample(fraction=1, shuffle=True)
    )
    assert first.rows() == training_rows(shuffled, ExportConfig()).rows.drop("split").rows()
    assert first.rows() != second.rows()
    assert sorted(first.rows()) == sorted(second.rows())


@pytest.mark.parametrize(
    ("changes", "threshold", "message"),
    [
        ({"annotator": "llm_relevance"}, 0.5, "annotator: .* no labels by llm_relevance, but by erag, gain"),
        ({}, 2.0, "no document has a label of at least 2 by erag: there is no positive. Set a lower"),
        ({"num_negatives": 40}, 0.5, r"num_negatives: .* 40 documents that are useless or do harm \(at most \d"),
        ({"num_negatives": 40, "harmful_only": True}, 0.5, r"40 documents that do harm \(at most \d\)"),
    ],
)  # fmt: skip
def test_a_job_that_gives_no_rows_is_refused(
    job: LabelledJob, changes: dict[str, object], threshold: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        training_rows(dataclasses.replace(job, threshold=threshold), ExportConfig(**changes))  # type: ignore[arg-type]


def test_only_gains_show_harm(job: LabelledJob) -> None:
    without = dataclasses.replace(job, labels=job.labels.filter(pl.col("annotator") != "gain"))
    with pytest.raises(InputError, match=r"harmful_only: .* no labels by gain, which"):
        training_rows(without, ExportConfig(harmful_only=True))
    assert training_rows(without, ExportConfig()).num_harmful == 0
    assert training_rows(job, ExportConfig()).num_harmful > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_negatives": 0},
        {"threshold": 0.0},
        {"test_fraction": 1.0},
        {"validation_fraction": -0.1},
        {"validation_fraction": 0.5, "test_fraction": 0.5},
        {"seed": -1},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExportConfig(**wrong)  # type: ignore[arg-type]


def test_a_card_names_no_folder_of_this_machine(job: LabelledJob) -> None:
    config = ExportConfig(license="cc-by-sa-4.0")
    reader = {
        "kind": "served",
        "model": "/home/me/models/tiny",
        "revision": "a|b",
        "base_url": "http://10.0.0.1/v1",
    }
    data, manifest = training_rows(job, config), {**job.manifest, "config": {"reader": reader}}
    text = card(
        dataclasses.replace(job, manifest=manifest), data, with_split(job.queries, config), {}, config
    )
    assert "model `tiny`" in text
    assert "license: cc-by-sa-4.0\n" in text
    assert not any(word in text for word in ("/home/me", "10.0.0.1"))
