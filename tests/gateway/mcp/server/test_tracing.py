"""OpenTelemetry spans, in a separate process because the tracer provider is global."""

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
from toolcrib.config.parser import parse_config
from toolcrib.gateway.mcp.gateway import run_gateway
from toolcrib.hub.startup import open_hub

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

async def main():
    hub = open_hub(parse_config(json.loads(sys.argv[1]), {}))
    async with run_gateway(hub, lambda ctx: None) as router:
        while not router.hub.directory.entries:
            await anyio.sleep(0.05)
        async with Client(router.server) as client:
            await client.call_tool("plain___echo", {"text": "hello"})
            await client.call_tool("plain___fail", {})
    hub.close()
    for span in exporter.get_finished_spans():
        parent = span.parent and format(span.parent.span_id, "x")
        fields = [span.name, span.kind.name, span.status.status_code.name, dict(span.attributes)]
        print(json.dumps([*fields, format(span.context.span_id, "x"), parent]))

anyio.run(main)
"""


def test_request_and_upstream_call_are_spans() -> None:
    config = {"mcpServers": {"plain": server_entry("echo", "fail")}, "store": "sqlite://"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(config)], env=environment(), capture_output=True, text=True
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
    assert outward, "the upstream call is a child of the request's span"
