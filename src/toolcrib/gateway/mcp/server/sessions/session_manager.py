"""The SDK's session manager for streamable HTTP, with sessions that other replicas have opened.

It uses private parts of the SDK, which `tests/gateway/mcp/server/test_replicas.py` covers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.connection import Connection
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, InitializeRequestParams, jsonrpc_message_adapter
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from toolcrib.config.settings import HttpConfig
from toolcrib.errors import InvalidStore
from toolcrib.gateway.mcp.server.sessions.session_store import SESSION_END_TOPIC, SessionStore, StoredSession

RETRY_SECONDS: Final = 2
SESSION_HEADER: Final = "mcp-session-id"
_INITIALIZED: Final = "notifications/initialized"

# Continues a session that another replica has opened.
OnRestore = Callable[[Connection, StoredSession], None]


class ReplicaSessionManager(StreamableHTTPSessionManager):
    """Serves sessions, and restores those that are not known on this replica."""

    def __init__(self, server: Server[Any], sessions: SessionStore, http: HttpConfig, restore: OnRestore) -> None:
        super().__init__(
            server,
            session_idle_timeout=http.session_idle_seconds,
            max_request_body_size=http.max_body_bytes,
            max_sessions=http.max_sessions,
        )
        self._sessions = sessions
        self._replicas = replicas = sessions.replicas
        self._restore = restore
        self._restore_lock = anyio.Lock()
        self._used: set[str] = set()
        # The session and the id of each request that is being answered.
        self._running: set[tuple[str, str]] = set()
        replicas.add_handler("session-message", self._receive_message)
        replicas.add_handler(SESSION_END_TOPIC, self._receive_end)

    def take_used_sessions(self) -> list[str]:
        """Return the sessions that had a request on this replica since the last call, or have an open stream."""
        used, self._used = self._used, set()
        return [id for id, one in self._server_instances.items() if id in used or one._requests_in_flight]

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        id = request.headers.get(SESSION_HEADER)
        if id is None:
            await super()._handle_stateful_request(scope, receive, send)
            return
        self._used.add(id)
        running: set[tuple[str, str]] = set()
        try:
            if id not in self._server_instances:
                await self._restore_session(id, scope)
            transport = self._server_instances.get(id)
            if transport is not None and request.method == "POST":
                body = await request.body()
                receive = replay_body(body, receive)
                message = _parse_message(body) if self._session_owners.get(id) == _get_requestor(scope) else {}
                if self._replicas.is_shared and await self._relay(id, message):
                    await Response(status_code=202, headers={SESSION_HEADER: id})(scope, receive, send)
                    return
                if "method" in message and "id" in message:
                    running.add((id, str(message["id"])))
                if running & self._running:
                    # The SDK would never answer the first one.
                    error = {
                        "code": INVALID_REQUEST,
                        "message": "a request with this id is still running; use another id",
                    }
                    answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
                    await JSONResponse(answer, 400)(scope, receive, send)
                    return
        except InvalidStore as error:
            # The session may exist, so it must not be reported as unknown.
            await _build_retry_response(error)(scope, receive, send)
            return

        is_incomplete = False

        async def send_after_delete(message: Message) -> None:
            nonlocal is_incomplete
            # The client may use the session again as soon as it has the response.
            is_first = message["type"] == "http.response.start"
            if is_first and request.method == "DELETE" and transport is not None and transport.is_terminated:
                await self._sessions.delete(id)
            is_incomplete = is_first or message.get("more_body", False)
            await send(message)

        self._running |= running
        try:
            await super()._handle_stateful_request(scope, receive, send_after_delete)
        finally:
            self._running -= running
        if is_incomplete:
            # The session has ended meanwhile, and the SDK leaves its response open.
            await send({"type": "http.response.body"})

    async def _restore_session(self, id: str, scope: Scope) -> None:
        """Open a session that another replica, or this one before a restart, has stored."""
        async with self._restore_lock:
            if id in self._server_instances or len(self._server_instances) >= (self.max_sessions or 0):
                return
            stored = await self._sessions.load(id)
            requestor = _get_requestor(scope)
            if stored is None or stored.owner != (requestor["client_id"] if requestor else ""):
                return
            transport = StreamableHTTPServerTransport(id, idle_timeout=self.session_idle_timeout)
            if requestor is not None:
                self._session_owners[id] = requestor
            self._server_instances[id] = transport
            assert self._task_group is not None
            await self._task_group.start(self._run_session, transport, stored)

    async def _serve_opening_request(
        self, http_transport: StreamableHTTPServerTransport, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request that opens a session; discard the session unless the handshake succeeds."""
        id = http_transport.mcp_session_id
        assert id is not None and self._task_group is not None
        status = 500

        async def watch_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._task_group.start(self._run_session, http_transport, None)
            await http_transport.handle_request(scope, receive, watch_status)
        finally:
            if status >= 400:
                await self._discard_session(id, http_transport)

    async def _run_session(
        self,
        transport: StreamableHTTPServerTransport,
        stored: StoredSession | None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        id = transport.mcp_session_id
        assert id is not None
        async with transport.connect() as (read_stream, write_stream):
            dispatcher = _ReplicaDispatcher(read_stream, write_stream, self._replicas.id)
            connection = Connection.for_loop(dispatcher, session_id=id)
            if stored is not None:
                connection.client_params = InitializeRequestParams.model_validate(stored.handshake, by_name=False)
                connection.protocol_version = stored.protocol
                connection.initialized.set()
                self._restore(connection, stored)
            task_status.started()
            try:
                with transport.idle_scope or anyio.CancelScope():
                    await serve_connection(
                        self.app, dispatcher, connection=connection, lifespan_state=self._lifespan_state
                    )
            finally:
                self._sessions.forget(id)
                await self._discard_session(id, transport)

    async def _relay(self, id: str, message: Mapping[str, Any]) -> bool:
        """Send a message to the replica that it is for; return whether that is another one.

        A response goes to the replica that sent the request. A notification, such as a cancellation, goes
        to all, because any of them may run the request that it is about.
        """
        if not message or ("method" in message and "id" in message):
            return False
        if message.get("method") == _INITIALIZED:
            return False
        target = "" if "method" in message else str(message.get("id")).partition("-")[0]
        if target == self._replicas.id:
            return False
        try:
            await self._replicas.send("session-message", {"session": id, "message": message}, target)
        except InvalidStore:
            # A notification is handled here, in case this replica runs the request.
            if target:
                raise
        return bool(target)

    async def _receive_message(self, body: Mapping[str, Any]) -> None:
        transport = self._server_instances.get(str(body["session"]))
        if transport is not None and transport._read_stream_writer is not None:
            message = jsonrpc_message_adapter.validate_python(body["message"], by_name=False)
            # The session may end at this moment, and a message for it must not end the gateway.
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await transport._read_stream_writer.send(SessionMessage(message, metadata=ServerMessageMetadata()))

    async def _receive_end(self, body: Mapping[str, Any]) -> None:
        id = str(body["session"])
        transport = self._server_instances.get(id)
        if transport is not None:
            await self._discard_session(id, transport)


class _ReplicaDispatcher(JSONRPCDispatcher[TransportContext]):
    """A dispatcher whose request ids name the replica, so that a response finds its way back."""

    def __init__(self, read_stream: Any, write_stream: Any, replica: str) -> None:
        super().__init__(read_stream, write_stream, inline_methods=frozenset({"initialize"}))
        self._replica = replica

    def _allocate_id(self) -> Any:
        return f"{self._replica}-{super()._allocate_id()}"


def _get_requestor(scope: Scope) -> Any:
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None


def _parse_message(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a body, or an empty one if the SDK has to refuse the body."""
    try:
        message = from_json(body, allow_inf_nan=False)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _build_retry_response(error: InvalidStore) -> Response:
    message = f"the session cannot be served at the moment; try again. {error}"
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": message}}
    return JSONResponse(body, 503, {"retry-after": str(RETRY_SECONDS)})


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields a body that was already read."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
