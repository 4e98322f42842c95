"""A model that takes long to load, and long for the first request of each kind; named as ``slow_start:SlowStart``."""

from __future__ import annotations

import pathlib
import time
import uuid

from erag_ray.models.echo import EchoModel
from erag_ray.prompts.request import Request, Response


class SlowStart(EchoModel):
    """The echo model with a slow start; leaves a file in the folder ``model`` whenever it is loaded."""

    def load(self) -> None:
        time.sleep(3.0)
        assert self.config.model is not None
        pathlib.Path(self.config.model, f"loaded-{uuid.uuid4().hex}").touch()
        self.known: set[int] = set()

    def answer(self, request: Request) -> Response:
        # none, one, several
        kind = min(len(request.passages), 2)
        time.sleep(0.01 + (kind not in self.known))
        self.known.add(kind)
        return super().answer(request)
