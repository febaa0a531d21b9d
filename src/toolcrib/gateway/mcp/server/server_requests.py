"""Requests of upstream servers to clients, bridged between the two protocol revisions.

A stateless server returns an `input_required` result and is called again with the input. A server
with a handshake sends a request while the call is in flight. The client may use either revision.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST

from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.remote_calls import CallClient, RemoteCalls
from toolcrib.gateway.mcp.upstream.in_flight import REQUIRED_CAPABILITIES, send_with_timeout
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.gateway.replicas import ReplicaChannel

MAX_INPUT_REQUESTS: Final = 10
MAX_PENDING_CALLS: Final = 1_000
_INPUT_KEY: Final = "1"
_RETRY_KEYS: Final = ("inputResponses", "requestState")

_InputRequest = tuple[int, str, Mapping[str, Any] | None]
_CallOutcome = _InputRequest | dict[str, Any] | Exception


@dataclass(eq=False)
class PendingInputCall:
    """A call of a stateless client to a server with a handshake.

    The call stays in flight at the server while the client collects input and sends it in a new
    request. It is the server's caller, and turns the server's requests into outcomes.
    """

    client: CallClient
    identity: tuple[str | None, str, str, str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    token: str = ""
    # The number of the request that the client is collecting input for.
    open_request: int = 0

    def __post_init__(self) -> None:
        # Room for all input requests and, if the server does not wait for input, the final result.
        self._outcome_sender, self._outcomes = anyio.create_memory_object_stream[_CallOutcome](MAX_INPUT_REQUESTS + 1)
        self._input_sender, self._inputs = anyio.create_memory_object_stream[tuple[int, dict[str, Any]]](
            MAX_INPUT_REQUESTS
        )
        self._request_lock = anyio.Lock()
        self._request_count = 0
        self.key = self.client.key

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.client.capabilities

    async def send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Publish a request of the server and wait for the client's input."""
        async with self._request_lock:
            number = self._request_count = self._request_count + 1
            if number > MAX_INPUT_REQUESTS:
                raise MCPError(
                    INVALID_REQUEST, f"a server may send at most {MAX_INPUT_REQUESTS} requests during one call"
                )
            self._outcome_sender.send_nowait((number, method, params))
            while True:
                # Input for an earlier request may arrive after the server has given up on it.
                request_number, response = await self._inputs.receive()
                if request_number == number:
                    return response

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        await self.client.notify(method, params)

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self.client.report_progress(progress, total, message)

    def submit_input(self, client: CallClient, response: dict[str, Any]) -> None:
        self.client = client
        self._input_sender.send_nowait((self.open_request, response))

    def finish(self, outcome: _CallOutcome) -> None:
        self._outcome_sender.send_nowait(outcome)

    async def next_outcome(self) -> _CallOutcome:
        """Return the next request of the server or the end of the call; cancelling ends the call."""
        try:
            return await self._outcomes.receive()
        except BaseException:
            self.scope.cancel()
            raise

    def close(self) -> None:
        for stream in (self._outcome_sender, self._outcomes, self._input_sender, self._inputs):
            stream.close()


class ServerRequestBridge:
    """Forwards client requests to servers, whichever protocol revision each side uses."""

    def __init__(self, pool: UpstreamPool, replicas: ReplicaChannel) -> None:
        self._pool = pool
        self._replicas = replicas
        self._remote_calls = RemoteCalls(replicas, pool, self.forward_request)
        # Calls whose clients are collecting input, by request state token.
        self._pending: dict[str, PendingInputCall] = {}

    @property
    def pending_count(self) -> int:
        """The number of calls whose clients are collecting input."""
        return len(self._pending)

    async def forward_request(
        self,
        server: UpstreamServer,
        method: str,
        params: Mapping[str, Any],
        client: CallClient,
        *,
        may_repeat: bool = False,
    ) -> dict[str, Any]:
        """Return a server's result, or its request for input in the form the client expects."""
        replica = self._remote_calls.find_replica(server, params) if isinstance(client, ConnectedClient) else ""
        if replica and isinstance(client, ConnectedClient):
            return await self._remote_calls.forward(replica, server.name, (method, params, may_repeat), client)
        if server.config.instances != "shared":
            server = self._pool.instances.find(server, client.get_instance_key(server.config.instances))
        if not client.is_stateless:
            return await _forward_for_handshake_client(server, method, params, client, may_repeat)
        name = str(params.get("name") or params.get("uri") or "")
        identity = (client.profile, server.name, method, name)
        call = self._pending.pop(str(params.get("requestState")), None)
        if call is not None:
            responses = params.get("inputResponses")
            response = responses.get(_INPUT_KEY) if isinstance(responses, Mapping) else None
            if call.identity != identity or not isinstance(response, dict):
                call.scope.cancel()
                raise MCPError(INVALID_PARAMS, "`inputResponses` lacks the input that the server requested")
            call.submit_input(client, response)
            return await self._await_outcome(call)
        accepts_requests = not client.capabilities.keys().isdisjoint(REQUIRED_CAPABILITIES.values())
        if not accepts_requests or (await server.wait_connected()).session.is_stateless:
            return await server.request(method, params, client, may_retry=may_repeat)
        if "requestState" in params:
            # Starting the call again could repeat an effect that it already had.
            raise MCPError(
                INVALID_PARAMS, "the server no longer waits for this input; the call may or may not have had an effect"
            )
        if len(self._pending) >= MAX_PENDING_CALLS:
            raise ServerUnavailable("too many calls wait for input from clients; try again later")
        call = PendingInputCall(client, identity)
        params = {key: value for key, value in params.items() if key not in _RETRY_KEYS}
        self._pool.run_in_background(self._run_call, call, server, method, params, may_repeat)
        return await self._await_outcome(call)

    async def _run_call(
        self, call: PendingInputCall, server: UpstreamServer, method: str, params: Mapping[str, Any], may_repeat: bool
    ) -> None:
        """Run the call in a background task, because it outlives the client's requests."""
        outcome: _CallOutcome | None = None
        try:
            with call.scope:
                outcome = await server.request(method, params, call, may_retry=may_repeat)
        except Exception as error:
            outcome = error
        finally:
            # A pending call has no request of the client that could receive the outcome.
            if self._pending.pop(call.token, None) or outcome is None:
                call.close()
            else:
                call.finish(outcome)

    async def _await_outcome(self, call: PendingInputCall) -> dict[str, Any]:
        """Return the result of a call, or an `input_required` result for the server's request."""
        outcome = await call.next_outcome()
        if isinstance(outcome, tuple):
            call.open_request, method, params = outcome
            # The next request of the client may reach another replica, which finds this one by its id.
            call.token = f"{self._replicas.id}-{secrets.token_urlsafe(24)}"
            self._pending[call.token] = call
            request = {"method": method, **({"params": params} if params else {})}
            return {"resultType": "input_required", "inputRequests": {_INPUT_KEY: request}, "requestState": call.token}
        call.close()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def _forward_for_handshake_client(
    server: UpstreamServer, method: str, params: Mapping[str, Any], client: CallClient, may_repeat: bool
) -> dict[str, Any]:
    """Return a server's result; send each input that it requires as a request to the client."""
    for _ in range(MAX_INPUT_REQUESTS):
        result = await server.request(method, params, client, may_retry=may_repeat)
        if result.get("resultType") != "input_required":
            return result
        requests = result.get("inputRequests")
        responses: dict[str, Any] = {}
        for key, request in (requests if isinstance(requests, Mapping) else {}).items():
            request_method = request.get("method") if isinstance(request, Mapping) else None
            if not isinstance(request_method, str) or request_method not in REQUIRED_CAPABILITIES:
                raise MCPError(INTERNAL_ERROR, f"{server.name} sent a request of an unknown method")
            responses[key] = await send_with_timeout(
                client, request_method, request.get("params"), server.config.answer_seconds
            )
        params = {**params, "inputResponses": responses}
        if "requestState" in result:
            params["requestState"] = result["requestState"]
    raise MCPError(INTERNAL_ERROR, f"{server.name} requested input more than {MAX_INPUT_REQUESTS} times")
