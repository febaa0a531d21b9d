from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.profiles import shipit_discovery
from toolcrib.profiles.shipit import find_free_name
from toolcrib.profiles.shipit_discovery import (
    MAX_RESTORED_SCHEMAS,
    DiscoveryPolicy,
    SchemaReuse,
    ShipitDiscovery,
    hide_denied,
    schema_fingerprint,
)

ISSUE = Tool(
    "create_issue",
    "File a bug report.",
    {"properties": {"title": {"type": "string"}, "labels": {}, "odd": True}, "required": ["title"]},
    server="jira",
)
SHEET = Tool("read_sheet", "Read a spreadsheet.", server="google")
PULL = Tool("pull_request", "Open one.", server="github")
ALONE = Tool("bug_hunt", "Hunt.")
WAITING = (ISSUE, SHEET, PULL, ALONE)


def _tools(count: int, words: int = 1) -> list[Tool]:
    return [Tool(f"t{number}", "word " * words) for number in range(count)]


def test_ten_small_tools_are_all_sent_and_one_more_is_too_many() -> None:
    policy = DiscoveryPolicy()
    assert policy.select_deferred(_tools(10), "t0") == frozenset()
    assert policy.select_deferred(_tools(11), "t0") == {"t10"}


def test_token_budget_holds_and_never_defers_the_search() -> None:
    deferred = DiscoveryPolicy().select_deferred(_tools(8, words=900), "t7")
    assert "t7" not in deferred and len(deferred) == 3


def test_priority_comes_before_recent_use_before_the_core_before_the_first() -> None:
    tools = [*_tools(3), Tool("bash"), Tool("recent"), Tool("vital")]
    remaining = {tool.name for tool in tools} - DiscoveryPolicy(initial_tools=4).select_deferred(
        tools, "none", priority={"vital": 1.0}, recent=["recent"]
    )
    assert remaining == {"vital", "recent", "bash"}


@pytest.mark.parametrize(
    "fields", [{"initial_tools": 1}, {"schema_tokens": 0}, {"reuse_tools": -1}, {"reuse_tools": True}]
)
def test_numbers_below_the_minimum_are_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="must be a whole number from"):
        DiscoveryPolicy(**fields)


def test_search_tool_name_avoids_collisions() -> None:
    assert find_free_name({"a"}) == "search_tools"
    assert find_free_name({"search_tools", "_search_tools"}) == "__search_tools"


def test_session_reuses_the_last_loaded_tools() -> None:
    reuse = SchemaReuse()
    tools = _tools(5)
    reuse.remember("mine", tools)
    assert reuse.reusable_names("mine", tools) == ["t2", "t3", "t4"]
    assert reuse.reusable_names("another", tools) == []
    changed = [*tools[:3], tools[3].replace(description="other")]
    assert reuse.reusable_names("mine", changed) == ["t2"]


def test_reuse_is_bounded_and_can_be_disabled() -> None:
    none, few = SchemaReuse(DiscoveryPolicy(reuse_tools=0)), SchemaReuse()
    none.remember("a", _tools(2))
    assert none.reusable_names("a", _tools(2)) == []
    for number in range(33):
        few.remember(str(number), _tools(1))
    assert few.reusable_names("0", _tools(1)) == []
    assert few.reusable_names("32", _tools(1)) == ["t0"]


def test_checkpoint_carries_names_and_fingerprints_to_another_process() -> None:
    before, after = SchemaReuse(), SchemaReuse()
    tools = _tools(5)
    before.remember("mine", tools)
    checkpoint = before.checkpoint("mine")
    assert checkpoint == {
        "version": 1,
        "session_id": "mine",
        "schemas": {tool.name: schema_fingerprint(tool) for tool in tools[2:]},
    }
    assert after.restore("mine", checkpoint)
    assert after.reusable_names("mine", tools) == ["t2", "t3", "t4"]
    assert before.checkpoint("unknown")["schemas"] == {}


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {"version": 2, "session_id": "mine", "schemas": {}},
        {"version": 1, "session_id": "another", "schemas": {}},
        {"version": 1, "session_id": "mine", "schemas": []},
    ],
)
def test_checkpoint_of_another_version_or_session_is_ignored(stored: object) -> None:
    reuse = SchemaReuse()
    reuse.remember("mine", _tools(1))
    assert not reuse.restore("mine", stored)
    assert reuse.reusable_names("mine", _tools(1)) == ["t0"]


def test_invalid_checkpoint_entries_are_ignored_and_bounded() -> None:
    tools = _tools(MAX_RESTORED_SCHEMAS + 6)
    prints: dict[Any, Any] = {tool.name: schema_fingerprint(tool) for tool in tools}
    odd = {"x" * 257: prints["t0"], 7: prints["t0"], "t1": "short", "t2": None}
    reuse = SchemaReuse(DiscoveryPolicy(reuse_tools=100))
    assert reuse.restore("s", {"version": 1, "session_id": "s", "schemas": {**odd, **prints}})
    assert reuse.reusable_names("s", tools) == [f"t{number}" for number in range(6, MAX_RESTORED_SCHEMAS + 6)]
    assert reuse.restore("s", {"version": 1, "session_id": "s", "schemas": odd})
    assert reuse.reusable_names("s", tools) == []
    few = SchemaReuse()
    assert few.restore("s", {"version": 1, "session_id": "s", "schemas": prints})
    assert few.reusable_names("s", tools) == ["t67", "t68", "t69"]


def test_fingerprint_does_not_depend_on_the_order_of_fields() -> None:
    item, two = {"type": "object", "title": "a"}, {"title": "a", "type": "object"}
    assert schema_fingerprint(Tool("t", "", item)) == schema_fingerprint(Tool("t", "", two))
    assert schema_fingerprint(Tool("t", "", item)) != schema_fingerprint(Tool("t", "other", item))


def test_denied_tools_are_not_searched() -> None:
    query_text = []

    def discoverable(name: str) -> bool:
        query_text.append(name)
        return not name.startswith("drop_")

    state: dict[str, Any] = {"available_tools": [{"name": "drop_table"}, {"name": "read"}, {}]}
    assert hide_denied(state, discoverable) == {"drop_table"}
    assert query_text == ["drop_table", "read", ""]
    assert state["available_tools"] == [{"name": "read"}, {}]
    assert state["discovery_hidden"] == {"drop_table"}
    assert hide_denied({}, discoverable) == frozenset()


async def _allow_later(name: str) -> bool:
    return True


def _fail(name: str) -> bool:
    raise KeyError(name)


@pytest.mark.parametrize("check", [_allow_later, _fail, lambda name: 1, lambda name: None])
def test_check_that_does_not_return_true_denies(check: Any) -> None:
    state: dict[str, Any] = {"available_tools": [{"name": "read"}]}
    assert hide_denied(state, check) == {"read"}
    assert state["available_tools"] == []


@pytest.mark.parametrize(
    ("query", "points"),
    [
        ("issue", 3 + 2),
        ("file a ticket", 2),
        ("jira", 0.5),
        ("create issue jira", 6.5),
        ("create_issue", 8),
        ("report.", 1 + 2),
        ("!?", 0),
    ],
)
def test_names_score_higher_than_descriptions_and_servers(query: str, points: float) -> None:
    assert shipit_discovery.score_tool(query, ISSUE) == points


def test_results_are_sorted_by_score_then_name() -> None:
    assert shipit_discovery.rank_tools("bug", WAITING) == [ALONE, ISSUE]
    assert shipit_discovery.rank_tools("sheet create", WAITING) == [ISSUE, SHEET]


def test_found_tools_are_callable_and_listed_with_arguments() -> None:
    run = ShipitDiscovery(WAITING)
    assert not run.is_available("create_issue")
    assert run.is_available("bash")
    later, answer = run.search(" create_issue ")
    assert later.found == ("create_issue",)
    assert later.is_available("create_issue")
    assert answer == (
        "Found 1 tool(s), now callable:\n\n### create_issue\nFile a bug report.\n"
        "Arguments: title: string, labels?: any, odd?: any"
    )
    again, answer = later.search("spreadsheet")
    assert again.found == ("create_issue", "read_sheet")
    assert answer.endswith("Arguments: none")
    assert again.search("sheet issue")[0].found == again.found


def test_no_match_names_the_servers_and_five_examples() -> None:
    many = (*WAITING, *(Tool(f"z{number}") for number in range(3)))
    run, answer = ShipitDiscovery(many).search("quantum knitting")
    assert run.found == ()
    assert answer == (
        "No tool matched 'quantum knitting' among 7 unloaded tools. "
        "Connected servers: github, google, jira. Examples of what is available: "
        "bug_hunt, create_issue, pull_request, read_sheet, z0. "
        "Try describing the task differently, or name a server."
    )
    assert "Connected servers" not in ShipitDiscovery((ALONE,)).search("x")[1]


def test_empty_query_and_empty_discovery_are_reported() -> None:
    assert ShipitDiscovery(WAITING).search("  ")[1].startswith("No query given.")
    assert ShipitDiscovery().search("x")[1].startswith("No additional tools")


def test_at_most_eight_are_found() -> None:
    many = tuple(Tool(f"report_{number:02}", "Print.") for number in range(20))
    assert len(ShipitDiscovery(many).search("report")[0].found) == 8


def test_smallest_servers_are_loaded_within_the_budget() -> None:
    def tools(count: int) -> list[Tool]:
        return [Tool(f"t{number}") for number in range(count)]

    servers = {"big": tools(30), "b": tools(4), "a": tools(4), "small": tools(2), "mid": tools(7)}
    assert shipit_discovery.select_deferred_servers(servers) == {"big", "mid"}
    assert shipit_discovery.select_deferred_servers(servers, max_eager_tools=0) == servers.keys()
