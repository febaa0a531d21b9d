"""A server that is listed again: only what has changed is read and indexed again."""

from __future__ import annotations

from typing import Any

from toolcrib.config.settings import GatewayConfig, ServerConfig
from toolcrib.hub.hub import build_manifest
from toolcrib.hub.startup import open_hub

SERVER = ServerConfig("shop", command="shop")
SAID: dict[str, Any] = {"instructions": "", "protocol": "2025-11-25", "info": {}}


def definition(number: int, about: str = "Sell a thing.") -> dict[str, Any]:
    return {
        "name": f"sell_{number}",
        "description": about,
        "inputSchema": {"type": "object", "properties": {"thing": {"type": "string"}}},
    }


def test_tools_that_did_not_change_are_kept_as_they_are() -> None:
    service = open_hub(GatewayConfig(servers={"shop": SERVER}, store="sqlite://"))
    service.update_server(SERVER, build_manifest(SERVER, map(definition, range(5)), SAID))
    before = {tool.id: tool for tool in service.engine.catalog}

    again = [*map(definition, range(4)), definition(4, "Sell a thing again."), definition(5)]
    service.update_server(SERVER, build_manifest(SERVER, again, SAID))
    after = {tool.id: tool for tool in service.engine.catalog}
    service.close()

    assert [id for id in before if after.get(id) is before[id]] == [
        f"shop___sell_{number}" for number in range(4)
    ]
