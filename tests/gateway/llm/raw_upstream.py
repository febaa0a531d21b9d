"""An upstream that sends scripted bytes, also broken, slow or none."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO

Body = dict[str, Any]


def event(kind: str, **fields: Any) -> bytes:
    """Return an event of the Messages API."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def message_start(tokens: int = 7) -> bytes:
    """Return the first event of a stream."""
    message = {"id": "msg_01", "type": "message", "role": "assistant", "content": []}
    return event(
        "message_start", message={**message, "model": "m", "usage": {"input_tokens": tokens, "output_tokens": 1}}
    )


def text_block(text: str, index: int = 0) -> bytes:
    """Return the events of a text block."""
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": text}
    return (
        event("content_block_start", index=index, content_block=block)
        + event("content_block_delta", index=index, delta=delta)
        + event("content_block_stop", index=index)
    )


def tool_call_block(name: str, arguments: object, index: int = 0) -> bytes:
    """Return the events of a tool call."""
    block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    return (
        event("content_block_start", index=index, content_block=block)
        + event("content_block_delta", index=index, delta=delta)
        + event("content_block_stop", index=index)
    )


def message_end(reason: str = "end_turn") -> bytes:
    """Return the last events of a stream."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage={"output_tokens": 3}) + event("message_stop")


@dataclass
class ScriptedAnswer:
    """A scripted response. Functions among the pieces are called between sends."""

    pieces: Sequence[bytes | Callable[[], object]] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    length: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class RawUpstream:
    """The requests of an upstream; `gone` is set if a client disconnects early."""

    url: str
    answers: list[ScriptedAnswer]
    bodies: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)


@contextmanager
def raw_upstream(*answers: ScriptedAnswer, always: ScriptedAnswer | None = None) -> Iterator[RawUpstream]:
    """Run an upstream that sends these answers in order, then `always`, or closes."""
    script = list(answers)

    class RawUpstreamHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            known.headers.append({name.lower(): value for name, value in self.headers.items()})
            known.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer()

        def do_GET(self) -> None:
            known.headers.append({name.lower(): value for name, value in self.headers.items()})
            self._answer()

        do_DELETE = do_GET

        def _answer(self) -> None:
            known.paths.append(f"{self.command} {self.path}")
            answer = script.pop(0) if script else always
            if answer is None:
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.length is not None:
                self.send_header("Content-Length", str(answer.length))
            self.end_headers()
            try:
                _send(self.wfile, answer)
            except ConnectionError:
                known.gone.set()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), RawUpstreamHandler)
    server.daemon_threads = True
    known = RawUpstream(f"http://127.0.0.1:{server.server_port}", script)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        with suppress(OSError):
            server.server_close()
        thread.join()


def _send(file: BinaryIO | Any, answer: ScriptedAnswer) -> None:
    for piece in answer.pieces:
        if callable(piece):
            piece()
        else:
            file.write(piece)
            file.flush()
