"""Parse the messages of a server: repair invalid text, or turn an unreadable response into an error response.

Without this, a client would wait for the response to its call until the timeout.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from toolcrib.adapters.plain_json import repair_surrogates

# Only answers up to this size are repaired, because that takes several passes over the text.
MAX_REPAIRED_BYTES: Final = 8 * 1024 * 1024
# How much of the start and of the end of a message is searched for its id.
_ID_BYTES: Final = 65_536
# A line that exceeds the limit this many times has no end, so the connection is closed.
_MAX_EXCESS: Final = 16

UNREADABLE: Final = "unreadable answer: "
TOO_LARGE: Final = "it is too large"
_NOT_JSON_RPC: Final = "it is not a JSON-RPC message"
_BATCH: Final = "it is a batch of messages; the server has to send each message in its own line"
# A longer error message is cut, because it reaches the model.
MAX_ERROR_CHARS: Final = 10_000
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

_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.){0,1000}"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_ID: Final = re.compile(r"(-?\d{1,18})(?:\.0+)?")
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
    # Programs for Windows begin their output with a byte order mark.
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return _validate(content)
    except ValueError as error:
        if content.lstrip().startswith(b"["):
            return _build_unreadable(content.lstrip()[1:], _BATCH)
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
    return repair_surrogates(content.decode(errors="replace"))


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


def repair_tool_result(result: dict[str, Any]) -> None:
    """Repair the result of a call in place; raise `ValueError` with the reason if strict clients would refuse it."""
    for name in [name for name, value in result.items() if value is None]:
        del result[name]
    if not isinstance(result.get("_meta", {}), Mapping):
        del result["_meta"]
    if result.get("resultType", "complete") == "complete" and "task" not in result:
        result.setdefault("content", [])
    content = result.get("content", [])
    if not (isinstance(content, list) and all(isinstance(part, Mapping) for part in content)):
        raise ValueError("its content is not a list")
    if any(part.get("type") == "text" and not isinstance(part.get("text"), str) for part in content):
        raise ValueError("a text in its content is not a string")


def shorten_error(error: MCPError) -> MCPError:
    """Return an error of a server with a message of limited length."""
    code, message = error.error.code, error.error.message
    if len(message) <= MAX_ERROR_CHARS:
        return error
    return MCPError(code, f"{message[:MAX_ERROR_CHARS]}… ({len(message) - MAX_ERROR_CHARS:,} more characters)")


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
    found = _ID.fullmatch(members.get('"id"', "")) or _LAST_ID.search(content[-_ID_BYTES:].decode(errors="replace"))
    return int(found[1]) if found else None
