"""An MCP server on standard input and output that serves the tools of a JSON file, for the console's tests.

A call returns its arguments as JSON. The tool `draw_chart` returns an image, `fail` an error, and `crash` ends the
server. The file is read at every start, so a test can change definitions by writing it and restarting the server.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any


def draw_png(width: int = 96, height: int = 48) -> str:
    """Return a small image as Base64."""
    lines = (b"".join(bytes((40 + 2 * x, 80 + 3 * y, 200)) for x in range(width)) for y in range(height))
    rows = b"".join(b"\0" + line for line in lines)

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "crash":
        print("giving up: the disk is full", file=sys.stderr, flush=True)
        sys.exit(3)
    if name == "fail":
        return {"content": [{"type": "text", "text": "the calendar is locked"}], "isError": True}
    if name == "draw_chart":
        caption = {"type": "text", "text": "The chart of this month:"}
        return {"content": [caption, {"type": "image", "data": draw_png(), "mimeType": "image/png"}]}
    text = json.dumps({"tool": name, "arguments": arguments})
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"ok": True, **arguments}}


def answer(request: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": spec.get("title", "catalog"), "version": "2.4.1"},
            "instructions": spec.get("instructions", ""),
        }
    if method == "tools/list":
        start = int(params.get("cursor") or 0)
        page = spec["tools"][start : start + 1000]
        more = {"nextCursor": str(start + 1000)} if start + 1000 < len(spec["tools"]) else {}
        return {"tools": page, **more}
    return call(params["name"], params.get("arguments") or {}) if method == "tools/call" else {}


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(f"serving {len(spec['tools'])} tools of {spec.get('title', 'catalog')}", file=sys.stderr, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
            if request["method"] == "server/discover":
                reply["error"] = {"code": -32601, "message": "Method not found"}
            else:
                reply["result"] = answer(request, spec)
            print(json.dumps(reply), flush=True)


main()
