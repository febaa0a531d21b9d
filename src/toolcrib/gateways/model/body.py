"""JSON bodies: read from anybody, written the same way every time."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from toolcrib.errors import RequestFailed


def read_object(data: bytes) -> dict[str, Any]:
    """The JSON object that a request consists of."""
    try:
        body = from_json(data, cache_strings="keys")
    except ValueError as fault:
        raise RequestFailed(f"the request body is not valid JSON: {fault}") from fault
    if not isinstance(body, dict):
        raise RequestFailed("the request body must be a JSON object")
    return body


def read_reply(data: bytes | str) -> dict[str, Any]:
    """The JSON object that an upstream answered with, or sent as one event."""
    try:
        body = from_json(data, cache_strings="keys")
    except ValueError as fault:
        raise RequestFailed(f"the upstream sent JSON that cannot be read: {fault}", 502) from fault
    if not isinstance(body, dict):
        raise RequestFailed("the upstream sent JSON that is not an object", 502)
    return body


def written(value: object) -> bytes:
    """A value as JSON, in as few bytes as it takes."""
    try:
        return to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError as fault:
        raise RequestFailed(f"the request cannot be written as JSON: {fault}") from fault
