"""A real HTTP server on loopback with a scripted model behind OpenAI's embeddings API."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import numpy as np


class Reply(NamedTuple):
    """What the server says: the status, the body, and headers."""

    status: int
    body: bytes
    headers: dict[str, str] = {}  # noqa: RUF012


class Endpoint:
    """What was asked, what to answer next, and otherwise vectors: length, vowels, and a one."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.script: list[Reply | Callable[[dict[str, Any]], Reply]] = []

    def reply(self, asked: dict[str, Any]) -> Reply:
        if not self.script:
            return vectors(asked)
        scripted = self.script.pop(0)
        return scripted(asked) if callable(scripted) else scripted


def row(text: str) -> list[float]:
    return [float(len(text)), float(sum(char in "aeiou" for char in text)), 1.0]


def vectors(asked: dict[str, Any]) -> Reply:
    """The API's reply, in the format that was asked for."""
    data = []
    for index, text in enumerate(asked["input"]):
        numbers: Any = row(text)[: asked.get("dimensions")]
        if asked.get("encoding_format") == "base64":
            numbers = base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": numbers})
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    body = {"object": "list", "data": data, "model": asked["model"], "usage": usage}
    return Reply(200, json.dumps(body).encode())


def refusal(status: int, message: str, **headers: str) -> Reply:
    body = {"error": {"message": message, "type": "invalid_request_error", "code": None}}
    return Reply(status, json.dumps(body).encode(), headers)


@contextmanager
def serving() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.asked.append(asked | {"path": self.path})
            endpoint.headers.append({key.lower(): value for key, value in self.headers.items()})
            reply = endpoint.reply(asked)
            self.send_response(reply.status)
            for key, value in reply.headers.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            # Who has waited too long, or read enough, is gone by now.
            with suppress(ConnectionError):
                self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
