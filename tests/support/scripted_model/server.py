"""A scripted model behind the real HTTP APIs of the providers.

    with ScriptedModel([Turn(ToolCall("add", {"a": 1, "b": 2})), Turn("It is 3.")]) as model:
        client = openai.OpenAI(base_url=f"{model.url}/v1", api_key="any")

A script is a list of turns, or a function that returns the turn for a request.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.support.scripted_model.turn import Failure, Turn
from tests.support.scripted_model.wires.anthropic import Anthropic
from tests.support.scripted_model.wires.gemini import Gemini
from tests.support.scripted_model.wires.openai_chat import OpenAIChat
from tests.support.scripted_model.wires.openai_responses import OpenAIResponses
from tests.support.scripted_model.wires.wire import Wire

WIRES: tuple[Wire, ...] = (Anthropic(), OpenAIChat(), OpenAIResponses(), Gemini())


@dataclass(frozen=True)
class Request:
    """A request, with accessors that work for every API."""

    wire: Wire
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def streams(self) -> bool:
        """Whether the response has to be streamed."""
        return self.wire.streams(self.path, self.body)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools in the request."""
        return self.wire.tool_names(self.body)

    @property
    def user_text(self) -> str:
        """The text of the last user message."""
        return self.wire.user_text(self.body)

    @property
    def results(self) -> tuple[str, ...]:
        """The results of the calls of the model's last turn."""
        return self.wire.results(self.body)


Script = Iterable[Turn | Failure] | Callable[[Request], Turn | Failure]


class ScriptedModel:
    """The server, running inside its `with` block."""

    def __init__(self, script: Script) -> None:
        self.requests: list[Request] = []
        self._turns = script if callable(script) else _in_order(script)
        self._lock = threading.Lock()
        self._numbers = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ScriptedModel:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def turn(self, request: Request) -> Turn | Failure:
        """Record a request and return the turn to answer with; each call in it has an id."""
        if fault := request.wire.find_request_error(request.body):
            return Failure(400, fault)
        with self._lock:
            self.requests.append(request)
            turn = self._turns(request)
            return turn.with_ids(self._new_id(request)) if isinstance(turn, Turn) else turn

    def _new_id(self, request: Request) -> Callable[[], str]:
        def new_id() -> str:
            self._numbers += 1
            return request.wire.new_id(self._numbers)

        return new_id


def _in_order(script: Iterable[Turn | Failure]) -> Callable[[Request], Turn | Failure]:
    turns = iter(script)

    def turn(request: Request) -> Turn | Failure:
        return next(turns, Failure(400, "the script has no more turns"))

    return turn


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class ScriptedModelHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            path = urlsplit(self.path).path
            wire = next((wire for wire in WIRES if wire.handles_path(path)), None)
            if wire is None:
                self._send_json(404, {"error": {"message": f"no such path: {path}"}})
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(wire, Request(wire, path, headers, body))

        def _answer(self, wire: Wire, request: Request) -> None:
            if counted := wire.count_tokens(request.path, request.body):
                self._send_json(200, counted)
                return
            turn = model.turn(request)
            number = len(model.requests)
            if isinstance(turn, Failure):
                self._send_json(turn.status, wire.render_error(turn.status, turn.message))
            elif request.streams and request.path.endswith(":streamGenerateContent") and "alt=sse" not in self.path:
                # Gemini answers with a JSON array, unless events are asked for.
                events = b"".join(wire.render_events(turn, request.body, number)).split(b"\n\n")
                self._send_json(200, [json.loads(event.removeprefix(b"data: ")) for event in events if event])
            elif request.streams:
                self._send_events(wire.render_events(turn, request.body, number))
            else:
                self._send_json(200, wire.render_response(turn, request.body, number))

        def _send_json(self, status: int, body: dict[str, Any] | list[Any]) -> None:
            content = json.dumps(body, ensure_ascii=False).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _send_events(self, events: Iterable[bytes]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Connection", "close")
            self.end_headers()
            # A client may disconnect early.
            with suppress(ConnectionError):
                for event in events:
                    self.wfile.write(event)
                    self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing; the requests are in `requests`."""

    return ScriptedModelHandler
