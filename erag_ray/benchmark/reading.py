"""Reading, measured: lists of one through our reader, against the package erag that drives transformers' generate.

The model has T5-small's shape and random weights; its words are invented, each a token of its own. Both sides get the
same questions and passages as text, tokenise, read and decode; loading and one warming batch are not timed.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import erag
import numpy as np
import polars as pl
import torch
import transformers

from erag_ray.benchmark.timing import Row, rounds, seconds_of
from erag_ray.config import BenchmarkConfig, ReaderConfig
from erag_ray.readers import Reader, make_reader, reader_id
from erag_ray.readers.models import quiet
from erag_ray.requests import ReaderUse, as_lists_of_one, build_asks, build_requests, documents_of, to_read
from erag_ray.store import KEY_COLUMNS

SHAPE: dict[str, Any] = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
START: dict[str, Any] = {"decoder_start_token_id": 0}
NUM_WORDS, WORDS, ASKED = 32_000, (90, 170), 12
MOST_TOKENS, NEW_TOKENS, PEER_BATCH = 250, 8, 32
DATASET = "nq"
Texts = Mapping[str, Sequence[str]]


def readings(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """So many (question, passage) pairs, ten for each question: from their texts to outputs.

    The peer reads them in batches of 32 in the order in which the package erag asks for them, padded to the longest of
    each, as its README shows; ours as a job does.

    Raises:
        ValueError: an output differs.
    """
    quiet()
    folder = _write_model(pathlib.Path(config.out, "t5-small"), config.seed)
    lists = _lists(size, config.seed)
    ours, theirs = _ours(folder, lists), _peer(folder, lists)
    seconds_of(ours)
    _check_same(ours(), theirs())
    times = rounds({"erag_ray": ours, "erag + generate": theirs}, config.repeats)
    for name, some in times.items():
        ratios = [peer / own for own, peer in zip(times["erag_ray"], some, strict=True)]
        row = {"what": "lists of one, T5-small, float32", "by": name, "seconds": min(some), "count": size}
        yield {**row, "least_ratio": min(ratios), "most_ratio": max(ratios)}


def _write_model(folder: pathlib.Path, seed: int) -> str:
    control = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    words = ["question:", "title:", "context:", *dict.fromkeys(_words(seed))]
    tokenizer = transformers.T5Tokenizer(vocab=[*control, *((f"▁{word}", -9.0) for word in words)])
    torch.manual_seed(seed)
    settings = transformers.T5Config(vocab_size=len(tokenizer), **SHAPE, **START)
    model = transformers.T5ForConditionalGeneration(settings)
    # as they are initialised all outputs are alike
    for name, weights in model.named_parameters():
        if weights.dim() == 2 and "shared" not in name:
            torch.nn.init.normal_(weights, std=1.5 * weights.shape[1] ** -0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def _words(seed: int) -> list[str]:
    letters = np.random.default_rng(seed).integers(97, 123, size=(NUM_WORDS, 6)).astype(np.uint8)
    return [bytes(row).decode() for row in letters]


def _lists(size: int, seed: int) -> dict[str, list[str]]:
    """Questions, each with ten passages of 90 to 170 words."""
    words, generator = np.array(_words(seed), dtype=object), np.random.default_rng(seed + 1)

    def text(count: int) -> str:
        return " ".join(words[generator.integers(NUM_WORDS, size=count)])

    lengths = generator.integers(*WORDS, size=(size // 10, 10))
    return {text(ASKED): [text(length) for length in row] for row in lengths}


Outputs = dict[tuple[str, str], str]
"""(question, passage) -> what was said."""


def _ours(folder: str, lists: Texts) -> Callable[[], Outputs]:
    reader = make_reader(ReaderConfig(kind="fid", model=folder, max_new_tokens=NEW_TOKENS))
    reader.load()
    name = reader_id(reader)
    return lambda: _read(reader, name, lists)


def _read(reader: Reader, name: str, lists: Texts) -> Outputs:
    rows = [(question, text) for question, texts in lists.items() for text in texts]
    pairs = pl.DataFrame({"query_id": [row[0] for row in rows], "doc_id": [row[1] for row in rows]})
    corpus = pairs.select("doc_id", title=pl.lit(""), text="doc_id").unique(maintain_order=True)
    asked = pairs.select("query_id", dataset=pl.lit(DATASET), question="query_id").unique(maintain_order=True)
    queries = asked.with_columns(answers=pl.lit([], dtype=pl.List(pl.String)))
    documents = documents_of(corpus)
    use = {DATASET: ReaderUse(reader=name, order_matters=reader.order_matters)}
    asks = build_asks(as_lists_of_one(pairs), queries, documents, use)
    none = asks.select(KEY_COLUMNS).clear()
    new = to_read(asks, none, queries, documents, order_matters=reader.order_matters)
    said: list[pl.DataFrame] = [
        pl.DataFrame(part) for part in reader.read(build_requests(new, queries, documents), name)
    ]
    found = asks.join(pl.concat(said), on=KEY_COLUMNS).select(
        "query_id", pl.col("doc_ids").list.first(), "output"
    )
    return {(question, text): output for question, text, output in found.iter_rows()}


def _peer(folder: str, lists: Texts) -> Callable[[], Outputs]:
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = transformers.GenerationConfig(
        max_new_tokens=NEW_TOKENS, eos_token_id=1, pad_token_id=0, **START
    )

    @torch.inference_mode()
    def generate(prompts: list[str]) -> list[str]:
        inputs = tokenizer(
            prompts, return_tensors="pt", padding="longest", truncation=True, max_length=MOST_TOKENS
        )
        ids = model.generate(**inputs, generation_config=settings)
        return list(tokenizer.batch_decode(ids, skip_special_tokens=True))

    return lambda: _by_package(generate, lists)


def _by_package(generate: Callable[[list[str]], list[str]], lists: Texts) -> Outputs:
    said: Outputs = {}

    def texts_of(asked: Texts) -> dict[str, str]:
        rows = [(question, texts[0]) for question, texts in asked.items()]
        for start in range(0, len(rows), PEER_BATCH):
            some = rows[start : start + PEER_BATCH]
            prompts = [f"question: {question} context: {text}" for question, text in some]
            said.update(zip(some, generate(prompts), strict=True))
        return {question: said[question, text] for question, text in rows}

    def score(outputs: Mapping[str, str], golds: Any) -> dict[str, int]:
        return dict.fromkeys(outputs, 0)

    erag.eval(lists, {question: [""] for question in lists}, texts_of, score, {"P_10"})
    return {row: text.strip() for row, text in said.items()}


def _check_same(ours: Outputs, theirs: Outputs) -> None:
    other = sum(ours.get(row) != text for row, text in theirs.items())
    if other or len(ours) != len(theirs):
        raise ValueError(f"{other} of {len(theirs)} outputs differ")
    if len(set(ours.values())) < len(ours) // 2:
        raise ValueError("the outputs are too much alike to tell anything")
