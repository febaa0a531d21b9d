"""Which tools a model sees from the start, and how it gets the others."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.gateway.llm.sdk_conversations import APIS, sdk_conversation
from tests.support.scripted_model.turn import Turn
from toolcrib.core.tool import Tool
from toolcrib.gateway.llm.tools.exposure import (
    Exposure,
    estimate_dispatch_cost,
    estimate_up_front_cost,
    find_cached_price,
    is_discovery_tool,
    is_small_model,
)

Json = dict[str, Any]


def sized_tools(count: int, tokens: int = 380) -> list[tuple[Tool, int]]:
    return [(Tool(f"errand_{number}"), tokens) for number in range(count)]


def named_tools(*names: str) -> list[tuple[Tool, int]]:
    return [(Tool(name), 380) for name in names] + sized_tools(100)


def deferred_names(exposure: Exposure, tools: list[tuple[Tool, int]]) -> set[str]:
    return {id for id in exposure.plan(tools).deferred_ids if not id.startswith("errand_")}


@pytest.mark.parametrize(
    ("exposure", "tools", "style", "reason"),
    [
        (Exposure(threshold_tools=31), sized_tools(30), "all", "30 tools are below the threshold"),
        (Exposure(threshold_tools=31), sized_tools(31, 50), "all", "cheaper than dispatch for 1,550 tokens"),
        (Exposure(threshold_tools=31), sized_tools(60), "dispatch", "cheaper than all tools for 22,800 tokens"),
        (Exposure(threshold_tools=99, threshold_tokens=9_000), sized_tools(30), "dispatch", "11,400 tokens"),
        (Exposure(), sized_tools(2, 50), "dispatch", "cheaper"),
        (Exposure(style="reveal"), sized_tools(2), "reveal", "as configured"),
        (Exposure(cached_price=1.0), sized_tools(60), "reveal", "cached tokens cost 1 of uncached ones"),
        (Exposure(model="qwen3-1.7b"), sized_tools(60), "reveal", "small"),
        (Exposure(always_expose=("errand_*",)), sized_tools(60), "all", "all tools are pinned"),
    ],
)
def test_style_is_chosen_by_size_price_and_model(
    exposure: Exposure, tools: list[tuple[Tool, int]], style: str, reason: str
) -> None:
    plan = exposure.plan(tools)
    assert plan.style == style and reason in plan.reason
    assert bool(plan.deferred_ids) == (style != "all")


def test_choice_is_the_cheaper_one_at_every_size() -> None:
    for price in (0.1, 0.25, 0.5):
        for count in (31, 60, 300, 1_000):
            for tokens in (20, 100, 380, 2_000):
                plan = Exposure(threshold_tools=31, cached_price=price).plan(sized_tools(count, tokens))
                is_cheaper = estimate_dispatch_cost(tokens, price) < estimate_up_front_cost(count * tokens, price)
                assert plan.style == ("dispatch" if is_cheaper else "all")


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("claude-sonnet-4", 0.1),
        ("gpt-5-mini", 0.1),
        ("openai/gpt-4.1", 0.25),
        ("gpt-4o-mini", 0.5),
        ("o3", 0.25),
        ("o3-mini", 0.5),
        ("some-model", 0.25),
    ],
)
def test_price_of_cached_tokens_is_known_by_model(model: str, price: float) -> None:
    assert find_cached_price(model) == price


def test_small_models_are_known_by_name() -> None:
    assert is_small_model("Qwen/Qwen3-1.7B") and is_small_model("llama3.2:3b")
    assert not is_small_model("qwen3-30b-a3b") and not is_small_model("gpt-4o") and not is_small_model("b52b")


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (("Bash", "Read", "Edit", "Write", "Glob", "Grep", "Task", "TodoWrite"), ("mcp__github__create_issue", "Cron")),
        (("shell", "update_plan", "apply_patch", "view_image"), ("mcp__github__create_issue",)),
        (("exec_command", "write_stdin", "view_image"), ("github__create_issue", "get_goal")),
        (("bash", "read", "edit", "write", "glob", "grep", "list", "webfetch", "todowrite"), ("github_create_issue",)),
    ],
)
def test_file_tools_of_known_clients_are_pinned(own: tuple[str, ...], others: tuple[str, ...]) -> None:
    assert deferred_names(Exposure(), named_tools(*own, *others)) == set(others)


def test_generic_name_is_not_pinned_for_other_clients() -> None:
    assert deferred_names(Exposure(), named_tools("read", "list")) == {"read", "list"}


def test_pins_may_have_wildcards_and_the_policy_of_a_tool_counts() -> None:
    tools = [*named_tools("fs_read", "fs_write", "mail_send"), (Tool("clock", policy="never"), 10)]
    assert deferred_names(Exposure(always_expose=("fs_*",)), tools) == {"mail_send"}


@pytest.mark.parametrize("api", APIS)
def test_choice_and_reason_are_in_the_headers(api: str) -> None:
    long = [(f"errand_{number}", "Run an errand. " * 100, properties("text")) for number in range(40)]
    with sdk_conversation(api, lambda request: Turn("Done."), long) as talk:
        talk.ask("Hi")
        assert talk.headers["x-toolcrib-style"] == "dispatch"
        assert talk.headers["x-toolcrib-style-reason"].startswith("cheaper than all tools for")
        talk.tools = [(name, "Run an errand.", schema) for name, _, schema in long]
        talk.ask("Hi again")
        assert talk.headers["x-toolcrib-treatment"] == "off"
        assert talk.headers["x-toolcrib-style"] == "all"
        assert talk.headers["x-toolcrib-style-reason"].startswith("cheaper than dispatch for")
        assert len(talk.requests[1].tool_names) == 40


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_defer_loading_is_stripped_from_pinned_tools(path: str) -> None:
    api = "messages" if path == "/v1/messages" else "chat"
    history = "input" if path == "/v1/responses" else "messages"
    for count in (2, 60):
        with sdk_conversation(api, lambda request: Turn("Done."), [], style="dispatch") as talk:
            tools = [render_entry(path, f"errand_{number}") for number in range(count)]
            tools.append({**render_entry(path, "bell"), "defer_loading": False})
            body = {"model": "m", "max_tokens": 9, history: [{"role": "user", "content": "Hi"}], "tools": tools}
            assert httpx2.post(f"{talk.url}{path}", json=body, timeout=30).status_code == 200
            assert "bell" in talk.requests[0].tool_names
            assert "defer_loading" not in json.dumps(talk.requests[0].body)


def render_entry(path: str, name: str) -> Json:
    if path == "/v1/messages":
        return {"name": name, "input_schema": properties("text")}
    function = {"name": name, "parameters": properties("text")}
    return {"type": "function", **(function if path == "/v1/responses" else {"function": function})}


def properties(*names: str) -> Json:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("search_tools", properties("query")),
        ("mcp__toolcrib__search_tools", properties("query", "limit")),
        ("mcp__toolcrib__call_tool", properties("name", "arguments")),
        ("mcp__toolcrib__describe_tool", properties("names")),
        ("ToolSearch", properties("query", "max_results")),
        ("tool_search", properties("keywords")),
        ("retrieve_tools", properties("query")),
        ("COMPOSIO_SEARCH_TOOLS", properties("queries", "session")),
        ("execute_dynamic_tool", properties("tool_name", "tool_input")),
        ("find_tool", {}),
        ("proxy", properties("tool_name", "arguments")),
    ],
)
def test_tools_that_find_or_call_others_are_never_deferred(name: str, schema: Json) -> None:
    assert is_discovery_tool(name, schema)
    plan = Exposure().plan([(Tool(name, input_schema=schema), 100), *sized_tools(100)])
    assert name not in plan.deferred_ids


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("search_issues", properties("query")),
        ("call_customer", properties("name", "arguments")),
        ("list_tools", properties("workshop", "shelf")),
        ("toolbox", properties("query")),
        ("run_query", properties("name", "params")),
    ],
)
def test_other_tools_are_not_taken_for_discovery_tools(name: str, schema: Json) -> None:
    assert not is_discovery_tool(name, schema)
