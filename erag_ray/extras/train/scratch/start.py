"""The model that training starts from: a new T5 with its tokenizer, or the given one; either is checked."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping

import pyarrow as pa
import tokenizers
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from erag_ray.extras.train.checkpoints import written_whole
from erag_ray.extras.train.config import ScratchConfig, TrainConfig
from erag_ray.extras.train.data.examples import Examples
from erag_ray.extras.train.reader import form_for, t5_model
from erag_ray.extras.train.scratch.copying import start_near_copying
from erag_ray.models.local.weights import quiet
from erag_ray.prompts.prompt import T5, pieces
from erag_ray.prompts.request import Passage
from erag_ray.support.errors import InputError

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n"]
NOT_T5 = ("vocab_size", "dtype")
MAX_TEXTS = 400_000
TEMPLATE = [piece.text for piece in pieces(T5, "", [Passage("a", "a")]) if piece.kind == "template"]
"""The words of the prompt, which open question, title and text."""


def prepare_start(config: TrainConfig, examples: Mapping[str, Examples]) -> None:
    """Create the model with ``scratch``, unless it exists, and check it.

    Raises:
        InputError: it cannot be created, or is not a reader for these datasets.
    """
    reader = config.start_reader
    model = str(reader.model)
    if config.scratch and not pathlib.Path(model).exists():
        make_model(config.scratch, examples["train"], config.seed, pathlib.Path(model))
    problems: list[str] = []
    for dataset in {**examples["dev"].datasets, **examples["train"].datasets}.values():
        try:
            start = t5_model(reader)
            start.check(form_for(reader, dataset))
            if not start.end:
                problems.append(f"reader.model: the tokenizer of {model} has no end token")
        except (InputError, ValueError) as error:
            problems += error.problems if isinstance(error, InputError) else [f"reader.prompt: {error}"]
    if problems:
        raise InputError(list(dict.fromkeys(problems)))


def make_model(scratch: ScratchConfig, examples: Examples, seed: int, folder: pathlib.Path) -> None:
    """Train a tokenizer on the examples' text, initialise weights (`start_near_copying`), and save both.

    Raises:
        InputError: T5 does not allow these sizes.
    """
    quiet()
    tokenizer = train_tokenizer(_texts(examples), scratch.vocab_size)
    try:
        sizes = {name: value for name, value in dataclasses.asdict(scratch).items() if name not in NOT_T5}
        settings = sizes | {
            "vocab_size": len(tokenizer),
            "tie_word_embeddings": True,
            "pad_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "decoder_start_token_id": tokenizer.pad_token_id,
        }
        torch.manual_seed(seed)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**settings))
        # the template's words; none if any of them is not a single token
        marks = [tokenizer.encode(text.strip(" :"), add_special_tokens=False) for text in TEMPLATE]
        start_near_copying(model, [ids[0] for ids in marks] if all(len(ids) == 1 for ids in marks) else [])
    except (ValueError, KeyError, StrictDataclassError) as error:
        raise InputError([f"scratch: T5 does not allow these sizes: {error}"]) from error
    with written_whole(folder) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> transformers.PreTrainedTokenizerFast:
    """Train a BPE tokenizer: words and numbers keep their leading blank and case, punctuation marks are separate.

    Decoding restores text of known characters exactly, except for leading blanks.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END, UNKNOWN],
        initial_alphabet=CHARACTERS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )


def _texts(examples: Examples) -> Iterator[str]:
    """Yield template words, questions, answers and passages (an even sample if there are very many)."""
    for batch in examples.table.select(["question", "answers"]).to_batches(max_chunksize=1000):
        for record in batch.to_pylist():
            yield from (f"{' '.join(TEMPLATE)} {record['question']}", *record["answers"])
    rows = range(0, examples.corpus.num_rows, max(1, examples.corpus.num_rows // MAX_TEXTS))
    for start in range(0, len(rows), 1000):
        part = examples.corpus.select(["title", "text"]).take(pa.array(rows[start : start + 1000]))
        for record in part.to_pylist():
            yield from (record["title"], record["text"])
