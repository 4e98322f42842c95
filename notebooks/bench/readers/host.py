"""CPU time of the host for a (question, passage) pair while a GPU computes, by part; and how much of it is overlapped.

An engine without a model stands in for the GPU. Where parts are measured it takes no time; where the overlap is
measured it sleeps as long as a device of a given rate needs, which leaves the cores to the host, as a GPU does. All
else is what an actor does with blocks of PENDING: requests, tokens, passes, states, outputs, RESPONSES in the store.
Not included: what launching kernels costs the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import torch
import transformers
import xxhash

from bench.config import BenchmarkConfig
from bench.synthetic_texts import NUM_WORDS, words_of
from bench.timing import Row
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference import actor
from erag_ray.inference.actor import ModelActor
from erag_ray.models import make_model, model_id
from erag_ray.models.local.weights import quiet
from erag_ray.models.t5.encoder_cache import EncoderStates, Padded
from erag_ray.models.t5.engine import GPU_MULTIPLE, GPU_PASS, Engine
from erag_ray.models.t5.model import T5Model
from erag_ray.prompts.prompt import T5
from erag_ray.prompts.request import Form, Request, Response, question_key, text_hash
from erag_ray.store.schemas import PENDING

FORM = Form(method="generate", prompt=T5, max_new_tokens=8)
BLOCK = 16_384
"""Requests in one block: a job's first blocks have up to 4,096, later ones up to 32,768."""
BATCH = 1024
"""Requests that a GPU decodes at once."""
DEPTH, QUESTION_WORDS, WORDS = 50, 9, (60, 120)
EXPONENT = 1.2
"""Of Zipf's law. Of 100,000 words 19 % are new, after 400,000 words 12 %; in passages of Wikipedia 26 and 11 %."""
KNOWN_WORDS = 30_000
SHAPE: dict[str, Any] = {
    "d_model": 8,
    "d_kv": 8,
    "d_ff": 8,
    "num_layers": 1,
    "num_heads": 1,
    "decoder_start_token_id": 0,
}
OUTPUT = (40, 41, 42, 43, 44, 45, 46, 1)
"""What the engine writes: eight tokens with the end."""
ENCODER_SHARE = 0.8
"""Of a device's time for a pair (`notebooks/a100_estimate.py`); the decoder takes the rest."""
STAT = pathlib.Path("/proc/stat")
WHAT, ALL, AGAIN = "host work", "all", ", again"
PARTS = ("requests", "tokenising", "cutting", "padding", "fusing", "outputs", "writing", "other")


def host(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Measure ``size`` pairs by one actor: CPU seconds by part, then seconds beside devices of ``config.device_rates``.

    Each time once with an empty cache of words, and again with all words known: a long job lies between the two.
    """
    quiet()
    out = pathlib.Path(config.out, "host")
    reader = ReaderConfig(kind=f"{__name__}:HostModel", model=write_model(out / "t5"), batch_size=BATCH)
    requests = pairs(size, config.seed)
    yield from _by_part(_actor(reader, str(out / "parts")), requests)
    for rate in config.device_rates:
        yield from _beside_device(_actor(reader, str(out / f"rate-{rate}")), requests, rate)


def _by_part(model_actor: ModelActor, requests: pa.Table) -> Iterator[Row]:
    parts = CpuParts()
    with parts.of(model_actor):
        whole = _run(model_actor, requests)
    row = {"what": WHAT, "count": requests.num_rows, "num_prompt_tokens": whole["num_prompt_tokens"]}
    yield from ({**row, "by": part, "cpu_seconds": parts.seconds[part]} for part in PARTS)
    yield {**row, "by": ALL, **whole}
    yield {**row, "by": f"{ALL}{AGAIN}", **_run(model_actor, requests)}


def _beside_device(model_actor: ModelActor, requests: pa.Table, rate: int) -> Iterator[Row]:
    _model(model_actor).pair_seconds = 1 / rate
    row = {"what": "beside a device", "count": requests.num_rows, "device_rate": float(rate)}
    for suffix in ("", AGAIN):
        yield {**row, "by": f"{rate:,} pairs/s{suffix}", **_run(model_actor, requests)}


def _actor(reader: ReaderConfig, store: str) -> ModelActor:
    name = model_id(make_model(reader))
    return ModelActor(reader, name, [FORM], store, "job", 1, write_every_seconds=20.0, max_batch_seconds=None)


def _model(model_actor: ModelActor) -> HostModel:
    model = model_actor.isolation.model
    assert isinstance(model, HostModel)
    return model


def _run(model_actor: ModelActor, requests: pa.Table) -> Row:
    """Run requests block by block; times, and the tokens of prompts."""
    clock, starts = Clock(), range(0, requests.num_rows, BLOCK)
    counts = [row for start in starts for row in model_actor(requests.slice(start, BLOCK))]
    return {"num_prompt_tokens": sum(row["num_prompt_tokens"][0] for row in counts), **clock.row()}


class Clock:
    """Seconds, CPU seconds of this process, and cores that were busy with other work, since it was made."""

    def __init__(self) -> None:
        self._start = _times()

    def row(self) -> Row:
        """Columns of a row."""
        seconds, cpu, busy = (end - start for start, end in zip(self._start, _times(), strict=True))
        other = max(0.0, (busy - cpu) / seconds) if STAT.is_file() else None
        return {"seconds": seconds, "cpu_seconds": cpu, "other_cores": other}


def _times() -> tuple[float, float, float]:
    """Seconds; CPU seconds of this process, and of this machine with what its hypervisor gave to others (Linux)."""
    busy = 0.0
    if STAT.is_file():
        user, nice, system, _, _, irq, softirq, steal = map(int, STAT.read_text().split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), time.process_time(), busy


class CpuParts:
    """CPU seconds of this process within functions, each without those of the others that it calls."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._inner = [0.0]

    @contextlib.contextmanager
    def of(self, model_actor: ModelActor) -> Iterator[None]:
        """Count what an actor does meanwhile."""
        model, table = _model(model_actor), actor.responses_table
        for owner, name, part in (
            (model.pieces, "tokenise", "tokenising"),
            (model, "render", "cutting"),
            (model, "arrange", "padding"),
            (model, "encoder_states", "fusing"),
            (model, "generate", "outputs"),
            (actor, "responses_table", "writing"),
            (model_actor.store, "append", "writing"),
        ):
            setattr(owner, name, self.timed(part, getattr(owner, name)))
        model.timed_requests = functools.partial(TimedRequests, self)
        start = time.process_time()
        try:
            yield
        finally:
            actor.responses_table = table
            model.timed_requests = None
            self.seconds["other"] = time.process_time() - start - sum(self.seconds.values())

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time counts for a part."""

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            self._inner.append(0.0)
            try:
                return function(*arguments, **named)
            finally:
                seconds = time.process_time() - start
                self.seconds[part] += seconds - self._inner.pop()
                self._inner[-1] += seconds

        return run


class TimedRequests(Sequence[Request]):
    """Requests, the time of whose making counts for a part."""

    def __init__(self, parts: CpuParts, requests: Sequence[Request]) -> None:
        self._requests = requests
        self._get = parts.timed("requests", requests.__getitem__)

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Request]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._get(index)


class SleepingEngine(Engine):
    """An engine that computes nothing.

    As a GPU it queues the work of its encoder, and is waited for where outputs are read.
    """

    pair_seconds, _idle_at = 0.0, 0.0

    def window_tokens(self) -> int:
        return 1 << 30

    def pass_tokens(self, batch_tokens: int) -> int:
        return min(batch_tokens, GPU_PASS)

    @property
    def multiple(self) -> int:
        return GPU_MULTIPLE

    def encode(self, batch: Padded) -> torch.Tensor:
        self._queue(len(batch.lengths) * ENCODER_SHARE)
        # without memory, so that what a GPU would do with states takes no time here
        return torch.empty(len(batch.tokens), SHAPE["d_model"], device="meta")

    def decode(self, encoder_states: EncoderStates, **settings: Any) -> list[list[int]]:
        self._queue(len(encoder_states.lengths) * (1 - ENCODER_SHARE))
        if self.pair_seconds:
            time.sleep(max(0.0, self._idle_at - time.perf_counter()))
        return [list(OUTPUT)] * len(encoder_states.lengths)

    def _queue(self, num_pairs: float) -> None:
        self._idle_at = max(self._idle_at, time.perf_counter()) + num_pairs * self.pair_seconds


class HostModel(T5Model):
    """A FiD model whose engine computes nothing."""

    timed_requests: Callable[[Sequence[Request]], Sequence[Request]] | None = None

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(dataclasses.replace(config, kind="fid"))
        self.config = config

    def load(self) -> None:
        super().load()
        self.engine = SleepingEngine(self.model)

    @property
    def pair_seconds(self) -> float:
        """Of the device, for a pair."""
        assert isinstance(self.engine, SleepingEngine)
        return self.engine.pair_seconds

    @pair_seconds.setter
    def pair_seconds(self, seconds: float) -> None:
        assert isinstance(self.engine, SleepingEngine)
        self.engine.pair_seconds = seconds

    @property
    def has_device(self) -> bool:
        return self.pair_seconds > 0

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        return super().run(requests if self.timed_requests is None else self.timed_requests(requests))


def write_model(folder: pathlib.Path) -> str:
    """A tiny T5 that knows the frequent words and all letters, as a real vocabulary does; the folder."""
    control = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    words = ["question:", "title:", "context:", *words_of(np.arange(KNOWN_WORDS))]
    pieces = {f"\u2581{word}": -9.0 for word in words} | dict.fromkeys(
        "\u2581abcdefghijklmnopqrstuvwxyz", -12.0
    )
    tokenizer = transformers.T5Tokenizer(vocab=[*control, *pieces.items()])
    settings = transformers.T5Config(vocab_size=len(tokenizer), **SHAPE)
    transformers.T5ForConditionalGeneration(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def pairs(count: int, seed: int) -> pa.Table:
    """PENDING of so many pairs of a question and a passage, `DEPTH` passages a question."""
    generator = np.random.default_rng(seed)
    vocabulary = np.array(words_of(np.arange(NUM_WORDS)), dtype=object)

    def text(num_words: int) -> str:
        return " ".join(vocabulary[(generator.zipf(EXPONENT, num_words) - 1) % NUM_WORDS])

    lengths = generator.integers(*WORDS, count)
    questions = [text(QUESTION_WORDS) for _ in range(0, count, DEPTH)]
    rows = [_pending(questions[row // DEPTH], text(length)) for row, length in enumerate(lengths)]
    rows.sort(key=lambda row: (row["question_key"], row["passages_key"]))
    return pa.Table.from_pylist(rows, schema=PENDING.columns)


def _pending(question: str, text: str) -> Row:
    passages = xxhash.xxh3_64_intdigest(text_hash("", text))
    keys = {"question_key": question_key(FORM, question, ()), "passages_key": passages}
    return {**keys, "form": 0, "question": question, "titles": [""], "texts": [text], "answers": []}
