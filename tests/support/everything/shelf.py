"""What the server has that can do everything: tools, resources and prompts.

The suite names its tools, prompts and resources and says how each behaves. What it asks of the user
is asked in the way of the connection: by a request on a handshake, by a result to be answered without.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Result = dict[str, Any]
Tool = Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]

# The smallest picture and the shortest sound there are.
PICTURE: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
PAUSE: Final = 0.05
KEY: Final = secrets.token_bytes(32)

bus = InMemorySubscriptionBus()


def said(text: str, **more: Any) -> Result:
    """An answer in words."""
    return {"content": [{"type": "text", "text": text}], **more}


def is_modern(ctx: Context) -> bool:
    """Whether there is no handshake, and so no way to ask but by a result."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def form(message: str, **properties: Mapping[str, Any]) -> Result:
    """A question to the user with a form to fill in."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    asked = {"message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": asked}


def sampling(text: str) -> Result:
    """A question to the client's model."""
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}}


ROOTS: Final[Result] = {"method": "roots/list", "params": {}}
NAME: Final = {"type": "string"}


def sealed(state: str) -> str:
    """A state that the client keeps for us and cannot change."""
    return f"{state}.{hmac.new(KEY, state.encode(), hashlib.sha256).hexdigest()}"


def unsealed(token: str | None) -> str:
    """The state in it, if it is one of ours."""
    state = (token or "").rpartition(".")[0]
    if not token or not hmac.compare_digest(sealed(state), token):
        raise MCPError(types.INVALID_PARAMS, "the state is not one that this server gave out")
    return state


def answers(params: types.InputResponseRequestParams) -> dict[str, Any]:
    """What the client has answered so far."""
    given = params.input_responses or {}
    return {
        key: one if isinstance(one, dict) else one.model_dump(by_alias=True, exclude_none=True)
        for key, one in given.items()
    }


def wanted(requests: Mapping[str, Any], state: str | None = None) -> Result:
    """The result that asks."""
    result: Result = {"resultType": "input_required", "inputRequests": dict(requests)}
    return result if state is None else {**result, "requestState": state}


def field(answer: Any, name: str) -> Any:
    """What stands in a field of a filled in form, if it was filled in."""
    content = answer.get("content") if isinstance(answer, dict) else None
    return content.get(name) if isinstance(content, dict) else None


async def asked(
    ctx: Context, params: types.CallToolRequestParams, request: Result
) -> tuple[Any, Result | None]:
    """The client's answer, or the result that asks for it."""
    if is_modern(ctx):
        given = answers(params).get("asked")
        return given, None if given else wanted({"asked": request})
    channel = ctx.session._request_outbound
    return await channel.send_raw_request(request["method"], request["params"]), None


async def told(ctx: Context, text: str) -> None:
    """Log something to the client, if it wants that."""
    if is_modern(ctx) and not (ctx.meta or {}).get("io.modelcontextprotocol/logLevel"):
        return
    params = {"level": "info", "data": text, "logger": "everything"}
    await ctx.session._request_outbound.notify("notifications/message", params)


async def logging(ctx: Context, params: types.CallToolRequestParams) -> Result:
    for text in ("started", "processing", "completed"):
        await told(ctx, f"Tool execution {text}")
        await anyio.sleep(PAUSE)
    return said("logged three times")


async def progress(ctx: Context, params: types.CallToolRequestParams) -> Result:
    for part in (0, 50, 100):
        await ctx.session.report_progress(part, 100, f"{part} of 100")
        await anyio.sleep(PAUSE)
    return said("told about progress three times")


async def sample(ctx: Context, params: types.CallToolRequestParams) -> Result:
    prompt = str((params.arguments or {}).get("prompt"))
    answer, question = await asked(ctx, params, sampling(prompt))
    return question or said(f"LLM response: {answer.get('content')}")


def elicits(message: str | None, **properties: Mapping[str, Any]) -> Tool:
    """A tool that asks the user to fill in a form."""

    async def elicit(ctx: Context, params: types.CallToolRequestParams) -> Result:
        text = message or str((params.arguments or {}).get("message"))
        answer, question = await asked(ctx, params, form(text, **properties))
        return question or said(
            f"Elicitation completed: action={answer.get('action')}, "
            f"content={json.dumps(answer.get('content'))}"
        )

    return elicit


async def reconnection(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if ctx.close_sse_stream:
        await ctx.close_sse_stream()
    await anyio.sleep(4 * PAUSE)
    return said("sent after the stream was closed")


async def failing(ctx: Context, params: types.CallToolRequestParams) -> Result:
    return said("This tool intentionally returns an error for testing", isError=True)


def requires_input(
    requests: Mapping[str, Result], done: Callable[[dict[str, Any]], str | None], state: str = ""
) -> Tool:
    """A tool that is done once its questions are answered, and asks again until then."""

    async def ask(ctx: Context, params: types.CallToolRequestParams) -> Result:
        given = answers(params)
        if given and state:
            unsealed(params.request_state)
        text = done(given)
        return said(text) if text else wanted(requests, sealed(state) if state else None)

    return ask


async def rounds(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if params.request_state is None:
        return wanted({"step1": form("Step 1: What is your name?", name=NAME)}, sealed("1"))
    state, given = unsealed(params.request_state), answers(params)
    if state == "1":
        name = field(given.get("step1"), "name")
        question = form("Step 2: What is your favorite color?", color=NAME)
        return wanted({"step2": question}, sealed(f"2 {name}"))
    return said(f"{state.removeprefix('2 ')} likes {field(given.get('step2'), 'color')}")


async def capable(ctx: Context, params: types.CallToolRequestParams) -> Result:
    can = ctx.session.client_capabilities
    requests = {}
    if can and can.sampling:
        requests["sampled"] = sampling("Say something")
    if can and can.elicitation:
        requests["elicited"] = form("What is your name?", name=NAME)
    return wanted(requests) if requests and not params.input_responses else said("nothing to ask")


async def missing_capability(ctx: Context, params: types.CallToolRequestParams) -> Result:
    can = ctx.session.client_capabilities
    if can is None or can.sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "this tool needs a client that samples",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return said("the client can sample")


async def change_tools(ctx: Context, params: types.CallToolRequestParams) -> Result:
    TOOLS["test_trigger_tool_change"][0]["description"] = f"Changed {secrets.token_hex(4)}"
    await bus.publish(ToolsListChanged())
    return said("changed")


async def change_prompts(ctx: Context, params: types.CallToolRequestParams) -> Result:
    await bus.publish(PromptsListChanged())
    return said("changed")


def always(*content: Mapping[str, Any]) -> Tool:
    """A tool that has one answer."""

    async def answer(ctx: Context, params: types.CallToolRequestParams) -> Result:
        return {"content": list(content)}

    return answer


def resource(uri: str, text: str, kind: str = "text/plain") -> Result:
    """A resource inside of something else."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}}


def options(*names: str) -> list[Result]:
    """Choices with titles."""
    return [{"const": name, "title": name.title()} for name in names]


IMAGE: Final = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
DIALECT: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": NAME, "city": NAME},
        }
    },
    "properties": {
        "name": NAME,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": NAME,
        "email": NAME,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
REGION: Final = {"properties": {"region": {**NAME, "x-mcp-header": "Region"}}}
ASK_NAME: Final = {"user_name": form("What is your name?", name=NAME)}
CONFIRM: Final = {"confirm": form("Please confirm", ok={"type": "boolean"})}

TOOLS: Final[dict[str, tuple[Result, Tool]]] = {}


def tool(name: str, about: str, run: Tool, schema: Mapping[str, Any] | None = None) -> None:
    """Put a tool on the list."""
    definition = {
        "name": name,
        "description": about,
        "inputSchema": {"type": "object", **(schema or {"properties": {}})},
    }
    TOOLS[name] = (definition, run)


tool("test_simple_text", "Says something", always({"type": "text", "text": "Something."}))
tool("test_image_content", "Shows a picture", always(IMAGE))
tool(
    "test_audio_content",
    "Plays a sound",
    always({"type": "audio", "data": SOUND, "mimeType": "audio/wav"}),
)
tool(
    "test_embedded_resource",
    "Hands over a resource",
    always(resource("test://embedded-resource", "Embedded.")),
)
tool(
    "test_multiple_content_types",
    "Answers in several ways at once",
    always(
        {"type": "text", "text": "Several:"},
        IMAGE,
        resource("test://mixed-content-resource", '{"test": "data"}', "application/json"),
    ),
)
tool("test_tool_with_logging", "Logs while it works", logging)
tool("test_logging_tool", "Logs if that is wanted", logging)
tool("test_tool_with_progress", "Tells how far it is", progress)
tool("test_error_handling", "Fails", failing)
tool("test_reconnection", "Closes its stream before it answers", reconnection)
tool("test_sampling", "Asks the client's model", sample, {"properties": {"prompt": NAME}})
tool(
    "test_elicitation",
    "Asks the user",
    elicits(None, username=NAME, email=NAME),
    {"properties": {"message": NAME}},
)
tool("test_streaming_elicitation", "Asks the user", elicits("Who are you?", name=NAME))
tool(
    "test_elicitation_sep1034_defaults",
    "Asks with defaults",
    elicits(
        "Please fill in",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        verified={"type": "boolean", "default": True},
    ),
)
tool(
    "test_elicitation_sep1330_enums",
    "Asks to choose",
    elicits(
        "Please choose",
        untitledSingle={"type": "string", "enum": ["option1", "option2", "option3"]},
        titledSingle={"type": "string", "oneOf": options("value1", "value2", "value3")},
        legacyEnum={
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        untitledMulti={
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        titledMulti={"type": "array", "items": {"anyOf": options("value1", "value2", "value3")}},
    ),
)
tool("json_schema_2020_12_tool", "Has a schema with much in it", always(IMAGE), DIALECT)
tool("test_region", "Has an argument that is repeated in a header", always(IMAGE), REGION)
tool("test_missing_capability", "Needs a client that samples", missing_capability)
tool("test_trigger_tool_change", "Changes the list of tools", change_tools)
tool("test_trigger_prompt_change", "Changes the list of prompts", change_prompts)
tool(
    "test_input_required_result_elicitation",
    "Greets the user",
    requires_input(
        ASK_NAME,
        lambda given: (
            f"Hello, {name}!"
            if isinstance(name := field(given.get("user_name"), "name"), str)
            else None
        ),
    ),
)
tool(
    "test_input_required_result_sampling",
    "Asks the model for a capital",
    requires_input(
        {"capital_question": sampling("What is the capital of France?")},
        lambda given: (
            json.dumps(given["capital_question"].get("content"))
            if "capital_question" in given
            else None
        ),
    ),
)
tool(
    "test_input_required_result_list_roots",
    "Lists the client's roots",
    requires_input(
        {"client_roots": ROOTS},
        lambda given: (
            json.dumps(given["client_roots"].get("roots"), default=str)
            if "client_roots" in given
            else None
        ),
    ),
)
tool(
    "test_input_required_result_request_state",
    "Has the client keep a state",
    requires_input(CONFIRM, lambda given: "state-ok" if "confirm" in given else None, "asked"),
)
tool(
    "test_input_required_result_tampered_state",
    "Has the client keep a state",
    requires_input(CONFIRM, lambda given: "state-ok" if "confirm" in given else None, "sealed"),
)
tool(
    "test_input_required_result_multiple_inputs",
    "Asks three questions at once",
    requires_input(
        {**ASK_NAME, "greeting": sampling("Generate a greeting"), "client_roots": ROOTS},
        lambda given: "all answered" if len(given) >= 3 else None,
        "three",
    ),
)
tool("test_input_required_result_multi_round", "Asks twice", rounds)
tool("test_input_required_result_capabilities", "Asks what the client can answer", capable)

RESOURCES: Final = (
    {"uri": "test://static-text", "name": "Text", "mimeType": "text/plain"},
    {"uri": "test://static-binary", "name": "Picture", "mimeType": "image/png"},
    {"uri": "test://watched-resource", "name": "Watched", "mimeType": "text/plain"},
)


def prompt(name: str, *arguments: str) -> Result:
    """A prompt as it is listed."""
    listed = [{"name": argument, "required": True} for argument in arguments]
    return {"name": name, "description": "For the tests", "arguments": listed}


PROMPTS: Final = (
    prompt("test_simple_prompt"),
    prompt("test_prompt_with_arguments", "arg1", "arg2"),
    prompt("test_prompt_with_embedded_resource", "resourceUri"),
    prompt("test_prompt_with_image"),
    prompt("test_input_required_result_prompt"),
)
