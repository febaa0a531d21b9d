"""Run an ASGI application on a real socket and send raw requests to it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

import uvicorn

WAIT_SECONDS = 20.0


@contextmanager
def running_app(app: Callable[..., Any], **options: Any) -> Iterator[int]:
    """Serve an application and yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=2, **options)
    )
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        listener.close()


@dataclass(frozen=True, slots=True)
class RawResponse:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed as JSON."""
        return json.loads(self.body)


def connect(port: int) -> socket.socket:
    """Return a connection to the server."""
    return socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)


def read_response(connection: socket.socket) -> RawResponse:
    """Return the response, read until the server closes the connection."""
    content = b""
    while chunk := connection.recv(65_536):
        content += chunk
    head, _, body = content.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return RawResponse(int(first.split(" ")[1]), headers, body)


def send_request(port: int, *headers: str, path: str = "/mcp", method: str = "POST", body: str = "") -> RawResponse:
    """Send a request and return its response. A valid Host header is added if missing."""
    lines = [f"{method} {path} HTTP/1.1", "Connection: close", *headers]
    if not any(header.lower().startswith("host:") for header in headers):
        lines.append(f"Host: 127.0.0.1:{port}")
    if body and not any(header.lower().startswith(("content-length", "transfer")) for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    with connect(port) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1"))
        return read_response(connection)
