"""Overrides change tools before they are indexed; pins stay on the definitions of the servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from toolcrib.cli.gateway.lint import lint_tools
from toolcrib.config.parser import parse_config
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig
from toolcrib.hub.directory import DirectoryEntry
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.search.engine import RANKERS
from toolcrib.search.filters import Where
from toolcrib.storage import open_store

CREATE = {
    "name": "iss_c",
    "description": "POST /issues",
    "inputSchema": {
        "type": "object",
        "properties": {
            "owner": {"type": "string"},
            "title": {"type": "string"},
            "debug": {"type": "boolean"},
            "count": {"type": "integer"},
        },
        "required": ["owner", "title"],
    },
    "annotations": {"openWorldHint": True},
}
LIST = {"name": "iss_l", "description": "GET /issues", "inputSchema": {"type": "object"}}


def build_hub(**overrides: Any) -> Hub:
    document = {"mcpServers": {"gh": {"command": "x"}}, "overrides": overrides, "store": "sqlite://"}
    config: GatewayConfig = parse_config(document, {"OWNER": "acme"})
    hub = Hub(config, open_store("sqlite://"), {name: RANKERS[name] for name in ("lexical",)})
    hub.update_server(config.servers["gh"], build_manifest(config.servers["gh"], [CREATE, LIST], {}))
    return hub


def get_entry(hub: Hub, name: str) -> DirectoryEntry:
    return hub.directory.entries[name]


def search(hub: Hub, query: str, where: Where = Where()) -> list[str]:
    return [hit.tool.id for hit in hub.get_view().search(query, 5, where)]


def test_override_changes_texts_name_parameters_and_annotations() -> None:
    hub = build_hub(
        gh___iss_c={
            "name": "create_issue",
            "title": "Open a ticket",
            "description": "Create an issue in a repository.",
            "hint": "bug report",
            "tags": ["tracker"],
            "hiddenParameters": ["debug"],
            "fixedParameters": {"owner": "${OWNER}", "count": 3},
            "annotations": {"destructiveHint": False},
        }
    )
    entry = get_entry(hub, "gh___create_issue")
    assert entry.remote_name == "iss_c"
    assert entry.wire_definition == {
        "name": "gh___create_issue",
        "title": "Open a ticket",
        "description": "Create an issue in a repository.",
        "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
        "annotations": {"openWorldHint": True, "destructiveHint": False},
    }
    assert search(hub, "bug report") == ["gh___create_issue"]
    assert search(hub, "ticket", Where(tags=("tracker",))) == ["gh___create_issue"]
    sent = entry.prepare_arguments({"title": "x", "owner": "evil", "debug": True})
    assert sent == {"title": "x", "owner": "acme", "count": 3}
    # The pin is of the server's definition.
    assert hub.store.get_pins("gh")["iss_c"].definition == CREATE
    assert entry.original == CREATE


def test_patterns_apply_in_order_and_the_exact_name_last() -> None:
    hub = build_hub(
        gh___iss_l={"description": "List issues."},
        **{"gh___*": {"description": "Something of GitHub.", "tags": ["github"]}, "*": {"hint": "code"}},
    )
    listing = get_entry(hub, "gh___iss_l").tool
    assert (listing.description, listing.tags, listing.hint) == ("List issues.", ("github",), "code")
    assert get_entry(hub, "gh___iss_c").tool.description == "Something of GitHub."


def test_unfitting_override_is_reported_and_the_tool_stays() -> None:
    hub = build_hub(gh___iss_c={"hiddenParameters": ["title", "nothing"], "fixedParameters": {"count": "many"}})
    (tools,) = hub.directory.servers
    text = "\n".join(tools.override_problems)
    assert "hides the required parameter 'title'" in text
    assert "names a parameter 'nothing'" in text
    assert "fixes 'count' to an invalid value" in text
    assert "gh___iss_c" in hub.directory.entries
    assert hub.get_view().unusable_servers == {}


def test_override_that_matches_no_tool_is_reported() -> None:
    hub = build_hub(gh___iss_c={"name": "create"}, gh___isl={"hint": "x"}, **{"gh___x*": {"hint": "x"}})
    (tools,) = hub.directory.servers
    assert tools.override_problems == ("the override of gh___isl matches no tool",)


def test_changed_overrides_take_effect_with_a_reload() -> None:
    hub = build_hub()
    assert search(hub, "report a defect") == []
    document = {"mcpServers": {"gh": {"command": "x"}}, "overrides": {"gh___iss_c": {"hint": "report a defect"}}}
    hub.reconfigure(replace(parse_config(document, {}), store="sqlite://"))
    assert search(hub, "report a defect") == ["gh___iss_c"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"gh___*": {"name": "x"}}, "rename each by its own name"),
        ({"gh___x": {"descripton": "x"}}, 'did you mean "description"'),
        ({"gh___x": {"fixedParameters": []}}, "must be an object"),
        ({"gh___x": {"description": "An \ud83d"}}, "overrides.gh___x: has half of a surrogate pair"),
    ],
)
def test_invalid_override_is_refused_with_the_fix(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_config({"mcpServers": {}, "overrides": overrides}, {})


def test_lint_names_tools_without_texts_twins_and_tools_that_others_hide() -> None:
    config = parse_config({"mcpServers": {"s": {"command": "x"}}}, {})
    hub = Hub(config, open_store("sqlite://"), {"lexical": RANKERS["lexical"]})
    schema = {"type": "object"}
    tools = [
        {"name": "bare", "inputSchema": schema},
        {"name": "brief", "description": "Translates.", "inputSchema": schema},
        {"name": "first", "description": "Send a message to a person.", "inputSchema": schema},
        {"name": "second", "description": "Send a message to a person!", "inputSchema": schema},
        {"name": "long", "description": "Plan a holiday trip. " + "more words here " * 200, "inputSchema": schema},
        {"name": "weather_now", "description": "Report the current weather of a city.", "inputSchema": schema},
    ]
    hub.update_server(config.servers["s"], build_manifest(config.servers["s"], tools, {}))
    findings = {(one.tool, one.problem): one for one in lint_tools(hub.engine, [e.tool for e in hub.directory])}
    assert ("s___bare", "no description") in findings
    assert findings["s___brief", "short description"].message.startswith("its description has 1 word;")
    assert findings["s___first", "twin"].query == "Send a message to a person."
    assert set(findings["s___second", "twin"].hits) == {"s___first", "s___second"}
    assert "only the first 40 count" in findings["s___long", "long description"].message
    assert not any(tool == "s___weather_now" for tool, _ in findings)
