"""Initialisation by which a T5 encoder marks, from the first step, which words of a passage occur in its question.

From random weights, a network would have to learn at once whether a token is in the question and whether an equal
one occurs elsewhere. Here both are built in, as attention and a few reserved coordinates of the residual stream (on
programs compiled into weights: Lindner et al., "Tracr", NeurIPS 2023). With M marks (question, title, context):

- ``CONSTANT``: equal in every embedding, so that a head can have the same query for every token;
- *inside*, M coordinates: a head of the first layer (the reading head) attends back to the marks; a token of the
  question sees one of them, of the title two, of the text three, with equal weights;
- *matched*, M: from the second layer on, heads that attend to equal tokens write what those are inside of;
- *before* and *behind*, M each: *matched* of the two neighbours;
- *about*, M: from the third layer on, the reading head attends back to the title and copies how well it is matched to
  every token of the text.

This is only the initialisation: training changes every weight.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

CONSTANT = 0
CONSTANT_SIZE = 4.0
INSIDE_SIZE = 4.0
READING_LOGIT = 8.0
TITLE_LOGIT = 2.0
NOT_AHEAD_BIAS = -8.0
LEAST_WIDTH = 4
"""Notes take at most a quarter of the model's width."""


class Notes(NamedTuple):
    """The first coordinate of each note."""

    inside: int
    matched: int
    before: int
    behind: int
    about: int


@torch.no_grad()
def note_matches(model: Any, marks: Sequence[int]) -> None:
    """Build the notes into the encoder of a T5 from `start_near_copying`, in place; do nothing if it is too small.

    ``marks`` are tokens of the prompt in their order: question, title, context.
    """
    blocks = [block.layer[0].SelfAttention for block in model.encoder.block]
    heads, size = blocks[0].n_heads, blocks[0].key_value_proj_dim
    num_reserved = 1 + len(Notes._fields) * len(marks)
    if heads < 4 or size < len(marks) or model.config.d_model < LEAST_WIDTH * num_reserved:
        return
    notes = Notes(*range(1, num_reserved, len(marks)))
    # embeddings and the outputs of all layers leave these coordinates to the notes
    model.shared.weight[:, :num_reserved] = 0
    model.shared.weight[:, CONSTANT] = CONSTANT_SIZE
    for block in model.encoder.block:
        block.layer[0].SelfAttention.o.weight[:num_reserved] = 0
        block.layer[1].DenseReluDense.wo.weight[:num_reserved] = 0
    _read_marks(blocks[0], model.shared.weight, marks, notes)
    for attention in blocks[1:]:
        for head in range(heads // 4):
            _pass_on(attention, head, notes.inside, notes.matched, len(marks))
        for head, note in zip(range(heads // 4, heads // 2), (notes.before, notes.behind), strict=False):
            _pass_on(attention, head, notes.matched, note, len(marks))
    for attention in blocks[2:]:
        _read_title(attention, notes, len(marks))


def _read_marks(attention: Any, embeddings: torch.Tensor, marks: Sequence[int], notes: Notes) -> None:
    head, rows = _reading_head(attention)
    words = embeddings[list(marks)].clone()
    words[:, CONSTANT] = 0
    # each has inner product 1 with its mark and 0 with the other marks
    words = torch.linalg.pinv(words).T
    _set_constant_query(attention, rows, READING_LOGIT / CONSTANT_SIZE)
    attention.k.weight[rows.start] = words.sum(0)
    attention.v.weight[rows], attention.o.weight[:, rows] = 0, 0
    numbers = torch.arange(len(words))
    attention.v.weight[rows.start + numbers] = words
    attention.o.weight[notes.inside + numbers, rows.start + numbers] = INSIDE_SIZE
    bias = attention.relative_attention_bias.weight
    # the second half of the buckets is that of tokens ahead
    bias[:, head] = 0
    bias[len(bias) // 2 :, head] = NOT_AHEAD_BIAS


def _read_title(attention: Any, notes: Notes, num_marks: int) -> None:
    """Attend to tokens of the title: those that have seen its mark, and not yet that of the text."""
    head, rows = _reading_head(attention)
    _set_constant_query(attention, rows, 1.0)
    title, text = notes.inside + num_marks - 2, notes.inside + num_marks - 1
    attention.k.weight[rows.start] = 0
    attention.k.weight[rows.start, [title, text]] = torch.tensor([TITLE_LOGIT, -2 * TITLE_LOGIT])
    _pass_on(attention, head, notes.matched, notes.about, num_marks)


def _pass_on(attention: Any, head: int, source: int, target: int, num_marks: int) -> None:
    """Let a head copy a note of the tokens that it attends to into another note."""
    numbers = torch.arange(num_marks)
    rows = head * attention.key_value_proj_dim + numbers
    attention.v.weight[rows], attention.o.weight[:, rows] = 0, 0
    attention.v.weight[rows, source + numbers] = 1
    attention.o.weight[target + numbers, rows] = 1


def _set_constant_query(attention: Any, rows: slice, size: float) -> None:
    """Give every token the same query."""
    attention.q.weight[rows] = 0
    attention.q.weight[rows.start, CONSTANT] = size


def _reading_head(attention: Any) -> tuple[int, slice]:
    """Return the number of the head that reads, and its rows."""
    head, size = attention.n_heads // 2, attention.key_value_proj_dim
    return head, slice(head * size, (head + 1) * size)
