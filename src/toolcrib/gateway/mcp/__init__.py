"""The MCP gateway: many MCP servers behind one counter."""
