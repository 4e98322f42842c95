"""A reader that takes long to load, and long for the first batch of each kind; named as ``slow_start:SlowStart``."""

from __future__ import annotations

import pathlib
import time
import uuid
from collections.abc import Sequence

from erag_ray.readers.base import Output, Prompt
from erag_ray.readers.echo import EchoReader


class SlowStart(EchoReader):
    """The echo reader with a slow start; leaves a file in the folder ``model`` whenever it is loaded."""

    def load(self) -> None:
        time.sleep(3.0)
        assert self.config.model is not None
        pathlib.Path(self.config.model, f"loaded-{uuid.uuid4().hex}").touch()
        self.known: set[int] = set()

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        # none, one, several
        kind = min(max(len(prompt.segments) for prompt in prompts), 3)
        time.sleep(0.01 * len(prompts) + (kind not in self.known))
        self.known.add(kind)
        return super().generate(prompts)
