"""Answers of bounded size: one that is too large, or large once it is unpacked, ends with an error."""

import zlib
from collections.abc import AsyncIterator

import httpx2

MAX_BYTES = 8 << 20
"""The largest answer: one of 100,000 tokens has a few MB."""
ENCODINGS = {"": False, "identity": False, "gzip": True, "deflate": True}
"""Content-Encoding -> whether it is compressed; others are not asked for."""
GZIP_OR_ZLIB = 47


class SizeError(ValueError):
    """An answer is too large, or is compressed in a form that was not asked for."""


class BoundedStream(httpx2.AsyncByteStream):
    """The bytes of an answer, decompressed."""

    def __init__(self, stream: httpx2.AsyncByteStream, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in ENCODINGS:
            raise SizeError(
                f"the answer is compressed as {self._encoding[:20]!r}, and not by gzip as asked for"
            )
        unpack = zlib.decompressobj(GZIP_OR_ZLIB).decompress if ENCODINGS[self._encoding] else None
        size = 0
        async for chunk in self._stream:
            try:
                part = unpack(chunk, MAX_BYTES + 1 - size) if unpack else chunk
            except zlib.error as error:
                raise SizeError(f"the answer is no {self._encoding}: {error}") from error
            size += len(part)
            if size > MAX_BYTES:
                raise SizeError(f"the answer has more than {MAX_BYTES:,} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def bound_size(response: httpx2.Response) -> None:
    """Bound the size of an answer: a hook of the HTTP client, called before the body is read."""
    encoding = response.headers.pop("content-encoding", "").strip().lower()
    response.stream = BoundedStream(response.stream, encoding)  # type: ignore[arg-type]
