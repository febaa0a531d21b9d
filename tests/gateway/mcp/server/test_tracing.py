"""Traces, in a process of its own: who collects them is decided once for a whole process."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.gateway.serving import environment, server_entry

SCRIPT = """
import json, sys
import anyio
from mcp import Client
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from toolcrib.config.parser import read
from toolcrib.gateway.mcp.gateway import running
from toolcrib.hub.startup import open_service

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)

async def main():
    service = open_service(read(json.loads(sys.argv[1]), {}))
    async with running(service, lambda ctx: None) as front:
        while not front.service.directory.entries:
            await anyio.sleep(0.05)
        async with Client(front.server) as client:
            await client.call_tool("plain___echo", {"text": "hello"})
            await client.call_tool("plain___fail", {})
    service.close()
    for span in kept.get_finished_spans():
        parent = span.parent and format(span.parent.span_id, "x")
        told = [span.name, span.kind.name, span.status.status_code.name, dict(span.attributes)]
        print(json.dumps([*told, format(span.context.span_id, "x"), parent]))

anyio.run(main)
"""


def test_every_request_is_a_span_and_so_is_its_way_to_the_server() -> None:
    config = {"mcpServers": {"plain": server_entry("echo", "fail")}, "store": "sqlite://"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(config)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    spans = [json.loads(line) for line in done.stdout.splitlines()]
    served = {name: rest for name, kind, *rest in spans if kind == "SERVER"}
    status, attributes, id, _ = served["tools/call plain___echo"]
    assert status == "UNSET"
    assert attributes["gen_ai.tool.name"] == "plain___echo"
    assert attributes["mcp.method.name"] == "tools/call"
    assert served["tools/call plain___fail"][0] == "ERROR"
    outward = [span for span in spans if span[1] == "CLIENT" and span[-1] == id]
    assert outward, "the call of the server hangs below the request it is made for"
