"""Rows that share one table of encoder states, such as leave-one-outs, against rows with a copy each."""

from __future__ import annotations

import dataclasses
import operator
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import models
import pytest
import torch
import transformers
from held_memory import HeldMemory

from erag_ray.kinds import EARLY_STOPPED, GOLD_LIKELIHOOD
from erag_ray.models.local.memory import Limits
from erag_ray.models.local.model import PromptTokens
from erag_ray.models.t5.cross_attention import (
    CopiedStates,
    Projections,
    StateTable,
    cross_attention_for,
    is_table_faster,
)
from erag_ray.models.t5.encoder_cache import EncoderCache, arrange, encode_all, overlapping, segment_table
from erag_ray.models.t5.engine import Engine
from erag_ray.models.t5.model import T5Model
from erag_ray.requests import Passage, Request

KINDS: dict[str, dict[str, Any]] = {
    "t5": {},
    "t5 1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "umt5": {"kind": "umt5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "wide heads": {"d_kv": 16, "num_heads": 3, "num_layers": 3, "num_decoder_layers": 1},
}
FORM = models.form_for("fid")
Model = Any


def prompts_of(rows: Sequence[Sequence[tuple[int, ...]]]) -> list[PromptTokens]:
    return [PromptTokens(form=FORM, segments=tuple(segments)) for segments in rows]


def segments_of(number: int, seed: int) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [tuple(rng.randint(3, 60) for _ in range(rng.randint(1, 30))) for _ in range(number)]


def subsets_of(segments: Sequence[tuple[int, ...]], seed: int) -> list[list[tuple[int, ...]]]:
    """Leave-one-outs, the whole list, subsets of all sizes, and a list with a segment three times."""
    rng = random.Random(seed)
    without = [[*segments[:place], *segments[place + 1 :]] for place in range(len(segments))]
    some = [rng.sample(segments, rng.randint(1, len(segments))) for _ in range(8)]
    return [*without, list(segments), *some, [segments[0], *segments, segments[0]]]


# --- one layer ---


def random_layers(heads: int, head: int, width: int, dtype: torch.dtype) -> list[Projections]:
    def weights() -> torch.Tensor:
        return (torch.randn(heads, head, width) / width**0.5).to(dtype)

    return [Projections(weights(), weights()) for _ in range(2)]


def both(
    cache: EncoderCache, prompts: Sequence[PromptTokens], layers: Sequence[Projections]
) -> tuple[CopiedStates, StateTable]:
    copied = cross_attention_for(cache.gather(prompts), layers)
    table = cross_attention_for(cache.share(segment_table(prompts)), layers)
    assert isinstance(copied, CopiedStates)
    assert isinstance(table, StateTable)
    return copied, table


@pytest.mark.parametrize(
    ("dtype", "spread", "tolerance"),
    [
        (torch.float32, 0.1, 1e-5),
        (torch.float32, 1.0, 1e-5),
        (torch.float32, 40.0, 1e-3),
        (torch.bfloat16, 0.1, 0.05),
        (torch.bfloat16, 1.0, 0.05),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_means_of_values_are_those_over_copies(
    dtype: torch.dtype, spread: float, tolerance: float, number: int
) -> None:
    torch.manual_seed(5)
    layers, segments = random_layers(4, 16, 32, dtype), segments_of(12, 2)
    # one segment has nearly all of the weight, and some rows are without it
    states = torch.randn(sum(map(len, segments)) + 1, 32)
    states[: len(segments[0])] *= 5 if spread > 1 else 1
    states[-1] = 0
    starts = {segment: sum(map(len, segments[:place])) for place, segment in enumerate(segments)}
    cache = EncoderCache(states=states.to(dtype), starts=starts)
    prompts = prompts_of(subsets_of(segments, 7))
    copied, table = both(cache, prompts, layers)
    prefixes = torch.arange(len(prompts)) % 2
    table.advance(prefixes)
    query = (spread * torch.randn(2, 4, 16)).to(dtype)[prefixes]
    tolerances = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(table.attend(query, number), copied.attend(query, number), **tolerances)
    assert (number in table.keys_values) == (number == 1)
    index = torch.tensor([1, 4, 5, len(prompts) - 1])
    for one in (copied, table):
        one.select(index)
    torch.testing.assert_close(
        table.attend(query[index], number), copied.attend(query[index], number), **tolerances
    )


def test_many_prefixes_have_keys_and_values() -> None:
    torch.manual_seed(5)
    layers, segments = random_layers(4, 16, 32, torch.float32), segments_of(12, 2)
    starts = {segment: sum(map(len, segments[:place])) for place, segment in enumerate(segments)}
    cache = EncoderCache(states=torch.randn(sum(map(len, segments)) + 1, 32), starts=starts)
    prompts = prompts_of(subsets_of(segments, 7))
    copied, table = both(cache, prompts, layers)
    table.advance(torch.arange(len(prompts)))
    query = torch.randn(len(prompts), 4, 16)
    torch.testing.assert_close(table.attend(query, 0), copied.attend(query, 0), rtol=1e-5, atol=1e-5)
    assert 0 in table.keys_values


# --- outputs ---


def stops_at_many(row: int, ids: Sequence[int]) -> bool:
    return (row + sum(ids)) % 5 == 0


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("stop", [None, stops_at_many])
def test_outputs_are_those_over_copies(
    tmp_path: pathlib.Path, name: str, stop: Callable[[int, Sequence[int]], bool] | None
) -> None:
    folder = models.t5_folder(tmp_path, **KINDS[name])
    engine = Engine(transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval())
    lengths = set()
    for seed in range(4):
        prompts = prompts_of(subsets_of(segments_of(10, seed), seed))
        cache = encode_all(engine.encode, arrange(prompts, 1000))
        copied, shared = (
            engine.decode(states, start=0, ends=[1], most=20, stop=stop)
            for states in (cache.gather(prompts), cache.share(segment_table(prompts)))
        )
        assert shared == copied
        lengths |= set(map(len, shared))
    assert len(lengths) > 1


def leave_one_outs(whole: Request) -> list[Request]:
    passages = whole.passages
    return [
        whole._replace(passages=passages[:place] + passages[place + 1 :]) for place in range(len(passages))
    ]


def mixed_requests(num_passages: int = 20) -> list[Request]:
    """Of four questions and three forms: lists, leave-one-outs, single documents, duplicates and no documents."""
    early = models.form_for("fid", EARLY_STOPPED)
    likelihood = models.form_for("fid", GOLD_LIKELIHOOD)
    requests, rng = list[Request](), random.Random(3)
    for number in range(4):
        passages = tuple(
            Passage(
                f"t{number}", f"river {place} " + " ".join(rng.choices(models.WORDS, k=rng.randint(0, 12)))
            )
            for place in range(num_passages)
        )
        whole = Request(FORM, f"who built the bridge {number}", passages)
        without = leave_one_outs(whole)
        stopped = [request._replace(form=early, answers=("Graz", "the")) for request in without]
        scored = [request._replace(form=likelihood, answers=("Graz",)) for request in without[:3]]
        single = [whole._replace(passages=(passage,)) for passage in passages]
        twice = whole._replace(passages=passages + passages[:3])
        requests += [*single, whole, *without, *stopped, *scored, twice, whole._replace(passages=())]
    return requests


def without_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(T5Model, "_is_table_faster", lambda *_: False)


def count_tables(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the number of rows of every table is added from now on."""
    share, rows = EncoderCache.share, list[int]()
    monkeypatch.setattr(
        EncoderCache, "share", lambda cache, table: rows.append(len(table.counts)) or share(cache, table)
    )
    return rows


class Found(NamedTuple):
    """Of each row: what must be equal, and the log-probabilities.

    Batches of other shapes add in another order, which shows on CPUs without AVX-512.
    """

    outputs: list[tuple[str | None, int, int]]
    logprobs: list[tuple[float, ...]]

    def check(self, other: Found) -> None:
        assert self.outputs == other.outputs
        for ours, theirs in zip(self.logprobs, other.logprobs, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4, rel=0)


def responses(model: Model, requests: Sequence[Request]) -> Found:
    rows = [response for _, response in sorted(model.run(requests), key=lambda pair: pair[0])]
    outputs = [(row.text, row.num_output_tokens, row.num_prompt_tokens) for row in rows]
    return Found(outputs, [row.logprobs for row in rows])


@pytest.mark.parametrize("settings", [{}, KINDS["umt5"]], ids=["t5", "umt5"])
def test_mixed_requests_have_the_same_outputs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    model = models.loaded("fid", models.t5_folder(tmp_path, **settings))
    requests = mixed_requests()
    rows = count_tables(monkeypatch)
    found = responses(model, requests)
    # the whole list and the list with duplicates are in the table of the leave-one-outs
    assert rows == [22, 20] * 4
    assert len({text for text, *_ in found.outputs}) > 20
    without_tables(monkeypatch)
    found.check(responses(model, requests))


@pytest.mark.parametrize("limits", [Limits(rows=7, tokens=1 << 40), Limits(rows=1000, tokens=5000)])
def test_large_groups_are_several_batches(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    model = models.loaded("fid", models.t5_folder(tmp_path))
    requests = mixed_requests()
    expected = responses(model, requests)
    for form in {request.form for request in requests}:
        models.keep_to(model, form, limits)
    rows = count_tables(monkeypatch)
    responses(model, requests).check(expected)
    assert rows
    assert max(rows) < 20


def test_a_table_without_a_window_is_encoded_for_its_batch(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.loaded("fid", models.t5_folder(tmp_path))
    requests = mixed_requests()
    expected = responses(model, requests)
    rows = count_tables(monkeypatch)
    monkeypatch.setattr(T5Model, "begin", lambda *_: None)
    model._window = None
    responses(model, requests).check(expected)
    assert rows


def test_bfloat16_outputs_are_as_often_those_in_float32(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = models.t5_folder(tmp_path)
    requests = [request for request in mixed_requests() if request.form == FORM]
    exact = responses(models.loaded("fid", folder), requests)
    model = models.loaded("fid", folder, dtype="bfloat16")

    def num_equal() -> int:
        return sum(map(operator.eq, responses(model, requests).outputs, exact.outputs))

    rows = count_tables(monkeypatch)
    shared = num_equal()
    assert rows
    without_tables(monkeypatch)
    assert shared > num_equal() - len(requests) / 10


# --- who shares ---


def lists_of(num_passages: int, num_lists: int, num_common: int) -> list[Request]:
    """Lists of one question that have some passages in common."""
    return [
        Request(
            FORM,
            "who built the bridge",
            tuple(
                Passage("t", f"river {place if place < num_common else 100 * number + place}")
                for place in range(num_passages)
            ),
        )
        for number in range(num_lists)
    ]


def test_plain_requests_keep_their_batches_and_copies(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.loaded("fid", models.t5_folder(tmp_path))
    rows = count_tables(monkeypatch)
    single = [
        request._replace(passages=(own,)) for request in lists_of(20, 2, 10) for own in request.passages
    ]
    plain = [*models.some_requests(FORM, 40), *single, *lists_of(20, 3, 20)]
    prompts = model.render(plain)
    assert list(model.batches(prompts)) == list(super(T5Model, model).batches(prompts))
    responses(model, plain)
    assert not rows
    responses(model, leave_one_outs(lists_of(20, 1, 20)[0]))
    assert rows == [20]


def test_lists_of_one_segment_have_no_table(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.loaded("ipa", models.t5_folder(tmp_path))
    rows = count_tables(monkeypatch)
    form = models.form_for("ipa")
    requests = [request._replace(form=form) for request in leave_one_outs(lists_of(20, 1, 20)[0])]
    responses(model, requests)
    assert not rows


def test_a_table_is_for_many_rows_of_the_same_states() -> None:
    demo = random_layers(8, 16, 128, torch.float32)
    # leave-one-outs of lists of 50, 10 and 5 passages of 100 tokens
    assert [is_table_faster(n, n * (n - 1) * 100, n * 100, demo) for n in (50, 10, 5)] == [True, True, False]
    # three runs with the same list
    assert not is_table_faster(3, 3 * 5000, 5000, demo)
    # many layers of keys and values would not fit where copies do
    assert not is_table_faster(50, 50 * 4900, 5000, demo * 30)


def test_groups_are_of_one_form_and_overlap() -> None:
    first, second = segments_of(5, 1), segments_of(5, 2)
    rows = [first[:3], second[:1], first[1:], [], second[:2], second[1:], first[3:]]
    prompts = prompts_of([row or [()] for row in rows])
    sizes = [sum(map(len, segments)) for segments in (first, second, first[3:])]
    assert list(overlapping(prompts)) == [([0, 2], sizes[0]), ([4, 5], sizes[1]), ([6], sizes[2])]
    prompts[5] = dataclasses.replace(prompts[5], form=models.form_for("fid", EARLY_STOPPED))
    assert [rows for rows, _ in overlapping(prompts)] == [[0, 2], [4], [6], [5]]
    prompts[5] = dataclasses.replace(prompts[5], form=models.form_for("fid", GOLD_LIKELIHOOD))
    assert [rows for rows, _ in overlapping(prompts)] == [[0, 2], [4], [6]]


# --- memory ---


@pytest.mark.parametrize("words", [1, 40])
def test_no_row_has_a_copy_of_its_states(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, words: int
) -> None:
    model = models.loaded("fid", models.t5_folder(tmp_path))
    passages = tuple(Passage(f"t{place}", "river " * words) for place in range(50))
    prompts = model.render(leave_one_outs(Request(FORM, "who built the bridge", passages)))
    model.begin(model.arrange(prompts))
    estimate = model.memory_estimate(FORM)
    with HeldMemory() as shared:
        model.generate(prompts)
    without_tables(monkeypatch)
    with HeldMemory() as copied:
        model.generate(prompts)
    longest = max(prompt.length for prompt in prompts)
    size = len(prompts) * longest * model.settings.d_model * 4
    assert shared.peak < size / 2
    assert copied.peak > size
    assert shared.peak < len(prompts) * (longest * estimate.token + estimate.row)
