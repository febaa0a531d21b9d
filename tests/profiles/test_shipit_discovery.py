from __future__ import annotations

import pytest

from toolcrib.core.tool import Tool
from toolcrib.profiles import shipit_discovery as discovery
from toolcrib.profiles.shipit_discovery import ShipitDiscovery

ISSUE = Tool(
    "create_issue",
    "File a bug report.",
    {
        "properties": {"title": {"type": "string"}, "labels": {}, "odd": True},
        "required": ["title"],
    },
    server="jira",
)
SHEET = Tool("read_sheet", "Read a spreadsheet.", server="google")
PULL = Tool("pull_request", "Open one.", server="github")
ALONE = Tool("bug_hunt", "Hunt.")
WAITING = (ISSUE, SHEET, PULL, ALONE)


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
def test_names_weigh_more_than_descriptions_and_servers(query: str, points: float) -> None:
    assert discovery.score_tool(query, ISSUE) == points


def test_the_best_come_first_and_equals_by_name() -> None:
    assert discovery.rank_tools("bug", WAITING) == [ALONE, ISSUE]
    assert discovery.rank_tools("sheet create", WAITING) == [ISSUE, SHEET]


def test_what_a_search_finds_may_be_called_and_is_told_with_its_arguments() -> None:
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


def test_a_miss_names_the_servers_and_five_examples() -> None:
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


def test_nothing_asked_and_nothing_waiting_are_said() -> None:
    assert ShipitDiscovery(WAITING).search("  ")[1].startswith("No query given.")
    assert ShipitDiscovery().search("x")[1].startswith("No additional tools")


def test_at_most_eight_are_found() -> None:
    many = tuple(Tool(f"report_{number:02}", "Print.") for number in range(20))
    assert len(ShipitDiscovery(many).search("report")[0].found) == 8


def test_the_smallest_servers_stay_within_the_budget() -> None:
    def tools(count: int) -> list[Tool]:
        return [Tool(f"t{number}") for number in range(count)]

    servers = {"big": tools(30), "b": tools(4), "a": tools(4), "small": tools(2), "mid": tools(7)}
    assert discovery.select_deferred_servers(servers) == {"big", "mid"}
    assert discovery.select_deferred_servers(servers, max_eager_tools=0) == servers.keys()
