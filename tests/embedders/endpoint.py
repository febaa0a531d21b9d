"""A real HTTP server with OpenAI's embeddings API and a scripted model."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import numpy as np


class EndpointReply(NamedTuple):
    """One HTTP reply."""

    status: int
    body: bytes
    headers: dict[str, str] = {}  # noqa: RUF012


class Endpoint:
    """Records requests and replies from a script, or with embeddings if the script is empty."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.script: list[EndpointReply | Callable[[dict[str, Any]], EndpointReply]] = []

    def next_reply(self, request: dict[str, Any]) -> EndpointReply:
        if not self.script:
            return embeddings_reply(request)
        scripted = self.script.pop(0)
        return scripted(request) if callable(scripted) else scripted


def embed_text(text: str) -> list[float]:
    return [float(len(text)), float(sum(char in "aeiou" for char in text)), 1.0]


def embeddings_reply(request: dict[str, Any]) -> EndpointReply:
    """Return the API's reply in the requested format."""
    data = []
    for index, text in enumerate(request["input"]):
        numbers: Any = embed_text(text)[: request.get("dimensions")]
        if request.get("encoding_format") == "base64":
            numbers = base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": numbers})
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    body = {"object": "list", "data": data, "model": request["model"], "usage": usage}
    return EndpointReply(200, json.dumps(body).encode())


def error_reply(status: int, message: str, **headers: str) -> EndpointReply:
    body = {"error": {"message": message, "type": "invalid_request_error", "code": None}}
    return EndpointReply(status, json.dumps(body).encode(), headers)


@contextmanager
def serve_endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class EmbeddingsHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.requests.append(request | {"path": self.path})
            endpoint.headers.append({key.lower(): value for key, value in self.headers.items()})
            reply = endpoint.next_reply(request)
            self.send_response(reply.status)
            for key, value in reply.headers.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            # The client may have closed the connection after a timeout.
            with suppress(ConnectionError):
                self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), EmbeddingsHandler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
