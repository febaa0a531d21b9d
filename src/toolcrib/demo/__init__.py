"""A small MCP server to try the gateway with: read-only tools that work offline."""
