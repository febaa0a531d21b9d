"""Run the demo server: `python -m toolcrib.demo`."""

import anyio

from toolcrib.demo.server import serve

anyio.run(serve)
