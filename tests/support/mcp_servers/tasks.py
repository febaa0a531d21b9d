"""A stateless MCP server that answers calls with tasks, on standard input and output, without a library.

Its one argument is JSON: `polls` (how often a task is seen as working) and `requires` (whether it refuses
clients without tasks). Its ids are numbers, so two servers have the same.
"""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]
SPEC: Json = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TOOLS = ["work", "fail", "break", "ask", "endless", "report"]
TASKS: dict[str, Json] = {}
REQUIRED: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


def send(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def reply(id: Any, result: Json) -> None:
    send({"id": id, "result": {"resultType": "complete", **result}})


def fail(id: Any, code: int, message: str, data: Any = None) -> None:
    send({"id": id, "error": {"code": code, "message": message, **({"data": data} if data else {})}})


def text(words: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": words}], **more}


def call(id: Any, params: Json) -> None:
    capabilities = params["_meta"].get(CAPABILITIES) or {}
    if EXTENSION not in capabilities.get("extensions", {}):
        if SPEC.get("requires"):
            fail(id, -32021, "Missing required client capability", REQUIRED)
        else:
            reply(id, text(f"{params['name']} without a task"))
        return
    if params["name"] == "report":
        states = {key: task["status"] for key, task in TASKS.items()}
        reply(id, text(json.dumps(states)))
        return
    task_id = str(len(TASKS) + 1)
    TASKS[task_id] = {
        "status": "working",
        "createdAt": "2026-11-18T00:00:00Z",
        "lastUpdatedAt": "2026-11-18T00:00:00Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 100,
        "polls": SPEC.get("polls", 2),
        "name": params["name"],
        "arguments": params.get("arguments"),
    }
    reply(id, {**show(task_id), "resultType": "task"})


def show(task_id: str) -> Json:
    task = TASKS[task_id]
    return {"taskId": task_id, **{key: task[key] for key in task if key not in ("polls", "name", "arguments")}}


def get(task_id: str) -> Json:
    task = TASKS[task_id]
    task["polls"] -= 1
    if task["status"] == "working" and task["polls"] <= 0 and task["name"] != "endless":
        if task["name"] == "work":
            task["result"] = text(str((task["arguments"] or {}).get("words", "done")))
            task["status"] = "completed"
        elif task["name"] == "fail":
            task["result"] = text("no luck", isError=True)
            task["status"] = "completed"
        elif task["name"] == "break":
            task["error"] = {"code": -32603, "message": "it broke"}
            task["status"] = "failed"
        else:
            task["inputRequests"] = {"who": {"method": "elicitation/create", "params": {"message": "Who?"}}}
            task["status"] = "input_required"
    return show(task_id)


def update(task_id: str, responses: Json) -> None:
    task = TASKS[task_id]
    task.pop("inputRequests", None)
    task.update(status="completed", result=text(f"hello {responses['who']['content']['name']}"))


def handle(message: Json) -> None:
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if id is None:
        return
    if method == "server/discover":
        capabilities: Json = {"tools": {}, "extensions": {EXTENSION: {}}}
        meta = {"io.modelcontextprotocol/serverInfo": {"name": "tasks", "version": "1"}}
        versions = {"supportedVersions": ["2026-07-28"]}
        reply(id, {**versions, "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private", "_meta": meta})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}, "description": name} for name in TOOLS]
        reply(id, {"tools": tools, "ttlMs": 0, "cacheScope": "private"})
    elif method == "tools/call":
        call(id, params)
    elif str(method).startswith("tasks/"):
        task_id = params["taskId"]
        if task_id not in TASKS:
            fail(id, -32602, "Task not found")
        elif method == "tasks/get":
            reply(id, get(task_id))
        elif method == "tasks/update":
            update(task_id, params["inputResponses"])
            reply(id, {})
        else:
            TASKS[task_id]["status"] = "cancelled"
            reply(id, {})
    else:
        fail(id, -32601, "Method not found")


for line in sys.stdin:
    handle(json.loads(line))
