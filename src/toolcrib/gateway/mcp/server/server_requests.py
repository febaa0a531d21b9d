"""Between the eras: what a server asks in one way is asked of the client in the other.

Newer servers answer with questions, and are called again with the answers. Older ones ask while a
call is under way. A client may be of either kind too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, REQUEST_TIMEOUT

from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.upstream.in_flight import REQUIRED_CAPABILITIES
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer

MAX_INPUT_REQUESTS: Final = 10
MAX_PENDING_CALLS: Final = 1_000
_INPUT_KEY: Final = "1"
_RETRY_KEYS: Final = ("inputResponses", "requestState")

_InputRequest = tuple[int, str, Mapping[str, Any] | None]
_CallOutcome = _InputRequest | dict[str, Any] | Exception


@dataclass(eq=False)
class _PendingInputCall:
    """A call that goes on while its client is away to answer a question of the server's."""

    client: ConnectedClient
    identity: tuple[str | None, str, str, str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    token: str = ""
    # The question that the client is away to answer.
    open_request: int = 0

    def __post_init__(self) -> None:
        # Questions and, if the server did not wait for the answer, the end of the call.
        self._put, self._take = anyio.create_memory_object_stream[_CallOutcome](
            MAX_INPUT_REQUESTS + 1
        )
        self._answer, self._answers = anyio.create_memory_object_stream[tuple[int, dict[str, Any]]](
            MAX_INPUT_REQUESTS
        )
        self._one = anyio.Lock()
        self._count = 0
        self.key = self.client.key

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.client.capabilities

    async def send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        async with self._one:
            number = self._count = self._count + 1
            if number > MAX_INPUT_REQUESTS:
                raise MCPError(
                    INVALID_REQUEST, f"no more than {MAX_INPUT_REQUESTS} questions in one call"
                )
            self._put.send_nowait((number, method, params))
            while True:
                # A server may have given up on an earlier question, whose answer comes all the same.
                to, answer = await self._answers.receive()
                if to == number:
                    return answer

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        await self.client.notify(method, params)

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        await self.client.report_progress(progress, total, message)

    def submit_input(self, client: ConnectedClient, answer: dict[str, Any]) -> None:
        self.client = client
        self._answer.send_nowait((self.open_request, answer))

    def finish(self, outcome: _CallOutcome) -> None:
        self._put.send_nowait(outcome)

    async def next_outcome(self) -> _CallOutcome:
        try:
            return await self._take.receive()
        except BaseException:
            self.scope.cancel()
            raise

    def close(self) -> None:
        for stream in (self._put, self._take, self._answer, self._answers):
            stream.close()


class ServerRequestBridge:
    """Has requests answered by servers, whatever era they and the client are of."""

    def __init__(self, fleet: UpstreamPool) -> None:
        self._pool = fleet
        self._pending: dict[str, _PendingInputCall] = {}

    async def forward_request(
        self,
        upstream: UpstreamServer,
        method: str,
        params: Mapping[str, Any],
        client: ConnectedClient,
        *,
        may_repeat: bool = False,
    ) -> dict[str, Any]:
        """A server's answer to a client's request, with what the server wants to know first."""
        if not client.is_stateless:
            return await _forward_for_handshake_client(upstream, method, params, client, may_repeat)
        name = str(params.get("name") or params.get("uri") or "")
        about = (client.profile, upstream.name, method, name)
        held = self._pending.pop(str(params.get("requestState")), None)
        if held is not None:
            answers = params.get("inputResponses")
            answer = answers.get(_INPUT_KEY) if isinstance(answers, Mapping) else None
            if held.identity != about or not isinstance(answer, dict):
                held.scope.cancel()
                raise MCPError(INVALID_PARAMS, "the answer to what the server asked is missing")
            held.submit_input(client, answer)
            return await self._await_outcome(held)
        can_be_asked = not client.capabilities.keys().isdisjoint(REQUIRED_CAPABILITIES.values())
        if not can_be_asked or (await upstream.wait_connected()).session.is_stateless:
            return await upstream.request(method, params, client, may_retry=may_repeat)
        if "requestState" in params:
            # To begin anew would do a second time what may have been done already.
            raise MCPError(
                INVALID_PARAMS,
                "this question is no longer open; whether the call had an effect is not known",
            )
        if len(self._pending) >= MAX_PENDING_CALLS:
            raise ServerUnavailable("too many calls wait for answers of clients; try again later")
        held = _PendingInputCall(client, about)
        sent = {key: value for key, value in params.items() if key not in _RETRY_KEYS}
        self._pool.run_in_background(self._run_call, held, upstream, method, sent, may_repeat)
        return await self._await_outcome(held)

    async def _run_call(
        self,
        held: _PendingInputCall,
        upstream: UpstreamServer,
        method: str,
        params: Mapping[str, Any],
        may_repeat: bool,
    ) -> None:
        """The call itself, which outlasts the requests of the client."""
        outcome: _CallOutcome | None = None
        try:
            with held.scope:
                outcome = await upstream.request(method, params, held, may_retry=may_repeat)
        except Exception as fault:
            outcome = fault
        finally:
            # Whoever waits for the outcome is given it; where nobody does, that was all.
            if self._pending.pop(held.token, None) or outcome is None:
                held.close()
            else:
                held.finish(outcome)

    async def _await_outcome(self, held: _PendingInputCall) -> dict[str, Any]:
        """The end of a held call, or the next question of its server."""
        outcome = await held.next_outcome()
        if isinstance(outcome, tuple):
            held.open_request, method, params = outcome
            held.token = secrets.token_urlsafe(24)
            self._pending[held.token] = held
            asked = {_INPUT_KEY: {"method": method, **({"params": params} if params else {})}}
            return {
                "resultType": "input_required",
                "inputRequests": asked,
                "requestState": held.token,
            }
        held.close()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def _forward_for_handshake_client(
    upstream: UpstreamServer,
    method: str,
    params: Mapping[str, Any],
    client: ConnectedClient,
    may_repeat: bool,
) -> dict[str, Any]:
    for _ in range(MAX_INPUT_REQUESTS):
        result = await upstream.request(method, params, client, may_retry=may_repeat)
        if result.get("resultType") != "input_required":
            return result
        asked = result.get("inputRequests")
        answers: dict[str, Any] = {}
        for key, one in (asked if isinstance(asked, Mapping) else {}).items():
            wanted = one.get("method") if isinstance(one, Mapping) else None
            if not isinstance(wanted, str) or wanted not in REQUIRED_CAPABILITIES:
                raise MCPError(INTERNAL_ERROR, f"{upstream.name} asks for something unknown")
            answers[key] = await _request_input(upstream, client, wanted, one.get("params"))
        params = {**params, "inputResponses": answers}
        if "requestState" in result:
            params["requestState"] = result["requestState"]
    raise MCPError(
        INTERNAL_ERROR, f"{upstream.name} asked more than {MAX_INPUT_REQUESTS} times in a row"
    )


async def _request_input(
    upstream: UpstreamServer, client: ConnectedClient, method: str, params: Mapping[str, Any] | None
) -> dict[str, Any]:
    try:
        with anyio.fail_after(upstream.config.answer_seconds):
            return await client.send_request(method, params)
    except TimeoutError:
        raise MCPError(REQUEST_TIMEOUT, f"the client did not answer {method} in time") from None
