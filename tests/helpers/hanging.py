"""A model that hangs, for jobs whose processes find this folder: it is named as ``hanging:Hangs``."""

import ctypes
import os
import pathlib
import time

import ray

from erag_ray.inference import watchdog
from erag_ray.inference.actor import ModelActor
from erag_ray.models.echo import EchoModel
from erag_ray.prompts.request import Request, Response

SECONDS = 120


def hang_in_native_code() -> None:
    """Hang with Python's global lock, so that no other thread of the process runs."""
    ctypes.PyDLL(None).sleep(SECONDS)


class Hangs(EchoModel):
    """Hangs while loading, as often as ``model`` says after a colon, and at some questions."""

    def load(self) -> None:
        folder, _, times = (self.config.model or "").partition(":")
        if times and len(list(pathlib.Path(folder).glob("loading-*"))) < int(times):
            pathlib.Path(folder, f"loading-{os.getpid()}").touch()
            hang_in_native_code()

    def answer(self, request: Request) -> Response:
        if "exit" in request.question:
            os._exit(1)
        if "slow" in request.question:
            time.sleep(SECONDS)
        if "stuck" in request.question:
            hang_in_native_code()
        return super().answer(request)


class QuickActor(ModelActor):
    """An actor whose limits are seconds."""

    def __init__(self, **arguments: object) -> None:
        watchdog.LOAD_SECONDS, watchdog.MIN_BATCH_SECONDS, watchdog.SLOWEST_FACTOR = 4.0, 1.0, 2
        super().__init__(**arguments)  # type: ignore[arg-type]


class LostActor(ModelActor):
    """An actor that Ray ends for good while it starts, once if its store has a file ``lost``."""

    def __init__(self, **arguments: object) -> None:
        mark = pathlib.Path(str(arguments["store"]), "lost")
        if mark.exists():
            mark.unlink()
            ray.kill(ray.get_runtime_context().current_actor)
            time.sleep(SECONDS)
        super().__init__(**arguments)  # type: ignore[arg-type]
