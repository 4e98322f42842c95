"""vLLM's engine: token ids in, token ids and log-probabilities out, with many requests in flight.

The package vllm is imported when an `Engine` is constructed.
"""

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.local.devices import device
from erag_ray.models.local.memory import is_out_of_memory, room_on
from erag_ray.models.local.process import EngineLost
from erag_ray.models.local.word_cache import Ids
from erag_ray.models.vllm.children import result_of_child, with_children
from erag_ray.support.errors import JobError
from erag_ray.support.user_code import one_line

ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
"""Defaults of vLLM's environment variables."""
GPU_SHARE = 0.9
"""Fraction of a GPU for weights and the KV cache."""
MAX_CPU_BYTES = 4 << 30
"""The largest KV cache on a CPU."""
MEMORY_ADVICE = " In the config this is reader.engine_args: {kv_cache_memory_bytes: BYTES}"
MAX_NEXT = 128
"""The largest number of next tokens whose log-probabilities vLLM returns for one request."""
MAX_WAITING = 1024
"""The largest number of requests in the engine, including waiting ones."""

ODD_MODULE = "llvmlite.binding.ffi"
"""On a CPU without Triton, vLLM 0.32 inspects every object of every module. An object of this module pretends to have
every attribute, ``__dict__`` included, which breaks the inspection."""

T = TypeVar("T")


class EngineRequest(NamedTuple):
    """One request to vLLM."""

    ids: Ids
    """The prompt."""
    max_tokens: int = 1
    """The largest number of output tokens; vLLM generates at least one."""
    ends: Ids = ()
    """Tokens that end the output."""
    num_scored: int = 0
    """The number of tokens at the end of the prompt whose log-probabilities to return."""
    next_ids: Ids = ()
    """Tokens whose log-probabilities as the next token to return."""


class Completed(NamedTuple):
    """A request, and vLLM's ``RequestOutput`` for it."""

    request: EngineRequest
    output: Any


class Engine:
    """A loaded model, in ``vllm.LLM``; raises JobError if vLLM cannot load it."""

    def __init__(self, config: ReaderConfig, folder: str, max_length: int, memory_share: float) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(config.engine_process == "child"))
        import vllm

        # the default of vLLM is one thread
        os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
        try:
            with hidden(ODD_MODULE):
                arguments = arguments_of(config, folder, max_length, memory_share)
                self.llm, self._children = with_children(lambda: vllm.LLM(**arguments))
        except (ValueError, TypeError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            text = one_line(str(error))
            advice = MEMORY_ADVICE if "--kv-cache-memory-bytes" in text else ""
            raise JobError(f"reader.model: vLLM cannot load {config.model}: {text}{advice}") from error
        self._engine = self.llm.llm_engine
        self._names = itertools.count()

    def run(self, requests: Iterable[tuple[T, EngineRequest]]) -> Iterator[tuple[T, EngineRequest, Any]]:
        """Yield each key, its request, and vLLM's ``RequestOutput`` for it, in the order of completion."""
        remaining, in_flight = iter(requests), dict[str, tuple[T, EngineRequest]]()
        try:
            while True:
                for key, request in itertools.islice(remaining, MAX_WAITING - len(in_flight)):
                    in_flight[self._add(request)] = key, request
                if not in_flight:
                    return
                for output in self._step():
                    if output.finished:
                        yield *in_flight.pop(output.request_id), output
        finally:
            if all(child.is_alive() for child in self._children):
                self._engine.abort_request(list(in_flight))

    def _add(self, request: EngineRequest) -> str:
        name = str(next(self._names))
        prompt = {"prompt_token_ids": list(request.ids)}
        self._engine.add_request(name, prompt, sampling(request._replace(ids=())))
        return name

    def _step(self) -> list[Any]:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            return result_of_child(self._engine.step, self._children)
        except EngineDeadError as error:
            raise EngineLost(f"vLLM has ended: {error.__cause__ or error}") from error


@contextlib.contextmanager
def hidden(name: str) -> Iterator[None]:
    """Remove a module from ``sys.modules`` while open."""
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module


def arguments_of(config: ReaderConfig, folder: str, max_length: int, memory_share: float) -> dict[str, Any]:
    current = device()
    if current.type == "cuda":
        memory: dict[str, Any] = {"gpu_memory_utilization": GPU_SHARE * memory_share}
    else:
        memory = {"kv_cache_memory_bytes": min(room_on(current, memory_share), MAX_CPU_BYTES)}
    sizes = {"max_num_seqs": config.batch_size, "max_num_batched_tokens": config.batch_tokens}
    return {
        "model": folder,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # ignore the sampling defaults in the model's folder
        "dtype": config.dtype,
        "seed": 0,
        "tensor_parallel_size": config.tensor_parallel_size,
        **{name: value for name, value in sizes.items() if value},
        **memory,
        "max_model_len": max_length,
        **{name: value for name, value in config.engine_args.items() if name != "max_model_len"},
    }


@functools.lru_cache(1 << 10)
def sampling(request: EngineRequest) -> Any:
    """Return the ``SamplingParams`` of a request (whose prompt is ignored): greedy, without detokenization."""
    import vllm
    from vllm.sampling_params import RequestOutputKind

    prompt_scores = {"prompt_logprobs": 0} if request.num_scored else {}
    next_scores = {"logprob_token_ids": list(request.next_ids)} if request.next_ids else {}
    return vllm.SamplingParams(
        temperature=0.0,
        max_tokens=request.max_tokens,
        stop_token_ids=list(request.ends),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        **prompt_scores,
        **next_scores,
    )
