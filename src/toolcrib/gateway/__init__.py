"""HTTP servers: the MCP gateway, the LLM gateway, and the admin API."""
