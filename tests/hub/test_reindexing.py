"""Relisting a server indexes only the tools that changed."""

from __future__ import annotations

from typing import Any

from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.hub.hub import build_manifest
from toolcrib.hub.startup import open_hub

SERVER = ServerConfig("shop", command="shop")
DETAILS: dict[str, Any] = {"instructions": "", "protocol": "2025-11-25", "info": {}}


def build_definition(number: int, description: str = "Sell a thing.") -> dict[str, Any]:
    return {
        "name": f"sell_{number}",
        "description": description,
        "inputSchema": {"type": "object", "properties": {"thing": {"type": "string"}}},
    }


def test_unchanged_tools_are_not_indexed_again() -> None:
    hub = open_hub(GatewayConfig(servers={"shop": SERVER}, store="sqlite://"))
    hub.update_server(SERVER, build_manifest(SERVER, map(build_definition, range(5)), DETAILS))
    before = {tool.id: tool for tool in hub.engine.catalog}

    relisted = [*map(build_definition, range(4)), build_definition(4, "Sell a thing again."), build_definition(5)]
    hub.update_server(SERVER, build_manifest(SERVER, relisted, DETAILS))
    after = {tool.id: tool for tool in hub.engine.catalog}
    hub.close()

    assert [id for id in before if after.get(id) is before[id]] == [f"shop___sell_{number}" for number in range(4)]
