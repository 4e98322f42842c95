"""Attention of a new model: it writes back what it reads, finds equal tokens, and looks at neighbours."""

from __future__ import annotations

import pytest
import torch
import transformers

from erag_ray.extras.train.scratch.copying import start_near_copying


@pytest.fixture
def model() -> transformers.T5ForConditionalGeneration:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=300, d_model=128, d_kv=16, d_ff=64, num_layers=2, num_decoder_layers=2, num_heads=8
    )
    made = transformers.T5ForConditionalGeneration(config).eval()
    start_near_copying(made)
    return made


def test_what_the_decoder_attends_to_comes_back_unchanged(
    model: transformers.T5ForConditionalGeneration,
) -> None:
    attention = model.decoder.block[0].layer[1].EncDecAttention
    state = torch.randn(1, 1, 128)
    found = attention(torch.randn(1, 1, 128), key_value_states=state)[0]
    torch.testing.assert_close(found, state, rtol=1e-4, atol=1e-4)


def test_the_first_heads_attend_to_equal_tokens_elsewhere_and_the_next_to_neighbours(
    model: transformers.T5ForConditionalGeneration,
) -> None:
    model.set_attn_implementation("eager")
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 7, 12, 13]])
    (first, *_) = model.encoder(input_ids=ids, output_attentions=True).attentions
    weights = first[0].detach()
    for head in (0, 1):
        assert weights[head, 2].argmax() == 7
        assert weights[head, 2, 2] < 0.01
    assert weights[2, 4].argmax() == 3
    assert weights[3, 4].argmax() == 5
