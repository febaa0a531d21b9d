"""Compressed response bodies, and the size limit of responses."""

from __future__ import annotations

import gzip
import zlib

import pytest

from tests.gateway.llm.wire_server import (
    CHUNKED,
    Run,
    encode_chunk,
    loops,
    open_upstream,
    response_with_length,
    wire_server,
)
from toolcrib.errors import RequestFailed

TEXT = b"hello " * 1_000


def _compress_without_header(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def _encode(data: bytes, encoding: bytes) -> bytes:
    return response_with_length(data, head=b"Content-Encoding: " + encoding + b"\r\n")


@loops
@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        (b"gzip", gzip.compress(TEXT)),
        (b"deflate", zlib.compress(TEXT)),
        (b"Deflate", _compress_without_header(TEXT)),
        (b"identity", TEXT),
    ],
    ids=["gzip", "deflate", "deflate without header", "identity"],
)
def test_encoded_body_can_be_read_decoded_and_raw(run: Run, encoding: bytes, data: bytes) -> None:
    async def work() -> None:
        async with wire_server(_encode(data, encoding)) as server, open_upstream(server.url) as upstream:
            assert await upstream.read() == TEXT
            response, raw = await upstream.send(), b""
            while chunk := await response.read_raw_chunk():
                raw += chunk
            assert raw == data

    run(work())


@loops
@pytest.mark.parametrize(
    ("encoding", "data", "message"),
    [
        (b"gzip", gzip.compress(bytes(8 << 20)), "maxResponseBytes"),
        (b"br", b"x", "not requested"),
        (b"gzip", b"x" * 99, "cannot be decompressed"),
    ],
    ids=["too large", "unknown", "invalid"],
)
def test_encoded_body_that_cannot_be_decoded_is_an_error(run: Run, encoding: bytes, data: bytes, message: str) -> None:
    async def work() -> None:
        async with (
            wire_server(_encode(data, encoding)) as server,
            open_upstream(server.url, max_response_bytes=2 << 20) as upstream,
        ):
            with pytest.raises(RequestFailed, match=message):
                await upstream.read()

    run(work())


LARGE = b"x" * 5_000


@loops
@pytest.mark.parametrize(
    "response", [response_with_length(LARGE), CHUNKED + encode_chunk(LARGE) + b"0\r\n\r\n"], ids=["length", "chunked"]
)
def test_response_over_the_size_limit_is_an_error(run: Run, response: bytes) -> None:
    async def work() -> None:
        async with (
            wire_server(response) as server,
            open_upstream(server.url, max_response_bytes=1_024, retries=2) as upstream,
        ):
            with pytest.raises(RequestFailed, match="maxResponseBytes"):
                await upstream.read()
            assert server.connections == [1]

    run(work())
