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
from toolcrib.gateway.mcp.server.client import Client
from toolcrib.gateway.mcp.upstream.in_flight import ASKS
from toolcrib.gateway.mcp.upstream.pool import Fleet
from toolcrib.gateway.mcp.upstream.supervisor import Upstream

MAX_ROUNDS: Final = 10
MAX_HELD: Final = 1_000
_KEY: Final = "1"
_RETRY: Final = ("inputResponses", "requestState")

_Question = tuple[int, str, Mapping[str, Any] | None]
_Outcome = _Question | dict[str, Any] | Exception


@dataclass(eq=False)
class _Held:
    """A call that goes on while its client is away to answer a question of the server's."""

    client: Client
    about: tuple[str | None, str, str, str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    token: str = ""
    # The question that the client is away to answer.
    open: int = 0

    def __post_init__(self) -> None:
        # Questions and, if the server did not wait for the answer, the end of the call.
        self._put, self._take = anyio.create_memory_object_stream[_Outcome](MAX_ROUNDS + 1)
        self._answer, self._answers = anyio.create_memory_object_stream[tuple[int, dict[str, Any]]](
            MAX_ROUNDS
        )
        self._one = anyio.Lock()
        self._count = 0
        self.key = self.client.key

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.client.capabilities

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        async with self._one:
            number = self._count = self._count + 1
            if number > MAX_ROUNDS:
                raise MCPError(INVALID_REQUEST, f"no more than {MAX_ROUNDS} questions in one call")
            self._put.send_nowait((number, method, params))
            while True:
                # A server may have given up on an earlier question, whose answer comes all the same.
                to, answer = await self._answers.receive()
                if to == number:
                    return answer

    async def tell(self, method: str, params: Mapping[str, Any] | None) -> None:
        await self.client.tell(method, params)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self.client.progress(progress, total, message)

    def answer(self, client: Client, answer: dict[str, Any]) -> None:
        self.client = client
        self._answer.send_nowait((self.open, answer))

    def end(self, outcome: _Outcome) -> None:
        self._put.send_nowait(outcome)

    async def next(self) -> _Outcome:
        try:
            return await self._take.receive()
        except BaseException:
            self.scope.cancel()
            raise

    def close(self) -> None:
        for stream in (self._put, self._take, self._answer, self._answers):
            stream.close()


class Bridge:
    """Has requests answered by servers, whatever era they and the client are of."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._held: dict[str, _Held] = {}

    async def answered(
        self,
        upstream: Upstream,
        method: str,
        params: Mapping[str, Any],
        client: Client,
        *,
        may_repeat: bool = False,
    ) -> dict[str, Any]:
        """A server's answer to a client's request, with what the server wants to know first."""
        if not client.is_modern:
            return await _answered_for_older(upstream, method, params, client, may_repeat)
        name = str(params.get("name") or params.get("uri") or "")
        about = (client.profile, upstream.name, method, name)
        held = self._held.pop(str(params.get("requestState")), None)
        if held is not None:
            answers = params.get("inputResponses")
            answer = answers.get(_KEY) if isinstance(answers, Mapping) else None
            if held.about != about or not isinstance(answer, dict):
                held.scope.cancel()
                raise MCPError(INVALID_PARAMS, "the answer to what the server asked is missing")
            held.answer(client, answer)
            return await self._followed(held)
        can_be_asked = not client.capabilities.keys().isdisjoint(ASKS.values())
        if not can_be_asked or (await upstream.linked()).session.is_modern:
            return await upstream.request(method, params, client, may_repeat=may_repeat)
        if "requestState" in params:
            # To begin anew would do a second time what may have been done already.
            raise MCPError(
                INVALID_PARAMS,
                "this question is no longer open; whether the call had an effect is not known",
            )
        if len(self._held) >= MAX_HELD:
            raise ServerUnavailable("too many calls wait for answers of clients; try again later")
        held = _Held(client, about)
        sent = {key: value for key, value in params.items() if key not in _RETRY}
        self._fleet.start_soon(self._carry_on, held, upstream, method, sent, may_repeat)
        return await self._followed(held)

    async def _carry_on(
        self,
        held: _Held,
        upstream: Upstream,
        method: str,
        params: Mapping[str, Any],
        may_repeat: bool,
    ) -> None:
        """The call itself, which outlasts the requests of the client."""
        outcome: _Outcome | None = None
        try:
            with held.scope:
                outcome = await upstream.request(method, params, held, may_repeat=may_repeat)
        except Exception as fault:
            outcome = fault
        finally:
            # Whoever waits for the outcome is given it; where nobody does, that was all.
            if self._held.pop(held.token, None) or outcome is None:
                held.close()
            else:
                held.end(outcome)

    async def _followed(self, held: _Held) -> dict[str, Any]:
        """The end of a held call, or the next question of its server."""
        outcome = await held.next()
        if isinstance(outcome, tuple):
            held.open, method, params = outcome
            held.token = secrets.token_urlsafe(24)
            self._held[held.token] = held
            asked = {_KEY: {"method": method, **({"params": params} if params else {})}}
            return {
                "resultType": "input_required",
                "inputRequests": asked,
                "requestState": held.token,
            }
        held.close()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def _answered_for_older(
    upstream: Upstream,
    method: str,
    params: Mapping[str, Any],
    client: Client,
    may_repeat: bool,
) -> dict[str, Any]:
    for _ in range(MAX_ROUNDS):
        result = await upstream.request(method, params, client, may_repeat=may_repeat)
        if result.get("resultType") != "input_required":
            return result
        asked = result.get("inputRequests")
        answers: dict[str, Any] = {}
        for key, one in (asked if isinstance(asked, Mapping) else {}).items():
            wanted = one.get("method") if isinstance(one, Mapping) else None
            if not isinstance(wanted, str) or wanted not in ASKS:
                raise MCPError(INTERNAL_ERROR, f"{upstream.name} asks for something unknown")
            answers[key] = await _answer(upstream, client, wanted, one.get("params"))
        params = {**params, "inputResponses": answers}
        if "requestState" in result:
            params["requestState"] = result["requestState"]
    raise MCPError(INTERNAL_ERROR, f"{upstream.name} asked more than {MAX_ROUNDS} times in a row")


async def _answer(
    upstream: Upstream, client: Client, method: str, params: Mapping[str, Any] | None
) -> dict[str, Any]:
    try:
        with anyio.fail_after(upstream.server.answer_seconds):
            return await client.ask(method, params)
    except TimeoutError:
        raise MCPError(REQUEST_TIMEOUT, f"the client did not answer {method} in time") from None
