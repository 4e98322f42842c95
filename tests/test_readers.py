"""What every reader keeps: batches change nothing, every request once, counts, fingerprints, the fake."""

from __future__ import annotations

import itertools
import random
from typing import Any

import models
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.config import ReaderConfig
from erag_ray.prompts import Passage
from erag_ray.readers import Prompt, Reader, Request, base, make_reader, reader_id
from erag_ray.readers.memory import Limits
from erag_ray.schemas import READINGS, InputError, conform

REQUESTS = models.some_requests(70)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("fid", {}),
    ("ipa", {}),
    ("causal", {"prompt": "plain"}),
    ("causal", {"prompt": "chat"}),
]
each_reader = pytest.mark.parametrize(
    ("kind", "settings"), CASES, ids=["fid", "ipa", "causal_plain", "causal_chat"]
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    t5 = models.t5_folder(tmp_path_factory.mktemp("t5"))
    return {"fid": t5, "ipa": t5, "causal": models.causal_folder(tmp_path_factory.mktemp("causal"))}


def with_batches(reader: Reader, rows: int, tokens: int = 16384) -> Reader:
    reader.limits = Limits(rows, tokens)
    return reader


@each_reader
def test_batch_size_batch_tokens_and_order_change_no_output(
    folders: dict[str, str], kind: str, settings: dict[str, Any]
) -> None:
    reader = models.loaded(kind, folders[kind], **settings)
    one_by_one = models.outputs(with_batches(reader, 1), REQUESTS)
    assert len({text for text, _ in one_by_one}) > 50, "outputs too alike to tell batches apart"
    assert len({num_tokens for _, num_tokens in one_by_one}) > 4, "outputs all end alike"
    for limits in ((32, 16384), (64, 16384), (64, 700), (1 << 20, 1 << 40)):
        assert models.outputs(with_batches(reader, *limits), REQUESTS) == one_by_one
    places = list(range(len(REQUESTS)))
    random.Random(1).shuffle(places)
    shuffled = models.outputs(with_batches(reader, 64), [REQUESTS[place] for place in places])
    assert shuffled == [one_by_one[place] for place in places]


@each_reader
def test_generate_takes_prompts_of_any_lengths_together(
    folders: dict[str, str], kind: str, settings: dict[str, Any]
) -> None:
    # `read` never pads more than a little; the padding itself must not matter either
    reader = models.loaded(kind, folders[kind], **settings)
    prompts = reader.encode(REQUESTS[:25])
    alone = [reader.generate([prompt])[0] for prompt in prompts]
    assert reader.generate(prompts) == alone


@each_reader
def test_read_gives_each_request_once_longest_first(
    folders: dict[str, str], kind: str, settings: dict[str, Any]
) -> None:
    reader = models.loaded(kind, folders[kind], batch_size=8, **settings)
    tables = list(reader.read(models.as_table(REQUESTS), "a-reader"))
    readings = conform(pa.concat_tables(tables), READINGS)
    assert max(table.num_rows for table in tables) <= 8
    assert sorted(readings["question_key"].to_pylist()) == list(range(len(REQUESTS)))
    assert set(readings["reader"].to_pylist()) == {"a-reader"}
    lengths = readings["num_prompt_tokens"].to_pylist()
    assert lengths == sorted(lengths, reverse=True)
    by_row = dict(zip(readings["question_key"].to_pylist(), lengths, strict=True))
    assert [by_row[row] for row in range(len(REQUESTS))] == [p.num_tokens for p in reader.encode(REQUESTS)]
    assert all(1 <= num <= 12 for num in readings["num_output_tokens"].to_pylist())


@each_reader
def test_windows_change_no_output(
    folders: dict[str, str], kind: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = models.loaded(kind, folders[kind], batch_size=8, **settings)
    expected = models.outputs(reader, REQUESTS)
    monkeypatch.setattr(base, "WINDOW_TOKENS", 100)
    monkeypatch.setattr(base, "TOKENISED_ROWS", 5)
    assert len(list(reader.windows(models.as_table(REQUESTS)))) > 3
    assert models.outputs(reader, REQUESTS) == expected


def test_read_of_no_requests_is_no_reading() -> None:
    reader = make_reader(ReaderConfig(kind="echo"))
    assert list(reader.read(models.as_table([]), "echo")) == []


@each_reader
def test_odd_passages_are_read(folders: dict[str, str], kind: str, settings: dict[str, Any]) -> None:
    reader = models.loaded(kind, folders[kind], **settings)
    odd = [
        Request("Who built it?", ()),
        Request("Who built it?", (Passage("", ""),)),
        Request("Who built it?", (Passage("The bridge", ""), Passage("", "Ada Brunner"))),
        Request("", ()),
        Request("", (Passage("The bridge", "Ada Brunner"),)),
        Request("Who built it?", (Passage("Long", "river " * 100_000),)),
    ]
    prompts = reader.encode(odd)
    assert len({prompt.segments for prompt in prompts}) == len(odd)
    assert [prompt.num_truncated_passage_tokens > 90_000 for prompt in prompts] == [False] * 5 + [True]
    assert all(num_tokens >= 1 for _, num_tokens in models.outputs(reader, odd))


@each_reader
def test_max_new_tokens_counts_the_end_token(
    folders: dict[str, str], kind: str, settings: dict[str, Any]
) -> None:
    long = models.outputs(models.loaded(kind, folders[kind], **settings), REQUESTS[:40])
    short = models.outputs(models.loaded(kind, folders[kind], max_new_tokens=3, **settings), REQUESTS[:40])
    assert max(num for _, num in long) == 12
    # greedy: a shorter output is the start of the longer one
    assert [num for _, num in short] == [min(num, 3) for _, num in long]
    assert all(
        whole.startswith(part.rstrip("\ufffd")) for (part, _), (whole, _) in zip(short, long, strict=True)
    )


@given(
    lengths=st.lists(st.integers(1, 400), max_size=80),
    batch_size=st.integers(1, 40),
    batch_tokens=st.integers(1, 3000),
)
def test_batches_keep_their_limits(lengths: list[int], batch_size: int, batch_tokens: int) -> None:
    reader = make_reader(ReaderConfig(kind="echo", batch_size=batch_size, batch_tokens=batch_tokens))
    batches = list(reader.batches([Prompt(segments=((0,) * length,)) for length in lengths]))
    rows = list(itertools.chain.from_iterable(batches))
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    for batch in batches:
        padded = lengths[batch[0]] * len(batch)
        assert len(batch) <= batch_size
        assert padded <= batch_tokens or len(batch) == 1
        assert padded - sum(lengths[row] for row in batch) <= reader.max_padding_share * padded


def test_batches_are_filled() -> None:
    reader = make_reader(ReaderConfig(kind="echo", batch_size=4, batch_tokens=30))
    # 10 + 9 + 9 = 28 of 30 padded tokens; 5 would waste half; 5 x 4 rows; the last one is left
    lengths = [5, 10, 5, 9, 5, 9, 5, 5]
    batches = list(reader.batches([Prompt(segments=((0,) * length,)) for length in lengths]))
    assert batches == [[1, 3, 5], [0, 2, 4, 6], [7]]


def id_of(folder: str, kind: str, **settings: Any) -> str:
    return reader_id(make_reader(ReaderConfig(kind=kind, model=folder, **settings)))


@each_reader
def test_a_fingerprint_covers_what_can_change_an_output(
    folders: dict[str, str], kind: str, settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    make = models.causal_folder if kind == "causal" else models.t5_folder
    here = folders[kind]
    first = id_of(here, kind, **settings)
    assert first.startswith(f"{kind}-")
    same = [
        id_of(make(tmp_path_factory.mktemp("elsewhere")), kind, **settings),
        id_of(here, kind, batch_size=7, batch_tokens=99, **settings),
        id_of(here, kind, max_new_tokens=50, **settings),
    ]
    assert set(same) == {first}
    others = [
        id_of(make(tmp_path_factory.mktemp("other"), seed=9), kind, **settings),
        id_of(here, kind, dtype="bfloat16", **settings),
        id_of(here, kind, max_new_tokens=49, **settings),
        id_of(here, kind, max_prompt_tokens=400, **settings),
    ]
    assert len({first, *others}) == 5


def test_a_causal_fingerprint_covers_the_prompt(folders: dict[str, str]) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"prompt": "chat"},
        {"num_examples": 1},
        {"family": "claim"},
        {"family": "dialogue"},
        {"stop_at_newline": False},
    ]
    assert len({id_of(folders["causal"], "causal", **change) for change in changes}) == len(changes)


def test_a_fid_fingerprint_tells_which_end_of_a_question_is_kept(folders: dict[str, str]) -> None:
    ids = [id_of(folders["fid"], "fid", family=family) for family in (None, "question", "claim", "dialogue")]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert id_of(folders["ipa"], "ipa", family="dialogue") == id_of(folders["ipa"], "ipa")


def test_echo_answers_with_the_title_that_shares_most_words() -> None:
    reader = make_reader(ReaderConfig(kind="echo"))
    passages = (Passage("Sea", "The sea is wide."), Passage("Bridge", "Who built the first bridge?"))
    requests = [
        Request("Who built the first bridge?", passages),
        Request("What is it?", (Passage("First", "x"), Passage("Second", "y"))),  # a tie
        Request("Anything?", ()),
    ]
    assert models.outputs(reader, requests) == [("Bridge", 6), ("First", 5), ("", 0)]


def test_echo_cuts_and_counts() -> None:
    reader = make_reader(ReaderConfig(kind="echo", max_prompt_tokens=10, max_new_tokens=3))
    # "Title" + line break + 8 characters = 14, of which 10 are kept
    prompt = reader.encode([Request("Title?", (Passage("Title", "12345678"),))])[0]
    assert prompt.num_truncated_passage_tokens == 4
    assert prompt.num_tokens == 6 + 10
    assert reader.generate([prompt])[0] == ("Tit", 3)


def test_an_unknown_kind_and_a_missing_model_are_input_errors() -> None:
    with pytest.raises(InputError, match="unknown reader 'fide'"):
        make_reader(ReaderConfig(kind="fide"))
    with pytest.raises(InputError, match=r"reader\.model: needs a model"):
        make_reader(ReaderConfig(kind="fid"))
