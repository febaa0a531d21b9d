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
    MODERN_VERSION,
    VERSION_KEY,
    discovery,
    handshake,
    stamped,
)
from toolcrib.gateway.mcp.server.session import Shown, is_frozen
from toolcrib.gateway.mcp.server.token_savings import Savings
from toolcrib.gateway.mcp.server.tool_handlers import Counter, Errand
from toolcrib.gateway.mcp.upstream.log_levels import LEVELS
from toolcrib.hub.hub import Service

_REQUEST: Final = frozenset({"jsonrpc", "id", "method", "params"})
_CALL: Final = frozenset({"name", "arguments", "_meta"})
_LIST: Final = frozenset({"cursor", "_meta"})
_OPENING_ID: Final = "toolcrib"
_Result = dict[str, Any] | None
_Handler = Callable[[Mapping[str, Any]], Awaitable[_Result]]


@dataclass
class _Unstarted:
    """The servers as long as none is started."""

    service: Service

    def trouble(self) -> dict[str, str]:
        return {}

    def unseen(self) -> dict[str, str]:
        servers = self.service.config.servers.values()
        unknown = (one.name for one in servers if one.enabled and not self.service.knows(one))
        return dict.fromkeys(unknown, "")


@dataclass
class _Visitor:
    """The client."""

    profile: str | None
    shown: Shown
    is_modern: bool = False
    list_is_frozen: bool = False
    told: list[dict[str, Any]] = field(default_factory=list)
    # Whoever started us needs no key.
    caller: str = ""

    @property
    def lasts(self) -> bool:
        return not self.is_modern

    async def tell(self, method: str, params: Mapping[str, Any] | None) -> None:
        note: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        self.told.append({**note, "params": params} if params else note)


class Doorstep:
    """Answers one client, as far as that is possible here."""

    def __init__(self, service: Service, profile: str | None, savings: Savings) -> None:
        self._savings = savings
        self._counter = Counter(service, _Unstarted(service))
        self._client = _Visitor(profile, Shown(profile=profile))
        # What tells the SDK in which era the client speaks; nothing before it was answered here.
        self.opening = b""
        both: dict[str, _Handler] = {"tools/list": self._list, "tools/call": self._call}
        self._older: dict[str, _Handler] = {"ping": self._ping, **both}
        self._modern: dict[str, _Handler] = {"server/discover": self._discover, **both}

    @property
    def shown(self) -> Shown:
        """What the client has been shown."""
        return self._client.shown

    async def answers(self, line: bytes) -> list[str] | None:
        """The lines that answer this one; nothing where that is left to the SDK."""
        self._client.told = []
        try:
            message = json.loads(line.decode())
            if not _is_request(message):
                return None
            result = await self._result(line, message["method"], message.get("params", {}))
            if result is None:
                return None
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            return [_line(one) for one in (*self._client.told, answer)]
        except Exception:
            # The SDK is asked the same, and says and logs what is wrong.
            return None

    async def _result(self, line: bytes, method: str, params: Mapping[str, Any]) -> _Result:
        if method == "initialize":
            return None if self.opening else self._initialized(line, params)
        client = self._client
        meta = params.get("_meta", {})
        if not _is_meta(meta):
            return None
        is_modern = VERSION_KEY in meta
        handler = (self._modern if is_modern else self._older).get(method)
        if handler is None or (is_modern and not _is_envelope(meta)):
            return None
        # A request in the way of the other era, or before a handshake.
        if is_modern is not client.is_modern if self.opening else not is_modern:
            return None
        client.is_modern = is_modern
        answer = await handler(params)
        if answer is None:
            return None
        self.opening = self.opening or _opening(meta)
        result = stamped(method, answer, is_modern=is_modern)
        await self._savings.note(client.profile, method, params, result)
        return result

    def _initialized(self, line: bytes, params: Mapping[str, Any]) -> _Result:
        if params.keys() != {"protocolVersion", "capabilities", "clientInfo"}:
            return None
        version, client = params["protocolVersion"], params["clientInfo"]
        if not isinstance(version, str) or not _are_capabilities(params["capabilities"]):
            return None
        if not _is_client(client):
            return None
        self._client.list_is_frozen = is_frozen(client["name"])
        self.opening = line
        return handshake(version)

    async def _ping(self, params: Mapping[str, Any]) -> _Result:
        return {}

    async def _discover(self, params: Mapping[str, Any]) -> _Result:
        return discovery()

    async def _list(self, params: Mapping[str, Any]) -> _Result:
        if not params.keys() <= _LIST or not isinstance(params.get("cursor", ""), str):
            return None
        if self._counter.awaited(self._client):
            # The servers have to be started first, and that needs the SDK.
            return None
        return await self._counter.tools_list(self._client, params)

    async def _call(self, params: Mapping[str, Any]) -> _Result:
        if not params.keys() <= _CALL or not isinstance(params.get("name"), str):
            return None
        if not isinstance(params.get("arguments", {}), dict):
            return None
        answer = await self._counter.tools_call(self._client, params)
        return None if isinstance(answer, Errand) else answer


def _opening(meta: Mapping[str, Any]) -> bytes:
    asked = {VERSION_KEY: meta[VERSION_KEY], CAPABILITIES_KEY: meta[CAPABILITIES_KEY]}
    message = {"jsonrpc": "2.0", "id": _OPENING_ID, "method": "server/discover"}
    return _line({**message, "params": {"_meta": asked}}).encode()


def _line(message: Mapping[str, Any]) -> str:
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
        meta[VERSION_KEY] == MODERN_VERSION
        and _are_capabilities(meta.get(CAPABILITIES_KEY))
        and (CLIENT_KEY not in meta or _is_client(meta[CLIENT_KEY]))
        and (LEVEL_KEY not in meta or meta[LEVEL_KEY] in LEVELS)
    )


def _is_client(info: object) -> bool:
    return (
        isinstance(info, dict)
        and {"name", "version"} <= info.keys()
        and info.keys() <= {"name", "version", "title", "description", "websiteUrl"}
        and all(isinstance(value, str) for value in info.values())
    )


def _are_capabilities(given: object) -> bool:
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
