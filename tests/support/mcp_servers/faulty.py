"""MCP servers that misbehave, each in one way: `faulty.py KIND [ARGUMENT]`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

KIND = sys.argv[1]
ARGUMENT = sys.argv[2] if len(sys.argv) > 2 else ""
ECHO: dict[str, Any] = {"name": "echo", "description": "Say it again.", "inputSchema": {}}


# Kinds that answer a call of `echo` with a message that strict parsers refuse.
UNREADABLE = (
    *("half_emoji", "invalid_utf8", "control_characters", "pair"),
    *("deep", "truncated", "no_object", "text_content", "large", "large_id_last", "largest"),
    *("byte_order_mark", "null_members", "number_as_text", "batch", "decimal_id", "long_error"),
)


def unreadable(id: Any) -> bytes:
    start = b'{"jsonrpc": "2.0", "id": %d, "result": ' % id
    content = b'{"content": [{"type": "text", "text": "%b"}]}'
    texts = {
        "half_emoji": rb"a \ud83d b",
        "invalid_utf8": b"a \xff\xfe b",
        "control_characters": b"a \x01 b",
        "pair": rb"a \ud83d\ude00 b \\ud83d",
        "large": b"x" * 10_000_000,
        "large_id_last": b"x" * 20_000_000,
        "largest": b"x" * 40_000_000,
    }
    if KIND == "large_id_last":
        return b'{"result": ' + content % texts[KIND] + b', "jsonrpc": "2.0", "id": %d}' % id
    if KIND in texts:
        return start + content % texts[KIND] + b"}"
    if KIND == "text_content":
        return start + b'{"content": "a"}}'
    if KIND == "byte_order_mark":
        return b"\xef\xbb\xbf" + start + content % b"marked" + b"}"
    if KIND == "null_members":
        return start + b'{"content": null, "isError": null, "_meta": [1], "structuredContent": [2]}}'
    if KIND == "number_as_text":
        return start + b'{"content": [{"type": "text", "text": 7}]}}'
    if KIND == "batch":
        return b"[" + start + content % b"batch" + b"}]"
    if KIND == "decimal_id":
        return start.replace(b": %d," % id, b": %d.0," % id) + content % b"decimal" + b"}"
    if KIND == "long_error":
        return b'{"jsonrpc": "2.0", "id": %d, "error": {"code": -32000, "message": "%b"}}' % (id, b"e" * 50_000)
    if KIND == "deep":
        return start + b'{"content": [], "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}"
    return start + (b"[1, 2]}" if KIND == "no_object" else b'{"content": [')


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def tools() -> Any:
    if KIND == "huge_description":
        return [{**ECHO, "description": "word " * 10_000_000}, {**ECHO, "name": "small"}]
    if KIND == "huge_schema":
        many = {f"p{number}": {"type": "string"} for number in range(200_000)}
        schema = {"type": "object", "properties": many}
        return [{**ECHO, "inputSchema": schema}, {**ECHO, "name": "small"}]
    if KIND == "bad_tools":
        nested: Any = {}
        for _ in range(60):
            nested = {"type": "object", "properties": {"deep": nested}}
        return [
            None,
            7,
            "echo",
            {},
            {"name": 7},
            {"name": ""},
            {"name": "no_schema"},
            {"name": "null_schema", "inputSchema": None},
            {"name": "bad_schema", "inputSchema": [1]},
            {"name": "two\nlines", "inputSchema": {}},
            {"name": "zwei W\u00f6rter", "inputSchema": {}},
            {"name": "deep", "inputSchema": nested},
            {"name": "wrong_type", "description": ["x"], "inputSchema": {}},
            {"name": "odd_type", "inputSchema": {"type": 7}},
            {"name": "odd_icons", "inputSchema": {}, "icons": 7, "execution": "x"},
            {"name": "odd_output", "inputSchema": {}, "outputSchema": {"type": "string"}},
            ECHO,
            {**ECHO, "description": "The second of this name."},
        ]
    if KIND == "not_a_list":
        return {"echo": ECHO}
    if KIND in UNREADABLE:
        return [ECHO, {**ECHO, "name": "pid"}]
    return [ECHO]


def on_start() -> None:
    """Do what this server does before it reads its input."""
    if KIND == "exits":
        sys.stderr.write("no token was given\n")
        sys.exit(1)
    if KIND == "slow":
        time.sleep(float(ARGUMENT))
    if KIND == "noise":
        write("Welcome to my server!\n\n{not json\n[1, 2]\n" + "\\" * 1000 + "\n")
    if KIND == "endless_line":
        while True:
            write("x" * 1_000_000)
    if KIND == "mute":
        time.sleep(3600)
    if KIND == "chatty":
        sys.stderr.write(f"my token is {os.environ['API_TOKEN']}\n")
        sys.stderr.flush()
    if KIND == "daemon":
        # A child process in a separate session.
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        Path(ARGUMENT).write_text(str(child.pid))
    if KIND == "tree":
        # A child process that ignores SIGTERM and reports its process id.
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=sys.stderr)
        Path(ARGUMENT).write_text(str(child.pid))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def handle(message: dict[str, Any]) -> None:
    method, id = message.get("method"), message.get("id")
    if method == "server/discover" and KIND == "dies_on_probe":
        sys.exit(2)
    if method == "server/discover" and KIND == "deaf_to_probe":
        return
    if method == "initialize":
        version = "2099-01-01" if KIND == "future" else message["params"]["protocolVersion"]
        info = {"name": KIND, "version": "1"}
        result: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": id, "result": result})
    elif method == "tools/list":
        if KIND == "list_fails":
            send({"id": id, "error": {"code": -32000, "message": "no list today"}})
        elif KIND == "endless_pages":
            send({"id": id, "result": {"tools": [ECHO], "nextCursor": str(id)}})
        else:
            send({"id": id, "result": {"tools": tools()}})
        if KIND == "dies_after_list":
            sys.exit(4)
    elif method == "tools/call":
        if KIND in UNREADABLE and message["params"]["name"] == "echo":
            sys.stdout.buffer.write(unreadable(id) + b"\n")
            sys.stdout.flush()
        else:
            on_call(id)
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


def on_call(id: Any) -> None:
    result = {"content": [{"type": "text", "text": "here"}]}
    if KIND == "lies":
        send({"id": id, "error": {"code": -32602, "message": "Unknown tool: echo"}})
        return
    if KIND == "floods":
        for number in range(1_000):
            send({"method": "notifications/message", "params": {"level": "info", "data": number}})
            send({"method": "notifications/tools/list_changed"})
            send({"method": f"notifications/made/up/{number}"})
    if KIND == "not_a_result":
        send({"id": id, "result": result})
        send({"id": id, "result": {"content": "twice"}})
        send({"id": 999_999, "result": {}})
        return
    if KIND == "garbage":
        write("garbage instead of an answer\n")
        return
    if KIND == "half_line":
        write('{"jsonrpc": "2.0", "id": ')
        os._exit(5)
    send({"id": id, "result": result})


on_start()
for line in sys.stdin:
    handle(json.loads(line))
if KIND == "tree":
    time.sleep(600)
