"""The configuration of the gateways: one JSON file, parsed into one frozen `GatewayConfig`."""
