"""Published files: downloaded once, from where they were stopped, with a receipt; tried with a server of our own."""

from __future__ import annotations

import hashlib
import http.server
import json
import pathlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from erag_ray.cli import public_files as public
from erag_ray.cli.public import with_public
from erag_ray.cli.public_files import PUBLISHED, download, fetch_public, is_public
from erag_ray.config import RetrieveConfig, RetrieverConfig
from erag_ray.errors import InputError
from erag_ray.progress import counted

CONTENT = bytes(range(256)) * 12_000


class Server(http.server.ThreadingHTTPServer):
    """Gives `CONTENT` to whoever asks, also parts of it; breaks off after ``stops_after`` bytes."""

    stops_after: int | None = None
    asked: list[str]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._head(200, 0, len(CONTENT) - 1)

    def do_GET(self) -> None:
        found = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        first, last = (int(found[1]), int(found[2] or len(CONTENT) - 1)) if found else (0, len(CONTENT) - 1)
        if not self._head(206 if found else 200, first, last):
            return
        self.server.asked.append(f"{first}-{last}")
        data = CONTENT[first : last + 1]
        if self.server.stops_after is not None and len(data) > 1:
            self.wfile.write(data[: self.server.stops_after])
            self.close_connection = True
            return
        self.wfile.write(data)

    def _head(self, status: int, first: int, last: int) -> bool:
        is_there = not self.path.startswith("/nothing")
        self.send_response(status if is_there else 404)
        self.send_header("Content-Length", str(last - first + 1) if is_there else "0")
        if is_there:
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"one"')
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(CONTENT)}")
        self.end_headers()
        return is_there

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.asked = []
    address = f"http://127.0.0.1:{made.server_address[1]}"
    monkeypatch.setitem(PUBLISHED, "kilt", lambda name: f"{address}/{name}")
    monkeypatch.setenv("ERAG_RAY_CACHE", str(tmp_path / "cache"))
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def show(name: str, size: int) -> Any:
    return counted(name, size, show=False)


def test_a_file_is_downloaded_once_and_its_receipt_says_what_came(
    server: Server, tmp_path: pathlib.Path
) -> None:
    place = pathlib.Path(fetch_public("kilt:nq-dev-kilt.jsonl", show))
    assert place == tmp_path / "cache" / "kilt" / "nq-dev-kilt.jsonl"
    assert place.read_bytes() == CONTENT
    receipt = json.loads(place.with_name("nq-dev-kilt.jsonl.download.json").read_text())
    assert receipt == {
        "url": PUBLISHED["kilt"]("nq-dev-kilt.jsonl"),
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    assert sorted(path.name for path in place.parent.iterdir()) == [place.name, f"{place.name}.download.json"]
    server.asked.clear()
    assert fetch_public("kilt:nq-dev-kilt.jsonl", show) == str(place)
    assert server.asked == []


@pytest.mark.long
def test_what_was_stopped_goes_on_where_it_was(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    server.stops_after = 500_000
    monkeypatch.setattr(public, "RETRIES", 1)
    with pytest.raises(InputError, match="cannot be downloaded; what has come stays"):
        fetch_public("kilt:a.jsonl", show)
    assert not (tmp_path / "cache" / "kilt" / "a.jsonl").exists()
    server.stops_after = None
    server.asked.clear()
    assert pathlib.Path(fetch_public("kilt:a.jsonl", show)).read_bytes() == CONTENT
    starts = [int(asked.partition("-")[0]) for asked in server.asked if asked != "0-0"]
    assert starts
    assert min(starts) > 0


@pytest.mark.long
def test_a_file_that_is_not_there_and_a_copy_that_has_changed_are_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "RETRIES", 1)
    with pytest.raises(InputError, match=r"nothing.jsonl: cannot be downloaded"):
        fetch_public("kilt:nothing.jsonl", show)
    place = pathlib.Path(fetch_public("kilt:a.jsonl", show))
    place.write_bytes(b"less")
    with pytest.raises(InputError, match=r"a.jsonl: has 4 bytes, but 3072000 came from .*; delete it and"):
        fetch_public("kilt:a.jsonl", show)


@pytest.mark.long
def test_paths_of_a_config_become_local_copies(server: Server, tmp_path: pathlib.Path) -> None:
    config = RetrieveConfig(
        queries=["kilt:a.jsonl", "own.jsonl"],
        retrievers={
            "bm25": RetrieverConfig(kind="bm25"),
            "m": RetrieverConfig(kind="dense", model="kilt:model"),
        },
    )
    found = with_public(config)
    assert found.queries == [str(tmp_path / "cache" / "kilt" / "a.jsonl"), "own.jsonl"]
    assert found.retrievers["m"].model == str(tmp_path / "cache" / "kilt" / "model")
    assert download("http://unused", tmp_path / "cache" / "kilt" / "a.jsonl", show).exists()


@pytest.mark.parametrize(
    "path", ["nq.jsonl", "kilt", "kilt:", "s3://a/b", "C:\\x", "package:a/b", "other:x", "kilt:../x"]
)
def test_other_paths_stay_as_they_are(path: str) -> None:
    assert not is_public(path)


def test_where_klue_publishes() -> None:
    assert PUBLISHED["klue"]("klue-mrc-v1.1_dev.json").endswith(
        "/klue_benchmark/klue-mrc-v1.1/klue-mrc-v1.1_dev.json"
    )
