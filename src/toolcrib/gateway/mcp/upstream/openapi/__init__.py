"""HTTP APIs as servers: the operations of an OpenAPI document become tools."""
