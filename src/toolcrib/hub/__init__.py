"""What the gateways serve from: the store, the tools of all servers, and the engine, kept in step."""
