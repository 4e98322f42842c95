"""Where training starts: a T5 from scratch with a tokenizer of its own, in an ordinary model folder."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import tokenizers
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from erag_ray.errors import InputError
from erag_ray.models.local import quiet
from erag_ray.requests import T5, Passage, pieces
from erag_ray.train.config import ScratchConfig
from erag_ray.train.data.examples import Examples
from erag_ray.train.scratch.copying import start_near_copying

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n"]
NOT_T5 = ("vocab_size", "dtype")
MAX_TEXTS = 400_000


def make_model(scratch: ScratchConfig, examples: Examples, seed: int, folder: pathlib.Path) -> None:
    """Train a tokenizer on the examples' text, draw weights that learn to copy soon, and save both.

    Raises:
        InputError: T5 has no model of this form.
    """
    quiet()
    tokenizer = train_tokenizer(_texts(examples), scratch.vocab_size)
    try:
        settings: dict[str, Any] = {
            **{name: value for name, value in dataclasses.asdict(scratch).items() if name not in NOT_T5},
            "vocab_size": len(tokenizer),
            "tie_word_embeddings": True,
            "pad_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "decoder_start_token_id": tokenizer.pad_token_id,
        }
        config = transformers.T5Config(**settings)
        torch.manual_seed(seed)
        model = transformers.T5ForConditionalGeneration(config)
        start_near_copying(model, _marks(tokenizer))
    except (ValueError, KeyError, StrictDataclassError) as error:
        raise InputError([f"scratch: T5 has no model of this form: {error}"]) from error
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _template() -> list[str]:
    """The words of ours in a prompt: where the question, a title and a text begin."""
    return [piece.text for piece in pieces(T5, "", [Passage("a", "a")]) if piece.kind == "template"]


def _marks(tokenizer: transformers.PreTrainedTokenizerFast) -> list[int]:
    """Their tokens; none if the tokenizer has not all of them whole."""
    found = [tokenizer.encode(text.strip(" :"), add_special_tokens=False) for text in _template()]
    return [ids[0] for ids in found] if all(len(ids) == 1 for ids in found) else []


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> transformers.PreTrainedTokenizerFast:
    """Byte pairs of characters: words and numbers keep their blank and case, punctuation marks stand alone.

    Text of known characters comes back from its tokens as it was (blanks at its start aside).
    """
    made = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")]
    )
    made.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END, UNKNOWN],
        initial_alphabet=CHARACTERS,
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, made.token_to_id(END))]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )


def _texts(examples: Examples) -> Iterator[str]:
    """Prompts' words, questions, answers and passages; of very many passages an even sample."""
    template = " ".join(_template())
    for batch in examples.table.select(["question", "answers"]).to_batches(max_chunksize=1000):
        for record in batch.to_pylist():
            yield from (f"{template} {record['question']}", *record["answers"])
    step = max(1, examples.corpus.num_rows // MAX_TEXTS)
    for start in range(0, examples.corpus.num_rows, 1000 * step):
        rows = pa.array(range(start, min(start + 1000 * step, examples.corpus.num_rows), step))
        for record in examples.corpus.select(["title", "text"]).take(rows).to_pylist():
            yield from (record["title"], record["text"])
