"""A new model: what its encoder notes of matches, and how its attention copies, finds equal tokens and neighbours."""

from collections.abc import Sequence

import pytest
import torch
import transformers

from erag_ray.extras.train.scratch.copying import start_near_copying
from erag_ray.extras.train.scratch.matching import CONSTANT, CONSTANT_SIZE, INSIDE_SIZE, Notes

QUESTION, TITLE, TEXT = MARKS = (3, 4, 5)
#             question          title     text
IDS = torch.tensor([[QUESTION, 10, 11, 12, TITLE, 11, 20, TEXT, 30, 12, 31, 32]])
NOTES = Notes(1, 4, 7, 10, 13)


def started(marks: Sequence[int] = MARKS, **sizes: int) -> transformers.T5ForConditionalGeneration:
    torch.manual_seed(0)
    settings = {"vocab_size": 300, "d_model": 128, "d_kv": 16, "d_ff": 64, "num_heads": 8, **sizes}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**settings)).eval()
    start_near_copying(model, marks)
    return model


@pytest.fixture(scope="module")
def states() -> list[torch.Tensor]:
    """Hidden states [tokens, width] after each layer, feed-forward layers off."""
    model = started(num_layers=4, num_decoder_layers=1)
    for block in model.encoder.block:
        block.layer[1].DenseReluDense.wo.weight.data.zero_()
    found = model.encoder(input_ids=IDS, output_hidden_states=True).hidden_states
    return [layer[0].detach() for layer in found]


def test_every_embedding_keeps_the_notes_free(states: list[torch.Tensor]) -> None:
    assert (states[0][:, CONSTANT] == CONSTANT_SIZE).all()
    assert (states[0][:, 1:16] == 0).all()


def test_a_token_notes_what_it_is_inside_of(states: list[torch.Tensor]) -> None:
    inside = states[1][:, 1:4] / INSIDE_SIZE
    expected = {1: (1, 0, 0), 3: (1, 0, 0), 6: (1 / 2, 1 / 2, 0), 8: (1 / 3, 1 / 3, 1 / 3)}
    for place, shares in expected.items():
        torch.testing.assert_close(inside[place], torch.tensor(shares).float(), atol=0.06, rtol=0)


def test_a_token_notes_where_an_equal_one_stands(states: list[torch.Tensor]) -> None:
    question_share = states[2][:, NOTES.matched] / states[2][:, NOTES.matched : NOTES.before].sum(1)
    # 11 in the title and 12 in the text stand in the question too; 20, 30, 31 and 32 do not
    assert question_share[[5, 9]].min() > question_share[[6, 8, 10, 11]].max() + 0.1


def test_neighbours_and_the_whole_text_learn_of_it(states: list[torch.Tensor]) -> None:
    before = states[3][:, NOTES.before]
    assert before[10] > before[11]
    # the title is matched: its note reaches all of the text alike
    about = states[4][8:, NOTES.about]
    assert about.std() < 0.1 * about.mean()


@pytest.mark.parametrize("changes", [{"num_heads": 2}, {"d_kv": 2}, {"d_model": 56}])
def test_a_model_too_small_for_notes_has_none(changes: dict[str, int]) -> None:
    assert (started(num_layers=2, **changes).shared.weight[:, 1] != 0).any()


def test_what_the_decoder_attends_to_comes_back_unchanged() -> None:
    attention = started((), num_layers=2).decoder.block[0].layer[1].EncDecAttention
    state = torch.randn(1, 1, 128)
    found = attention(torch.randn(1, 1, 128), key_value_states=state)[0]
    torch.testing.assert_close(found, state, rtol=1e-4, atol=1e-4)


def test_the_first_heads_attend_to_equal_tokens_elsewhere_and_the_next_to_neighbours() -> None:
    copying_model = started((), num_layers=2)
    copying_model.set_attn_implementation("eager")
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 7, 12, 13]])
    (first, *_) = copying_model.encoder(input_ids=ids, output_attentions=True).attentions
    weights = first[0].detach()
    for head in (0, 1):
        assert weights[head, 2].argmax() == 7
        assert weights[head, 2, 2] < 0.01
    assert weights[2, 4].argmax() == 3
    assert weights[3, 4].argmax() == 5
