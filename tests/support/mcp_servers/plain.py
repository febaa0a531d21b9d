"""A small MCP server on standard input and output, without a library, for both protocol styles.

Its one argument is JSON: `era` (handshake or stateless), `tools` (names of the tools below, or
complete definitions), `instructions`, `page` (tools per page), `prompts`, `resources`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]
SPEC: Json = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
MODERN = SPEC.get("era") == "2026-07-28"
CANCELLED: list[Any] = []
WAITING: dict[str, Any] = {}
FOLLOWED: list[str] = []
STREAMS: dict[Any, list[str]] = {}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LEVELS: list[str] = []
NOTES: list[str] = []
HUNG: list[Any] = []
TEXT: Json = {"type": "string"}
CHANGED: Json = {}

ARGUMENTS: dict[str, Json] = {
    "echo": {"text": TEXT},
    "ask": {"method": TEXT, "params": {"type": "object"}},
    "big": {"count": {"type": "integer"}},
    "touch": {"uri": TEXT},
    "change": {"description": TEXT},
    "pause": {"seconds": {"type": "number"}},
    "variable": {"name": TEXT},
}
ABOUT = {
    "echo": "Give back the text that it was given.",
    "ask": "Ask the client something.",
    "hang": "Never answer at all.",
    "die": "End the server in the middle of a call.",
    "log": "Write a message to the log.",
    "progress": "Tell how far a long piece of work has come.",
}


def send(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def reply(id: Any, result: Json) -> None:
    send({"id": id, "result": {"resultType": "complete", **result} if MODERN else result})


def text(message_text: object) -> Json:
    words = message_text if isinstance(message_text, str) else json.dumps(message_text, sort_keys=True)
    return {"content": [{"type": "text", "text": words}]}


def definition(tool: Any) -> Json:
    if isinstance(tool, dict):
        return tool
    about = CHANGED.get("description", "") if tool == "echo" else ""
    return {
        "name": tool,
        "description": about or ABOUT.get(tool, f"Do what {tool} does."),
        "inputSchema": {"type": "object", "properties": ARGUMENTS.get(tool, {})},
        "_meta": {"vendor/key": [1, {"deep": None}]},
        "vendorField": {"kept": True},
        "annotations": {"readOnlyHint": tool in ("pid", "die_once"), "vendorHint": 1},
    }


def list_tools(params: Json) -> Json:
    tools = [definition(tool) for tool in SPEC.get("tools", ["echo"])]
    size = SPEC.get("page") or len(tools) or 1
    start = int(params.get("cursor") or 0)
    more = {"nextCursor": str(start + size)} if start + size < len(tools) else {}
    return {"tools": tools[start : start + size], **more, "ttlMs": 0, "cacheScope": "private"}


def call(id: Any, params: Json) -> None:
    name, arguments = params["name"], params.get("arguments") or {}
    meta = params.get("_meta") or {}
    if name == "die":
        os._exit(3)
    elif name == "die_once":
        mark = Path(SPEC["mark"])
        if not mark.exists():
            mark.touch()
            os._exit(3)
        reply(id, text("alive"))
    elif name == "hang":
        HUNG.append(id)
    elif name == "speak":
        speak(id, arguments)
    elif name == "ask":
        ask(id, params, arguments)
    elif name == "progress":
        for done in (1, 2, 3):
            token = {"progressToken": meta.get("progressToken")}
            send(
                {
                    "method": "notifications/progress",
                    "params": {**token, "progress": done, "total": 3, "message": f"step {done}"},
                }
            )
        reply(id, text("done"))
    elif name == "log":
        for level in ("debug", "error"):
            send({"method": "notifications/message", "params": {"level": level, "data": SPEC["tag"]}})
        reply(id, text("logged"))
    elif name == "error":
        send({"id": id, "error": {"code": -32050, "message": "no", "data": {"why": "because"}}})
    elif name == "touch":
        about = {"uri": arguments["uri"]}
        if arguments["uri"] in FOLLOWED:
            send({"method": "notifications/resources/updated", "params": about})
        for stream, uris in STREAMS.items():
            if arguments["uri"] in uris:
                tagged = {**about, "_meta": {SUBSCRIPTION: stream}}
                send({"method": "notifications/resources/updated", "params": tagged})
        reply(id, text("touched"))
    elif name == "cut":
        close_streams()
        reply(id, text("cut"))
    elif name == "change":
        CHANGED.update(arguments)
        send({"method": "notifications/tools/list_changed"})
        reply(id, text("changed"))
    elif name == "pause":
        time.sleep(arguments["seconds"])
        reply(id, text("rested"))
    else:
        reply(id, answer(name, arguments, params))


def speak(id: Any, arguments: Json) -> None:
    """Log and ask during the first pending call; with `end`, answer it."""
    params = {"level": "error", "data": "of the hung call"}
    send({"method": "notifications/message", "params": params})
    if arguments.get("end"):
        reply(HUNG.pop(0), text("at last"))
        reply(id, text("spoken"))
    else:
        ask(id, {}, {"method": "roots/list"})


def answer(name: str, arguments: Json, params: Json) -> Json:
    if name in ("echo", "echo-write"):
        extra = {"vendorField": {"deep": [None, 1.5]}, "_meta": {"vendor/key": "kept"}}
        return {**text(arguments.get("text", "")), "structuredContent": arguments, **extra}
    if name == "picture":
        image = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png", "vendorField": 1}
        return {"content": [image, {"type": "unheard-of", "x": [1]}], "isError": False}
    if name in ("remember", "recall"):
        NOTES.extend(arguments.values())
        return text(NOTES)
    if name == "fail":
        return {**text("it went wrong"), "isError": True}
    if name == "big":
        return text("x" * arguments["count"])
    if name == "pid":
        return text(str(os.getpid()))
    if name == "variable":
        return text(os.environ.get(arguments["name"], "(unset)"))
    if name == "cancelled":
        return text(CANCELLED)
    if name == "wanted":
        streams = sorted({uri for uris in STREAMS.values() for uri in uris})
        return text({"levels": LEVELS, "followed": streams if MODERN else FOLLOWED})
    return text(params)


def ask(id: Any, params: Json, arguments: Json) -> None:
    if not MODERN:
        WAITING["asked"] = id
        send({"id": "asked", "method": arguments["method"], "params": arguments.get("params") or {}})
    elif "inputResponses" in params:
        reply(id, text([params["inputResponses"], params.get("requestState")]))
    else:
        wanted = {"method": arguments["method"], "params": arguments.get("params") or {}}
        required = {"resultType": "input_required", "inputRequests": {"q": wanted}}
        send({"id": id, "result": {**required, "requestState": "state-1"}})


def capabilities() -> Json:
    found: Json = {"tools": {"listChanged": True}, "logging": {}}
    for kind in ("prompts", "resources"):
        if SPEC.get(kind):
            found[kind] = {"listChanged": True, "subscribe": True}
    return found


def handle(message: Json) -> None:
    method, id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method is None:
        if "asked" in WAITING:
            outcome = message.get("result", message.get("error"))
            reply(WAITING.pop("asked"), text(outcome))
    elif method == "notifications/cancelled":
        CANCELLED.append(params.get("requestId"))
        STREAMS.pop(params.get("requestId"), None)
    elif id is None:
        return
    elif method == "server/discover" and MODERN:
        reply(
            id,
            {
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities(),
                "instructions": SPEC.get("instructions", ""),
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "plain", "version": "1"}},
            },
        )
    elif method == "initialize" and not MODERN:
        wanted = SPEC.get("version") or params["protocolVersion"]
        reply(
            id,
            {
                "protocolVersion": wanted,
                "capabilities": capabilities(),
                "serverInfo": {"name": "plain", "version": "1"},
                "instructions": SPEC.get("instructions", ""),
            },
        )
    elif method == "ping":
        reply(id, {})
    elif method == "tools/list":
        reply(id, list_tools(params))
    elif method == "tools/call":
        call(id, params)
    else:
        handle_other(method, id, params)


def handle_other(method: str, id: Any, params: Json) -> None:
    if method == "prompts/list":
        names = SPEC.get("prompts", [])
        reply(id, {"prompts": [{"name": name, "vendorField": 1} for name in names]})
    elif method == "prompts/get":
        message_text = {"type": "text", "text": f"{params['name']} of {SPEC.get('tag')}"}
        reply(id, {"messages": [{"role": "user", "content": message_text}]})
    elif method == "resources/list":
        uris = SPEC.get("resources", [])
        reply(id, {"resources": [{"uri": uri, "name": uri, "vendorField": 1} for uri in uris]})
    elif method == "resources/templates/list":
        template = {"uriTemplate": f"{SPEC.get('tag')}://{{name}}", "name": "any"}
        reply(id, {"resourceTemplates": [template]})
    elif method == "resources/read" and params["uri"] in SPEC.get("resources", []):
        content = {"uri": params["uri"], "text": f"{params['uri']} of {SPEC.get('tag')}"}
        reply(id, {"contents": [content]})
    elif method == "resources/subscribe":
        FOLLOWED.append(params["uri"])
        reply(id, {})
    elif method == "resources/unsubscribe":
        FOLLOWED.remove(params["uri"])
        reply(id, {})
    elif method == "logging/setLevel":
        LEVELS.append(params["level"])
        if not SPEC.get("deaf"):
            reply(id, {})
    elif method == "subscriptions/listen" and SPEC.get("resources"):
        listen(id, params)
    elif method == "completion/complete":
        values = [json.dumps(params["ref"], sort_keys=True), params["argument"]["value"]]
        reply(id, {"completion": {"values": values}})
    else:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


def listen(id: Any, params: Json) -> None:
    """Open a stream of notifications."""
    wanted = params["notifications"]
    STREAMS[id] = wanted.get("resourceSubscriptions") or []
    about = {"notifications": wanted, "_meta": {SUBSCRIPTION: id}}
    send({"method": "notifications/subscriptions/acknowledged", "params": about})


def close_streams() -> None:
    """End all streams."""
    for id in list(STREAMS):
        del STREAMS[id]
        reply(id, {"_meta": {SUBSCRIPTION: id}})


for line in sys.stdin:
    handle(json.loads(line))
