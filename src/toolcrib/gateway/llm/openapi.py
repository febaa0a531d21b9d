"""The OpenAPI description of `/v1`: what the gateway itself looks at, and what it answers.

The APIs are their providers' own and have many more fields, which go through untouched; so every
object is open. What is said here is what this gateway reads, and what it holds clients to.
"""

from __future__ import annotations

from typing import Any, Final, get_args

from toolcrib.config.settings import LlmSearchSwitch
from toolcrib.gateway.openapi import described
from toolcrib.profiles.claude import VARIANTS

PATH: Final = "/v1/openapi.json"

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"type": "integer"}
_FLAG: Final[Schema] = {"type": "boolean"}
_OBJECT: Final[Schema] = {"type": "object"}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _open(needed: str = "", **properties: Schema) -> Schema:
    """An object that may have more fields than these; `needed` names those that it must have."""
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": needed.split()} if needed else schema


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _one_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


_DEFER: Final[Schema] = {
    **_FLAG,
    "description": "Whether the tool is held back until a search finds it.",
}
_SCHEMAS: Final[dict[str, Schema]] = {
    "MessagesTool": _one_of(
        _open(
            "type name",
            type={"enum": sorted(VARIANTS)},
            name={"enum": sorted({variant.name for variant in VARIANTS.values()})},
        ),
        _open(
            "name input_schema",
            name={"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,128}$"},
            description=_TEXT,
            input_schema=_OBJECT,
            defer_loading=_DEFER,
        ),
        _open(
            "type mcp_server_name",
            type={"const": "mcp_toolset"},
            mcp_server_name=_TEXT,
            default_config=_open(enabled=_FLAG, defer_loading=_DEFER),
            configs={"type": "object", "additionalProperties": _open(defer_loading=_DEFER)},
        ),
    ),
    "Message": _open(
        "role content",
        role={"enum": ["user", "assistant", "system"]},
        content=_one_of(_TEXT, _list(_open("type", type=_TEXT))),
    ),
    "MessagesRequest": _open(
        "model messages",
        model=_TEXT,
        messages=_list(_ref("Message")),
        max_tokens={**_WHOLE, "minimum": 1},
        system=_one_of(_TEXT, _list(_OBJECT)),
        tools=_list(_ref("MessagesTool")),
        tool_choice=_OBJECT,
        stream=_FLAG,
    ),
    "MessagesReply": _open(type=_TEXT, role=_TEXT, content=_list(_OBJECT), usage=_OBJECT),
    "TokenCount": _open(input_tokens=_WHOLE),
    "ChatTool": _open(
        "type",
        type=_TEXT,
        function=_open(name=_TEXT, description=_TEXT, parameters=_OBJECT, defer_loading=_DEFER),
        defer_loading=_DEFER,
    ),
    "ChatRequest": _open(
        "model messages",
        model=_TEXT,
        messages=_list(_open("role", role=_TEXT)),
        tools=_list(_ref("ChatTool")),
        tool_choice=_one_of(_TEXT, _OBJECT),
        n=_WHOLE,
        stream=_FLAG,
    ),
    "ChatReply": _open(choices=_list(_OBJECT), usage=_OBJECT),
    "ResponsesTool": _open(
        "type",
        type={"enum": ["function", "custom", "namespace", "mcp", "tool_search"]},
        name=_TEXT,
        description=_TEXT,
        parameters=_OBJECT,
        execution={"enum": ["server", "client"]},
        tools=_list(_OBJECT),
        defer_loading=_DEFER,
    ),
    "ResponsesRequest": _open(
        "model",
        model=_TEXT,
        input=_one_of(_TEXT, _list(_open(type=_TEXT, role=_TEXT))),
        instructions=_TEXT,
        previous_response_id=_TEXT,
        tools=_list(_ref("ResponsesTool")),
        tool_choice=_one_of(_TEXT, _OBJECT),
        background=_FLAG,
        stream=_FLAG,
    ),
    "Response": _open(id=_TEXT, output=_list(_OBJECT), usage=_OBJECT),
    "Models": _open("data", data=_list(_open("id", id=_TEXT))),
    "MessagesError": _open(
        "type error",
        type={"const": "error"},
        error=_open("type message", type=_TEXT, message=_TEXT),
    ),
    "OpenAIError": _open("error", error=_open("message", message=_TEXT)),
}

_EVENTS: Final[Schema] = {"text/event-stream": {"schema": _TEXT}}
_SWITCH: Final[Schema] = {
    "name": "x-toolcrib-tool-search",
    "in": "header",
    "description": "How tool search is switched for this request.",
    "schema": {"enum": list(get_args(LlmSearchSwitch))},
}
_UPSTREAM: Final[Schema] = {
    "name": "x-toolcrib-upstream",
    "in": "header",
    "description": "Which upstream to ask, where the request names no model.",
    "schema": _TEXT,
}
_STALE: Final[Schema] = {
    "name": "x-toolcrib-stale-references",
    "in": "header",
    "description": "Leave out references to tools that the request does not have any more.",
    "schema": {"enum": ["drop"]},
}
_FAULTS: Final = {
    "400": "The request is refused, in the API's words.",
    "401": "The gateway needs a key.",
    "404": "No upstream has this model, or it is not known where this is.",
    "413": "The request is too large.",
    "502": "The upstream is not there, breaks off, or makes no sense.",
    "504": "The upstream is silent.",
    "default": "What the upstream says, as it says it.",
}


def _json(schema: str) -> Schema:
    return {"application/json": {"schema": _ref(schema)}}


def _answers(answer: str, error: str, *, streams: bool = False) -> Schema:
    content = _json(answer) | (_EVENTS if streams else {})
    faults = {
        status: {"description": says, "content": _json(error)} for status, says in _FAULTS.items()
    }
    # An upstream may answer in any form.
    faults["default"]["content"] = {"*/*": {}}
    return {"200": {"description": answer, "content": content}, **faults}


def _post(
    says: str, request: str, answer: str, error: str, *headers: Schema, streams: bool = True
) -> Schema:
    return {
        "post": {
            "summary": says,
            "parameters": list(headers),
            "requestBody": {"required": True, "content": _json(request)},
            "responses": _answers(answer, error, streams=streams),
        }
    }


def _stored(says: str, method: str, *more: Schema) -> Schema:
    id = {"name": "id", "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}}
    responses = _answers("Response", "OpenAIError", streams=True)
    return {method: {"summary": says, "parameters": [id, *more], "responses": responses}}


def description() -> Schema:
    """The whole description."""
    messages = ("MessagesRequest", "MessagesReply", "MessagesError", _SWITCH, _STALE)
    counted = ("MessagesRequest", "TokenCount", "MessagesError", _SWITCH, _STALE)
    chat = ("ChatRequest", "ChatReply", "OpenAIError", _SWITCH)
    responses = ("ResponsesRequest", "Response", "OpenAIError", _SWITCH)
    listed = _answers("Models", "OpenAIError")
    paths: Schema = {
        "/v1/messages": _post("Anthropic's Messages API.", *messages),
        "/v1/messages/count_tokens": _post("How many tokens that is.", *counted, streams=False),
        "/v1/chat/completions": _post("OpenAI's Chat Completions.", *chat),
        "/v1/responses": _post("OpenAI's Responses API.", *responses),
        "/v1/responses/{id}": {
            **_stored("A stored response.", "get", _UPSTREAM),
            **_stored("Delete a stored response.", "delete", _UPSTREAM),
        },
        "/v1/models": {
            "get": {
                "summary": "The models of all upstreams of one API.",
                "parameters": [_UPSTREAM],
                "responses": listed,
            }
        },
    }
    return described("Toolcrib's model gateway", paths, _SCHEMAS)
