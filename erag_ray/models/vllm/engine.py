"""vLLM's engine: tokens in, tokens and log-probabilities out, many requests under way at once.

The package vllm is imported when an `Engine` is made.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch

from erag_ray.config import ReaderConfig
from erag_ray.errors import JobError
from erag_ray.models.local.devices import device
from erag_ray.models.local.memory import EngineLost, is_out_of_memory, room_on
from erag_ray.models.local.word_cache import Ids
from erag_ray.user_code import one_line

ENVIRONMENT = {
    # in this process: what ends it ends the engine too, and errors come as they are
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Variables of vLLM's, where the user has not set them."""
GPU_SHARE = 0.9
"""Of a GPU, for weights and the keys and values of all requests under way."""
MAX_CPU_BYTES = 4 << 30
"""The same on a CPU, for keys and values alone."""
MEMORY_ADVICE = " The key for that is reader.engine_args: {kv_cache_memory_bytes: BYTES}"
MAX_NEXT = 128
"""Tokens whose log-probability as the next one vLLM gives at once."""
MAX_WAITING = 1024
"""Requests that the engine has, those that wait among them."""

ODD_MODULE = "llvmlite.binding.ffi"
"""On a CPU without Triton vLLM 0.32 looks into every object of every module; one of this module's has every attribute,
``__dict__`` among them, and none of them is what its name says."""

T = TypeVar("T")


class Part(NamedTuple):
    """One request to vLLM.

    Attributes:
        ids: the prompt.
        max_tokens: most that are written after it; one at least is.
        ends: tokens that end the output.
        num_scored: last tokens of the prompt whose log-probabilities are wanted.
        next_ids: tokens whose log-probabilities as the next one are wanted.
    """

    ids: Ids
    max_tokens: int = 1
    ends: Ids = ()
    num_scored: int = 0
    next_ids: Ids = ()


class Computed(NamedTuple):
    """A request, and vLLM's ``RequestOutput`` for it."""

    part: Part
    output: Any


class Engine:
    """A model in memory.

    Args:
        config: of the reader.
        folder: of the model.
        max_length: tokens of a prompt and its output together.
        memory_share: of the GPU, or of the CPU models' part of the machine's memory.

    Attributes:
        llm: ``vllm.LLM``.

    Raises:
        JobError: vLLM cannot load it.
    """

    def __init__(self, config: ReaderConfig, folder: str, max_length: int, memory_share: float) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import vllm

        # without it vLLM goes on with one
        os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
        try:
            with hidden(ODD_MODULE):
                self.llm = vllm.LLM(**arguments_of(config, folder, max_length, memory_share))
        except (ValueError, TypeError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            text = one_line(str(error))
            advice = MEMORY_ADVICE if "--kv-cache-memory-bytes" in text else ""
            raise JobError(f"reader.model: vLLM cannot load {config.model}: {text}{advice}") from error
        self._engine = self.llm.llm_engine
        self._names = itertools.count()

    def run(self, parts: Iterable[tuple[T, Part]]) -> Iterator[tuple[T, Part, Any]]:
        """Compute requests.

        Args:
            parts: with a key each; taken as the engine has room for more.

        Yields:
            The key, the request, and vLLM's ``RequestOutput`` for it, as they end.
        """
        left, under_way = iter(parts), dict[str, tuple[T, Part]]()
        try:
            while True:
                for key, part in itertools.islice(left, MAX_WAITING - len(under_way)):
                    under_way[self._add(part)] = key, part
                if not under_way:
                    return
                for output in self._step():
                    if output.finished:
                        yield *under_way.pop(output.request_id), output
        finally:
            self._engine.abort_request(list(under_way))

    def _add(self, part: Part) -> str:
        name = str(next(self._names))
        self._engine.add_request(name, {"prompt_token_ids": list(part.ids)}, sampling(part._replace(ids=())))
        return name

    def _step(self) -> list[Any]:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            found: list[Any] = self._engine.step()
        except EngineDeadError as error:
            raise EngineLost(f"vLLM has ended: {error.__cause__ or error}") from error
        return found


@contextlib.contextmanager
def hidden(name: str) -> Iterator[None]:
    """While open, a module that was imported is not among the imported ones."""
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module


def arguments_of(config: ReaderConfig, folder: str, max_length: int, memory_share: float) -> dict[str, Any]:
    """The arguments of ``vllm.LLM``."""
    sizes = {"max_num_seqs": config.batch_size, "max_num_batched_tokens": config.batch_tokens}
    return {
        "model": folder,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # and not the sampling that the model's folder proposes
        "dtype": config.dtype,
        "seed": 0,
        "tensor_parallel_size": config.tensor_parallel_size,
        **{name: value for name, value in sizes.items() if value},
        **memory_arguments(memory_share),
        "max_model_len": max_length,
        **{name: value for name, value in config.engine_args.items() if name != "max_model_len"},
    }


def memory_arguments(share: float) -> dict[str, Any]:
    """How much memory vLLM may take."""
    own = device()
    if own.type == "cuda":
        return {"gpu_memory_utilization": GPU_SHARE * share}
    return {"kv_cache_memory_bytes": min(room_on(own, share), MAX_CPU_BYTES)}


@functools.lru_cache(1 << 10)
def sampling(part: Part) -> Any:
    """The ``SamplingParams`` of requests that differ in their prompts alone: greedy, without text."""
    import vllm
    from vllm.sampling_params import RequestOutputKind

    scored = {"prompt_logprobs": 0} if part.num_scored else {}
    wanted = {"logprob_token_ids": list(part.next_ids)} if part.next_ids else {}
    return vllm.SamplingParams(
        temperature=0.0,
        max_tokens=part.max_tokens,
        stop_token_ids=list(part.ends),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        **scored,
        **wanted,
    )


def own_logprobs(output: Any, part: Part) -> Iterator[float]:
    """Yield the log-probabilities of the last tokens of a prompt."""
    start = len(part.ids) - part.num_scored
    for id_, found in zip(part.ids[start:], output.prompt_logprobs[start:], strict=True):
        yield found[id_].logprob


def next_logprobs(output: Any, part: Part) -> dict[int, float]:
    """The log-probabilities of the tokens that may come next."""
    if not part.next_ids:
        return {}
    (found,) = output.outputs[0].logprobs
    return {id_: found[id_].logprob for id_ in part.next_ids}
