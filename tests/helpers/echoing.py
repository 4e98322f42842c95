"""Readers that echo, for jobs whose processes find this folder: ``echoing:Slow``. Option ``folder``: of their files."""

import gc
import json
import os
import pathlib
import time
from collections.abc import Iterator, Sequence

from erag_ray.models.echo import EchoModel
from erag_ray.prompts.request import Request, Response

FAST, MARK = "fast", "mark"
FATAL = "what is q15"


class Slow(EchoModel):
    """Takes its time for each answer until a test says that what is left may be fast, by a file."""

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        for place, request in enumerate(requests):
            if not self.file(FAST).exists():
                time.sleep(self.config.simulated_latency_seconds)
            yield place, self.answer(request)

    def file(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.config.options["folder"], name)


class Exits(Slow):
    """Ends its process at a question, where its mark is not there yet."""

    def answer(self, request: Request) -> Response:
        if request.question == FATAL and not self.file(MARK).exists():
            self.file(MARK).touch()
            os._exit(1)
        return super().answer(request)


class Counts(Slow):
    """Writes its process into its mark for each answer."""

    def answer(self, request: Request) -> Response:
        with self.file(MARK).open("a") as lines:
            lines.write(f"{os.getpid()}\n")
        return super().answer(request)


class Environment(EchoModel):
    """Answers with what its process was started with."""

    def answer(self, request: Request) -> Response:
        names = ("CUDA_VISIBLE_DEVICES", "RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM", "GOMP_SPINCOUNT")
        return Response(text=json.dumps([*map(os.environ.get, names), gc.get_threshold()]))
