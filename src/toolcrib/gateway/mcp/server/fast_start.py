"""The first requests of a client, answered on the doorstep: before the SDK is loaded.

Loading the SDK takes most of a start, and a list or a search needs nothing of it. Only what a client
says plainly is answered here; whatever is unusual, wrong or a server's is left to the SDK, which is
then told how the conversation began.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolcrib.gateway.mcp.server.protocol import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEVEL_KEY,
    STATELESS_VERSION,
    VERSION_KEY,
    build_discover_result,
    build_initialize_result,
    stamp_result,
)
from toolcrib.gateway.mcp.server.session import SessionState, is_single_list_client
from toolcrib.gateway.mcp.server.token_savings import TokenSavings
from toolcrib.gateway.mcp.server.tool_handlers import ToolHandlers, UpstreamCall
from toolcrib.gateway.mcp.upstream.log_levels import LOG_LEVELS
from toolcrib.hub.hub import Hub

_REQUEST: Final = frozenset({"jsonrpc", "id", "method", "params"})
_CALL: Final = frozenset({"name", "arguments", "_meta"})
_LIST: Final = frozenset({"cursor", "_meta"})
_OPENING_ID: Final = "toolcrib"
_Result = dict[str, Any] | None
_Handler = Callable[[Mapping[str, Any]], Awaitable[_Result]]


@dataclass
class _UnstartedServers:
    """The servers as long as none is started."""

    hub: Hub

    def unreachable_servers(self) -> dict[str, str]:
        return {}

    def unlisted_servers(self) -> dict[str, str]:
        servers = self.hub.config.servers.values()
        unknown = (one.name for one in servers if one.enabled and not self.hub.knows_tools_of(one))
        return dict.fromkeys(unknown, "")


@dataclass
class _FastStartClient:
    """The client."""

    profile: str | None
    state: SessionState
    is_stateless: bool = False
    reads_list_once: bool = False
    notifications: list[dict[str, Any]] = field(default_factory=list)
    # Whoever started us needs no key.
    caller: str = ""

    @property
    def lasts(self) -> bool:
        return not self.is_stateless

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        note: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        self.notifications.append({**note, "params": params} if params else note)


class FastStart:
    """Answers one client, as far as that is possible here."""

    def __init__(self, service: Hub, profile: str | None, savings: TokenSavings) -> None:
        self._token_savings = savings
        self._tool_handlers = ToolHandlers(service, _UnstartedServers(service))
        self._client = _FastStartClient(profile, SessionState(profile=profile))
        # What tells the SDK in which era the client speaks; nothing before it was answered here.
        self.opening_message = b""
        both: dict[str, _Handler] = {"tools/list": self._list, "tools/call": self._call}
        self._handshake_handlers: dict[str, _Handler] = {"ping": self._ping, **both}
        self._stateless_handlers: dict[str, _Handler] = {"server/discover": self._discover, **both}

    @property
    def state(self) -> SessionState:
        """What the client has been shown."""
        return self._client.state

    async def respond(self, line: bytes) -> list[str] | None:
        """The lines that answer this one; nothing where that is left to the SDK."""
        self._client.notifications = []
        try:
            message = json.loads(line.decode())
            if not _is_request(message):
                return None
            result = await self._build_result(line, message["method"], message.get("params", {}))
            if result is None:
                return None
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            return [_encode_line(one) for one in (*self._client.notifications, answer)]
        except Exception:
            # The SDK is asked the same, and says and logs what is wrong.
            return None

    async def _build_result(self, line: bytes, method: str, params: Mapping[str, Any]) -> _Result:
        if method == "initialize":
            return None if self.opening_message else self._initialize(line, params)
        client = self._client
        meta = params.get("_meta", {})
        if not _is_meta(meta):
            return None
        is_modern = VERSION_KEY in meta
        handler = (self._stateless_handlers if is_modern else self._handshake_handlers).get(method)
        if handler is None or (is_modern and not _is_envelope(meta)):
            return None
        # A request in the way of the other era, or before a handshake.
        if is_modern is not client.is_stateless if self.opening_message else not is_modern:
            return None
        client.is_stateless = is_modern
        answer = await handler(params)
        if answer is None:
            return None
        self.opening_message = self.opening_message or _build_opening_message(meta)
        result = stamp_result(method, answer, is_stateless=is_modern)
        await self._token_savings.record_response(client.profile, method, params, result)
        return result

    def _initialize(self, line: bytes, params: Mapping[str, Any]) -> _Result:
        if params.keys() != {"protocolVersion", "capabilities", "clientInfo"}:
            return None
        version, client = params["protocolVersion"], params["clientInfo"]
        if not isinstance(version, str) or not _is_capabilities(params["capabilities"]):
            return None
        if not _is_client(client):
            return None
        self._client.reads_list_once = is_single_list_client(client["name"])
        self.opening_message = line
        return build_initialize_result(version)

    async def _ping(self, params: Mapping[str, Any]) -> _Result:
        return {}

    async def _discover(self, params: Mapping[str, Any]) -> _Result:
        return build_discover_result()

    async def _list(self, params: Mapping[str, Any]) -> _Result:
        if not params.keys() <= _LIST or not isinstance(params.get("cursor", ""), str):
            return None
        if self._tool_handlers.find_unlisted_servers(self._client):
            # The servers have to be started first, and that needs the SDK.
            return None
        return await self._tool_handlers.list_tools(self._client, params)

    async def _call(self, params: Mapping[str, Any]) -> _Result:
        if not params.keys() <= _CALL or not isinstance(params.get("name"), str):
            return None
        if not isinstance(params.get("arguments", {}), dict):
            return None
        answer = await self._tool_handlers.handle_call(self._client, params)
        return None if isinstance(answer, UpstreamCall) else answer


def _build_opening_message(meta: Mapping[str, Any]) -> bytes:
    asked = {VERSION_KEY: meta[VERSION_KEY], CAPABILITIES_KEY: meta[CAPABILITIES_KEY]}
    message = {"jsonrpc": "2.0", "id": _OPENING_ID, "method": "server/discover"}
    return _encode_line({**message, "params": {"_meta": asked}}).encode()


def _encode_line(message: Mapping[str, Any]) -> str:
    # What JSON does not know fails here, as does half a character when it is encoded.
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text.encode()
    return f"{text}\n"


def _is_request(message: object) -> bool:
    return (
        isinstance(message, dict)
        and message.keys() <= _REQUEST
        and message.get("jsonrpc") == "2.0"
        and _is_id(message.get("id"))
        and isinstance(message.get("method"), str)
        and isinstance(message.get("params", {}), dict)
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _is_meta(meta: object) -> bool:
    return isinstance(meta, dict) and _is_id(meta.get("progressToken", ""))


def _is_envelope(meta: Mapping[str, Any]) -> bool:
    return (
        meta[VERSION_KEY] == STATELESS_VERSION
        and _is_capabilities(meta.get(CAPABILITIES_KEY))
        and (CLIENT_KEY not in meta or _is_client(meta[CLIENT_KEY]))
        and (LEVEL_KEY not in meta or meta[LEVEL_KEY] in LOG_LEVELS)
    )


def _is_client(info: object) -> bool:
    return (
        isinstance(info, dict)
        and {"name", "version"} <= info.keys()
        and info.keys() <= {"name", "version", "title", "description", "websiteUrl"}
        and all(isinstance(value, str) for value in info.values())
    )


def _is_capabilities(given: object) -> bool:
    if not isinstance(given, dict):
        return False
    roots = given.get("roots", {})
    nested = (given.get(key, {}) for key in ("sampling", "elicitation", "experimental"))
    return (
        given.keys() <= {"roots", "sampling", "elicitation", "experimental", "extensions"}
        and isinstance(roots, dict)
        and isinstance(roots.get("listChanged", True), bool)
        and all(map(_holds_objects, (*nested, given.get("extensions", {}))))
    )


def _holds_objects(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())
