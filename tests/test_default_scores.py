"""Which score a job takes: by the dataset, the reader, the language, and what the config names."""

import dataclasses
import pathlib
import re
from typing import Any

import pytest
from guides import section, table_rows
from tiny import Tiny, compare, make_tables, table

from erag_ray.config.job import JobConfig
from erag_ray.config.prompt import PromptConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.data.datasets.tasks import DATASETS, Dataset, ScoreRule
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.measures.scores import SCORES
from erag_ray.store.schemas import LABELS, QUERIES
from erag_ray.support.errors import InputError

CHAT = ReaderConfig(kind="echo", prompt="chat")
OWN = PromptConfig(template="{question} {passages}")


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        ({"kind": "fid"}, False),
        ({"kind": "ipa"}, False),
        ({"kind": "causal"}, False),
        ({"kind": "causal", "prompt": "plain"}, False),
        ({"kind": "causal", "prompt": "chat"}, True),
        ({"kind": "causal", "prompt": "question_first"}, True),
        ({"kind": "causal", "prompt": OWN}, True),
        ({"kind": "causal", "prompt": dataclasses.replace(OWN, chat=False)}, False),
        ({"kind": "fid", "prompt": OWN}, False),  # plain text for a T5 always
        ({"kind": "served", "revision": "1", "base_url": "http://localhost:1/v1"}, True),
        (
            {"kind": "served", "revision": "1", "base_url": "http://localhost:1/v1", "api": "completions"},
            False,
        ),
        ({"kind": "my_readers:Mine"}, False),
    ],
)
def test_which_readers_are_chat_models(reader: dict[str, Any], expected: bool) -> None:
    assert ReaderConfig(**reader).is_chat is expected


@pytest.mark.parametrize(
    ("rule", "dataset", "expected"),
    [
        ({}, "nq", "exact_match"),
        ({}, "klue-mrc", "exact_match"),  # as ever, unless a language is named
        ({"is_chat": True}, "nq", "match"),
        ({"is_chat": True}, "klue-mrc", "match:ko"),
        ({"is_chat": True}, "fever", "accuracy"),
        ({"is_chat": True}, "wow", "token_f1"),
        ({"is_chat": True, "for_all": "exact_match"}, "nq", "exact_match"),
        ({"is_chat": True, "language": "en"}, "klue-mrc", "match"),
        ({"language": "ko"}, "klue-mrc", "exact_match:ko"),
        ({"language": "zh"}, "wow", "token_f1:zh"),
        ({"language": "zh"}, "fever", "accuracy"),
        ({"language": "en"}, "nq", "exact_match"),
        ({"for_all": "char_f1"}, "klue-mrc", "char_f1:ko"),
        ({"for_all": "match:ja"}, "klue-mrc", "match:ja"),
        ({"for_all": "rouge_l_kilt", "language": "de"}, "nq", "rouge_l_kilt"),
        ({"for_all": "abstained", "language": "de"}, "nq", "abstained"),
        ({"for_all": "my_scores:MINE", "language": "de"}, "nq", "my_scores:MINE"),
    ],
)
def test_the_score_of_a_dataset(rule: dict[str, Any], dataset: str, expected: str) -> None:
    assert ScoreRule(**rule).score(DATASETS[dataset]) == expected


@pytest.mark.parametrize("rule", [{}, {"is_chat": True, "for_all": "match"}, {"language": "ko"}])
def test_a_score_that_is_the_datasets_own_or_named_needs_no_note(rule: dict[str, Any]) -> None:
    assert ScoreRule(**rule).note("nq", Dataset()) == ""
    expected = "data set 'nq': language: th does not change the score abstained"
    assert ScoreRule(**rule | {"for_all": "abstained", "language": "th"}).note("nq", Dataset()) == expected


def test_the_guide_has_a_row_for_every_score() -> None:
    names = [
        name
        for row in table_rows(section("jobs/LABELS.md", "Scores"))
        for name in re.findall(r"`(\w+)`", row[0])
    ]
    assert sorted(names) == sorted(SCORES)


def scores(tiny: Tiny) -> set[str]:
    return set(table(tiny, QUERIES)["score"])


NOTE = "data set 'tiny': score match, since outputs may be sentences (score: exact_match for whole outputs)"


@pytest.mark.long
def test_a_chat_reader_is_scored_by_match_and_the_report_says_so(tiny: Tiny, reads_here: list[int]) -> None:
    chat = tiny.with_config(reader=CHAT)
    compare(chat)
    assert scores(chat) == {"match"}
    assert NOTE in (pathlib.Path(chat.config.out) / "report.md").read_text().replace("\\", "")
    # the annotators of short answers go on, and the echo reader's titles match as they match exactly
    assert set(table(chat, LABELS)["annotator"]) == set(chat.config.annotators)
    plain = tiny.with_config(out=f"{tiny.config.out}-plain")
    make_tables(plain)
    assert scores(plain) == {"exact_match"}
    labels = [table(one, LABELS, annotator="erag").drop("reader", "score") for one in (chat, plain)]
    assert labels[0].equals(labels[1])


def test_inputs_prepared_for_another_reader_are_refused_only_where_the_score_differs(tiny: Tiny) -> None:
    prepare(tiny.config)
    with pytest.raises(InputError, match=r"sealed with another default_score; run erag-ray prepare"):
        prepared(tiny.with_config(reader=CHAT).config)
    prepare(tiny.with_config(score="token_f1").config)
    assert prepared(tiny.with_config(reader=CHAT, score="token_f1").config)


@pytest.mark.parametrize("keys", [{"language": "kr", "score": "match"}, {"score": "match:kr"}], ids=str)
def test_a_language_that_there_is_not_is_one_problem_of_its_key(tiny: Tiny, keys: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        prepare(tiny.with_config(**keys).config)
    (problem,) = caught.value.problems
    start = "language" if "language" in keys else "score: score 'match:kr'"
    assert problem.startswith(f"{start}: unknown language 'kr'; known (ISO 639-1): ar, ")


def test_the_default_score_is_not_a_key_of_a_config() -> None:
    assert JobConfig(reader=CHAT).default_score == "match"
    assert JobConfig(reader=CHAT, score="match").default_score is None
    assert JobConfig().default_score is None
    assert "default_score" not in {field.name for field in dataclasses.fields(JobConfig)}
