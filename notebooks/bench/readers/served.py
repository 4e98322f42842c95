"""How fast one actor, and two, ask a server that answers after 50 ms, against a bare loop of aiohttp.

The server has a process of its own, and so has each of those who ask it. Both sides send the same requests with the
same number under way; ours keeps responses in a store besides. A first round does not count: in it the number under way
grows to its limit.
"""

import asyncio
import contextlib
import itertools
import multiprocessing
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.config import BenchmarkConfig
from bench.readers.host import Clock, pairs
from bench.timing import Row
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.actor import ModelActor
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.models import make_model, model_id
from erag_ray.prompts.prompt import prompt_named
from erag_ray.prompts.request import Form

PROCESS: Any = multiprocessing.get_context("spawn").Process
ANSWER_SECONDS = 0.05
IN_FLIGHT = 64
FORM = Form(
    method="generate",
    prompt=prompt_named("question_first", "question", num_examples=0, titles=True),
    max_new_tokens=8,
)
WHAT, MODEL = "served", "model"
ONE, TWO, BARE = "erag_ray", "erag_ray, two actors", "bare aiohttp"
Work = Callable[[], object]


def served(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Measure ``size`` requests by one actor, by a bare loop, and by each of two actors at once; in turn."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(_started(_serve))[0]
        folder = str(pathlib.Path(config.out, "served"))
        one, other = (stack.enter_context(_started(_ask, actor, url, size, folder, name)) for name in "ab")
        bare = stack.enter_context(_started(_ask, bare_loop, url, size, folder, "c"))
        sides = {ONE: [one], BARE: [bare], TWO: [one, other]}
        measured: dict[str, list[Row]] = {name: [] for name in sides}
        for name, group in itertools.chain.from_iterable(itertools.repeat(sides.items(), config.repeats)):
            measured[name].append(_round_of([connection for _, connection in group]))
    for name, rounds in measured.items():
        against = measured[ONE if name == TWO else BARE]
        ratios = [_rate(ours) / _rate(peer) for ours, peer in zip(rounds, against, strict=True)]
        best = max(rounds, key=_rate)
        yield {"what": WHAT, "by": name, **best, "least_ratio": min(ratios), "most_ratio": max(ratios)}


def _rate(row: Row) -> float:
    return float(row["count"] / row["seconds"])


def _round_of(connections: Sequence[Any]) -> Row:
    """One round of all of these at once."""
    for connection in connections:
        connection.send(True)
    rows = [connection.recv() for connection in connections]
    return {
        "count": sum(row["count"] for row in rows),
        "seconds": max(row["seconds"] for row in rows),
        "cpu_seconds": sum(row["cpu_seconds"] for row in rows),
        "other_cores": rows[0]["other_cores"],
    }


@contextlib.contextmanager
def _started(function: Callable[..., None], *arguments: object) -> Iterator[tuple[Any, Any]]:
    """While open, a function runs in a process of its own; gives what it sends first, and the connection to it."""
    here, there = multiprocessing.Pipe()
    process = PROCESS(target=function, args=(*arguments, there), daemon=True)
    process.start()
    try:
        yield here.recv(), here
    finally:
        here.send(None)
        process.join()


def _ask(make: Callable[..., Work], url: str, size: int, folder: str, name: str, connection: Any) -> None:
    """Make what asks, let it ask once, and then as often as the connection says."""
    work = make(url, size, folder, name)
    work()
    connection.send("ready")
    while connection.recv():
        clock = Clock()
        work()
        connection.send({"count": size, **clock.row()})


def actor(url: str, size: int, folder: str, name: str) -> Work:
    """An actor with its store, and what it is asked."""
    reader = ReaderConfig(kind="served", model=MODEL, base_url=url, revision=name, concurrency=IN_FLIGHT)
    store = str(pathlib.Path(folder, name))
    model_actor = ModelActor(
        reader,
        model_id(make_model(reader)),
        [FORM],
        store,
        "job",
        1,
        write_every_seconds=20.0,
        max_batch_seconds=None,
    )
    requests = pairs(size, 0)
    return lambda: list(model_actor(requests))


def bare_loop(url: str, size: int, folder: str, name: str) -> Work:
    """A loop over ready bodies that keeps nothing."""
    reader = ReaderConfig(kind="served", model=MODEL, base_url=url, revision=name)
    rendered = make_model(reader).render(PendingRequests(pairs(size, 0), [FORM]))
    fields = {"model": MODEL, "temperature": 0.0, "seed": 0, "max_tokens": FORM.max_new_tokens}
    bodies = [{**fields, "messages": list(one.messages)} for one in rendered]
    return lambda: asyncio.run(_post_all(f"{url}/chat/completions", bodies))


async def _post_all(url: str, bodies: Sequence[dict[str, Any]]) -> list[str]:
    import aiohttp

    texts, waiting = list[str](), iter(bodies)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT)) as session:

        async def work() -> None:
            for body in waiting:
                async with session.post(url, json=body) as response:
                    answer = await response.json()
                texts.append(answer["choices"][0]["message"]["content"])

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return texts


def _serve(connection: Any) -> None:
    asyncio.run(_answer_all(connection))


async def _answer_all(connection: Any) -> None:
    """Answer requests until the connection says that it is enough."""
    from aiohttp import web

    app = web.Application()
    app.router.add_get("/v1/models", _list_models)
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    connection.send(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    await asyncio.to_thread(connection.recv)
    await runner.cleanup()


async def _list_models(request: Any) -> Any:
    from aiohttp import web

    return web.json_response({"data": [{"id": MODEL}]})


async def _answer(request: Any) -> Any:
    from aiohttp import web

    await request.read()
    await asyncio.sleep(ANSWER_SECONDS)
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "an answer"}}
    usage = {"prompt_tokens": 160, "completion_tokens": 3, "total_tokens": 163}
    return web.json_response({"id": "1", "model": MODEL, "choices": [choice], "usage": usage})
