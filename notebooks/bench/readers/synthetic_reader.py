"""Questions and passages of made-up words, and a T5 of random weights that knows each word as a token."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers

SHAPE: dict[str, Any] = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
START: dict[str, Any] = {"decoder_start_token_id": 0}
NUM_WORDS, WORDS, QUESTION_WORDS = 32_000, (90, 170), 12


def write_model(folder: pathlib.Path, seed: int) -> str:
    """A T5 of T5-small's shape with its tokenizer; the folder."""
    control = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    words = ["question:", "title:", "context:", *dict.fromkeys(_words(seed))]
    tokenizer = transformers.T5Tokenizer(vocab=[*control, *((f"▁{word}", -9.0) for word in words)])
    torch.manual_seed(seed)
    settings = transformers.T5Config(vocab_size=len(tokenizer), **SHAPE, **START)
    model = transformers.T5ForConditionalGeneration(settings)
    # as they are initialised all outputs are alike; with queries as large as the rest, rounding changes them
    for name, weights in model.named_parameters():
        if weights.dim() == 2 and "shared" not in name:
            small = settings.d_kv**-0.5 if name.endswith(".q.weight") else 1.0
            torch.nn.init.normal_(weights, std=2.5 * small * weights.shape[1] ** -0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def _words(seed: int) -> list[str]:
    letters = np.random.default_rng(seed).integers(97, 123, size=(NUM_WORDS, 6)).astype(np.uint8)
    return [bytes(row).decode() for row in letters]


def lists(
    num_questions: int,
    depth: int,
    seed: int,
    words: tuple[int, int] | None = None,
    known: Sequence[str] | None = None,
) -> dict[str, list[str]]:
    """Questions, each with so many passages of so many words (least, most); of the model's own unless given."""
    words, known = words or WORDS, known or _words(seed)
    all_words, generator = np.array(known, dtype=object), np.random.default_rng(seed + 1)

    def text(count: int) -> str:
        return " ".join(all_words[generator.integers(len(all_words), size=count)])

    lengths = generator.integers(words[0], words[1] + 1, size=(num_questions, depth))
    return {text(QUESTION_WORDS): [text(length) for length in row] for row in lengths}


def write_files(folder: pathlib.Path, texts_of: dict[str, list[str]]) -> dict[str, Any]:
    """The same as files of a job; the keys of its config that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    queries, passages, run = (folder / name for name in ("queries.jsonl", "passages.jsonl", "run.trec"))
    with queries.open("w") as query_file, passages.open("w") as texts, run.open("w") as ranked:
        for number, (question, passage_texts) in enumerate(texts_of.items()):
            output = [{"answer": "none"}]
            query_file.write(json.dumps({"id": f"q{number}", "input": question, "output": output}) + "\n")
            for rank, text in enumerate(passage_texts, 1):
                doc_id = f"d{number}-{rank}"
                texts.write(
                    json.dumps({"doc_id": doc_id, "page_id": doc_id, "title": "", "text": text}) + "\n"
                )
                ranked.write(f"q{number} Q0 {doc_id} {rank} {-rank} made_up\n")
    names = {"queries": [str(queries)], "passages": [str(passages)], "runs": {"made_up": str(run)}}
    return {**names, "dataset": "nq"}
