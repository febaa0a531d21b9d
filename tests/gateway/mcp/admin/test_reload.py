from __future__ import annotations

from toolcrib.config.settings import Server
from toolcrib.config.watch import Difference
from toolcrib.gateway.mcp.admin.reload import told


def test_what_an_edit_did_is_told_in_words() -> None:
    assert told(Difference(), ()) == "nothing changed"
    edited = Difference(
        added=(Server("a"),),
        changed=(Server("b"),),
        removed=("c",),
        rest=("tool_search", "http", "store", "auth", "embedding", "models"),
        order=True,
    )
    assert told(edited, ["http", "store", "embedding"]) == (
        "added a; changed b; removed c; changed the order of the servers; changed tool_search; "
        "changed auth; put models back to what runs; start the gateway again for what changed in "
        "http, store, embedding"
    )
