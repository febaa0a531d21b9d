from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles.dynamic_registry import Row, assert_same_groups, call_meta_tool, raise_error
from toolcrib.errors import InvalidConfig, InvalidQuery, InvalidTool, UnknownTool
from toolcrib.profiles import dynamic_registry
from toolcrib.profiles.dynamic_registry import DynamicToolRegistry, ToolRegistration, VersionedToolRegistry


def add(a: Any, b: Any) -> Any:
    return a + b


def workshop() -> VersionedToolRegistry:
    registry = VersionedToolRegistry("prefix", now=lambda: datetime(2026, 1, 2, tzinfo=UTC))
    registry.register(
        {"name": "saw_board", "description": "Cut a board", "input_schema": {"type": "object"}},
        lambda **effective: effective,
        "data",
        ["wood", "cutting edge"],
    )
    registry.register({"name": "cut_glass", "description": "Cut glass panes"}, add, "media")
    registry.register({"name": "weld", "description": None}, raise_error(ValueError("no gas")))
    return registry


def names(rows: list[Row]) -> list[str]:
    return [row["name"] for row in rows]


def test_whole_word_counts_one_and_a_longer_word_half() -> None:
    rows = workshop().search("cut")
    assert [(row["name"], row["relevance_score"]) for row in rows] == [("saw_board", 1.5), ("cut_glass", 1.5)]


def test_row_contains_what_a_call_needs() -> None:
    assert workshop().search("board") == [
        {
            "name": "saw_board",
            "description": "Cut a board",
            "category": "data",
            "tags": ["wood", "cutting edge"],
            "input_schema": {"type": "object"},
            "relevance_score": 1.0,
        }
    ]


def test_category_filters_and_unknown_category_is_an_error() -> None:
    registry = workshop()
    assert names(registry.search("cut", "media")) == ["cut_glass"]
    assert registry.search("cut", "communication") == []
    with pytest.raises(InvalidQuery, match="Unknown category: food"):
        registry.search("cut", "food")
    assert "Unknown category" in call_meta_tool(registry, "search_tools", query="x", category="food")["error"]


def test_blank_query_lists_the_tools() -> None:
    assert names(workshop().search(" ")) == ["saw_board", "cut_glass", "weld"]
    assert names(workshop().search("", "media")) == ["cut_glass"]


@pytest.mark.parametrize(("requested", "effective"), [(0, 1), (-1, 1), (2, 2), (20, 20), (100, 20)])
def test_max_results_is_clamped(requested: int, effective: int) -> None:
    registry = DynamicToolRegistry()
    for number in range(25):
        registry.register({"name": f"tool_{number}"}, add)
    assert len(registry.search("tool", max_results=requested)) == effective


def test_replaced_tool_drops_old_words_and_keeps_usage_and_version() -> None:
    registry = workshop()
    registry.register_versioned({"name": "saw_board", "description": "Saw"}, add, "3.1")
    registry.execute("saw_board", {"a": 1, "b": 2})
    registry.register({"name": "saw_board", "description": "Plane"}, add)
    assert names(registry.search("board wood")) == []
    assert names(registry.search("plane")) == ["saw_board"]
    assert registry.registry.usage("saw_board").successes == 1
    assert registry.tools["saw_board"].version == "3.1"


def test_unregistered_tool_is_gone() -> None:
    registry = workshop().unregister("saw_board")
    assert names(registry.search("cut")) == ["cut_glass"]
    assert registry.list_categories() == {"media": 1, "utility": 1}
    with pytest.raises(UnknownTool, match="Tool not found: saw_board"):
        registry.unregister("saw_board")


def test_version_note_is_displayed_but_not_searched() -> None:
    lines: list[str] = []
    registry = VersionedToolRegistry("prefix", log=lines.append)
    registry.register_versioned({"name": "glue", "description": "Join"}, add, "1.0")
    assert lines == []
    registry.register_versioned({"name": "glue", "description": "Join"}, add, "2.0-beta", ["1.0"], category="data")
    assert lines == ["Updating tool glue: v1.0 -> v2.0-beta"]
    note = "Join\n(Current version: 2.0-beta; deprecated: 1.0)"
    assert registry.tools["glue"].definition == {"name": "glue", "description": note}
    assert registry.search("join", "data")[0]["description"] == note
    assert registry.search("deprecated version") == []


def test_older_version_does_not_replace_a_newer_one() -> None:
    registry = VersionedToolRegistry(log=lambda line: None)
    for version in ("2.0", "1.0"):
        definition = {"name": "glue", "description": f"Join {version}"}
        registry.register_versioned(definition, lambda version=version: version, version)
    assert registry.execute("glue", {}) == "2.0"
    assert registry.execute("glue@1.0", {}) == "1.0"
    assert registry.search("join")[0]["description"] == "Join 2.0\n(Version: 2.0)"


def test_tools_are_a_mapping_of_registrations() -> None:
    registry = workshop()
    tools = registry.tools
    assert (list(tools), len(tools)) == (["saw_board", "cut_glass", "weld"], 3)
    registry.execute("cut_glass", {"a": 1, "b": 2})
    assert tools["cut_glass"] == ToolRegistration(
        {"name": "cut_glass", "description": "Cut glass panes"}, add, "media", [], 1, datetime(2026, 1, 2, tzinfo=UTC)
    )
    with pytest.raises(KeyError, match="drill"):
        tools["drill"]


def test_functions_of_the_inner_registry_are_tools_too() -> None:
    registry = DynamicToolRegistry()

    @registry.registry.tool
    def wind_yarn(length: int) -> int:
        """Wind yarn into a ball."""
        return length * 2

    registration = registry.tools["wind_yarn"]
    assert registration.func(length=4) == 8
    assert (registration.category, registration.definition["description"]) == ("utility", "Wind yarn into a ball.")
    assert names(registry.search("yarn")) == ["wind_yarn"]


def test_unknown_tool_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="Tool not found: drill"):
        workshop().execute("drill", {})


def test_search_finds_by_meaning() -> None:
    registry = DynamicToolRegistry()
    registry.register({"name": "send_letter", "description": "Mail a letter on paper"}, add, "communication")
    registry.register({"name": "send_sms", "description": "Send an SMS to a phone"}, add, "communication")
    registry.register({"name": "query_mysql", "description": "Run SQL on a database"}, add, "data")
    assert names(registry.search("reach somebody on their handset"))[0] == "send_sms"
    assert call_meta_tool(registry, "search_tools", query="book a flight")["message"] == dynamic_registry.WEAK_MATCH
    assert (
        call_meta_tool(registry, "search_tools", query="reach somebody on their handset", category="data")["found"] == 0
    )
    assert DynamicToolRegistry("prefix").register({"name": "send_sms"}, add).search("handset") == []
    with pytest.raises(InvalidConfig, match="unknown mode 'words'; use one of prefix"):
        DynamicToolRegistry("words")


def test_registry_is_safe_under_threads() -> None:
    registry = DynamicToolRegistry()

    def work(number: int) -> list[str]:
        name = f"tool_{number}"
        found = []
        for _ in range(10):
            registry.register({"name": name, "description": f"Number {number} of the set"}, lambda: number)
            found += names(registry.search(name))[:1]
            assert registry.execute(name, {}) == number
            registry.unregister(name)
        return found

    with ThreadPoolExecutor(8) as pool:
        for number, found in enumerate(pool.map(work, range(8))):
            assert found == [f"tool_{number}"] * 10
    assert len(registry.tools) == 0


def test_invalid_input_is_not_run() -> None:
    schema = {"type": "object", "required": ["a", "b"]}
    registry = DynamicToolRegistry().register({"name": "add", "input_schema": schema}, add)
    failed = call_meta_tool(registry, "execute_dynamic_tool", tool_name="add", tool_input={"a": 1})
    assert failed["tool_name"] == "add"
    assert failed["error"].startswith("Execution failed: the arguments do not fit add: ")
    assert "b" in failed["error"]


def test_tool_that_calls_exit_has_failed() -> None:
    registry = DynamicToolRegistry().register({"name": "quit"}, raise_error(SystemExit(3)))
    failed = call_meta_tool(registry, "execute_dynamic_tool", tool_name="quit", tool_input={})
    assert "SystemExit: 3" in failed["error"]


def test_usage_counts_successes_and_failures() -> None:
    registry = workshop()
    call_meta_tool(registry, "execute_dynamic_tool", tool_name="cut_glass", tool_input={"a": 1, "b": 2})
    call_meta_tool(registry, "execute_dynamic_tool", tool_name="weld", tool_input={})
    used = registry.registry.usage("weld")
    assert (used.failures, used.last_used) == (1, datetime(2026, 1, 2, tzinfo=UTC))
    assert registry.get_popular_tools(2) == [
        {"name": "cut_glass", "usage_count": 1, "category": "media"},
        {"name": "saw_board", "usage_count": 0, "category": "data"},
    ]
    assert registry.get_popular_tools(-1) == []


def test_tool_exception_is_not_reported_as_unknown_name() -> None:
    assert call_meta_tool(workshop(), "execute_dynamic_tool", tool_name="weld", tool_input={}) == {
        "error": "Execution failed: no gas",
        "tool_name": "weld",
    }
    assert call_meta_tool(workshop(), "execute_dynamic_tool", tool_name="drill", tool_input={}) == {
        "error": "Tool not found: drill",
        "suggestion": dynamic_registry.VERIFY_NAME,
    }


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("search_tools", {}, "query"),
        ("search_tools", {"query": 7}, "query"),
        ("search_tools", {"query": "cut", "max_results": "5"}, "max_results"),
        ("search_tools", {"query": "cut", "max_results": True}, "max_results"),
        ("search_tools", {"query": "cut", "category": ["data"]}, "category"),
        ("execute_dynamic_tool", {"tool_input": {}}, "tool_name"),
        ("execute_dynamic_tool", {"tool_name": "weld"}, "tool_input"),
        ("execute_dynamic_tool", {"tool_name": "weld", "tool_input": []}, "tool_input"),
    ],
)
def test_missing_or_invalid_field_is_named(tool: str, arguments: dict[str, Any], field: str) -> None:
    assert f"The field {field} " in call_meta_tool(workshop(), tool, **arguments)["error"]


def test_answers_keep_unicode() -> None:
    registry = DynamicToolRegistry().register({"name": "größe"}, lambda: {"cm": "zwölf"})
    assert "größe" in registry.call("search_tools", {"query": "größe"})
    assert "zwölf" in registry.call("execute_dynamic_tool", {"tool_name": "größe", "tool_input": {}})


def test_non_json_result_is_answered_with_json() -> None:
    registry = DynamicToolRegistry().register({"name": "now"}, lambda: datetime(2026, 1, 2))
    assert call_meta_tool(registry, "execute_dynamic_tool", tool_name="now", tool_input={}) == ("2026-01-02 00:00:00")
    registry.register({"name": "now"}, lambda: float("nan"))
    failed = call_meta_tool(registry, "execute_dynamic_tool", tool_name="now", tool_input={})
    assert failed["error"].startswith("Execution failed: ")


def test_search_through_the_meta_tool_counts_what_it_found() -> None:
    assert call_meta_tool(workshop(), "search_tools", query="cut", max_results=1)["found"] == 1
    assert call_meta_tool(workshop(), "search_tools", query="paint") == {
        "found": 0,
        "message": "No tools found matching 'paint'",
        "suggestion": dynamic_registry.TRY_OTHER_WORDS,
    }
    assert call_meta_tool(workshop(), "drop_tools") == {"error": "Unknown meta-tool: drop_tools"}


def test_tool_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidTool):
        DynamicToolRegistry().register({"description": "x"}, add)


def test_last_used_comes_from_the_given_clock() -> None:
    registry = DynamicToolRegistry().register({"name": "wait"}, lambda: None)
    registry.execute("wait", {})
    last = registry.registry.usage("wait").last_used
    assert last is not None and last.tzinfo is UTC


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
inputs = values | st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=4), values)


@given(
    name=st.sampled_from(["search_tools", "execute_dynamic_tool", "other"]),
    arguments=st.dictionaries(
        st.sampled_from(["query", "category", "max_results", "tool_name", "tool_input"]),
        inputs | st.sampled_from(["cut", "data", "saw_board", "weld"]),
    ),
)
def test_every_call_is_answered_with_the_same_json(name: str, arguments: dict[str, Any]) -> None:
    first = workshop().call(name, arguments)
    assert isinstance(json.loads(first), dict)
    assert workshop().call(name, arguments) == first


@given(
    definitions=st.lists(st.tuples(st.sampled_from("abc"), st.text("xyz ", max_size=6)), max_size=8),
    query=st.text("abcxyz ", max_size=5),
)
def test_search_finds_the_last_registration(definitions: list[tuple[str, str]], query: str) -> None:
    step_by_step, at_once = DynamicToolRegistry("prefix"), DynamicToolRegistry("prefix")
    for name, description in definitions:
        step_by_step.register({"name": name, "description": description}, add)
    for name, description in dict(definitions).items():
        at_once.register({"name": name, "description": description}, add)
    assert_same_groups(step_by_step.search(query), at_once.search(query))


@pytest.mark.parametrize("arguments", [[], None, "x"])
def test_non_object_arguments_are_answered(arguments: Any) -> None:
    answer = json.loads(DynamicToolRegistry().call("search_tools", arguments))
    assert answer["error"].startswith("arguments must be an object")


def test_agent_creates_the_official_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    assert isinstance(dynamic_registry.DynamicToolAgent(DynamicToolRegistry()), dynamic_registry.DynamicToolAgent)
