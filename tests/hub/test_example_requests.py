"""Example requests of the store are set on the tools of the hub, also while it runs."""

from __future__ import annotations

from toolcrib.config.parser import parse_config
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.search.engine import RANKERS
from toolcrib.search.filters import Where
from toolcrib.storage import open_store
from toolcrib.storage.definitions import StoredRequests

CREATE = {"name": "iss_c", "description": "POST /issues", "inputSchema": {"type": "object"}}
LIST = {"name": "iss_l", "description": "GET /issues", "inputSchema": {"type": "object"}}


def _build_hub() -> Hub:
    config = parse_config({"mcpServers": {"gh": {"command": "x"}}, "store": "sqlite://"}, {})
    hub = Hub(config, open_store("sqlite://"), {"lexical": RANKERS["lexical"]})
    hub.update_server(config.servers["gh"], build_manifest(config.servers["gh"], [CREATE, LIST], {}))
    return hub


def _search(hub: Hub) -> list[str]:
    return [hit.tool.id for hit in hub.get_view().search("broken login", 5, Where())]


def test_running_hub_uses_new_requests_in_place_of_earlier_ones() -> None:
    hub = _build_hub()
    entry = hub.directory.entries["gh___iss_c"]
    fingerprint = entry.tool.definition_fingerprint
    assert _search(hub) == []
    hub.store.put_example_requests([StoredRequests(fingerprint, entry.name, ("the login is broken",), "m", 1.0)])
    assert hub.refresh()
    assert _search(hub) == ["gh___iss_c"]
    assert hub.directory.entries["gh___iss_c"].wire_definition == entry.wire_definition
    hub.store.put_example_requests([StoredRequests(fingerprint, entry.name, (), "m", 2.0)])
    assert hub.refresh()
    assert _search(hub) == []
    assert not hub.refresh()


def test_requests_survive_a_new_list_and_end_with_the_definition() -> None:
    hub = _build_hub()
    server = hub.config.servers["gh"]
    entry = hub.directory.entries["gh___iss_c"]
    stored = StoredRequests(entry.tool.definition_fingerprint, entry.name, ("the login is broken",), "m", 1.0)
    hub.store.put_example_requests([stored])
    hub.refresh()
    hub.update_server(server, build_manifest(server, [CREATE, LIST, {**LIST, "name": "iss_x"}], {}))
    assert _search(hub) == ["gh___iss_c"]
    hub.store.approve("gh")
    changed = {**CREATE, "description": "POST /tickets"}
    hub.update_server(server, build_manifest(server, [changed, LIST], {}))
    hub.store.approve("gh")
    hub.refresh()
    assert _search(hub) == []
