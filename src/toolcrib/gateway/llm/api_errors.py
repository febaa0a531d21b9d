"""Errors in the shapes of the APIs."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.errors import RequestFailed

_MESSAGES_KINDS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_KINDS: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


def render_messages_error(fault: RequestFailed) -> dict[str, Any]:
    """The body of an error of Anthropic's Messages API."""
    kind = fault.error_type or _MESSAGES_KINDS.get(fault.status, "api_error")
    error: dict[str, Any] = {"type": kind, "message": str(fault)}
    if fault.code:
        error["details"] = {"error_code": fault.code}
    return {"type": "error", "error": error, "request_id": None}


def render_openai_error(fault: RequestFailed) -> dict[str, Any]:
    """The body of an error of OpenAI's APIs."""
    usual = "server_error" if fault.status >= 500 else "invalid_request_error"
    kind = fault.error_type or _OPENAI_KINDS.get(fault.status, usual)
    return {
        "error": {
            "message": str(fault),
            "type": kind,
            "param": fault.param or None,
            "code": fault.code or None,
        }
    }


def render_combined_error(fault: RequestFailed) -> dict[str, Any]:
    """The body of an error for a client of which nobody knows which API it speaks."""
    messages = render_messages_error(fault)
    return {**messages, "error": {**render_openai_error(fault)["error"], **messages["error"]}}
