"""A FastMCP server with tool search.

Run it with `pip install 'toolcrib[fastmcp]'`:

    python examples/with_fastmcp.py
"""

from __future__ import annotations

from fastmcp import FastMCP

from toolcrib.demo import office
from toolcrib.frameworks.fastmcp import ToolcribSearchTransform


def server() -> FastMCP:
    """Return the server, with `ToolcribSearchTransform` in place of `BM25SearchTransform`."""
    office_server = FastMCP("office")
    for function in office.tools():
        office_server.tool(function)
    office_server.add_transform(ToolcribSearchTransform(always_visible=["send_email"]))
    return office_server


def main() -> None:
    """Serve over standard input and output."""
    server().run()


if __name__ == "__main__":
    main()
