"""Parse and serialize JSON bodies."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

from toolcrib.errors import RequestFailed

# Larger bodies are parsed in a thread.
LARGE_BODY_BYTES: Final = 256 << 10
# A list or an object takes much more memory than its two brackets.
MAX_BRACKETS: Final = 1_000_000
# The parser runs in a thread but holds the interpreter, so a request with many values would delay all others.
MAX_COMMAS: Final = 500_000


def parse_request_body(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a client's request."""
    if _count_brackets(data) > MAX_BRACKETS:
        raise RequestFailed(f"the request has more than {MAX_BRACKETS:,} brackets; send fewer tools", 413)
    if len(data) > LARGE_BODY_BYTES and data.count(b",") > MAX_COMMAS:
        raise RequestFailed(f"the request has more than {MAX_COMMAS:,} commas; send fewer tools or less text", 413)
    try:
        body = from_json(data, cache_strings="keys")
    except ValueError as error:
        raise RequestFailed(f"the request body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestFailed("the request body must be a JSON object")
    return body


def parse_upstream_body(data: bytes | str) -> dict[str, Any]:
    """Return the JSON object of an upstream's response or event."""
    if isinstance(data, bytes) and _count_brackets(data) > MAX_BRACKETS:
        raise RequestFailed(f"the upstream sent more than {MAX_BRACKETS:,} brackets", 502)
    try:
        body = from_json(data, cache_strings="keys")
    except ValueError as error:
        raise RequestFailed(f"the upstream sent invalid JSON: {error}", 502) from error
    if not isinstance(body, dict):
        raise RequestFailed("the upstream sent JSON that is not an object", 502)
    return body


def serialize_json(value: object) -> bytes:
    """Return a value as compact JSON."""
    try:
        return to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError:
        # Models write halves of surrogate pairs, which UTF-8 does not have.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _count_brackets(data: bytes) -> int:
    """Return the number of opening brackets, also within strings, of a large body."""
    return data.count(b"[") + data.count(b"{") if len(data) > LARGE_BODY_BYTES else 0
