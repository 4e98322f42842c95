"""Child processes that compute for this one, such as vLLM's engine: they end with it, and it sees when one ends."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from multiprocessing.process import BaseProcess
from typing import TypeVar

from erag_ray.models.local.process import EngineLost
from erag_ray.support.progress import beside

T = TypeVar("T")
LOOK_SECONDS = 1.0
"""The time between two looks whether a child has ended."""
GUARD = """
import contextlib, signal, sys
sys.stdin.read()
for descriptor in sys.argv[1:]:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(int(descriptor), signal.SIGKILL)
"""
"""A program that waits for the end of its parent, which closes its input, and kills processes then."""


def with_children(start: Callable[[], T]) -> tuple[T, Sequence[BaseProcess]]:
    """Call a function; return its result, and the processes that it has started by `multiprocessing`.

    They are killed when this process has ended, also by SIGKILL, and while the function runs: vLLM's engine would keep
    its GPU for ever.
    """
    others, children = multiprocessing.active_children(), list[BaseProcess]()

    def guard_new(closing: threading.Event) -> None:
        is_last = False
        while not is_last:
            is_last = closing.wait(LOOK_SECONDS)
            new = [child for child in multiprocessing.active_children() if child not in [*others, *children]]
            children.extend(new)
            if new:
                _guard(new)

    with beside(guard_new):
        return start(), children


def _guard(children: Sequence[BaseProcess]) -> None:
    # unlike a number, a descriptor is never that of another process later
    descriptors = [os.pidfd_open(child.pid) for child in children if child.pid]
    # nobody closes the second end before this process ends
    end, _ = os.pipe()
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    command = [sys.executable, "-S", "-E", "-c", GUARD, *map(str, descriptors)]
    # a session of its own: Ctrl-C does not end it
    os.posix_spawn(sys.executable, command, {}, file_actions=[(os.POSIX_SPAWN_DUP2, end, 0)], setsid=True)
    for descriptor in (end, *descriptors):
        os.close(descriptor)


def result_of_child(ask: Callable[[], T], children: Sequence[BaseProcess]) -> T:
    """Call a function that waits for a child; raise EngineLost if that ends: vLLM's ``step`` waits for ever."""
    if not children:
        return ask()
    result = futures.Future[T]()

    def call() -> None:
        try:
            result.set_result(ask())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    while not futures.wait([result], LOOK_SECONDS).done:
        if not all(child.is_alive() for child in children):
            raise EngineLost("vLLM's process has ended")
    return result.result()
