"""The description of a configuration change."""

from __future__ import annotations

from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.watch import ConfigDifference
from toolcrib.gateway.mcp.gateway import describe_change


def test_change_is_described_by_servers_and_sections() -> None:
    assert describe_change(ConfigDifference(), ()) == "nothing changed"
    edited = ConfigDifference(
        added=(ServerConfig("a"),),
        changed=(ServerConfig("b"),),
        removed=("c",),
        sections=("tool_search", "http", "store", "auth", "embedding", "llm_gateway", "code_mode"),
        is_reordered=True,
    )
    assert describe_change(edited, ["http", "store"]) == (
        "added a; changed b; removed c; changed the order of the servers; changed toolSearch; "
        "changed auth; reverted embedding to the running settings; changed models; changed codeMode; "
        "restart the gateway to apply the changes of http, store"
    )
