"""Reading, measured: lists of one through our reader, against the package erag that drives transformers' generate.

The model has T5-small's shape and random weights; its words are invented, each a token of its own. Both sides get the
same questions and passages as text, tokenise, read and decode, each in a process of its own; loading and one warming
round are not timed. The encoder alone is held against the bare products that it cannot do without.
"""

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import erag
import torch
import transformers

from bench.config import BenchmarkConfig
from bench.readers import roofline as floor
from bench.readers import synthetic_reader as invented
from bench.readers.engine_only import loaded
from bench.readers.isolated_process import Measured, in_turn_apart
from bench.timing import Row, timed
from erag_ray.config.reader import ReaderConfig
from erag_ray.models import Model, make_model
from erag_ray.models.local.devices import TF32, has_tf32
from erag_ray.models.local.linear import is_supported
from erag_ray.models.local.model import PromptTokens
from erag_ray.models.local.process import keep_freed_memory
from erag_ray.models.local.weights import quiet
from erag_ray.models.t5.encoder_cache import encode_all
from erag_ray.prompts.prompt import T5
from erag_ray.prompts.request import Form, Passage, Request

MOST_TOKENS, NEW_TOKENS, PEER_BATCH, PASSAGES = 250, 8, 32, 10
TUNED_TOKENS = 2048
"""Prompt tokens, padding included, in a batch of the tuned peer."""
FORM = Form(method="generate", prompt=T5, max_new_tokens=NEW_TOKENS)
PEER, TUNED = "erag + generate, float32", "transformers, tuned"
OURS, PRODUCTS = "erag_ray", "products alone"
TIES = 0.01
"""Where random weights give two words nearly the same score, the order of a sum decides."""
Texts = Mapping[str, Sequence[str]]


def readings(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Measure ``size`` (question, passage) pairs, ten a question: from texts to outputs, in every fast precision.

    One peer reads them in batches of at most 32 in the order in which the package erag asks for them (rank by rank, so
    that a batch is full from 320 pairs on), padded to the longest of each, as its README shows. The other is what a
    careful user of transformers writes: sorted by length, batches of `TUNED_TOKENS`, freed memory kept, in our
    precision. Ours reads as a job does.

    Raises:
        ValueError: of the outputs in float32 more than `TIES` differ.
    """
    quiet()
    folder = invented.write_model(pathlib.Path(config.out, "t5-small"), config.seed)
    texts = invented.lists(size // PASSAGES, PASSAGES, config.seed)
    makes: dict[str, Any] = {PEER: (_peer, (folder, texts))}
    for dtype in fast_precisions():
        makes[f"read {dtype}"] = (_ours, (folder, texts, dtype))
        if dtype in TUNED_DTYPES:
            makes[f"tuned {dtype}"] = (_tuned, (folder, texts, dtype))
        makes[f"encode {dtype}"] = (_encoder, (folder, texts, dtype))
        makes[f"products {dtype}"] = (_products, (folder, texts, dtype))
    measured = in_turn_apart(makes, config.repeats)
    same = _share_same(measured["read float32"].first, measured[PEER].first)
    for dtype in fast_precisions():
        sides = {OURS: measured[f"read {dtype}"], PEER: measured[PEER]}
        if dtype in TUNED_DTYPES:
            sides[TUNED] = measured[f"tuned {dtype}"]
        same_outputs = f" ({same:.1%} of the outputs the same)" if dtype == "float32" else ""
        yield from _rows(f"lists of one, T5-small, {dtype}{same_outputs}", sides, size)
        sides = {OURS: measured[f"encode {dtype}"], PRODUCTS: measured[f"products {dtype}"]}
        yield from _rows(f"encoder, T5-small, {dtype}", sides, size)


TUNED_DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Precisions that transformers has too."""


def fast_precisions() -> tuple[str, ...]:
    """float32, and what this machine multiplies faster in."""
    if torch.cuda.is_available():
        return ("float32", *[TF32] * has_tf32(), "bfloat16")
    has_bfloat16 = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return ("float32", *["bfloat16"] * has_bfloat16, *["int8"] * is_supported())


def _rows(what: str, sides: Mapping[str, Measured], size: int) -> Iterator[Row]:
    for name, measured in sides.items():
        row = {"what": what, "by": name, "count": size, "peak_memory_bytes": measured.peak_bytes}
        yield {**row, **timed(measured.seconds, sides[OURS].seconds)}


Outputs = dict[tuple[str, str], str]
"""(question, passage) -> what was said."""


def _ours(folder: str, lists: Texts, dtype: str) -> Callable[[], Outputs]:
    keep_freed_memory()
    model = loaded(_config(folder, dtype))
    return lambda: _read(model, lists)


def _config(folder: str, dtype: Any = "float32") -> ReaderConfig:
    return ReaderConfig(kind="fid", model=folder, dtype=dtype)


def _encoder(folder: str, lists: Texts, dtype: str) -> Callable[[], None]:
    """The states of all prompts, that were tokenised before."""
    keep_freed_memory()
    model: Any = loaded(_config(folder, dtype))
    engine, prompts = model.engine, model.render(_requests(lists))

    def work() -> None:
        encode_all(engine.encode, model.arrange(prompts))

    return work


def _requests(lists: Texts) -> list[Request]:
    """Every passage with its question, questions together."""
    return [
        Request(FORM, question, (Passage("", text),)) for question, texts in lists.items() for text in texts
    ]


def _products(folder: str, lists: Texts, dtype: str) -> Callable[[], None]:
    model: Any = make_model(_config(folder))
    prompts: Sequence[PromptTokens] = model.render(_requests(lists))
    lengths = [prompt.length for prompt in prompts]
    return floor.products(floor.encoder_operations(model.settings, lengths), dtype)


def _read(model: Model, lists: Texts) -> Outputs:
    requests = _requests(lists)
    return {
        (requests[index].question, requests[index].passages[0].text): str(response.text)
        for index, response in model.run(requests)
    }


Generate = Callable[[list[str]], list[str]]


def _peer(folder: str, lists: Texts) -> Callable[[], Outputs]:
    generate = _generation(folder, torch.float32)
    return lambda: _by_package(generate, lists)


def _tuned(folder: str, lists: Texts, dtype: str) -> Callable[[], Outputs]:
    keep_freed_memory()
    generate = _generation(folder, TUNED_DTYPES[dtype])
    return lambda: _by_length(generate, lists)


def _generation(folder: str, dtype: torch.dtype) -> Generate:
    """Return a function that tokenises a batch of prompts and generates their outputs by transformers."""
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder, dtype=dtype).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = transformers.GenerationConfig(
        max_new_tokens=NEW_TOKENS, eos_token_id=1, pad_token_id=0, **invented.START
    )

    @torch.inference_mode()
    def generate(prompts: list[str]) -> list[str]:
        inputs = tokenizer(
            prompts, return_tensors="pt", padding="longest", truncation=True, max_length=MOST_TOKENS
        )
        ids = model.generate(**inputs, generation_config=settings)
        return list(tokenizer.batch_decode(ids, skip_special_tokens=True))

    return generate


def _by_length(generate: Generate, lists: Texts) -> Outputs:
    """Return the outputs of prompts that are sorted by length (each word is a token) and batched by tokens."""
    rows = [(question, text) for question, texts in lists.items() for text in texts]
    prompts = {row: f"question: {row[0]} context: {row[1]}" for row in rows}
    lengths = {row: min(len(prompt.split()), MOST_TOKENS) for row, prompt in prompts.items()}
    rows.sort(key=lengths.__getitem__, reverse=True)
    outputs: Outputs = {}
    while rows:
        # the first is the longest
        size = max(1, TUNED_TOKENS // lengths[rows[0]])
        batch, rows = rows[:size], rows[size:]
        texts = generate([prompts[row] for row in batch])
        outputs.update(zip(batch, (text.strip() for text in texts), strict=True))
    return outputs


def _by_package(generate: Generate, lists: Texts) -> Outputs:
    outputs_of: Outputs = {}

    def texts_of(requests: Texts) -> dict[str, str]:
        rows = [(question, texts[0]) for question, texts in requests.items()]
        for start in range(0, len(rows), PEER_BATCH):
            batch = rows[start : start + PEER_BATCH]
            prompts = [f"question: {question} context: {text}" for question, text in batch]
            outputs_of.update(zip(batch, generate(prompts), strict=True))
        return {question: outputs_of[question, text] for question, text in rows}

    def score(outputs: Mapping[str, str], gold_answers: Any) -> dict[str, int]:
        return dict.fromkeys(outputs, 0)

    erag.eval(lists, {question: [""] for question in lists}, texts_of, score, {"P_10"})
    return {row: text.strip() for row, text in outputs_of.items()}


def _share_same(ours: Outputs, theirs: Outputs) -> float:
    """Return the share of equal outputs."""
    other = sum(ours.get(row) != text for row, text in theirs.items())
    if other > TIES * len(theirs) or len(ours) != len(theirs):
        raise ValueError(f"{other} of {len(theirs)} outputs differ")
    if len(set(ours.values())) < len(ours) // 2:
        raise ValueError("the outputs are too much alike to tell anything")
    return 1 - other / len(theirs)
