"""Run it: `python -m toolcrib.gateways.mcp.demo`."""

import anyio

from toolcrib.demo.server import serve

anyio.run(serve)
