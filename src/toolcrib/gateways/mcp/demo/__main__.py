"""Run it: `python -m toolcrib.gateways.mcp.demo`."""

import anyio

from toolcrib.gateways.mcp.demo.server import serve

anyio.run(serve)
