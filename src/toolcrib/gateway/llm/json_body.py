"""JSON bodies: read from anybody, written the same way every time."""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.incremental_json import TooManyContainers, read_in_pieces

# What is larger is read in a thread.
LARGE_BODY_BYTES: Final = 256 << 10
# What has more signs that may part two values is read in pieces, so that others can run meanwhile.
MANY_SIGNS: Final = 50_000


def parse_request_body(data: bytes) -> dict[str, Any]:
    """The JSON object that a request consists of."""
    try:
        body = _value(data)
    except TooManyContainers as fault:
        raise RequestFailed(f"the request has {fault}; send fewer tools", 413) from fault
    except ValueError as fault:
        raise RequestFailed(f"the request body is not valid JSON: {fault}") from fault
    if not isinstance(body, dict):
        raise RequestFailed("the request body must be a JSON object")
    return body


def parse_upstream_body(data: bytes | str) -> dict[str, Any]:
    """The JSON object that an upstream answered with, or sent as one event."""
    try:
        body = _value(data)
    except ValueError as fault:
        raise RequestFailed(f"the upstream sent JSON that cannot be read: {fault}", 502) from fault
    if not isinstance(body, dict):
        raise RequestFailed("the upstream sent JSON that is not an object", 502)
    return body


def serialize_json(value: object) -> bytes:
    """A value as JSON, in as few bytes as it takes."""
    try:
        return to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError as fault:
        raise RequestFailed(f"the request cannot be written as JSON: {fault}") from fault


def _value(data: bytes | str) -> Any:
    if isinstance(data, bytes) and _is_intricate(data):
        return read_in_pieces(data)
    return from_json(data, cache_strings="keys")


def _is_intricate(data: bytes) -> bool:
    """Whether a text takes long to read."""
    return len(data) > LARGE_BODY_BYTES and sum(map(data.count, (b",", b"[", b"{"))) > MANY_SIGNS
