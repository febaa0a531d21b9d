"""The MCP gateway: many MCP servers behind one endpoint."""
