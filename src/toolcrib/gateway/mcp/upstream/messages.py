"""Parse the messages of a server: repair invalid text, or turn an unreadable response into an error response.

Without this, a client would wait for the response to its call until the timeout.
"""

from __future__ import annotations

import re
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

# Only answers up to this size are repaired, because that takes several passes over the text.
MAX_REPAIRED_BYTES: Final = 8 * 1024 * 1024
# How much of the start and of the end of a message is searched for its id.
_ID_BYTES: Final = 65_536
# A line that exceeds the limit this many times has no end, so the connection is closed.
_MAX_EXCESS: Final = 16

UNREADABLE: Final = "unreadable answer: "
TOO_LARGE: Final = "it is too large"
_NOT_JSON_RPC: Final = "it is not a JSON-RPC message"
# How the SDK begins the error of a response over HTTP that it cannot parse or read.
_SDK_ERRORS: Final = ("Failed to parse JSON response: ", "Failed to parse SSE message: ", "SSE stream failed: ")
# Errors of the SDK in place of a response over HTTP that is not one of MCP.
SDK_STAND_INS: Final = {
    "Unexpected content type: ": "it has the content type {rest}",
    "server answered a request with 202": "it has no content",
    "Redirect to ": "it is a redirect; correct the `url` of the server",
    "SSE stream ended without a response": "it has no content",
}
_SDK_SIZE_ERROR: Final = re.compile(rf"exceeded the \d+ byte limit|{TOO_LARGE}")
_JSON_ERROR: Final = re.compile(r"Invalid JSON: (.+?)(?: at line \d| \[type|$)", re.MULTILINE)

_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|(u[dD][c-fC-F][0-9a-fA-F]{2})|[^uU]|u)"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.){0,1000}"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_LAST_ID: Final = re.compile(r'[,{]\s*"id"\s*:\s*(-?\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class EndlessMessage(Exception):
    """A server sends a message without an end."""


class MessageBuffer:
    """Collects the bytes of one message; of a message above the limit, only its start and its end."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._content = bytearray()
        self._size = 0

    def add(self, part: bytes) -> None:
        """Add a part of the message."""
        self._content += part
        self._size += len(part)
        if self._size > self._max_bytes:
            if self._size > _MAX_EXCESS * self._max_bytes:
                raise EndlessMessage
            del self._content[_ID_BYTES:-_ID_BYTES]

    def take_message(self) -> SessionMessage | Exception:
        """Return the message and start the next one."""
        content, is_too_large = bytes(self._content), self._size > self._max_bytes
        self._content.clear()
        self._size = 0
        return _build_unreadable(content, TOO_LARGE) if is_too_large else parse_message(content)


def parse_message(content: bytes) -> SessionMessage | Exception:
    """Return the message in a JSON text, or an exception for a text that is not a message.

    Halves of surrogate pairs, invalid UTF-8 and control characters are replaced. An answer that still
    cannot be parsed becomes an error response to the same request.
    """
    try:
        return _validate(content)
    except ValueError as error:
        if not content.lstrip().startswith(b"{"):
            return error
        first_error = error
    if len(content) <= MAX_REPAIRED_BYTES:
        try:
            return _validate(_CONTROL.sub(" ", decode_repaired(content)))
        except ValueError:
            pass
    return _build_unreadable(content, _describe_json_error(str(first_error)))


def decode_repaired(content: bytes) -> str:
    """Return a JSON text with invalid UTF-8 and halves of surrogate pairs replaced."""
    text = content.decode(errors="replace")
    return _ESCAPE.sub(_repair_escape, text) if "\\ud" in text or "\\uD" in text else text


def describe_unreadable(error: MCPError) -> str:
    """Return why a response could not be read; empty if the server itself sent the error."""
    message = error.error.message
    if message.startswith(UNREADABLE):
        return message.removeprefix(UNREADABLE)
    for prefix, reason in SDK_STAND_INS.items():
        if message.startswith(prefix):
            return reason.format(rest=message.removeprefix(prefix) or "unknown")
    if not message.startswith(_SDK_ERRORS):
        return ""
    return TOO_LARGE if _SDK_SIZE_ERROR.search(message) else _describe_json_error(message)


class RepairedStream:
    """A stream of the SDK that repairs the messages that the SDK could not parse."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def last_context(self) -> Any:
        """The context of the sender of the last message."""
        return self._stream.last_context

    async def __aenter__(self) -> RepairedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.__aexit__(*error)

    def __aiter__(self) -> RepairedStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        message: SessionMessage | Exception = await self._stream.__anext__()
        if isinstance(message, ValidationError):
            content = message.errors(include_url=False)[0].get("input")
            if isinstance(content, str):
                return parse_message(content.encode(errors="replace"))
        return message


def _validate(content: bytes | str) -> SessionMessage:
    return SessionMessage(types.jsonrpc_message_adapter.validate_json(content, by_name=False))


def _repair_escape(match: re.Match[str]) -> str:
    is_half = match[2] or (match[0][1:3] in ("ud", "uD") and not match[1])
    return r"\ufffd" if is_half else match[0]


def _describe_json_error(message: str) -> str:
    found = _JSON_ERROR.search(message)
    if found is None:
        return _NOT_JSON_RPC
    return "it is nested too deeply" if "recursion" in found[1] else f"it is not valid JSON ({found[1][:100]})"


def _build_unreadable(content: bytes, reason: str) -> SessionMessage | Exception:
    """Return an error response to the request that a message answers, or an exception if there is none."""
    id = _find_response_id(content)
    if id is None:
        return ValueError(f"a message cannot be read: {reason}")
    error = types.ErrorData(code=types.PARSE_ERROR, message=f"{UNREADABLE}{reason}")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id, error=error))


def _find_response_id(content: bytes) -> int | None:
    """Return the id of the request that a response answers. The ids of the gateway's requests are integers."""
    start = content[:_ID_BYTES].decode(errors="replace")
    members: dict[str, str] = {}
    depth, name, key = 0, "", ""
    for match in _TOKEN.finditer(start):
        token = match[0]
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
        elif depth == 1 and token == ":":
            key = name
        elif depth == 1 and token == ",":
            key = ""
        elif depth == 1 and key:
            members[key] = token
        elif depth == 1:
            name = token
    if '"method"' in members:
        # A request of the server, whose id is its own.
        return None
    id = members.get('"id"', "")
    if not id.lstrip("-").isdigit():
        last = _LAST_ID.search(content[-_ID_BYTES:].decode(errors="replace"))
        id = last[1] if last else ""
    return int(id) if len(id) in range(1, 19) else None
