"""Attention of segments, in every way that it is done, against the formula."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from erag_ray.models.t5 import attention
from erag_ray.models.t5.attention import (
    KERNEL_TOKENS,
    SEGMENTWISE_TOKENS,
    BatchedAttention,
    SegmentwiseAttention,
    attention_for,
    bias_matrix,
    reversed_bias_matrix,
    token_mask,
)

HEADS, HEAD = 3, 4


def by_formula(projected: torch.Tensor, line: torch.Tensor) -> torch.Tensor:
    """Of one segment [tokens, 3, heads, head], token by token, in float64."""
    query, key, value = projected.double().unbind(1)
    length, middle = len(projected), line.shape[1] // 2
    rows = []
    for token in range(length):
        scores = torch.einsum("hd,thd->ht", query[token], key)
        scores += line.double()[:, middle - token : middle - token + length]
        rows.append(torch.einsum("ht,thd->hd", scores.softmax(dim=-1), value))
    return torch.stack(rows).flatten(1)


def some(
    lengths: list[int], dtype: torch.dtype = torch.float32, padding: int = 0
) -> tuple[torch.Tensor, dict[int, torch.Tensor], torch.Tensor]:
    torch.manual_seed(sum(lengths))
    longest = max(lengths) + padding
    projected = torch.randn(len(lengths), longest, 3, HEADS, HEAD, dtype=dtype)
    is_token = token_mask(lengths, longest, torch.device("cpu"))
    line = torch.randn(HEADS, 2 * longest - 1, dtype=dtype)
    return projected, {7: line, 8: torch.zeros_like(line)}, is_token


def check(lengths: list[int], dtype: torch.dtype = torch.float32, padding: int = 0) -> None:
    projected, biases, _ = some(lengths, dtype, padding)
    width = projected.shape[1]
    attend = attention_for(biases, lengths, width)
    near = {torch.float32: 1e-5, torch.bfloat16: 3e-2}[dtype]
    for name in (7, 8, 7):
        found = attend(projected, name)
        assert found.shape == (len(lengths), width, HEADS * HEAD)
        for row, length in enumerate(lengths):
            expected = by_formula(projected[row, :length], biases[name]).to(dtype)
            torch.testing.assert_close(found[row, :length], expected, atol=near, rtol=10 * near)


@pytest.mark.parametrize(
    "lengths",
    [[1], [5, 5], [9, 1, 4], [SEGMENTWISE_TOKENS - 1, 3], [SEGMENTWISE_TOKENS], [SEGMENTWISE_TOKENS, 1, 40],
     [KERNEL_TOKENS - 1, 2], [KERNEL_TOKENS], [2 * KERNEL_TOKENS, KERNEL_TOKENS],
     [KERNEL_TOKENS + 1, KERNEL_TOKENS, KERNEL_TOKENS - 1, SEGMENTWISE_TOKENS, 1]],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_token_attends_to_all_of_its_segment(lengths: list[int], dtype: torch.dtype) -> None:
    check(lengths, dtype)


def test_a_pass_wider_than_its_longest_segment_gives_the_same() -> None:
    check([9, 1, 4], padding=7)
    check([8, 8], padding=8)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(1, 12), st.integers(0, 12))
def test_where_the_ways_part_changes_nothing(lengths: list[int], one_by_one: int, further: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "SEGMENTWISE_TOKENS", one_by_one)
        patch.setattr(attention, "KERNEL_TOKENS", one_by_one + further)
        check(lengths)


def test_what_is_behind_a_segment_changes_nothing() -> None:
    lengths = [KERNEL_TOKENS + 5, SEGMENTWISE_TOKENS + 5, 30]
    for way in (lengths, [30, 10, 3]):
        projected, biases, is_token = some(way)
        before = attention_for(biases, way, projected.shape[1])(projected, 7)
        projected[~is_token] = 1e4
        after = attention_for(biases, way, projected.shape[1])(projected, 7)
        assert torch.equal(after[is_token], before[is_token])


def test_short_segments_go_together_and_others_one_by_one() -> None:
    for longest, kind in (
        (SEGMENTWISE_TOKENS - 1, BatchedAttention),
        (SEGMENTWISE_TOKENS, SegmentwiseAttention),
    ):
        _, biases, _ = some([longest, 3])
        assert isinstance(attention_for(biases, [longest, 3], longest), kind)


def test_nothing_of_a_long_segment_is_made_for_each_pair_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(biases: torch.Tensor, length: int) -> torch.Tensor:
        assert length < KERNEL_TOKENS
        return bias_matrix(biases, length)

    monkeypatch.setattr(attention, "bias_matrix", small)
    # the kernel refuses what it cannot do
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        check([KERNEL_TOKENS + 1, KERNEL_TOKENS, 4])


def test_one_table_at_a_time_is_made_for_each_pair_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for lengths in ([5, 3], [SEGMENTWISE_TOKENS, 3]):
        projected, biases, _ = some(lengths)
        made = []
        monkeypatch.setattr(attention, "bias_matrix", lambda *given: made.append(1) or bias_matrix(*given))  # noqa: B023
        attend = attention_for(biases, lengths, projected.shape[1])
        assert not made
        for name in (7, 7, 8, 8):
            attend(projected, name)
        assert len(made) == 2


def test_a_long_segments_biases_take_no_memory() -> None:
    line = torch.randn(HEADS, 2 * 1000 - 1)
    for length in (1, 10, 1000):
        view = reversed_bias_matrix(line, length)
        assert view.shape == (HEADS, length, length)
        assert view.untyped_storage().data_ptr() == line.untyped_storage().data_ptr()
        assert torch.equal(view.flip(1), bias_matrix(line, length))
    assert torch.equal(
        bias_matrix(line, 3)[0], torch.stack([line[0, 999 - row : 1002 - row] for row in range(3)])
    )
