"""The engine against transformers' own encoder and `generate`, over kinds of T5, batches, windows and orders."""

import copy
import itertools
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import models
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.modeling_outputs import BaseModelOutput

from erag_ray.models.local import model as local
from erag_ray.models.local.memory import Limits
from erag_ray.models.local.model import LocalModel
from erag_ray.models.t5.attention import KERNEL_TOKENS, SEGMENTWISE_TOKENS, token_mask
from erag_ray.models.t5.encoder_cache import EncoderStates, Padded, padded
from erag_ray.models.t5.engine import Engine
from erag_ray.prompts.request import Passage, Request

KINDS: dict[str, dict[str, Any]] = {
    "t5": {},
    "t5 1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gated, tied": {"feed_forward_proj": "gated-gelu"},
    "relu, untied": {"tie_word_embeddings": False},
    "mt5": {"kind": "mt5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    # a table of position biases in every layer
    "umt5": {"kind": "umt5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "near and far": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    "wide heads": {"d_kv": 16, "num_heads": 3, "num_layers": 3, "num_decoder_layers": 1},
}
Made = tuple[Any, Engine]


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = models.t5_folder(tmp_path_factory.mktemp("t5"), **KINDS[request.param])
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, Engine(model)


def segments_of(lengths: Sequence[int], seed: int = 0) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [tuple(rng.randint(3, 60) for _ in range(length)) for length in lengths]


@torch.inference_mode()
def encoded(model: Any, segments: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    ids, lengths, _ = padded(segments)
    is_token = token_mask(lengths, ids.shape[1], ids.device)
    return model.encoder(input_ids=ids, attention_mask=is_token.long()).last_hidden_state, is_token


def fused(states: torch.Tensor, is_state: torch.Tensor) -> EncoderStates:
    return EncoderStates(states, is_state.sum(dim=1).tolist())


@pytest.mark.long
@settings(max_examples=20)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_states_are_those_of_the_library(made: Made, lengths: list[int]) -> None:
    model, engine = made
    expected, is_token = encoded(model, segments_of(lengths))
    torch.testing.assert_close(
        engine.encode(padded(segments_of(lengths))), expected[is_token], rtol=1e-4, atol=1e-5
    )


@pytest.mark.long
def test_states_of_long_segments_are_as_exact_as_the_librarys(made: Made) -> None:
    model, engine = made
    some = segments_of([KERNEL_TOKENS + 90, KERNEL_TOKENS, SEGMENTWISE_TOKENS + 30, 3])
    by_library, is_token = encoded(model, some)
    exact = encoded(copy.deepcopy(model).double(), some)[0][is_token].float()
    # sums over so many tokens differ by more than those over few
    error, allowed = (
        (states - exact).abs().max() for states in (engine.encode(padded(some)), by_library[is_token])
    )
    assert error < 1.5 * allowed < 0.01


@torch.inference_mode()
def generated(model: Any, states: torch.Tensor, is_state: torch.Tensor, most: int) -> list[list[int]]:
    settings = transformers.GenerationConfig(
        max_new_tokens=most,
        do_sample=False,
        num_beams=1,
        eos_token_id=1,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    outputs = BaseModelOutput(last_hidden_state=states)
    ids = model.generate(encoder_outputs=outputs, attention_mask=is_state.long(), generation_config=settings)
    rows = ids[:, 1:].tolist()
    return [row[: row.index(1) + 1] if 1 in row else row for row in rows]


@pytest.mark.long
@settings(max_examples=20)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(1, 12), st.integers(0, 5))
def test_outputs_are_those_of_generate(made: Made, lengths: list[int], most: int, seed: int) -> None:
    model, engine = made
    states, is_state = encoded(model, segments_of(lengths, seed))
    expected = generated(model, states, is_state, most)
    assert engine.decode(fused(states, is_state), start=0, ends=[1], most=most) == expected


@pytest.mark.long
def test_rows_leave_at_different_steps(made: Made) -> None:
    model, engine = made
    states, is_state = encoded(model, segments_of([3, 9, 14, 20, 22, 25, 31, 40] * 6, 3))
    found = engine.decode(fused(states, is_state), start=0, ends=[1], most=30)
    assert found == generated(model, states, is_state, 30)
    assert len({len(row) for row in found}) > 1


# --- windows ---


FORMS = {kind: models.form_for(kind) for kind in ("fid", "ipa")}


def outputs(model: LocalModel, requests: Sequence[Request]) -> dict[int, tuple[str, int, int]]:
    found = list(model.run(requests))
    assert len(found) == len(requests)
    return {
        place: (str(response.text), response.num_output_tokens, response.num_prompt_tokens)
        for place, response in found
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fid", "ipa"])
def test_windows_change_no_output(kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.loaded(kind, models.t5_folder(tmp_path))
    asked = models.some_requests(FORMS[kind], 60)
    # each three ask one question, that of the first of them
    questions = [f"{number // 3} {asked[number // 3 * 3].question}" for number in range(60)]
    requests = [one._replace(question=text) for one, text in zip(asked, questions, strict=True)]
    # lists of one, and all of them together, share their segments
    shared = [request._replace(passages=request.passages[:1]) for request in requests]
    everything = [one for pair in zip(requests, shared, strict=True) for one in pair]
    expected = outputs(model, everything)
    assert len({text for text, _, _ in expected.values()}) > 30
    for most, at_once in ((1, 1), (150, 7), (2000, 50), (10**6, 256)):
        monkeypatch.setattr(Engine, "window_tokens", lambda self, most=most: most)
        monkeypatch.setattr(local, "TOKENISED_ROWS", at_once)
        assert outputs(model, everything) == expected
        windows = list(model.windows(requests))
        assert [prompt for _, window in windows for prompt in window] == model.render(requests)
        lengths = [len(window) for _, window in windows]
        assert [start for start, _ in windows] == list(itertools.accumulate([0, *lengths[:-1]]))
        # a question is never cut
        assert all(start % 3 == 0 for start, _ in windows)
        assert all(
            length == 3 or sum(map(len, {part for prompt in window for part in prompt.segments})) <= most
            for length, (_, window) in zip(lengths, windows, strict=True)
        )


def encoded_segments(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return a list to which every segment is added that an engine encodes from now on."""
    encode, seen = Engine.encode, list[tuple[int, ...]]()

    def counted(self: Engine, batch: Padded) -> torch.Tensor:
        rows = zip(batch.ids.tolist(), batch.lengths, strict=True)
        seen.extend(tuple(ids[:length]) for ids, length in rows)
        return encode(self, batch)

    monkeypatch.setattr(Engine, "encode", counted)
    return seen


def test_each_distinct_segment_of_a_window_is_encoded_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.loaded("fid", models.t5_folder(tmp_path))
    seen = encoded_segments(monkeypatch)
    requests = models.some_requests(FORMS["fid"], 40)
    alone = [request._replace(passages=(passage,)) for request in requests for passage in request.passages]
    outputs(model, [*requests, *alone])
    assert len(seen) == len(set(seen))


def test_leave_one_outs_encode_nothing_more_than_their_list(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.loaded("fid", models.t5_folder(tmp_path))
    passages = tuple(Passage(f"t{number}", f"river {number}") for number in range(50))
    whole = Request(FORMS["fid"], "who built the bridge", passages)
    without = [
        whole._replace(passages=passages[:number] + passages[number + 1 :]) for number in range(len(passages))
    ]
    expected = [outputs(model, [request])[0] for request in (without[0], without[49])]
    seen = encoded_segments(monkeypatch)
    answers = outputs(model, [whole, *without])
    assert len(seen) == len(set(seen)) == 50
    assert [answers[1], answers[50]] == expected


@pytest.mark.long
def test_a_window_without_memory_is_read_batch_by_batch(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.loaded("fid", models.t5_folder(tmp_path))
    requests = models.some_requests(FORMS["fid"], 40)
    expected = outputs(model, requests)
    encode = Engine.encode

    def small(self: Engine, segments: Sequence[tuple[int, ...]]) -> torch.Tensor:
        if sum(map(len, segments)) > 200:
            raise MemoryError
        return encode(self, segments)

    monkeypatch.setattr(Engine, "encode", small)
    models.keep_to(model, FORMS["fid"], Limits(rows=32, tokens=1000))
    assert outputs(model, requests) == expected


@pytest.mark.parametrize("kind", ["t5", "umt5"])
@pytest.mark.parametrize("settings", [{}, {"feed_forward_proj": "gated-gelu"}])
def test_the_engine_and_the_model_hold_the_same_weights_once(
    tmp_path: pathlib.Path, kind: str, settings: dict[str, Any]
) -> None:
    folder = models.t5_folder(tmp_path, kind=kind, **settings)
    plain = models.loaded("fid", folder)
    plain.uses_engine = False
    plain.load()
    model = models.loaded("fid", folder)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.model.parameters()}
    for stack in (model.engine.encoder, model.engine.decoder):
        for block in stack.blocks:
            weights = [
                block.self_attention.projections,
                block.self_attention.out,
                block.feed.inner,
                block.feed.out,
            ]
            assert {part.untyped_storage().data_ptr() for part in weights} <= own
    held = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.model.parameters()}
    assert sum(held.values()) == sum(p.untyped_storage().nbytes() for p in plain.model.parameters())
    for one, other in zip(model.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_change_of_gelu_concerns_the_models_that_have_it_alone(tmp_path: pathlib.Path) -> None:
    plain = models.loaded("fid", models.t5_folder(tmp_path / "plain"))
    gated = models.loaded("fid", models.t5_folder(tmp_path / "gated", feed_forward_proj="gated-gelu"))
    by_library = models.loaded("fid", gated.config.model, dtype="float16")
    assert ["gelu_new" in one.fingerprint_fields() for one in (plain, gated, by_library)] == [
        False,
        True,
        False,
    ]
