"""Readers that fail, for jobs whose processes find this folder: they are named as ``failing:Exits``."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

import torch

from erag_ray.readers import Output, Prompt
from erag_ray.readers.echo import EchoReader

MARK = "ERAG_RAY_TEST_MARK"
FATAL = "what is q15"
TOKENS = 600


class Exits(EchoReader):
    """Ends its process at a question, where the file that ``ERAG_RAY_TEST_MARK`` names is not there yet."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        if any("".join(map(chr, prompt.segments[0])) == FATAL for prompt in prompts):
            mark = pathlib.Path(os.environ[MARK])
            if not mark.exists():
                mark.touch()
                os._exit(1)
        return super().generate(prompts)


class Small(EchoReader):
    """Has memory for so many tokens at once."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        if sum(prompt.num_tokens for prompt in prompts) > TOKENS:
            pathlib.Path(os.environ[MARK]).touch()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().generate(prompts)
