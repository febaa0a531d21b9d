"""The OpenAPI description of what is served beside MCP and the model APIs."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.gateway.mcp.admin.api import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from toolcrib.gateway.openapi import described
from toolcrib.session.turn import DEFAULT_LIMIT, MAX_LIMIT

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer", "minimum": 0}
_YES_OR_NO: Final = {"type": "boolean"}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_TOOL: Final = _object(name=_TEXT, server=_TEXT, inputSchema={"type": "object"})
_REASON: Final = _object(term=_TEXT, field=_TEXT, share={"type": "number"})
_SCORED: Final = _object(score={"type": "number"}, tool=_ref("Tool"))
# Told only to who asks for reasons.
_HIT: Final = {
    **_SCORED,
    "properties": {**_SCORED["properties"], "reasons": _list(_REASON)},
}
_SCHEMAS: Final = {
    "Error": _object(error=_TEXT),
    "Tool": {
        **_TOOL,
        "description": "A definition as its server gave it, under its public name.",
        "additionalProperties": True,
    },
    "Server": _object(
        name=_TEXT,
        state={"enum": ["configured", "known", "started", "in use"]},
        transport={"enum": ["stdio", "http", "sse"]},
        protocol=_TEXT,
        tools=_WHOLE,
        tokens=_WHOLE,
        flagged=_list(_TEXT),
        waiting=_list(_TEXT),
        faults=_list(_TEXT),
        altered=_list(_TEXT),
        calls=_WHOLE,
        trouble=_TEXT,
    ),
    "Servers": _object(servers=_list(_ref("Server"))),
    "Tools": _object(tools=_list(_ref("Tool")), total=_WHOLE),
    "Found": _object(
        query=_TEXT,
        confident=_YES_OR_NO,
        hits=_list(_HIT),
        more=_YES_OR_NO,
        notes=_list(_TEXT),
    ),
    "Stats": _object(
        servers=_WHOLE,
        tools=_WHOLE,
        tokens=_WHOLE,
        sessions=_WHOLE,
        counts={"type": "object", "additionalProperties": {"type": "integer"}},
        notices=_list(_TEXT),
    ),
    "Health": _object(status={"enum": ["ok", "degraded"]}, reasons=_list(_TEXT)),
}


def _parameter(name: str, schema: dict[str, Any], says: str, required: bool) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": says,
        "schema": schema,
    }


def _get(
    says: str, answer: str, *parameters: dict[str, Any], content: dict[str, Any] | None = None
) -> dict[str, Any]:
    described = content or {"application/json": {"schema": _ref(answer)}}
    wrong = {"application/json": {"schema": _ref("Error")}}
    responses = {"200": {"description": answer, "content": described}}
    if parameters:
        responses["400"] = {"description": "A parameter is wrong.", "content": wrong}
    return {"get": {"summary": says, "parameters": list(parameters), "responses": responses}}


_SERVER: Final = _parameter("server", _TEXT, "Only tools of this server.", False)


def description() -> dict[str, Any]:
    """The whole description."""
    most = _parameter(
        "limit",
        {**_WHOLE, "maximum": MAX_PAGE_SIZE, "default": DEFAULT_PAGE_SIZE},
        "How many at most.",
        False,
    )
    hits = _parameter(
        "limit",
        {**_WHOLE, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        "How many at most.",
        False,
    )
    offset = _parameter("offset", _WHOLE, "Leave out the first.", False)
    query = _parameter("query", _TEXT, "What is needed, in plain words.", True)
    reading = _parameter("read_only", _YES_OR_NO, "Only tools that change nothing.", False)
    why = _parameter("reasons", _YES_OR_NO, "Say of each why it was found.", False)
    text = {"text/plain": {"schema": _TEXT}}
    paths = {
        "/api/servers": _get("The servers and how they are doing.", "Servers"),
        "/api/tools": _get("The tools there are.", "Tools", _SERVER, most, offset),
        "/api/search": _get("The tools for a need.", "Found", query, hits, _SERVER, reading, why),
        "/api/stats": _get("What has been done so far.", "Stats"),
        "/health": _get("Whether all is well.", "Health"),
        "/metrics": _get("Figures for Prometheus.", "Metrics", content=text),
    }
    return described("Toolcrib", paths, _SCHEMAS)
