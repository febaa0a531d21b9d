"""Import servers from the configuration files of MCP clients, and add Toolcrib to those files."""
