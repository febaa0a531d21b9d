from __future__ import annotations

from toolcrib.config.settings import ServerConfig
from toolcrib.config.watch import ConfigDifference
from toolcrib.gateway.mcp.admin.reload import describe_change


def test_what_an_edit_did_is_told_in_words() -> None:
    assert describe_change(ConfigDifference(), ()) == "nothing changed"
    edited = ConfigDifference(
        added=(ServerConfig("a"),),
        changed=(ServerConfig("b"),),
        removed=("c",),
        sections=("tool_search", "http", "store", "auth", "embedding", "models"),
        is_reordered=True,
    )
    assert describe_change(edited, ["http", "store", "embedding"]) == (
        "added a; changed b; removed c; changed the order of the servers; changed tool_search; "
        "changed auth; put models back to what runs; start the gateway again for what changed in "
        "http, store, embedding"
    )
