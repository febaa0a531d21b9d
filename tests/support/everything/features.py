"""The tools, resources and prompts of the conformance server.

The suite prescribes their names and behaviour. Questions to the user are sent as requests on
connections with a handshake, and as results that the client answers on stateless ones.
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
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Result = dict[str, Any]
Tool = Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]

# A minimal image and a minimal sound.
PICTURE: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
PAUSE: Final = 0.05
KEY: Final = secrets.token_bytes(32)

bus = InMemorySubscriptionBus()


def text_result(text: str, **more: Any) -> Result:
    """Return a result with text content."""
    return {"content": [{"type": "text", "text": text}], **more}


def is_stateless(ctx: Context) -> bool:
    """Return whether the connection is stateless, so that questions are sent as results."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def form(message: str, **properties: Mapping[str, Any]) -> Result:
    """Return a request for the user to fill in a form."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    asked = {"message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": asked}


def sampling(text: str) -> Result:
    """Return a request to the client's model."""
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}}


ROOTS: Final[Result] = {"method": "roots/list", "params": {}}
NAME: Final = {"type": "string"}


def seal_state(state: str) -> str:
    """Return a signed state, which the client stores and cannot change."""
    return f"{state}.{hmac.new(KEY, state.encode(), hashlib.sha256).hexdigest()}"


def unseal_state(token: str | None) -> str:
    """Return the state of a signed token; raise if the signature is wrong."""
    state = (token or "").rpartition(".")[0]
    if not token or not hmac.compare_digest(seal_state(state), token):
        raise MCPError(types.INVALID_PARAMS, "the state is not one that this server gave out")
    return state


def input_responses(params: types.InputResponseRequestParams) -> dict[str, Any]:
    """Return the client's answers so far."""
    responses = params.input_responses or {}
    return {
        key: item if isinstance(item, dict) else item.model_dump(by_alias=True, exclude_none=True)
        for key, item in responses.items()
    }


def input_required(requests: Mapping[str, Any], state: str | None = None) -> Result:
    """Return the result that asks for input."""
    result: Result = {"resultType": "input_required", "inputRequests": dict(requests)}
    return result if state is None else {**result, "requestState": state}


def field(answer: Any, name: str) -> Any:
    """Return a field of a submitted form; None if it was not filled in."""
    content = answer.get("content") if isinstance(answer, dict) else None
    return content.get(name) if isinstance(content, dict) else None


async def ask_client(ctx: Context, params: types.CallToolRequestParams, request: Result) -> tuple[Any, Result | None]:
    """Return the client's answer, or the result that asks for it."""
    if is_stateless(ctx):
        responses = input_responses(params).get("asked")
        return responses, None if responses else input_required({"asked": request})
    channel = ctx.session._request_outbound
    return await channel.send_raw_request(request["method"], request["params"]), None


async def notify_client(ctx: Context, text: str) -> None:
    """Send a log message to the client, if it wants log messages."""
    if is_stateless(ctx) and not (ctx.meta or {}).get("io.modelcontextprotocol/logLevel"):
        return
    params = {"level": "info", "data": text, "logger": "everything"}
    await ctx.session._request_outbound.notify("notifications/message", params)


async def logging(ctx: Context, params: types.CallToolRequestParams) -> Result:
    for text in ("started", "processing", "completed"):
        await notify_client(ctx, f"Tool execution {text}")
        await anyio.sleep(PAUSE)
    return text_result("logged three times")


async def progress(ctx: Context, params: types.CallToolRequestParams) -> Result:
    for part in (0, 50, 100):
        await ctx.session.report_progress(part, 100, f"{part} of 100")
        await anyio.sleep(PAUSE)
    return text_result("told about progress three times")


async def sample(ctx: Context, params: types.CallToolRequestParams) -> Result:
    prompt = str((params.arguments or {}).get("prompt"))
    answer, question = await ask_client(ctx, params, sampling(prompt))
    return question or text_result(f"LLM response: {answer.get('content')}")


def elicits(message: str | None, **properties: Mapping[str, Any]) -> Tool:
    """Return a tool that asks the user to fill in a form."""

    async def elicit(ctx: Context, params: types.CallToolRequestParams) -> Result:
        text = message or str((params.arguments or {}).get("message"))
        answer, question = await ask_client(ctx, params, form(text, **properties))
        return question or text_result(
            f"Elicitation completed: action={answer.get('action')}, content={json.dumps(answer.get('content'))}"
        )

    return elicit


async def reconnection(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if ctx.close_sse_stream:
        await ctx.close_sse_stream()
    await anyio.sleep(4 * PAUSE)
    return text_result("sent after the stream was closed")


async def failing(ctx: Context, params: types.CallToolRequestParams) -> Result:
    return text_result("This tool intentionally returns an error for testing", isError=True)


def requires_input(
    requests: Mapping[str, Result], done: Callable[[dict[str, Any]], str | None], state: str = ""
) -> Tool:
    """Return a tool that repeats its questions until they are answered."""

    async def ask(ctx: Context, params: types.CallToolRequestParams) -> Result:
        responses = input_responses(params)
        if responses and state:
            unseal_state(params.request_state)
        text = done(responses)
        return text_result(text) if text else input_required(requests, seal_state(state) if state else None)

    return ask


async def rounds(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if params.request_state is None:
        return input_required({"step1": form("Step 1: What is your name?", name=NAME)}, seal_state("1"))
    state, responses = unseal_state(params.request_state), input_responses(params)
    if state == "1":
        name = field(responses.get("step1"), "name")
        question = form("Step 2: What is your favorite color?", color=NAME)
        return input_required({"step2": question}, seal_state(f"2 {name}"))
    return text_result(f"{state.removeprefix('2 ')} likes {field(responses.get('step2'), 'color')}")


async def capable(ctx: Context, params: types.CallToolRequestParams) -> Result:
    can = ctx.session.client_capabilities
    requests = {}
    if can and can.sampling:
        requests["sampled"] = sampling("Say something")
    if can and can.elicitation:
        requests["elicited"] = form("What is your name?", name=NAME)
    return input_required(requests) if requests and not params.input_responses else text_result("nothing to ask")


async def missing_capability(ctx: Context, params: types.CallToolRequestParams) -> Result:
    can = ctx.session.client_capabilities
    if can is None or can.sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "this tool needs a client that samples",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return text_result("the client can sample")


async def change_tools(ctx: Context, params: types.CallToolRequestParams) -> Result:
    TOOLS["test_trigger_tool_change"][0]["description"] = f"Changed {secrets.token_hex(4)}"
    await bus.publish(ToolsListChanged())
    return text_result("changed")


async def change_prompts(ctx: Context, params: types.CallToolRequestParams) -> Result:
    await bus.publish(PromptsListChanged())
    return text_result("changed")


def always(*content: Mapping[str, Any]) -> Tool:
    """Return a tool with a fixed answer."""

    async def answer(ctx: Context, params: types.CallToolRequestParams) -> Result:
        return {"content": list(content)}

    return answer


def resource(uri: str, text: str, kind: str = "text/plain") -> Result:
    """Return an embedded resource."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}}


def options(*names: str) -> list[Result]:
    """Return choices with titles."""
    return [{"const": name, "title": name.title()} for name in names]


IMAGE: Final = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
DIALECT: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": NAME, "city": NAME}}},
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
    """Add a tool to the list."""
    definition = {
        "name": name,
        "description": about,
        "inputSchema": {"type": "object", **(schema or {"properties": {}})},
    }
    TOOLS[name] = (definition, run)


tool("test_simple_text", "Says something", always({"type": "text", "text": "Something."}))
tool("test_image_content", "Shows a picture", always(IMAGE))
tool("test_audio_content", "Plays a sound", always({"type": "audio", "data": SOUND, "mimeType": "audio/wav"}))
tool("test_embedded_resource", "Hands over a resource", always(resource("test://embedded-resource", "Embedded.")))
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
tool("test_elicitation", "Asks the user", elicits(None, username=NAME, email=NAME), {"properties": {"message": NAME}})
tool("test_streaming_elicitation", "Asks the user", elicits("Who are you?", name=NAME))
tool(
    "test_elicitation_sep1034_defaults",
    "Asks with defaults",
    elicits(
        "Please fill in",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
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
        untitledMulti={"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
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
        lambda responses: (
            f"Hello, {name}!" if isinstance(name := field(responses.get("user_name"), "name"), str) else None
        ),
    ),
)
tool(
    "test_input_required_result_sampling",
    "Asks the model for a capital",
    requires_input(
        {"capital_question": sampling("What is the capital of France?")},
        lambda responses: (
            json.dumps(responses["capital_question"].get("content")) if "capital_question" in responses else None
        ),
    ),
)
tool(
    "test_input_required_result_list_roots",
    "Lists the client's roots",
    requires_input(
        {"client_roots": ROOTS},
        lambda responses: (
            json.dumps(responses["client_roots"].get("roots"), default=str) if "client_roots" in responses else None
        ),
    ),
)
tool(
    "test_input_required_result_request_state",
    "Has the client keep a state",
    requires_input(CONFIRM, lambda responses: "state-ok" if "confirm" in responses else None, "asked"),
)
tool(
    "test_input_required_result_tampered_state",
    "Has the client keep a state",
    requires_input(CONFIRM, lambda responses: "state-ok" if "confirm" in responses else None, "sealed"),
)
tool(
    "test_input_required_result_multiple_inputs",
    "Asks three questions at once",
    requires_input(
        {**ASK_NAME, "greeting": sampling("Generate a greeting"), "client_roots": ROOTS},
        lambda responses: "all answered" if len(responses) >= 3 else None,
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
    """Return a prompt as it is listed."""
    entries = [{"name": argument, "required": True} for argument in arguments]
    return {"name": name, "description": "For the tests", "arguments": entries}


PROMPTS: Final = (
    prompt("test_simple_prompt"),
    prompt("test_prompt_with_arguments", "arg1", "arg2"),
    prompt("test_prompt_with_embedded_resource", "resourceUri"),
    prompt("test_prompt_with_image"),
    prompt("test_input_required_result_prompt"),
)
