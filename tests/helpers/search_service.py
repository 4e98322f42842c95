"""A small search service in a thread of the test's process: answers from a list, and fails on demand."""

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[["Asked"], "Reply"]


@dataclass(frozen=True)
class Asked:
    """One request: its JSON, its headers, and how often this question was asked so far, from 1."""

    body: dict[str, Any]
    headers: dict[str, str]
    times: int


@dataclass(frozen=True)
class Reply:
    """What the service answers; ``body`` is JSON unless it is bytes; a status of 0 cuts the connection."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Service:
    """The service: what it answers, its address, and what it was asked."""

    answer: Answer
    url: str = ""
    asked: list[Asked] = field(default_factory=list)


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[Service]:
    service = Service(answer)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
    service.url = f"http://127.0.0.1:{server.server_port}/search"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(service: Service) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            times = sum(one.body.get("query") == body.get("query") for one in service.asked) + 1
            asked = Asked(body, {name.lower(): value for name, value in self.headers.items()}, times)
            service.asked.append(asked)
            reply = service.answer(asked)
            if reply.status == 0:
                self.close_connection = True
                return
            data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    return Handler
