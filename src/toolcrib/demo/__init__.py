"""A small MCP server to try the gateway on: tools that work offline and harm nothing."""
