"""The doors that are servers: one for MCP clients, one for clients of a model's API."""
